"""ForeignModel: an LLM engine around a language model of another framework.

The model streams; closing the stream is how a call is cancelled. It keeps nothing between two
calls, so prefilling gains nothing. Stops and the limit of the answer hold here, whatever the model
makes of them: the stream is closed where the answer ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from contextvars import copy_context
from typing import Any, Final, Literal, NamedTuple, Protocol, TypedDict, TypeVar

from teola.adapters import foreign
from teola.engine import Call, Delta, EngineKind, EngineSpec, SequenceHandle, TextPart, Usage
from teola.errors import InputError, OutputError, UnknownName
from teola.graph.ops import DECODES, PREFILLS, DecodeParams
from teola.graph.prompt import Role
from teola.runtime.engines import EngineConfig
from teola.stops import Stops
from teola.threads import Threads

T = TypeVar("T")

MAX_BATCH: Final = 65_536
MAX_SEQUENCES: Final = 16
CHARACTERS: Final = 4
"""Characters of a token, where the limit of an answer is held here."""
PASSED: Final = ("max_tokens", "temperature", "seed")
"""Parameters of a call that a model may be told."""
_CUT: Final = frozenset({"length", "max_tokens"})
"""How models say that an answer had all the tokens that it may have."""


class ModelOptions(TypedDict, total=False):
    """What may be said of a language model; see ForeignModel."""

    max_batch: int
    max_sequences: int
    window: int | None
    passes: Mapping[str, str] | None


class PromptMessage(NamedTuple):
    """A message of a prompt."""

    role: Literal["system", "user"]
    text: str


class Piece(NamedTuple):
    """A piece of an answer. usage: what it adds to the counts. finish_reason: in the model's own
    words."""

    text: str
    usage: Usage | None = None
    finish_reason: str | None = None


class TextSource(Protocol):
    """A language model of another framework.

    label: its kind and name, for messages. model: its name, where it is known.
    """

    @property
    def label(self) -> str: ...

    @property
    def model(self) -> str | None: ...

    def stream(
        self, turns: Sequence[PromptMessage], stop: Sequence[str], options: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        """The answer. stop: texts before which it ends, for models that take some. options: by the
        model's own names. Raises anything."""
        ...

    def close(self) -> None:
        """End threads of its own."""
        ...


