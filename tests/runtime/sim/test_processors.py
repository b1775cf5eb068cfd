"""Work that shares processors takes longer while others work, and is done nonetheless."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest

from teola.profile import paper
from teola.runtime.sim.processors import Processors
from tests.learning.loaded import Loaded, alike
from tests.planted import catches, edited

TRUE = paper("13b")


class Clock:
    """Virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, call, arguments))

    def run(self) -> None:
        while self._heap:
            self.now, _, call, arguments = heappop(self._heap)
            call(*arguments)


def ends(*jobs: tuple[float, float, float]) -> dict[int, float]:
    """When jobs end, each of which begins then, takes so long alone, and is crowded so much."""
    clock, found = Clock(), dict[int, float]()
    processors = Processors(clock)
    for k, (at, seconds, crowding) in enumerate(jobs):

        def ended(k: int = k) -> None:
            found[k] = clock.now

        clock.at(at, processors.begin, k, seconds, crowding, ended)
    clock.run()
    return found


@catches(
    "processors-unplanned",
    "who works on is as slow as before when another has ended",
    edited(Processors.end, "self._plan()", "pass"),
)
def test_two_share_for_as_long_as_both_work() -> None:
    assert ends((0.0, 2.0, 1.0)) == {0: pytest.approx(2.0)}
    assert ends((0.0, 2.0, 1.0), (0.0, 2.0, 1.0)) == pytest.approx({0: 4.0, 1: 4.0})
    # Alone for a second, then side by side until the second one has done its half second's work.
    assert ends((0.0, 2.0, 1.0), (1.0, 0.5, 1.0)) == pytest.approx({0: 2.5, 1: 2.0})
    assert ends((0.0, 1.0, 0.0), (0.0, 1.0, 0.5), (0.0, 1.0, 0.5)) == pytest.approx(
        {0: 1.0, 1: 1.75, 2: 1.75}
    )


def test_what_is_given_up_makes_room() -> None:
    clock, found = Clock(), list[float]()
    processors = Processors(clock)
    never = processors.begin("a", 5.0, 1.0, found.append, -1.0)
    clock.at(0.0, processors.begin, "b", 1.0, 1.0, lambda: found.append(clock.now))
    clock.at(1.0, never.stop)
    clock.run()
    assert found == pytest.approx([1.5])
    assert never.seconds_left() == pytest.approx(4.5)


@catches(
    "processors-haunted",
    "the work of who has died goes on",
    edited(Processors.gone, "job.worker is worker", "False"),
)
def test_who_dies_makes_room() -> None:
    clock, found = Clock(), list[float]()
    processors = Processors(clock)
    for _ in range(2):
        clock.at(0.0, processors.begin, "a", 5.0, 1.0, found.append, -1.0)
    clock.at(0.0, processors.begin, "b", 1.0, 1.0, lambda: found.append(clock.now))
    clock.at(1.5, processors.gone, "a")
    clock.run()
    assert found == pytest.approx([2.0])


@pytest.mark.parametrize("app", ["naive_rag", "advanced_rag"])
def test_queries_end_later_where_engines_share_and_give_the_same(app: str) -> None:
    alone = Loaded(app, TRUE, learns=False).run(40, rate=0.4)
    profile = TRUE
    for name in ("llm", "embedding", "rerank"):
        profile = alike(profile, name, crowding=0.4)
    shared = Loaded(app, profile, learns=False).run(40, rate=0.4)
    again = Loaded(app, profile, learns=False).run(40, rate=0.4)
    assert [one.finished for one in shared] == [one.finished for one in again]
    assert {one.id for one in shared} == {one.id for one in alone}
    assert sum(one.latency_s for one in shared) > 1.1 * sum(one.latency_s for one in alone)


@catches(
    "all-alike",
    "all are crowded alike",
    edited(Processors._plan, "job.crowding * others", "0.3 * others"),
)
@catches(
    "counted-twice",
    "what was done is taken from what is left once too often",
    edited(Processors.count, "passed, self._at =", "passed, _ ="),
)
def test_work_is_done_as_in_small_steps() -> None:
    """Jobs that begin, are given up, and die with their workers, a millisecond at a time."""
    for seed in range(6):
        draw = Random(seed)
        jobs = [
            (k % 3, draw.uniform(0.0, 2.0), draw.uniform(0.2, 1.5), draw.choice([0.0, 0.3, 1.0]))
            for k in range(6)
        ]
        dies, dies_at = draw.randrange(3), draw.uniform(0.5, 2.0)
        clock, found = Clock(), dict[int, float]()
        processors = Processors(clock)
        for k, (worker, at, seconds, crowding) in enumerate(jobs):

            def ended(k: int = k, found: dict[int, float] = found, clock: Clock = clock) -> None:
                found[k] = clock.now

            clock.at(at, processors.begin, worker, seconds, crowding, ended)
        clock.at(dies_at, processors.gone, dies)
        clock.run()
        expected, left, now = dict[int, float](), dict[int, float](), 0.0
        waits = {k: at for k, (_, at, _, _) in enumerate(jobs)}
        while waits or left:
            for k in [k for k, at in waits.items() if at <= now]:
                del waits[k]
                left[k] = jobs[k][2]
            if now <= dies_at < now + 1e-3:
                left = {k: rest for k, rest in left.items() if jobs[k][0] != dies}
            for k in [*left]:
                left[k] -= 1e-3 / (1 + jobs[k][3] * (len(left) - 1))
            now += 1e-3
            for k in [k for k, rest in left.items() if rest <= 0]:
                expected[k] = now
                del left[k]
        assert found == pytest.approx(expected, abs=0.01)
