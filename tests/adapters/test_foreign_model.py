"""A model of another framework, whatever the framework: counts, ends and stops of its answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from teola.adapters import foreign_model
from teola.adapters.foreign_model import ForeignModel, Piece, PromptMessage
from teola.engine import Usage
from tests.engines.llm.openai_calls import a_call, answer
from tests.planted import catches, edited


class Pieces:
    """A source that gives these pieces."""

    label, model = "a list", None

    def __init__(self, *pieces: Piece) -> None:
        self.pieces, self.read = pieces, 0

    async def stream(
        self, turns: Sequence[PromptMessage], stop: Sequence[str], options: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        for piece in self.pieces:
            self.read += 1
            yield piece

    def close(self) -> None:
        """Nothing to end."""


@catches(
    "cached-of-the-last",
    "of cached tokens only those of the last piece count",
    edited(foreign_model._sum, "total.cached_tokens + other.cached_tokens", "other.cached_tokens"),
)
@catches(
    "counts-of-the-first",
    "of counts only those of the first piece count",
    edited(foreign_model._sum, "if total is None:\n        return other", "return total or other"),
)
async def test_counts_of_all_pieces_add_up() -> None:
    usages = [Usage(10, 1, 4), Usage(0, 2, 3), Usage(5, 4, 0)]
    for count in (1, 2, 3):
        told = usages[:count]
        model = ForeignModel(source=Pieces(*[Piece("x", usage) for usage in told]))
        text, last = await answer(model, a_call())
        assert text == "x" * count
        assert last.usage == Usage(
            sum(usage.prompt_tokens for usage in told),
            sum(usage.completion_tokens for usage in told),
            sum(usage.cached_tokens for usage in told),
        )


@catches(
    "full-is-cut",
    "an answer that is just as long as it may be counts as cut",
    edited(foreign_model._Answer._fitting, "len(text) > room", "len(text) >= room"),
)
@catches(
    "read-to-the-end",
    "a model is read on after its answer is over",
    edited(ForeignModel.generate, "if answer.over:", "if False:"),
)
async def test_an_answer_is_cut_at_four_characters_a_token_and_no_sooner() -> None:
    for length, written, reason, read in (
        (11, 11, "stop", 3),
        (12, 12, "stop", 3),
        (13, 12, "length", 2),
    ):
        source = Pieces(Piece("x" * 6), Piece("y" * (length - 6)), Piece(""))
        text, last = await answer(ForeignModel(source=source), a_call(max_tokens=3))
        assert (len(text), last.finish_reason, source.read) == (written, reason, read)


@pytest.mark.parametrize("seed", range(20))
async def test_an_answer_is_what_stands_before_its_end_however_it_comes(seed: int) -> None:
    """The first stop or the longest answer, whichever is sooner."""
    chance = Random(seed)
    whole = "".join(chance.choices("ab ", k=chance.randint(0, 30)))
    stop = tuple(chance.sample(["ba", "b b", "aaa"], chance.randint(0, 2)))
    most = chance.randint(1, 8)
    at, pieces = 0, list[Piece]()
    while at < len(whole):
        size = chance.randint(0, 4)
        pieces.append(Piece(whole[at : at + size]))
        at += size
    firsts = [at for one in stop if (at := whole.find(one)) >= 0]
    said = whole[: min(firsts, default=len(whole))]
    last = Piece("", None, chance.choice([None, "stop", "LENGTH", "end_turn"]))
    text, end = await answer(
        ForeignModel(source=Pieces(*pieces, last)), a_call(max_tokens=most, stop=stop)
    )
    assert text == said[: 4 * most]
    cut = len(said) > 4 * most
    if cut or firsts:
        assert end.finish_reason == ("length" if cut else "stop")
    else:
        assert end.finish_reason == ("length" if last.finish_reason == "LENGTH" else "stop")
    assert end.usage.completion_tokens == len(text) // 4 + 1
