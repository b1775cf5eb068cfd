"""Texts of random words, and what a batch of them takes on the engine."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from teola.engine import Call, Delta, QueryContext, TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import TransformersModel

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
WORD: Final = 4


class Answered(NamedTuple):
    """An answer, and when its first and last token came: seconds after all were asked."""

    text: str
    tokens: int
    first_s: float
    last_s: float


def text_of(engine: TransformersModel, chance: random.Random, tokens: int) -> str:
    """Random words of at least so many tokens, and hardly more."""
    words = list[str]()
    while (missing := tokens - engine.count_tokens(" ".join(words))) > 0:
        words += ["".join(chance.choices(LETTERS, k=WORD)) for _ in range(missing // WORD + 1)]
    return " ".join(words)


def ask(engine: TransformersModel, texts: Sequence[str], output: int) -> list[Answered]:
    """All at once; answers of `output` tokens."""
    return asyncio.run(_ask(engine, texts, output))


async def _ask(engine: TransformersModel, texts: Sequence[str], output: int) -> list[Answered]:
    began = time.perf_counter()

    async def one(number: int, text: str) -> Answered:
        decode = DecodeParams(max_tokens=output, ignore_eos=True)
        parts = (TextPart(Role.QUESTION, text),)
        said, first_s, last = "", 0.0, Delta("")
        async for last in engine.generate(Call(QueryContext(str(number)), parts, decode)):
            first_s = first_s or time.perf_counter() - began
            said += last.text
        assert last.usage is not None
        return Answered(said, last.usage.completion_tokens, first_s, time.perf_counter() - began)

    return await asyncio.gather(*(one(*each) for each in enumerate(texts)))
