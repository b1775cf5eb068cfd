"""The extractive reader: the language model of those who have none.

It generates nothing. Asked a question with a context, it quotes the sentences of the context that
are nearest to the question, by the same MiniLM that embeds the documents, or declines if none is
near enough; asked for reformulations
of a question, it makes them by rules; asked for anything else, it says that it cannot. So an
application runs, and can be developed and tested, without any model server.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from teola.engine import Call, Delta, EngineKind, EngineSpec, SequenceHandle, TextPart, Usage
from teola.errors import EngineError, OutputError
from teola.graph.ops import DECODES, PREFILLS, DecodeParams
from teola.graph.prompt import Role
from teola.stops import Stops

from ..embedding.model import Dtype, SharedModel, acquire, loaded, release
from .quoting import LEAST_MAXSIM, choose
from .reformulate import reformulate
from .sentences import Sentence, sentences

NOTHING = "Nothing in the documents answers this question."
"""The answer where there is no context, or none that is near the question."""

NOTICE = (
    "quoted, not generated: the extractive reader answers, because no language model is configured "
    "(--llm, or the engine llm)"
)
"""What whoever reads an answer has to know of it."""

_QUOTED = re.compile(r"“([^“”]+)”")
_ONLY_QUOTES = re.compile(r"\s*(?:“[^“”]+”\s*)+")
_WORDS_PER_DELTA = 6
_PARSERS = ("lines", "numbered", "json_list")


class ExtractiveReader:
    """Quotes sentences and generates nothing; reformulates questions by rules.

    Reads the parts of the prompt by their roles: the question, the context, and in `refine` a
    previous answer, whose quotations compete with those of the new context. model, dtype, threads,
    device: as for `MiniLM`, with which it shares its weights. max_quotes: sentences of one answer.
    least_maxsim: from -1 (quote in any case) to 1; an answer is declined if none of its quotes has
    this MaxSim with the question. Other models than MiniLM need another.
    The same call always gets the same answer, whatever else runs.
    """

    def __init__(
        self,
        name: str = "extractive",
        model: str | None = None,
        dtype: Dtype = "auto",
        threads: int | None = None,
        device: str | None = None,
        max_quotes: int = 3,
        least_maxsim: float = LEAST_MAXSIM,
    ) -> None:
        if max_quotes < 1:
            raise ValueError(f"max_quotes must be at least 1, not {max_quotes}")
        if not -1 <= least_maxsim <= 1:
            raise ValueError(f"least_maxsim must be between -1 and 1, not {least_maxsim}")
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.LLM,
            ops=PREFILLS | DECODES,
            max_batch=65_536,
            max_sequences=16,
            concurrency=16,
            prefix_reuse=False,
            description="extractive reader: quotes sentences, generates nothing",
            notice=NOTICE,
        )
        self._wanted = (model, dtype, device, threads)
        self._max_quotes, self._least_maxsim = max_quotes, least_maxsim
        self._shared: SharedModel | None = None
        self._worker: ThreadPoolExecutor | None = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def start(self) -> None:
        """Load the model, or share it with whoever has it already.

        Raises MissingExtra, EngineUnavailable.
        """
        if self._shared is None:
            self._shared = acquire(*self._wanted, who=f"engine {self._spec.name!r}")
            self._worker = ThreadPoolExecutor(1, thread_name_prefix=self._spec.name)

    def close(self) -> None:
        """Finish the answer that is being computed and give the model back."""
        worker, self._worker = self._worker, None
        shared, self._shared = self._shared, None
        if worker is not None:
            worker.shutdown(cancel_futures=True)
        if shared is not None:
            release(shared)

    def count_tokens(self, text: str) -> int:
        """An estimate: four characters a token."""
        return len(text) // 4 + 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """Only remembers the parts: reading a prefix first makes nothing cheaper here."""
        return SequenceHandle(self._spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """The answer in groups of words, or the reformulations line by line.

        Raises OutputError where only a model that generates could answer.
        """
        decode = call.decode
        if decode.schema is not None:
            raise OutputError(
                "the extractive reader quotes and cannot fill a JSON schema; give --llm URL"
            )
        if decode.items is not None or decode.parser is not None:
            pieces, complete = await self._aside(self._expansion, call)
        else:
            pieces, complete = await self._answer(call)
        pieces, stopped = _until(decode.stop, pieces)
        for delta in self._stream(call, pieces, complete or stopped):
            yield delta

    def _expansion(self, call: Call) -> tuple[list[str], bool]:
        parser = call.decode.parser or "lines"
        if parser not in _PARSERS:
            raise OutputError(
                f"the extractive reader writes no {parser!r} output (valid: {', '.join(_PARSERS)})"
            )
        question = _question(call.all_parts)
        if not question:
            raise OutputError(
                "there is no question to reformulate; mark a part of the prompt as one"
            )
        items = reformulate(question, call.decode.items or 3)
        return _formatted(items, parser), True

    async def _answer(self, call: Call) -> tuple[list[str], bool]:
        shared = loaded(self._shared, self._spec.name)
        return await self._aside(self._chosen, shared, call)

    async def _aside(
        self, work: Callable[..., tuple[list[str], bool]], *given: Any
    ) -> tuple[list[str], bool]:
        """Done on the worker's thread: a question may be long."""
        if self._worker is None:
            raise EngineError(f"engine {self._spec.name!r} is closed; call start() first")
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *given)

    def _chosen(self, shared: SharedModel, call: Call) -> tuple[list[str], bool]:
        chosen = self._choose(shared, call.all_parts)
        text, complete = self._quote(chosen, call.decode)
        return list(_word_groups(text)), complete

    def _choose(self, shared: SharedModel, parts: Sequence[TextPart]) -> list[Sentence]:
        """The sentences to quote, in the order in which they stand in the prompt."""
        question = _question(parts)
        context = [*_previous(parts), *_context(parts)]
        chosen = choose(
            question,
            context,
            shared.embed,
            shared.embed_tokens,
            most=self._max_quotes,
            least=self._least_maxsim,
        )
        return sorted(chosen, key=context.index)

    def _quote(self, chosen: Sequence[Sentence], decode: DecodeParams) -> tuple[str, bool]:
        """As many of the sentences as max_tokens allows, a piece of the first one at least."""
        if not chosen:
            return NOTHING, True
        quotes: list[str] = []
        room = 4 * decode.max_tokens
        for sentence in chosen:
            quote = f"“{sentence.text}”"
            if len(quote) > room:
                if not quotes:
                    quotes.append(f"“{_cut(sentence.text, room)} …”")
                return " ".join(quotes), False
            quotes.append(quote)
            room -= len(quote) + 1
        return " ".join(quotes), True

    def _stream(self, call: Call, pieces: Sequence[str], complete: bool) -> Iterator[Delta]:
        prompt = sum(self.count_tokens(part.text) for part in call.all_parts)
        usage = Usage(prompt, self.count_tokens("".join(pieces)))
        for piece in pieces[:-1]:
            yield Delta(piece)
        yield Delta(pieces[-1], "stop" if complete else "length", usage)