class ForeignModel:
    """`LanguageModel` of a `TextSource`.

    max_batch: prompt tokens in flight. max_sequences: calls that run side by side. window: tokens
    of a prompt and its answer together. passes: what the model is told of a call, parameter of ours
    -> the model's own name for it; without `max_tokens` among them, an answer ends here, at four
    characters a token. Raises UnknownName, InputError.
    """

    def __init__(
        self,
        name: str = "llm",
        *,
        source: TextSource,
        max_batch: int = MAX_BATCH,
        max_sequences: int = MAX_SEQUENCES,
        window: int | None = None,
        passes: Mapping[str, str] | None = None,
    ) -> None:
        for parameter in passes or ():
            if parameter not in PASSED:
                raise UnknownName("parameter", parameter, PASSED, f"engine {name!r}, passes")
        for option, value in {"max_batch": max_batch, "max_sequences": max_sequences}.items():
            if value < 1:
                raise InputError(f"engine {name!r}: {option} must be at least 1, got {value}")
        self._source, self._passes = source, dict(passes or {})
        self.spec = EngineSpec(
            name=name,
            kind=EngineKind.LLM,
            ops=PREFILLS | DECODES,
            max_batch=max_batch,
            max_sequences=max_sequences,
            window=window,
            description=source.label,
        )

    @property
    def model(self) -> str | None:
        """The model's name, where it is known."""
        return self._source.model

    async def start(self) -> None:
        """Nothing to load: the model is there."""

    async def close(self) -> None:
        """End threads; the model stays whole, since others may use it."""
        self._source.close()

    def count_tokens(self, text: str) -> int:
        """An estimate."""
        return foreign.count_tokens(text)

    async def prefill(self, call: Call) -> SequenceHandle:
        """Only remembers the parts."""
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer. Closing the generator closes the model's stream. Raises EngineError,
        of which OutputError is for an answer that is no text."""
        answer = _Answer(call.decode, limited="max_tokens" not in self._passes)
        stream = self._source.stream(turns(call.all_parts), call.decode.stop, self._told(call))
        with foreign.as_engine_errors(self._source.label):
            async with aclosing(stream):
                async for piece in stream:
                    if text := answer.feed(piece):
                        yield Delta(text)
                    if answer.over:
                        break
        yield Delta(answer.rest(), answer.reason, answer.used(call.all_parts))

    def _told(self, call: Call) -> dict[str, Any]:
        settings = {name: getattr(call.decode, ours) for ours, name in self._passes.items()}
        return {name: value for name, value in settings.items() if value is not None}


class _Answer:
    """The part of a stream that is the answer. over: what follows does not belong to it."""

    def __init__(self, decode: DecodeParams, *, limited: bool) -> None:
        self._stops = Stops(decode.stop)
        self._room: float = decode.max_tokens * CHARACTERS if limited else float("inf")
        self._written = 0
        self._usage: Usage | None = None
        self.reason = "stop"
        self.over = False

    def feed(self, piece: Piece) -> str:
        """Take a piece; the text that is certain now."""
        if piece.usage is not None:
            self._usage = _sum(self._usage, piece.usage)
        if piece.finish_reason is not None:
            self.reason = "length" if piece.finish_reason.lower() in _CUT else "stop"
        return self._fitting(self._stops.feed(piece.text))

    def rest(self) -> str:
        """Text that was held back because it might have begun a stop."""
        return self._fitting(self._stops.feed("", last=True))

    def used(self, prompt: Sequence[TextPart]) -> Usage:
        """Token counts: those that the model tells, else estimates."""
        if self._usage is not None:
            return self._usage
        counts = (foreign.count_tokens(part.text) for part in prompt)
        return Usage(sum(counts), self._written // CHARACTERS + 1)

    def _fitting(self, text: str) -> str:
        room = self._room - self._written
        if len(text) > room:
            text, self.reason, self.over = text[: int(room)], "length", True
        elif self._stops.reached:
            self.reason, self.over = "stop", True
        self._written += len(text)
        return text


def _sum(total: Usage | None, other: Usage) -> Usage:
    if total is None:
        return other
    return Usage(
        total.prompt_tokens + other.prompt_tokens,
        total.completion_tokens + other.completion_tokens,
        total.cached_tokens + other.cached_tokens,
    )


def turns(parts: Sequence[TextPart]) -> list[PromptMessage]:
    """A prompt as messages: an instruction that other parts follow is the system's."""
    head, rest = parts[:1], parts[1:]
    if not rest or head[0].role is not Role.INSTRUCTION:
        return [PromptMessage("user", _text(parts))]
    return [PromptMessage("system", head[0].text), PromptMessage("user", _text(rest))]


def _text(parts: Sequence[TextPart]) -> str:
    return "".join(part.text for part in parts)


def model_config(source: TextSource, options: Mapping[str, Any]) -> EngineConfig:
    """How a runtime makes the engine. It stays in this process, where the model is, and is not
    measured when it starts: calls may cost money. Raises UnknownName, InputError."""
    config = EngineConfig(ForeignModel, {"source": source, **options}, host="local", probe=False)
    config.make("llm")
    return config


def no_text(label: str, kinds: str) -> OutputError:
    """The error for an answer without text. kinds: what the answer has instead."""
    return OutputError(
        f"{label} answered with {kinds} and no text: give Teola a model that writes text (its "
        "Agent calls tools without the model's own means)"
    )


async def in_thread(threads: Threads, make: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
    """The items of an iterator that blocks, drawn in a thread. Closing this generator closes the
    iterator before its next item."""
    loop, over = asyncio.get_running_loop(), threading.Event()
    queue: asyncio.Queue[T | None] = asyncio.Queue()
    within = copy_context()

    def draw() -> None:
        items = make()
        try:
            for item in items:
                if over.is_set():
                    return
                loop.call_soon_threadsafe(queue.put_nowait, item)
        finally:
            if isinstance(items, Generator):
                items.close()

    work = asyncio.ensure_future(threads.run(lambda: within.run(draw)))
    work.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        await work
    finally:
        over.set()
        work.cancel()
