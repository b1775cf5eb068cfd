"""Programs against a slow model: who is claimed until when, looked up in plain records."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from teola.policies.routing.programs import Programs
from teola.policies.routing.returns import FORGET, FORGOTTEN_S, REFIT, Returns
from teola.policies.work import Work
from tests.planted import catches, edited
from tests.policies.routed import call

INSTANCES = 3


@dataclass
class Record:
    """Of one program. common: found of its first prompt. at, owned: where its KV lies, and how
    many tokens. flying: its calls, by run. pauses: seconds of those that ended. since, until: of
    the pause that it makes now."""

    common: int
    at: int = -1
    owned: int = 0
    flying: set[str] = field(default_factory=set)
    calls: int = 0
    component: str = ""
    pauses: list[float] = field(default_factory=list)
    since: float | None = None
    until: float = 0.0

    def claimed(self, now: float) -> bool:
        return self.at >= 0 and (now < self.until if not self.flying else True)


class Model:
    """Every program by itself. hope_s is asked for a kind before the programs are told."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.records: dict[str, Record] = {}

    def hope_s(self, record: Record, reason: str) -> float:
        last_s = record.pauses[-1] if record.pauses else None
        returns = self.programs._returns
        return returns.hope_s(returns.kind(("", record.component), reason, last_s))

    def joined(self, work: Work, i: int, found: int, answer: int, now: float) -> None:
        record = self.records.setdefault(work.asker.program, Record(found))
        if work.run not in record.flying:
            record.calls += 1
            record.flying.add(work.run)
            if record.since is not None:
                record.pauses.append(now - record.since)
                record.since = None
        brought = max(0, work.total + answer - record.common)
        record.owned = max(record.owned, brought) if record.at == i else brought
        record.at, record.component = i, work.spec.component

    def left(self, work: Work, now: float, generated: int | None) -> None:
        record = self.records.get(work.asker.program)
        if record is None or work.run not in record.flying:
            return
        record.flying.remove(work.run)
        if generated is not None:
            record.owned = max(0, work.total + generated - record.common)
        if not record.flying:
            record.since, record.until = now, now + self.hope_s(record, "")

    def paused(self, name: str, reason: str, ended: bool) -> None:
        record = self.records.get(name)
        if record is not None and ended:
            del self.records[name]
        elif record is not None and record.since is not None:
            record.until = record.since + self.hope_s(record, reason)

    def lost(self, name: str, tokens: int, now: float) -> None:
        record = self.records.get(name)
        if record is not None and record.since is not None and record.claimed(now):
            record.owned = min(record.owned, tokens)

    def down(self, i: int) -> None:
        for record in self.records.values():
            if record.at == i:
                record.at, record.owned = -1, 0

    def forget(self, now: float) -> None:
        """Those who have been away for an hour."""
        for name, record in [*self.records.items()]:
            if record.since is not None and record.since <= now - FORGOTTEN_S:
                del self.records[name]

    def compare(self, now: float) -> None:
        programs = self.programs
        assert len(programs) == len(self.records)
        for i in range(INSTANCES):
            here = {name: one for name, one in self.records.items() if one.at == i}
            claims = {name: one for name, one in here.items() if one.claimed(now)}
            assert programs.owned[i] == sum(one.owned for one in here.values())
            assert programs.claimed[i] == sum(one.owned for one in claims.values())
            back = [one for one in claims.values() if one.calls > 1 or not one.flying]
            assert programs.owners[i] == len(back)
            for name in self.records:
                assert programs.owns(name, i) == (here[name].owned if name in here else 0)
                assert programs.claims(name, i) == (claims[name].owned if name in claims else 0)
        waited = [one.until for one in self.records.values() if not one.flying and one.claimed(now)]
        if waited:
            assert programs.next_expiry is not None
            assert now < programs.next_expiry <= min(waited)


