"""Vectors of texts for those who need some in the middle of a query."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import QueryContext
from teola.errors import TeolaError
from teola.runtime.live.nesting import Terms
from teola.runtime.text_vectors import EmbeddedTexts
from teola.schedule.events import State


class Home:
    """A runtime that notes what is executed. admitted: how often it was asked for room."""

    def __init__(self, state: State = State.OK) -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.admitted = 0
        self.loop = SimpleNamespace(time=lambda: 1.0)
        self.live = SimpleNamespace(execute=self.execute)
        self.state = state

    async def execute(self, *arguments: Any) -> Any:
        self.ran.append(arguments)
        return SimpleNamespace(state=self.state, error=None, outputs={"vectors": [7]})

    async def ensure(self, names: Any) -> None:
        assert list(names) == ["embedding"]

    def admit(self) -> None:
        self.admitted += 1


def made(home: Any, monkeypatch: pytest.MonkeyPatch) -> EmbeddedTexts:
    texts = EmbeddedTexts(home)
    plans = SimpleNamespace(plan=lambda *_: None)
    monkeypatch.setattr(texts, "_optimiser", lambda role: plans)
    return texts


async def test_they_are_a_query_inside_of_the_one_that_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its deadline, its budget and its trace, and at most as deep as queries may nest."""
    home = Home()
    around = SimpleNamespace(
        id="q",
        terms=Terms(depth=2),
        context=QueryContext("q", "us", deadline=7.0),
        trace=SimpleNamespace(inner=[]),
        run=SimpleNamespace(asker=SimpleNamespace(finish_by=9.0)),
    )
    caller: Any = SimpleNamespace(query=around, primitive="link")
    assert await made(home, monkeypatch)._embedded(["a"], "query", "us", caller) == [7]
    ((_, inputs, context, asker, trace, *_, terms),) = home.ran
    assert inputs == {"texts": ["a"]}
    assert (context.deadline, context.part_of) == (7.0, around.context.program)
    assert (asker.program, asker.finish_by, terms.depth) == (context.program, 9.0, 3)
    assert around.trace.inner == [trace]
    assert trace.parent == ("q", "link")
    assert home.admitted == 0, "the one around has been admitted"


async def test_without_a_query_around_they_are_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home()
    assert await made(home, monkeypatch)._embedded(["a"], "query", "us", None) == [7]
    ((_, _, context, asker, *_),) = home.ran
    assert (context.deadline, asker.finish_by, home.admitted) == (inf, inf, 1)
    with pytest.raises(TeolaError, match="embedding ended as cancelled"):
        await made(Home(State.CANCELLED), monkeypatch)._embedded(["a"], "query", "us", None)
