"""Programs against a slow model: who is claimed until when, looked up in plain records."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf

import pytest

from teola.kv.policies.pauses import AGES, FEW_PAUSES
from teola.policies.routing.programs import Programs
from teola.policies.routing.returns import FORGET, FORGOTTEN_S, REFIT, Returns
from teola.policies.work import Work
from tests.planted import catches, edited
from tests.policies.routed import call

INSTANCES = 3


@dataclass
class Record:
    """Of one program. common: found of its first prompt. at, owned: where its KV lies, and how
    many tokens. waiting: its calls that are held; flying: those on their way, by run. pauses:
    seconds of those that ended. since, until: of the pause that it makes now."""

    common: int
    born: float
    at: int = -1
    owned: int = 0
    waiting: set[str] = field(default_factory=set)
    flying: set[str] = field(default_factory=set)
    calls: int = 0
    component: str = ""
    pauses: list[float] = field(default_factory=list)
    since: float | None = None
    until: float = 0.0

    def claimed(self, now: float) -> bool:
        return self.at >= 0 and bool(self.flying or (self.since is not None and now < self.until))


class Model:
    """Every program by itself. hope_s is asked for a kind before the programs are told."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.records: dict[str, Record] = {}

    def hope_s(self, record: Record, since: float, reason: str, now: float) -> float:
        last_s = record.pauses[-1] if record.pauses else None
        returns = self.programs.returns
        kind = returns.kind(("", record.component), reason, last_s)
        return returns.hope_s(kind, since - record.born, now)

    def came(self, work: Work) -> None:
        record = self.records.get(work.asker.program)
        if record is None or work.run in record.waiting | record.flying:
            return
        record.waiting.add(work.run)
        record.calls += 1
        if record.since is not None:
            record.pauses.append(work.arrival - record.since)
            record.since = None

    def joined(self, work: Work, i: int, found: int, answer: int) -> None:
        record = self.records.setdefault(work.asker.program, Record(found, work.arrival))
        if work.run not in record.flying:
            record.calls += work.run not in record.waiting
            record.waiting.discard(work.run)
            record.flying.add(work.run)
        brought = max(0, work.total + answer - record.common)
        record.owned = max(record.owned, brought) if record.at == i else brought
        record.at, record.component = i, work.spec.component

    def left(self, work: Work, now: float, generated: int | None) -> None:
        record = self.records.get(work.asker.program)
        if record is None or work.run not in record.waiting | record.flying:
            return
        record.waiting.discard(work.run)
        record.flying.discard(work.run)
        if generated is not None:
            record.owned = max(0, work.total + generated - record.common)
        if not record.flying and not record.waiting:
            record.until = now + self.hope_s(record, now, "", now)
            record.since = now

    def paused(self, name: str, reason: str, ended: bool, now: float) -> None:
        record = self.records.get(name)
        if record is not None and ended:
            del self.records[name]
        elif record is not None and record.since is not None:
            record.until = record.since + self.hope_s(record, record.since, reason, now)

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
            assert programs.claimed[i] == sum(one.owned for one in claims.values())
            away = {name for name, one in claims.items() if one.since is not None}
            assert programs.away[i].keys() == away
            back = [one for one in claims.values() if one.calls > 1 or one.since is not None]
            assert programs.owners[i] == len(back)
            assert programs.settled[i] == sum(one.owned for one in back)
            for name in self.records:
                assert programs.claims(name, i) == (claims[name].owned if name in claims else 0)
        pauses = [one for one in self.records.values() if one.since is not None]
        waited = [one.until for one in pauses if one.claimed(now)]
        if waited:
            assert programs.next_expiry is not None
            assert now < programs.next_expiry <= min(waited)


