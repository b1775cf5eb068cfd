"""When queries wait for people and for how long, against a model that is told the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.errors import QueryFailed
from teola.graph import ConditionParams, GrowParams, Inquiry, WaitParams
from teola.runtime.live.people import DAY_S, LOOK_S, People
from teola.schedule.graph_run import DONE, RUNNING, WAITING

Said = list[tuple[Any, ...]]


class Asker:
    """A query of which nothing runs, but what a test says. said: what it is told."""

    def __init__(self, name: str, deadline: float, said: Said) -> None:
        self.name, self.said, self.asking = name, said, dict[int, str]()
        self.callers = list[Any]()
        self.context: Any = SimpleNamespace(deadline=deadline)
        kinds = [ConditionParams, ConditionParams, GrowParams, WaitParams]
        params = [object.__new__(kind) for kind in kinds]
        self.plan: Any = SimpleNamespace(primitives=[SimpleNamespace(params=p) for p in params])
        self.run: Any = SimpleNamespace(status=[WAITING, DONE, RUNNING, RUNNING])

    def postpone(self, by_s: float) -> None:
        self.said.append(("postponed", self.name, round(by_s, 6)))

    def stand_still(self) -> None:
        self.said.append(("stands", self.name))


class Clock:
    """The event loop's time, which goes on when a test says so, and in no other way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    async def goes(self, by_s: float) -> None:
        self.now = round(self.now + by_s, 6)
        for _ in range(3):
            await asyncio.sleep(0)


