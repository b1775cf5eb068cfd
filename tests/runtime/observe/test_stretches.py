"""The critical path of traces made by hand: who waited for whom, and that nothing is left out."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from teola.runtime.observe.stretches import (
    NONE,
    Stretch,
    Waited,
    chain,
    critical_path,
    waited_for,
    waits,
    waits_on_path,
)
from teola.runtime.observe.trace import Span


def span(name: str, queued: float, start: float, end: float, **more: Any) -> Span:
    values = {"op": "tool_call", "component": "c", "engine": "python", "instance": 0, **more}
    return Span(primitive=name, queued=queued, start=start, end=end, **values)


def step(name: str, start: float, end: float) -> Span:
    return Span(name, name, name, "", start, start, end)


def told(path: list[Stretch]) -> list[tuple[str, str, float, float]]:
    return [(s.kind, s.primitive, round(s.start, 6), round(s.end, 6)) for s in path]


CHAIN = {"a": (), "b": ("a",), "c": ("b",)}


def test_a_chain_with_waiting_and_gaps() -> None:
    spans = [
        step("load", 0.0, 1.0),
        span("a", 1.0, 1.0, 2.0),
        span("b", 2.0, 2.5, 3.0),
        span("c", 3.25, 3.25, 4.0),
    ]
    assert waited_for(spans, CHAIN) == (NONE, 0, 1, 2)
    assert told(critical_path(spans, waited_for(spans, CHAIN), 4.5)) == [
        ("ran", "load", 0.0, 1.0),
        ("ran", "a", 1.0, 2.0),
        ("queued", "b", 2.0, 2.5),
        ("ran", "b", 2.5, 3.0),
        ("between", "c", 3.0, 3.25),
        ("ran", "c", 3.25, 4.0),
        ("between", "", 4.0, 4.5),
    ]


def test_the_slower_of_two_branches_counts() -> None:
    parents = {"a": (), "left": ("a",), "right": ("a",), "join": ("left", "right")}
    spans = [
        span("a", 0, 0, 1),
        span("left", 1, 1, 2),
        span("right", 1, 1.5, 3),
        span("join", 3, 3, 4),
    ]
    assert waited_for(spans, parents) == (NONE, 0, 0, 2)
    ran = [
        s.primitive for s in critical_path(spans, waited_for(spans, parents), 4) if s.kind == "ran"
    ]
    assert ran == ["a", "right", "join"]


def test_of_several_slices_the_last_to_end_is_waited_for() -> None:
    parents = {"embed": (), "search": ("embed",)}
    spans = [
        span("embed", 0, 0, 3, lo=0, hi=8, instance=0),
        span("embed", 0, 0, 1, lo=8, hi=9, instance=1),
        span("search", 3, 3, 4),
    ]
    assert waited_for(spans, parents) == (NONE, NONE, 0)


def test_a_further_try_waited_for_the_one_that_failed() -> None:
    spans = [
        span("a", 0, 0, 1),
        span("b", 1, 1, 2, state="failed"),
        span("b", 1, 2.5, 3),  # ready since 1, but only its second try counts from 2
        span("c", 3, 3, 4),
    ]
    assert waited_for(spans, CHAIN) == (NONE, 0, 1, 2)
    assert told(critical_path(spans, waited_for(spans, CHAIN), 4))[1:4] == [
        ("ran", "b", 1, 2),
        ("queued", "b", 2, 2.5),
        ("ran", "b", 2.5, 3),
    ]


@pytest.mark.parametrize("tries", [*itertools.product((1, 2, 3), repeat=3)])
def test_a_slice_waited_for_its_own_tries_only(tries: tuple[int, ...]) -> None:
    """Slices of one primitive are tried again by themselves; their first tries waited for what it
    reads, which ended at 1."""
    spans, expected = [span("a", 0, 0, 1)], [NONE]
    for lo, count in enumerate(tries):
        for k in range(count):
            state = "done" if k == count - 1 else "failed"
            begins = 1 + k + lo / 8
            spans.append(span("b", 1, begins, begins + 0.75, lo=lo, hi=lo + 1, state=state))
            expected.append(len(spans) - 2 if k else 0)
    assert [*waited_for(spans, CHAIN)] == expected


def test_what_was_withdrawn_at_the_end_held_nothing_up() -> None:
    parents = {**CHAIN, "guess": ("a",)}
    spans = [
        span("a", 0, 0, 1),
        span("b", 1, 1, 2),
        span("c", 2, 2, 3),
        span("guess", 1, 1, 3, state="cancelled"),
    ]
    assert [s.primitive for s in critical_path(spans, waited_for(spans, parents), 3)] == [
        "a",
        "b",
        "c",
    ]
    late = spans[:2] + spans[3:]
    cancelled = critical_path(late, waited_for(late, parents), 3, answered=False)
    assert [s.primitive for s in cancelled] == ["a", "guess"]


def test_what_ended_later_was_not_waited_for() -> None:
    parents = {"a": (), "late": (), "guess": ("a", "late")}
    spans = [span("a", 0, 0, 1), span("late", 0, 0, 2), span("guess", 1, 1, 3)]
    assert waited_for(spans, parents) == (NONE, NONE, 0)


def test_ties_are_taken_by_what_came_after() -> None:
    parents = {"a": (), "check": ("a",), "b": ("check", "a")}
    spans = [span("a", 0, 0, 1), span("check", 1, 1, 1, engine=""), span("b", 1, 1, 2)]
    assert waited_for(spans, parents) == (NONE, 0, 1)


def stood(spans: list[Span], parents: dict[str, tuple[str, ...]], end: float) -> list[Any]:
    """Kind, times and blocker of the stretches in which something was ready and did not run."""
    return [
        (s.kind, s.start, s.end, "" if s.blocker == NONE else spans[s.blocker].primitive)
        for s in critical_path(spans, waited_for(spans, parents), end)
        if s.kind in ("queued", "behind")
    ]


INDEXED = {"expand": (), "index.1": (), "index.2": (), "embed": ("expand",)}


def test_waiting_behind_work_of_the_same_query_is_told_apart() -> None:
    spans = [
        span("expand", 0, 0, 1, engine="llm"),
        span("index.1", 0, 0.5, 4, engine="embedding", op="embedding"),
        span("index.2", 0, 6, 9, engine="embedding", op="embedding"),  # others ran from 4 to 6
        span("embed", 1, 9.5, 10, engine="embedding", op="embedding"),
    ]
    assert stood(spans, INDEXED, 10) == [
        ("behind", 1, 4, "index.1"),
        ("queued", 4, 6, ""),
        ("behind", 6, 9, "index.2"),
        ("queued", 9, 9.5, ""),
    ]


def test_only_what_ran_on_the_same_instance_was_waited_behind() -> None:
    spans = [
        span("expand", 0, 0, 1, engine="llm"),
        span("index.1", 0, 0, 4, engine="embedding", instance=1),
        span("index.2", 0, 0, 4, engine="embedding", state="skipped"),
        span("embed", 1, 3, 5, engine="embedding"),
    ]
    assert stood(spans, INDEXED, 5) == [("queued", 1, 3, "")]
    waiting = span("embed", 1, 4, 4, engine="embedding", instance=NONE, state="queued")
    assert stood([*spans[:3], waiting], INDEXED, 4) == [("behind", 1, 4, "index.1")]


def test_of_several_in_one_batch_one_is_named_for_the_whole_wait() -> None:
    spans = [
        span("expand", 0, 0, 1, engine="llm"),
        span("index.1", 0, 0, 4, engine="embedding"),
        span("index.2", 0, 0, 4, engine="embedding"),
        span("embed", 1, 4, 5, engine="embedding"),
    ]
    assert stood(spans, INDEXED, 5) == [("behind", 1, 4, "index.2")]


def test_what_took_no_time_is_in_the_chain_and_in_no_stretch() -> None:
    spans = [span("a", 0, 0, 1), span("b", 1, 1, 1, engine="", instance=NONE), span("c", 1, 1, 2)]
    assert chain(spans, waited_for(spans, CHAIN)) == (0, 1, 2)
    assert [s.primitive for s in critical_path(spans, waited_for(spans, CHAIN), 2)] == ["a", "c"]


@pytest.mark.parametrize("without", [1, 2, 3])
def test_the_path_ends_with_the_last_of_those_that_took_no_time_at_its_end(without: int) -> None:
    names = "abcd"[: without + 1]
    spans = [span("a", 0, 0, 1), *(span(name, 1, 1, 1) for name in names[1:])]
    parents = dict(zip(names, [(), *((name,) for name in names)], strict=False))
    assert chain(spans, waited_for(spans, parents)) == tuple(range(without + 1))


def test_a_query_that_runs_has_a_path_so_far() -> None:
    spans = [span("a", 0, 0, 1), span("b", 1, 1, 1.75, state="running")]
    path = critical_path(spans, waited_for(spans, CHAIN), 1.75)
    assert told(path) == [("ran", "a", 0, 1), ("ran", "b", 1, 1.75)]


def test_nothing_ran() -> None:
    assert critical_path([], (), 0.0) == []
    assert told(critical_path([], (), 0.5)) == [("between", "", 0.0, 0.5)]


def test_a_wait_is_split_into_own_work_others_and_limits() -> None:
    spans = [
        span("a", 0, 0, 1),
        span("b", 0, 0.5, 2),
        span("far", 0, 0, 10, instance=1),
        span("c", 0, 10, 11, limited_s=3.0),
    ]
    found = waits(spans)
    assert found[0] is found[2] is None
    assert found[1] == Waited(0.5, 0.0, 0.0, (0,))
    assert found[3] == Waited(2.0, 5.0, 3.0, (1, 0)), "what overlaps counts once"
    before = waited_for(spans, dict.fromkeys("abc", ()) | {"far": ()})
    path = critical_path(spans, before, 11)
    took = [(one.kind, one.end - one.start) for one in path if one.kind != "ran"]
    assert took == [("behind", 0.5), ("behind", 1.5), ("queued", 8.0)]
    assert waits_on_path(spans, path) == {
        "own_s": 2.0,
        "others": {"python": 5.0},
        "limits_s": 3.0,
        "people_s": 0.0,
    }


def test_waiting_for_people_is_no_work() -> None:
    spans = [span("a", 0, 0, 1), span("b", 1, 1, 61, op="wait", engine="")]
    path = critical_path(spans, waited_for(spans, CHAIN), 61)
    assert told(path) == [("ran", "a", 0, 1), ("people", "b", 1, 61)]
    assert waits_on_path(spans, path)["people_s"] == 60


@pytest.mark.parametrize("seed", range(60))
def test_stretches_fill_the_time_and_follow_the_graph(seed: int) -> None:
    spans, parents, end = random_trace(random.Random(seed))
    path = critical_path(spans, waited_for(spans, parents), end)
    assert path[0].start == 0.0
    assert path[-1].end == end
    for before, after in itertools.pairwise(path):
        assert before.end == after.start
        assert before.start < before.end
    ran = [s.primitive for s in path if s.kind == "ran"]
    for before, after in itertools.pairwise(ran):
        assert before in parents[after]
    latest = max(spans, key=lambda s: s.end)
    assert latest.primitive == ran[-1]


def random_trace(chance: random.Random) -> tuple[list[Span], dict[str, tuple[str, ...]], float]:
    """A graph whose primitives ran as soon as their parents and a random wait allowed."""
    parents: dict[str, tuple[str, ...]] = {}
    spans: list[Span] = []
    ended: dict[str, float] = {}
    for k in range(chance.randint(1, 25)):
        name = f"p{k}"
        above = chance.sample(sorted(ended), min(len(ended), chance.randint(0, 3)))
        ready = max((ended[p] for p in above), default=0.0)
        start = ready + chance.choice([0.0, chance.random()])
        ended[name] = start + chance.random() + 0.01
        parents[name] = tuple(above)
        spans.append(span(name, ready, start, ended[name]))
    spans.sort(key=lambda s: (s.start, s.end, s.primitive))
    return spans, parents, max(ended.values()) + chance.choice([0.0, 0.1])