def lives(seed: int, steps: int = 250) -> None:
    """Programs that call, leave, come back, move, lose their instance and tell of pauses."""
    draw, now = random.Random(seed), 0.0
    programs = Programs(INSTANCES)
    model, flying, place = Model(programs), list[Work](), dict[str, int]()
    for k in range(steps):
        now += draw.choice([0.0, 0.1, 0.5, 2.0, 10.0, FORGOTTEN_S if k % 60 == 0 else 1.0])
        programs.expire(now)
        model.forget(now)
        name = draw.choice("abcde")
        kind = draw.choice(["call", "call", "held", "end", "end", "end", "moves", "pause", "down"])
        if kind in ("call", "held"):
            more = {"program": name, "component": draw.choice(["c", "d"])}
            work = call(f"{name}{k}", (), now, total=draw.randint(1, 90), **more)
            flying.append(work)
        elif flying:
            work = draw.choice(flying)
        if kind in ("call", "held", "moves") and flying:
            model.came(work)
            programs.came(work)
        if kind in ("call", "moves") and flying:
            i, found, answer = draw.randrange(INSTANCES), draw.randint(0, 30), draw.randint(0, 9)
            model.joined(work, i, found, answer)
            programs.joined(work, i, found, answer)
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
            model.paused(name, *told, now)
            programs.paused(name, *told, now)
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
    edited(Programs.expire, "until_when[0][0] <= now", "until_when[0][0] < now"),
)
@catches(
    "claims-while-it-calls",
    "a program that calls again is given up as if it were away",
    edited(Programs.came, "self._back(program, work.arrival)", "pass"),
)
@catches(
    "moved-twice",
    "what a program left where it was counts there for ever",
    edited(Programs._unclaim, "self.claimed[program.at] -= program.claim", "pass"),
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
    edited(Programs.down, "program.at, program.tokens = -1, 0", "self._claim(program)"),
)
@catches(
    "who-is-held-claims",
    "a program that is held itself keeps the others out",
    edited(Programs._claim, "program.works or hoped", "program.works or program.waiting or hoped"),
)
def test_programs_are_claimed_as_a_slow_model_says() -> None:
    for seed in range(12):
        lives(seed)


def back(returns: Returns, kind: Hashable, seconds: float, since: float = 0.0) -> None:
    """A program was away so long."""
    returns.back(returns.away(kind, since), seconds)


def turn(programs: Programs, run: str, arrival: float, end: float) -> None:
    """A call of the program that its first letter names, from its arrival to its end."""
    work = call(run, (), arrival, total=10, program=run[0])
    programs.came(work)
    programs.joined(work, 0, 0, 0)
    programs.left(work, end, 0)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_away_and_back_and_away_again_it_is_waited_for_anew(times: int) -> None:
    programs = Programs(1)
    for k in range(times):
        turn(programs, f"a{k}", 4.0 * k, 4.0 * k + 2.0)
    last = 4.0 * times - 2.0
    until = last + last  # nothing is known: as long as it had been there
    programs.expire(until - 0.001)
    assert programs.claimed == [10]
    assert programs.expire(until)
    assert programs.claimed == [0]


@catches(
    "nothing-known-is-remembered",
    "as long as nothing was known of one, so long all are waited for that come after it",
    edited(Returns._known_rates, "del self._rates[kind]", "self._rates[kind] = [0.0] * len(AGES)"),
)
def test_while_nothing_is_known_each_is_waited_for_as_long_as_it_was_there() -> None:
    returns = Returns()
    assert [returns.hope_s("kind", age_s, 0.0) for age_s in (1.0, 40.0)] == [1.0, 40.0]
    for _ in range(FEW_PAUSES):
        back(returns, "kind", 5.0)
    assert 4.0 < returns.hope_s("kind", 40.0, 0.0) < 6.0


def test_a_rate_holds_until_the_age_at_which_it_changes() -> None:
    returns = Returns()
    for seconds in (0.5, 1.0, 5.0, 40.0) * FEW_PAUSES:
        back(returns, "kind", seconds)
    age_s, ages = 0.0, list[float]()
    while age_s < inf:
        until = returns.changes_at(age_s)
        assert until > age_s, "there is always a next one"
        between = (age_s + min(until, 2 * age_s + 1)) / 2
        assert returns.changes_at(between) == until
        assert returns.rate("kind", between, 0.0) == returns.rate("kind", age_s, 0.0)
        ages.append(age_s)
        age_s = until
    assert tuple(ages) == AGES
    assert len({returns.rate("kind", age, 0.0) for age in ages}) > 3