def _question(parts: Sequence[TextPart]) -> str:
    texts = [part.text for part in parts if part.role is Role.QUESTION]
    return " ".join(" ".join(texts).split())


def _context(parts: Sequence[TextPart]) -> list[Sentence]:
    """The sentences of the context; a line of nothing but quotations is an answer of our own."""
    found: list[Sentence] = []
    for text in (part.text for part in parts if part.role is Role.CONTEXT):
        lines = text.split("\n")
        quoted = [line for line in lines if _ONLY_QUOTES.fullmatch(line)]
        found += _quoted(quoted)
        found += sentences("\n".join(line for line in lines if line not in quoted))
    return [sentence for sentence in found if sentence.text != NOTHING]


def _previous(parts: Sequence[TextPart]) -> list[Sentence]:
    """The sentences of a previous answer: what it quotes, or all of them if it quotes nothing."""
    texts = [part.text for part in parts if part.role is Role.ANSWER]
    found = _quoted(texts) or [sentence for text in texts for sentence in sentences(text)]
    return [sentence for sentence in found if sentence.text != NOTHING]


def _quoted(texts: Sequence[str]) -> list[Sentence]:
    return [Sentence(quote.strip()) for text in texts for quote in _QUOTED.findall(text)]


def _formatted(items: Sequence[str], parser: str) -> list[str]:
    """One piece of text per item, in the form that `parser` reads."""
    last = len(items) - 1
    if parser == "json_list":
        texts = [json.dumps(item, ensure_ascii=False) for item in items]
        opened = [f"[{texts[0]}", *(f", {text}" for text in texts[1:])]
        return [*opened[:-1], opened[-1] + "]"]
    marks = [f"{i}. " if parser == "numbered" else "" for i in range(1, len(items) + 1)]
    return [f"{marks[i]}{item}" + ("\n" if i < last else "") for i, item in enumerate(items)]


def _until(stop: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], bool]:
    """The pieces, one at least, before the first of the strings `stop`; whether there is one."""
    stops = Stops(stop)
    left, kept = stops.feed("".join(pieces), last=True), []
    for piece in pieces:
        kept.append(piece[: len(left)])
        left = left[len(piece) :]
    return [piece for piece in kept if piece] or [""], stops.reached


def _word_groups(text: str) -> Iterator[str]:
    words = re.findall(r"\S+\s*", text)
    for at in range(0, len(words), _WORDS_PER_DELTA):
        yield "".join(words[at : at + _WORDS_PER_DELTA])


def _cut(text: str, room: int) -> str:
    short = text[: max(8, room - 4)]
    return short.rpartition(" ")[0] or short
