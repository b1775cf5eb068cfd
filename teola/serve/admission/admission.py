"""Admission: who is let in, counted in the work that queries bring and not only in queries.

Queries of one application and about one size are a *kind* (`learning`). Of each it is known how
long one takes when nothing is in its way (`own_s`), and how many seconds it has a place at each
engine (`work`). What an engine does side by side are its *lanes*. If `n` queries bring `work` each,
the engine is busy for `n * work / lanes`, and the last of them ends after

    max(own_s, n * work / lanes)

(asymptotic bounds; Denning and Buzen, The operational analysis of queueing network models, 1978).
What is above `own_s` is the wait to be expected. A query is refused if that is longer than
`max_wait_s` at any of its engines, or if it would not end before its deadline.

Tenants share by weight. Where several have queries, one waits for the others no longer than its own
work takes on its share of the lanes (policy `fair`), so whoever uses less than his share is still
let in when others are not. What is learned of a tenant's queries counts for its own alone: the same
application may take one tenant seconds and another minutes.

No clock, no I/O: the same events give the same decisions. With nothing running the next query is
always let in, and when the last one has ended no work is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final, NamedTuple

from teola.errors import Overloaded
from teola.runtime.observe.demand import Demand
from teola.serve.admission.learning import Crowd, Learned, QueryClass, size_class

TURNS: Final = 10
"""If no wait is configured: as long as so many like it take their turn at the engine (about what
the slowest in a hundred wait for one that is busy for 80 % of the time) ..."""
SHORTEST_S: Final = 0.5
LONGEST_S: Final = 30.0
"""... but within these bounds."""
UNKNOWN: Final = 32
"""Queries of one kind that may run before one of them has ended, unless more fit side by side.
A kind that is expected to take at most `SHORTEST_S` has no such bound."""
BURST_S: Final = 10.0
"""A tenant that was silent may send so many seconds' worth of its rate at once."""


class Lanes(NamedTuple):
    """What an engine does side by side now.

    width: places that it has. Nobody knows it of an LLM, which takes everybody and becomes slower.
    inside: how many an LLM has begun with; None for other engines. fits: calls as long as they are
    on average for which an LLM has memory (infinite: nobody knows).
    """

    width: float
    inside: int | None = None
    fits: float = inf


class Ticket(NamedTuple):
    """A query that was let in. at_once: how many ran then. at_ease: it was to wait for none."""

    kind: QueryClass
    tenant: str
    at_once: int
    at_ease: bool


@dataclass(frozen=True, slots=True)
class Shares:
    """What tenants may take. weights: 1 for those that are not named. rate: queries a second of one
    tenant (None: any)."""

    weights: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None


NO_SHARES: Final = Shares()


@dataclass(slots=True)
class EngineLoad:
    """At one engine. work_s: seconds of its lanes. weighed: the same times what each query takes
    for itself, for the mean of that."""

    work_s: float = 0.0
    weighed: float = 0.0

    def add(self, count: int, work_s: float, own_s: float) -> None:
        self.work_s += count * work_s
        self.weighed += count * work_s * own_s

    def wait_s(self, lanes: float) -> float:
        """How much longer the last query takes than it would alone (below 0: it need not wait)."""
        if not self.work_s:
            return 0.0
        return self.work_s / lanes - self.weighed / self.work_s


@dataclass(slots=True)
class Bucket:
    """What is left of a tenant's rate. at: when that was worked out."""

    left: float
    at: float


@dataclass(slots=True)
class Tenant:
    """What is known of one tenant's queries. active: the kinds of which some run. crowds: by
    engine. bucket: None without a rate."""

    kinds: dict[QueryClass, Learned] = field(default_factory=dict)
    active: dict[QueryClass, Learned] = field(default_factory=dict)
    crowds: dict[str, Crowd] = field(default_factory=dict)
    bucket: Bucket | None = None

    def crowd(self, engine: str) -> Crowd:
        """How an engine slows down, as far as this tenant has seen."""
        crowd = self.crowds.get(engine)
        if crowd is None:
            crowd = self.crowds[engine] = Crowd()
        return crowd