@catches(
    "silence-teaches-late",
    "a session that ended in silence teaches nothing for an hour",
    edited(Returns._fitted, "_add(gone, self._away.get(kind, ()), now)", "pass"),
)
def test_silence_teaches_as_it_goes_on() -> None:
    rates = []
    for silent_s in (0.5, 60.0):
        returns = Returns()
        for _ in range(FEW_PAUSES):
            back(returns, "kind", 2.0)
        for _ in range(3 * FEW_PAUSES):
            returns.away("kind", 0.0)
        rates.append(returns.rate("kind", 0.0, silent_s))
    assert 0.4 < rates[0] < 0.6, "one each two seconds"
    assert 0.1 < rates[1] < 0.15, "of four one came back"


def test_a_session_that_ended_in_silence_stops_counting_within_its_learned_time() -> None:
    programs, now = Programs(1), 0.0
    for k in range(60):  # each calls twice, 2 s apart, and never again
        name = f"{chr(200 + k)}"
        turn(programs, f"{name}1", now, now + 1.0)
        turn(programs, f"{name}2", now + 3.0, now + 4.0)
        now += 5.0
        programs.expire(now)
    assert programs.claimed[0] <= 10
    turn(programs, "a1", now, now + 1.0)
    assert programs.next_expiry is not None
    assert now + 3.0 < programs.next_expiry < now + 5.0, "it comes back after 2 s or never"
    assert programs.claimed == [10]
    turn(programs, "a2", now + 3.0, now + 4.0)
    assert programs.claimed == [0], "who calls for the second time does not come back"


@catches(
    "holds-are-pauses",
    "how long a call was held is learned as a pause, and so it is held again",
    edited(Programs.came, "self._back(program, work.arrival)", "self._back(program, 1e3)"),
)
def test_a_pause_ends_when_a_call_comes_and_not_when_it_is_sent() -> None:
    programs = Programs(1)
    for k in range(FEW_PAUSES + 1):
        work = call(f"a{k}", (), 10.0 * k, total=10, program="a")
        programs.came(work)
        programs.expire(10.0 * k + 7.0)  # it is held so long
        programs.joined(work, 0, 0, 0)
        programs.left(work, 10.0 * k + 8.0, 0)
    program = programs.get("a")
    assert program is not None
    assert 1.0 < program.until - 10.0 * FEW_PAUSES - 8.0 < 3.0, "its pauses are of 2 s"


@catches(
    "filed-by-what-it-was",
    "a pause is filed by itself, and not by what is known when it begins",
    edited(
        Programs._back,
        "self.returns.back(away, program.last_s)",
        "self.returns.back(self.returns.away(self.returns.kind(program.category, '', "
        "program.last_s), 0.0), program.last_s), self.returns.ended(away)",
    ),
)
def test_a_pause_is_filed_by_the_pause_before() -> None:
    programs, now = Programs(1), 0.0
    for k in range(4 * FEW_PAUSES):  # by turns of 2 s and of 100 s
        turn(programs, f"a{k}", now, now + 1.0)
        now += 1.0 + (2.0, 100.0)[k % 2]
    since = now - 100.0
    program = programs.get("a")
    assert program is not None
    assert 90.0 < program.until - since < 120.0, "it was 2 s, so now it is 100"


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
        returns = Returns()
        for _ in range(REFIT - 1):
            getattr(returns, learned)(returns.away("kind", 0.0), 5.0)
        bins = returns._back if learned == "back" else returns._gone
        assert sum(bins["kind"]) == REFIT - 1
        getattr(returns, learned)(returns.away("kind", 0.0), 5.0)
        assert sum(bins["kind"]) == pytest.approx(REFIT * FORGET)


def test_a_call_that_ended_without_a_token_leads_nobody() -> None:
    programs, one = Programs(1), call("a", (), total=10, program="p")
    programs.joined(one, 0, 0, 5)
    program = programs.get("p")
    assert program is not None
    assert len(program.begun) == 1
    programs.left(one, 1.0)
    assert not program.begun