class World:
    """People, and beside them what has to be: open questions with their query and their end, when
    it is looked next whether all wait, and since when they do."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self.chance, self.clock, self.n = Random(seed), clock, 0
        self.said: Said = []
        self.told: Said = []
        self.people = People("q")
        self.queries = [Asker(name, 1000.0 + 50 * k, self.said) for k, name in enumerate("abc")]
        self.people.queries = set(self.queries)  # type: ignore[arg-type]
        self.people.on_wait = lambda waits: self.said.append(("waits", waits))
        self.people.on_ask = lambda inquiry: self.said.append(("asked", inquiry.id))
        self.people.pauses = {name: self.pause(name) for name in "xy"}
        self.open: dict[str, tuple[Asker, float, int]] = {}
        self.look: float | None = None
        self.since: float | None = None
        self.left_s = 0.0
        assert self.people.left_s == 0.0
        self.timers = dict[str, asyncio.TimerHandle]()

    def pause(self, name: str) -> Callable[[], None]:
        return lambda: self.said.append(("pauses", name))

    # --- what has to be -------------------------------------------------------------------------

    def at_work(self, query: Asker) -> bool:
        """Something of it runs that is neither asked nor growing nor around another query."""
        idle = {caller.position for caller in query.callers}
        idle |= {i for asker, _, i in self.open.values() if asker is query}
        return any(query.run.status[k] == RUNNING and k not in idle for k in range(2))

    def looks(self) -> None:
        if self.open and self.look is None and self.since is None:
            self.look = round(self.clock.now + LOOK_S, 6)

    def goes_on(self) -> None:
        if self.since is not None:
            waited = round(self.clock.now - self.since, 6)
            self.told += [("postponed", one.name, waited) for one in self.queries]
            self.told.append(("waits", False))
            self.since = None

    def passes(self) -> None:
        """By now it has looked, and questions have run out."""
        due = [(self.look, "")] if self.look is not None else []
        due += [(until, id) for id, (_, until, _) in self.open.items()]
        for _, id in sorted(one for one in due if one[0] <= self.clock.now):
            if id:
                del self.open[id]
                self.goes_on()
                self.told.append(("fails", id))
                continue
            self.look = None
            if self.open and not self.people.busy and not any(map(self.at_work, self.queries)):
                self.since = self.clock.now
                self.left_s = min(one.context.deadline for one in self.queries) - self.since
                self.told += [("stands", one.name) for one in self.queries]
                self.told += [("pauses", "x"), ("pauses", "y"), ("waits", True)]

    # --- events -----------------------------------------------------------------------------

    def asks(self) -> None:
        query, wait_s = (
            self.chance.choice(self.queries),
            self.chance.choice([0.0503, 0.5003, 50.0003]),
        )
        self.n += 1
        id, i = f"{self.n:03}", self.n + 10
        if (k := self.n % 4) < 2 and k not in query.asking:
            i = k  # what has become of it
        query.asking[i] = id

        def then(answer: Any) -> None:
            del query.asking[i]
            self.said.append(("then", id, answer))

        def fail(error: Exception) -> None:
            del query.asking[i]
            assert type(error) is QueryFailed
            self.said.append(("fails", id))

        inquiry = Inquiry(id, "q", "ask", "c", "Well?", {"type": "integer"})
        self.open[id] = query, round(self.clock.now + wait_s, 6), i
        self.told.append(("asked", id))
        self.looks()
        self.people.ask(inquiry, query, wait_s, then, fail)  # type: ignore[arg-type]
        self.timers[id] = self.people.open[id].late

    def answers(self) -> None:
        if not self.open:
            return
        id = self.chance.choice([*self.open])
        del self.open[id]
        self.goes_on()
        self.told.append(("then", id, 7))
        only = not self.open and self.chance.random() < 0.5
        self.people.answer(None if only else id, 7)

    def gives_up(self) -> None:
        id = self.chance.choice([*self.open, "999"])
        if id in self.open:
            del self.open[id]
            self.goes_on()
            self.told.append(("fails", id))
        self.people.give_up(id, QueryFailed("gone home"))

    def withdraws(self) -> None:
        query = self.chance.choice(self.queries)
        i = self.chance.choice([*query.asking, 9])
        self.open.pop(query.asking.get(i, ""), None)
        self.people.withdraw(query, i)  # type: ignore[arg-type]
        assert i not in query.asking

    def leaves(self) -> None:
        if len(self.queries) == 1:
            return
        query = self.queries.pop(self.chance.randrange(len(self.queries)))
        self.open = {id: one for id, one in self.open.items() if one[0] is not query}
        self.people.left(query)  # type: ignore[arg-type]
        assert not query.asking

    def works(self) -> None:
        """Something runs that nobody is asked for, alone or within what asks; or no more."""
        query, k = self.chance.choice(self.queries), self.chance.randrange(2)
        query.run.status[k] = self.chance.choice([RUNNING, DONE])
        within = self.chance.choice([[], [], [0], [1], [0, 1]])
        query.callers = [SimpleNamespace(position=k) for k in within]

    def reads(self) -> None:
        self.people.busy = self.chance.choice([0, 0, 1])

    def changes(self) -> None:
        self.looks()
        assert self.people.changed() == bool(self.open)

    async def run(self, events: int) -> None:
        asks, more = [self.asks, self.answers, self.changes], [self.works, self.reads]
        seldom = [self.gives_up, self.withdraws, *([self.leaves] * (self.chance.random() < 0.3))]
        for _ in range(events):
            self.chance.choice([*asks, *asks, *more, *seldom])()
            if self.chance.random() < 0.7:
                await self.clock.goes(self.chance.choice([0.01, LOOK_S, 0.05, 1.0]))
                self.passes()
            said, told = self.said[:], self.told[:]
            self.said.clear()
            self.told.clear()
            assert sorted(map(repr, said)) == sorted(map(repr, told))
            assert self.people.waits == (self.since is not None)
            assert [one.id for one in self.people.inquiries] == [*self.open]
            for id, timer in self.timers.items():
                assert timer.cancelled() or id in self.open or timer.when() <= self.clock.now
            if self.open:
                first = min(until for _, until, _ in self.open.values())
                assert self.people.wait_s == pytest.approx(first - self.clock.now)
            if self.since is not None:
                assert self.people.left_s == pytest.approx(self.left_s)


@pytest.mark.parametrize("seed", range(40))
async def test_a_query_waits_once_nothing_else_runs_and_until_somebody_answers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadlines stand still for so long, whoever of its queries asked."""
    await World(seed, Clock(monkeypatch)).run(120)


async def test_who_has_left_last_is_not_looked_at_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    world = World(0, clock)
    world.asks()
    world.queries.clear()
    for query in [*world.people.queries]:
        assert world.people._look is not None
        world.people.left(query)
    assert world.people._look is None
    await clock.goes(1000.0)
    assert world.said == [("asked", "001")], "neither that it waits nor that nobody answered"


@pytest.mark.parametrize(
    ("wait_s", "told"),
    [
        (0.25, "0.25 s"),
        (60.0, "60 s"),
        (DAY_S - 1, "86399 s"),
        (DAY_S, "1 days"),
        (2.5 * DAY_S, "2.5 days"),
    ],
)
async def test_nobody_answered_within_what_people_had(
    wait_s: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, people, errors = Clock(monkeypatch), People("q"), list[Exception]()
    query: Any = Asker("a", 1e9, [])
    inquiry = Inquiry("send", "q", "ask", "c", "Well?", {})
    people.ask(inquiry, query, wait_s, lambda answer: None, errors.append)
    await clock.goes(wait_s - 0.125)
    assert errors == []
    await clock.goes(0.125)
    assert [str(error) for error in errors] == [f"nobody answered 'send' within {told}"]
    assert people.open == {}