class Admission:
    """lanes: of an engine. planned: what is expected of a kind before one of it has ended.
    max_wait_s: None: see TURNS."""

    def __init__(
        self,
        lanes: Callable[[str], Lanes],
        planned: Callable[[QueryClass], Demand],
        max_wait_s: float | None = None,
        shares: Shares = NO_SHARES,
    ) -> None:
        self._now, self._planned = lanes, planned
        self.max_wait_s, self.shares = max_wait_s, shares
        self._tenants: dict[str, Tenant] = {}
        self._present: dict[str, Tenant] = {}
        """Those of whose queries some run."""
        self.running = 0

    # --- events ---------------------------------------------------------------------------

    def admit(
        self, app: str, characters: int, tenant: str, now: float, deadline_s: float = inf
    ) -> Ticket:
        """Let a query in. Raises Overloaded."""
        wait_s = self.check(app, characters, tenant, now, deadline_s)
        return self.take(app, characters, tenant, now, at_ease=wait_s <= 0)

    def take(
        self, app: str, characters: int, tenant: str, now: float, *, at_ease: bool = False
    ) -> Ticket:
        """Count a query that is in already, such as one that was accepted before a restart."""
        ticket = Ticket(QueryClass(app, size_class(characters)), tenant, self.running, at_ease)
        self.goes_on(ticket, now)
        if self.shares.rate is not None:
            self._bucket(self._tenant(tenant), now).left -= 1
        return ticket

    def goes_on(self, ticket: Ticket, now: float) -> None:
        """It brings work (again)."""
        mine = self._tenant(ticket.tenant)
        learned = self._learned(mine, ticket.kind)
        if not learned.running:
            learned.since = now
            mine.active[ticket.kind] = learned
        learned.running += 1
        self.running += 1
        self._present[ticket.tenant] = mine

    def pauses(self, ticket: Ticket) -> None:
        """It brings no work until it goes on: it waits for people."""
        mine = self._present[ticket.tenant]
        learned = mine.active[ticket.kind]
        learned.running -= 1
        self.running -= 1
        if not learned.running:
            del mine.active[ticket.kind]
        if not mine.active:
            del self._present[ticket.tenant]

    def ended(self, ticket: Ticket, demand: Demand | None) -> None:
        """A query that went on is over. demand: what it took, if it went all the way."""
        self.pauses(ticket)
        if demand is not None:
            mine = self._tenant(ticket.tenant)
            self._learn(mine, self._learned(mine, ticket.kind), demand, ticket)

    def check(
        self, app: str, characters: int, tenant: str, now: float, deadline_s: float = inf
    ) -> float:
        """The wait of such a query, in seconds. Raises Overloaded if it would be refused now."""
        mine = self._tenant(tenant)
        if self.shares.rate is not None:
            self._check_rate(self.shares.rate, mine, now)
        learned = self._learned(mine, QueryClass(app, size_class(characters)))
        if not self.running:
            return 0.0
        demand, longest_s = learned.demand(now), 0.0
        loads = self._loads(demand.work, now)
        for engine, work_s in demand.work.items():
            lanes, load = self._lanes(mine, engine), loads[engine]
            load.add(1, work_s, demand.own_s)
            most_s = self._most_s(work_s / lanes, demand.own_s, deadline_s)
            wait_s = load.wait_s(lanes)
            if wait_s > most_s:
                wait_s = min(wait_s, self._fair_wait_s(engine, demand, tenant, lanes, now))
                if wait_s > most_s:
                    raise _too_long(engine, wait_s, wait_s - most_s)
            longest_s = max(longest_s, wait_s)
        self._check_unknown(mine, learned, demand)
        return longest_s

    def backlog(self, now: float) -> dict[str, tuple[float, float]]:
        """By engine: seconds of its lanes that running queries bring, and the wait to expect, as
        far as the tenant knows that has seen most of it."""
        here = self._present.values()
        engines = {
            name
            for mine in here
            for learned in mine.active.values()
            for name in learned.demand(now).work
        }
        by_engine: dict[str, tuple[float, float]] = {}
        for engine, load in self._loads(engines, now).items():
            wise = max(here, key=lambda mine: mine.crowd(engine).inside.seen)
            by_engine[engine] = (load.work_s, max(0.0, load.wait_s(self._lanes(wise, engine))))
        return by_engine

    # --- inside ---------------------------------------------------------------------------

    def _tenant(self, name: str) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant()
        return tenant

    def _lanes(self, mine: Tenant, engine: str) -> float:
        lanes = self._now(engine)
        width = max(1.0, lanes.width)
        return width if lanes.inside is None else mine.crowd(engine).lanes(width, lanes.fits)

    def _learn(self, mine: Tenant, learned: Learned, demand: Demand, ticket: Ticket) -> None:
        for engine, took_s in demand.work.items():
            inside = self._now(engine).inside
            if inside is not None:
                mine.crowd(engine).saw(inside + 1, took_s, learned.alone.get(engine, took_s))
        most = max(ticket.at_once, self.running)
        calm = most if ticket.at_ease or not learned.known else None
        learned.add(demand, calm, mine.crowds)

    def _most_s(self, turn_s: float, own_s: float, deadline_s: float) -> float:
        """The longest wait of a query that is let in; any one may hope to do without waiting."""
        most_s = self.max_wait_s
        if most_s is None:
            most_s = min(max(TURNS * turn_s, SHORTEST_S), LONGEST_S)
        return max(0.0, min(most_s, deadline_s - own_s))

    def _learned(self, mine: Tenant, kind: QueryClass) -> Learned:
        learned = mine.kinds.get(kind)
        if learned is None:
            learned = mine.kinds[kind] = Learned(self._planned(kind))
        return learned

    def _loads(self, engines: Iterable[str], now: float) -> dict[str, EngineLoad]:
        loads = {engine: EngineLoad() for engine in engines}
        for mine in self._present.values():
            _put_all(loads, mine, now)
        return loads

    def _fair_wait_s(
        self, engine: str, demand: Demand, tenant: str, lanes: float, now: float
    ) -> float:
        """The wait if this tenant is given its share of the engine and no more."""
        others = [name for name in self._present if name != tenant]
        if not others:
            return inf
        weights = self.shares.weights
        mine = weights.get(tenant, 1.0)
        share = mine / (mine + sum(weights.get(name, 1.0) for name in others))
        load = EngineLoad()
        _put_all({engine: load}, self._tenant(tenant), now)
        load.add(1, demand.work[engine], demand.own_s)
        return load.wait_s(lanes * share)

    def _check_unknown(self, mine: Tenant, learned: Learned, demand: Demand) -> None:
        """Raise Overloaded where too many queries run already whose length nobody knows yet."""
        if learned.known or demand.own_s <= SHORTEST_S or not demand.work:
            return
        fits = min(self._lanes(mine, engine) for engine in demand.work)
        if learned.running >= max(UNKNOWN, fits):
            raise Overloaded(
                f"none of the first {learned.running} queries of this kind has ended yet; try "
                "again in 1 s"
            )

    def _check_rate(self, rate: float, mine: Tenant, now: float) -> None:
        left = self._bucket(mine, now).left
        if left < 1:
            after_s = (1 - left) / rate
            raise Overloaded(
                f"more than {rate:g} queries a second; try again in {ceil(after_s)} s",
                retry_after_s=after_s,
            )

    def _bucket(self, mine: Tenant, now: float) -> Bucket:
        """What is left of a tenant's rate now."""
        rate = self.shares.rate or 0.0
        most = max(1.0, BURST_S * rate)
        bucket = mine.bucket
        if bucket is None:
            bucket = mine.bucket = Bucket(most, now)
        bucket.left = min(most, bucket.left + rate * (now - bucket.at))
        bucket.at = now
        return bucket


def _put_all(loads: Mapping[str, EngineLoad], mine: Tenant, now: float) -> None:
    """Add a tenant's running queries to the loads of the engines that are asked about."""
    for learned in mine.active.values():
        demand = learned.demand(now)
        for engine, work_s in demand.work.items():
            if work_s and engine in loads:
                loads[engine].add(learned.running, work_s, demand.own_s)


def _too_long(engine: str, wait_s: float, after_s: float) -> Overloaded:
    return Overloaded(
        f"engine {engine!r} has work for {wait_s:.1f} s before this query; try again in "
        f"{max(1, ceil(after_s))} s",
        retry_after_s=after_s,
    )