def lives(seed: int, steps: int = 250) -> None:
    """Programs that call, leave, come back, move, lose their instance and tell of pauses."""
    draw, now = random.Random(seed), 0.0
    programs = Programs(INSTANCES, draw.choice([3.0, 30.0, 300.0]))
    model, flying, place = Model(programs), list[Work](), dict[str, int]()
    for k in range(steps):
        now += draw.choice([0.0, 0.1, 0.5, 2.0, 10.0, FORGOTTEN_S if k % 60 == 0 else 1.0])
        programs.expire(now)
        model.forget(now)
        name = draw.choice("abcde")
        kind = draw.choice(["call", "call", "end", "end", "end", "moves", "pause", "lost", "down"])
        if kind == "call":
            more = {"program": name, "component": draw.choice(["c", "d"])}
            work = call(f"{name}{k}", (), now, total=draw.randint(1, 90), **more)
            flying.append(work)
        elif flying:
            work = draw.choice(flying)
        if kind in ("call", "moves") and flying:
            i, found, answer = draw.randrange(INSTANCES), draw.randint(0, 30), draw.randint(0, 9)
            model.joined(work, i, found, answer, now)
            programs.joined(work, i, found, answer, now)
            place[work.asker.program] = i
            assert programs.has(work, i)
            assert not programs.has(work, (i + 1) % INSTANCES)
        elif kind == "end" and flying:
            flying.remove(work)
            generated = draw.choice([None, 0, 7, 50])
            model.left(work, now, generated)
            programs.left(work, now, generated)
        elif kind == "pause":
            told = draw.choice(["tool", "person"]), draw.random() < 0.1
            model.paused(name, *told)
            programs.paused(name, *told)
        elif kind == "lost":
            tokens = draw.choice([0, 5, 40])
            model.lost(name, tokens, now)
            programs.lost(name, tokens)
        elif kind == "down" and draw.random() < 0.3:
            i = draw.randrange(INSTANCES)
            model.down(i)
            programs.down(i)
        programs.expire(now)
        model.forget(now)
        model.compare(now)


@catches(
    "claimed-until-the-first-time",
    "a program that came back and went away again loses its claim at the old time",
    edited(Programs.expire, " and program.until == until", ""),
)
@catches(
    "claimed-a-moment-longer",
    "a program is waited for at the time at which nobody waits for it any more",
    edited(Programs.expire, "away[0][0] <= now", "away[0][0] < now"),
)
@catches(
    "claims-while-it-calls",
    "a program that calls again is given up as if it were away",
    edited(Programs.expire, "program.since is not None and program.until == until", "True"),
)
@catches(
    "moved-twice",
    "what a program left where it was counts there for ever",
    edited(Programs._owns, "self.owned[program.at] -= program.tokens", "pass"),
)
@catches(
    "owner-at-once",
    "a program owns by its first call what it may never read again",
    edited(Programs._claim, "away or program.calls > 1", "True"),
)
@catches(
    "common-is-owned",
    "a program owns what others brought first",
    edited(Programs.left, "work.tokens + generated - program.common", "work.tokens + generated"),
)
@catches(
    "placed-anew-counts-again",
    "a call that is placed anew counts as another one",
    edited(Programs.joined, "if key not in program.works:", "if True:"),
)
@catches(
    "dead-servers-keep",
    "what an instance kept that is gone is owned on",
    edited(Programs.down, "self._owns(program, -1, 0)", "pass"),
)
@catches(
    "lost-less",
    "a program owns more than it found",
    edited(Programs.lost, "tokens < program.claim", "False"),
)
def test_programs_are_claimed_as_a_slow_model_says() -> None:
    for seed in range(12):
        lives(seed)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_away_and_back_and_away_again_it_is_waited_for_anew(times: int) -> None:
    programs = Programs(1, 5.0)  # nothing is known: it is waited for 4 s
    for k in range(times):
        work = call(f"a{k}", (), total=10, program="a")
        programs.joined(work, 0, 0, 0, float(k))
        programs.left(work, k + 0.5, 0)
    last = times - 0.5
    for until in range(times):
        programs.expire(until + 4.5 - 0.001)
        assert programs.claimed == [10]
    assert programs.expire(last + 4)
    assert programs.claimed == [0]
    assert programs.owned == [10]


@catches(
    "departures-for-ever",
    "old departures outweigh returns for ever",
    edited(Returns._learn, "*self._gone.values()", ""),
)
@catches(
    "returns-for-ever",
    "old returns outweigh departures for ever",
    edited(
        Returns._learn,
        "(*self._back.values(), *self._gone.values())",
        "[*self._gone.values()]",
    ),
)
@catches(
    "summed-up-late",
    "what is known is summed up one pause too late",
    edited(Returns._learn, ">= REFIT", "> REFIT"),
)
def test_what_was_learned_fades_whether_they_came_back_or_not() -> None:
    for learned in ("back", "gone"):
        returns = Returns(60.0)
        for _ in range(REFIT - 1):
            getattr(returns, learned)("kind", 5.0)
        bins = returns._back if learned == "back" else returns._gone
        assert sum(bins["kind"]) == REFIT - 1
        getattr(returns, learned)("kind", 5.0)
        assert sum(bins["kind"]) == pytest.approx(REFIT * FORGET)
