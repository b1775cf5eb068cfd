"""ScriptedModel: a language model that says what a test has written for it.

model = ScriptedModel({"expand": "1. a\n2. b", "generate": ["first", "second"]})
with Runtime({"llm": model}) as runtime:
    ...
assert "Question: why?" in model.calls[0].prompt

It is what a runtime makes engines of, so all its instances say the same script and note their
calls in one place. It needs no server and no model, and takes no time.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias

from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    SequenceHandle,
    TextPart,
    Usage,
)
from teola.errors import EngineError, InputError
from teola.graph import DecodeParams
from teola.graph.ops import DECODES, PREFILLS

SHOWN: Final = 120
"""Characters of a prompt's end that an error repeats."""
_PIECES: Final = re.compile(r"\S*\s*")


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call that was made. app, component: whose it is. prompt: all its text. parts: the same,
    with roles. decode: what was asked for. answer: what it was given; None if it was let fail."""

    app: str
    component: str
    prompt: str
    parts: tuple[TextPart, ...]
    decode: DecodeParams
    answer: str | None = field(default=None, compare=False)


Said: TypeAlias = "str | Exception | Mapping[str, Any]"
"""A text; an error that is raised instead; or a mapping, which is said as JSON."""
OneAnswer: TypeAlias = "Said | Callable[[ScriptedCall], Said]"
"""What is said, or a function of the call that returns it."""
Answer: TypeAlias = "OneAnswer | Sequence[OneAnswer]"
"""One answer for every call, or a list, one for each call in turn."""


class ScriptedModel:
    """What a runtime's `llm` may be: Runtime({"llm": ScriptedModel(...)}).

    answers: by the name of the component that asks, what it is told: a text, an Exception (raised
    in place of a text), a mapping (said as JSON), a function of the ScriptedCall that returns one
    of these, or a list of them, one for each call in turn. A function in the place of the mapping
    answers all components. A call without an answer fails with an EngineError that says who asked.
    calls: all that were made, in the order in which they began.

    Texts are streamed word by word, a word counting as a token, and cut at `max_tokens` like those
    of any model. An EngineError with `retryable=True` is followed by another try, so in a list the
    next answer is for that.

    Raises InputError for answers of another type.
    """

    def __init__(self, answers: Mapping[str, Answer] | Callable[[ScriptedCall], Said]) -> None:
        if isinstance(answers, Mapping):
            for component, answer in answers.items():
                _check(component, answer)
        elif not callable(answers):
            raise InputError(
                f"ScriptedModel takes answers by component, or a function, not {answers!r}"
            )
        self._answers = answers
        self.calls: list[ScriptedCall] = []
        self._asked: defaultdict[str, int] = defaultdict(int)
        self._lock = Lock()  # instances of two runtimes run on two loops

    def __call__(self, name: str = "llm") -> ScriptedEngine:
        """An instance of the engine called `name`; for runtimes."""
        return ScriptedEngine(name, self)

    def of(self, component: str) -> list[ScriptedCall]:
        """The calls of one component."""
        return [call for call in self.calls if call.component == component]

    def answer(self, call: Call) -> str:
        """The text for a call, which is noted. Raises what the script says, and EngineError."""
        app, component = call.category
        parts = call.all_parts
        prompt = "".join(part.text for part in parts)
        made = ScriptedCall(app, component, prompt, parts, call.decode)
        with self._lock:
            at = len(self.calls)
            self.calls.append(made)
            turn = self._asked[component]
            self._asked[component] += 1
        said = self._said(made, turn)
        if isinstance(said, Exception):
            raise said
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        answered = ScriptedCall(app, component, prompt, parts, call.decode, text)
        self.calls[at] = answered
        return text

    def _said(self, call: ScriptedCall, turn: int) -> Said:
        said: Any = self._answers
        if isinstance(said, Mapping):
            if call.component not in said:
                listed = ", ".join(map(repr, said)) or "none"
                raise self._unanswered(call, f"it has answers for {listed}")
            said = said[call.component]
        if isinstance(said, Sequence) and not isinstance(said, str):
            if turn >= len(said):
                raise self._unanswered(call, f"its {len(said)} answers are used up")
            said = said[turn]
        if callable(said):
            said = said(call)
            if not isinstance(said, (str, Exception, Mapping)):
                raise self._unanswered(call, f"its function returned {said!r}")
        answer: Said = said
        return answer

    def _unanswered(self, call: ScriptedCall, why: str) -> EngineError:
        end = call.prompt[-SHOWN:]
        return EngineError(
            f"ScriptedModel has no answer for component {call.component!r} of {call.app!r}: {why}; "
            f"the prompt ends with {end!r}"
        )


class ScriptedEngine:
    """One instance of a ScriptedModel. running: calls in progress now."""

    def __init__(self, name: str, script: ScriptedModel) -> None:
        self.spec = EngineSpec(
            name,
            EngineKind.LLM,
            PREFILLS | DECODES,
            max_batch=65_536,
            max_sequences=256,
            description="says what a test has written",
        )
        self._script = script
        self.running = 0

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    def count_tokens(self, text: str) -> int:
        """Its words, and one for an empty text."""
        return len(text.split()) or 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """Only remembers the parts."""
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """The scripted text, word by word. Raises what the script says, and EngineError."""
        self.running += 1
        try:
            text = self._script.answer(call)
            words = [piece for piece in _PIECES.findall(text) if piece]
            cut = words[: call.decode.max_tokens]
            prompt = sum(self.count_tokens(part.text) for part in call.all_parts)
            for word in cut:
                await asyncio.sleep(0)
                yield Delta(word)
            reason = "length" if len(cut) < len(words) else "stop"
            yield Delta("", reason, Usage(prompt, len(cut)))
        finally:
            self.running -= 1


def _check(component: str, answer: Any) -> None:
    several = isinstance(answer, Sequence) and not isinstance(answer, str)
    for said in answer if several else [answer]:
        if not isinstance(said, (str, Exception, Mapping)) and not callable(said):
            raise InputError(
                f"ScriptedModel: the answer of {component!r} must be a text, an Exception, a "
                f"mapping, a function, or a list of these, not {said!r}"
            )
