"""How seldom Python searches for garbage while queries run, and that a simulation leaves none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from teola import App, component
from teola.errors import QueryFailed
from teola.passes import optimise
from teola.profile import Profile, paper
from teola.runtime import collector
from teola.runtime.collector import LIVE, YOUNG, seldom_collecting
from teola.runtime.in_flight import Query
from teola.runtime.live.live import Live
from teola.runtime.sim import Sim
from teola.runtime.store import Store
from teola.runtime.values import Tokens
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from teola.testing import running
from teola_apps.advanced_rag import app as advanced_rag
from tests.planted import catches, edited


@contextmanager
def threshold(*given: int) -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(*given)
    try:
        yield gc.get_threshold()
    finally:
        gc.set_threshold(*before)


def during(sim: Sim) -> int:
    """The threshold while it runs."""
    seen: list[int] = []
    sim.at(0.0, lambda: seen.append(gc.get_threshold()[0]))
    sim.run()
    return seen[0]


@pytest.mark.parametrize(("young", "meanwhile"), [(700, YOUNG), (2 * YOUNG, 2 * YOUNG), (0, 0)])
def test_a_run_searches_no_oftener_than_it_was_asked_to(young: int, meanwhile: int) -> None:
    with threshold(young, 9, 8) as before:
        assert during(Sim(Profile("none", {}))) == meanwhile
        assert gc.get_threshold() == before


def test_whoever_leaves_last_sets_it_back() -> None:
    with threshold(700, 9, 8) as before:
        first, second = seldom_collecting(), seldom_collecting()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert gc.get_threshold() == (YOUNG, 9, 8)
        second.__exit__(None, None, None)
        assert gc.get_threshold() == before
        with seldom_collecting():
            gc.set_threshold(50, 5, 5)  # somebody has other wishes by now
        assert gc.get_threshold() == (50, 5, 5)


@catches(
    "least-decides",
    "a query that begins beside rows makes the search as frequent as for a query alone",
    edited(collector._set_threshold, "max(young, *_inside)", "max(young, min(_inside))"),
)
def test_whoever_wants_it_most_seldom_decides() -> None:
    with threshold(700, 9, 8) as before:
        with seldom_collecting(LIVE):
            assert gc.get_threshold() == (LIVE, 9, 8)
            with seldom_collecting():
                with seldom_collecting(LIVE):
                    assert gc.get_threshold() == (YOUNG, 9, 8)
                assert gc.get_threshold() == (YOUNG, 9, 8)
            assert gc.get_threshold() == (LIVE, 9, 8)
        assert gc.get_threshold() == before


@catches(
    "queries-searched-through",
    "a live query is looked through for garbage at each few objects",
    edited(Live.execute, "with seldom_collecting(LIVE):", "if True:"),
)
def test_a_live_query_is_seldom_searched_through_until_it_is_over() -> None:
    seen = list[int]()

    def look(question: str) -> str:
        seen.append(gc.get_threshold()[0])
        if question == "wrong":
            raise ValueError(question)
        return question

    inputs, outputs = {"question": "text"}, {"answer": "answer"}
    app = App("look", component(look, outputs="answer"), inputs=inputs, outputs=outputs)
    with threshold(700, 9, 8), running(app, {}) as runtime:
        app.run(question="right")
        with pytest.raises(QueryFailed):
            app.run(question="wrong")
        assert seen == [LIVE, LIVE]
        runtime.start(settled()).result()
        assert gc.get_threshold() == (700, 9, 8)


async def settled() -> None:
    """A turn of the loop, in which what has ended leaves."""


def test_an_error_ends_it_too() -> None:
    sim = Sim(Profile("none", {}))
    sim.at(0.0, lambda: 1 // 0)
    with threshold(700, 9, 8) as before:
        with pytest.raises(ZeroDivisionError):
            sim.run()
        assert gc.get_threshold() == before


@catches(
    "holds-itself",
    "a query can be reached from itself",
    edited(Sim.finished, "trace = query.trace", "trace = query.trace; query.me = query"),
)
def test_what_a_query_was_made_of_goes_with_it() -> None:
    profile, builder = paper("13b"), advanced_rag.builder
    graph = builder.build(builder.configure({}), {"chunks": 48})
    plan, sim = Plan(optimise(graph, profile).e_graph), Sim(profile)
    for number in range(5):
        given = {"question": Tokens(14), "chunks": [Tokens(256)] * 48, "scope": Tokens(0)}
        sim.submit(plan, given, at=number)
    gc.collect()
    gc.freeze()  # what others have left is not looked at
    gc.disable()
    try:
        assert len(sim.run()) == 5
        left = [one for one in gc.get_objects() if type(one) in (Query, GraphRun, Store)]
    finally:
        gc.enable()
    assert left == []
