"""Simulation: an application under load in virtual time, with as many instances as one asks for.

The graphs, passes and policies are those that serve. Times, and what components write, are those
that were learned or that a profile tells; what nobody knows is assumed, and the result says so. The
figures are of a service that begins with empty caches. Reading documents is not part of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf
from statistics import fmean
from typing import Any, Final

from teola.cost import UNTIMED
from teola.errors import InputError, UnknownName, reason_of
from teola.graph import (
    ConditionParams,
    DecodeParams,
    Op,
    Primitive,
    Role,
    SearchParams,
    WaitParams,
    WebSearchParams,
)
from teola.graph.ops import DECODES, PREFILLS
from teola.passes.estimate import CHUNK_TOKENS, ITEM_TOKENS, ROLE_TOKENS, planned_output
from teola.profile import Profile, load_profile
from teola.query.application import Application
from teola.query.spec import Overrides
from teola.runtime.engines import with_policies
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.outcome import Assumed, Planned
from teola.runtime.values import Tokens, tokens_of
from teola.schedule.events import State
from teola.sim_result import SimResult
from teola.workflow.inputs import absent, completed, nested
from teola.workflow.kinds import LISTS, Kind
from teola.workflow.part_template import all_primitives

PLANNED_CHUNKS: Final = 48
"""Chunks that are assumed if no documents are given (the paper's example)."""
TEXT_TOKENS: Final = ROLE_TOKENS[Role.QUESTION]
ANSWERED: Final = (State.OK, State.PARTIAL)

Branch = str | Mapping[str, float]
"""One that is always taken, or how often each is."""


@dataclass(frozen=True)
class Workload:
    """What an application is simulated with; see `App.simulate`."""

    rate: float
    queries: int = 600
    pools: Mapping[str, int] = field(default_factory=dict)
    profile: Profile | str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, Branch] = field(default_factory=dict)
    overrides: Overrides | None = None
    batching: str | None = None
    routing: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.rate, bool) or not 0 < self.rate < inf:
            raise InputError(f"rate must be queries a second, more than 0, got {self.rate!r}")
        if type(self.queries) is not int or self.queries < 1:
            raise InputError(f"queries must be a number from 1 on, got {self.queries!r}")
        for name, tokens in self.lengths.items():
            _check_tokens(f"the length of {name!r}", tokens)


def simulate(app: Application, load: Workload) -> SimResult:
    """See `App.simulate`."""
    return _Simulation(app, load).result()


class _Simulation:
    """One application under one load."""

    def __init__(self, app: Application, load: Workload) -> None:
        self.app, self.load = app, load
        self.where = f"application {app.name!r}"
        self.primitives = list(all_primitives(app.builder))
        self.engines = list(dict.fromkeys(p.engine for p in self.primitives if p.engine))
        for name in load.pools:
            if name not in self.engines:
                raise UnknownName("engine", name, self.engines, f"`pools` of {self.where}")
        own = {name: app.home.configs[name] for name in self.engines}
        self.configs = with_policies(own, load.batching, load.routing)
        self.instances = {n: load.pools.get(n, c.instances) for n, c in self.configs.items()}
        self.profile = self._profile()
        self.assumed: dict[str, Assumed] = {}
        self.learned: dict[str, Assumed] = {}
        self.lengths = self._lengths()
        self.branches = self._branches()
        self.given = self._given()

    # --- what is known ----------------------------------------------------------------------

    def _profile(self) -> Profile:
        """That of the load, or what is known by now. Raises InputError where times are missing."""
        runtime, named = self.app.home, self.load.profile
        if named is None:
            profile = runtime.profile_for(self.engines)
        else:
            loaded = load_profile(named) if isinstance(named, str) else named
            profile = loaded.for_engines([runtime.spec(name) for name in self.engines])
        unknown = dict.fromkeys(p.engine for p in self.primitives if not _timed(p, profile))
        if unknown:
            raise InputError(
                f"how long the engines {', '.join(unknown)} take is not known: give `profile` a "
                "name such as 'paper-13b' or a file of `teola profile measure`, or let the "
                "application answer queries first"
            )
        return profile

    def _lengths(self) -> dict[str, int]:
        """Component -> tokens that it writes, as they were given or learned."""
        given, writes = self.load.lengths, _writing(self.primitives)
        for name, tokens in given.items():
            if name not in writes:
                raise UnknownName("component", name, writes, f"`lengths` of {self.where}")
            params = writes[name].params
            if isinstance(params, DecodeParams):
                most = params.max_tokens // (params.items or 1)
                if tokens > most:
                    raise InputError(
                        f"{name!r} writes {most} tokens at most, not {tokens}: raise its max_tokens"
                    )
        found = dict(given)
        for name, p in writes.items():
            habit = self.profile.habit(self.app.name, name)
            if name in found or not habit.calls or not isinstance(p.params, DecodeParams):
                continue
            one = ITEM_TOKENS if p.params.items or p.params.item is not None else planned_output(p)
            found[name] = self.learned[f"{name}.tokens"] = max(1, round(one * habit.output))
        return found

    def _branches(self) -> dict[str, Mapping[str, float]]:
        """Condition -> how often each branch is taken, as it was given or learned."""
        conditions = {p.component: p.params for p in self.primitives if p.op is Op.CONDITION}
        found: dict[str, Mapping[str, float]] = {}
        for name, chosen in self.load.branches.items():
            if name not in conditions:
                raise UnknownName("condition", name, conditions, f"`branches` of {self.where}")
            params = conditions[name]
            assert isinstance(params, ConditionParams)
            shares = {chosen: 1.0} if isinstance(chosen, str) else dict(chosen)
            for branch, share in shares.items():
                if branch not in params.branches:
                    raise UnknownName("branch", branch, params.branches, f"condition {name!r}")
                if not 0 <= share < inf:
                    raise InputError(f"branch {branch!r} of {name!r} cannot be taken {share!r}")
            if not sum(shares.values()):
                raise InputError(f"condition {name!r} has to take some branch")
            found[name] = shares
        for name in conditions:
            seen = self.profile.habit(self.app.name, name).branches
            if name not in found and seen:
                found[name] = seen
                for branch, count in seen.items():
                    share = count / sum(seen.values())
                    self.learned[f"{name}.{branch}"] = f"{share:.0%}"
        return found

    # --- what the queries bring ---------------------------------------------------------------

    def _given(self) -> dict[str, Any]:
        """Input -> its length in tokens, lengths of its list, or its value; documents as lengths of
        their chunks."""
        declared, given = self.app.declared, dict(self.load.inputs)
        for name in given:
            if name not in declared:
                raise UnknownName("input", name, declared, self.where)
        found = completed(declared, given)
        for name, kind in self.app.inputs.items():
            if name in found:
                if not self._is_default(name):
                    found[name] = _measured(name, kind, found[name])
                if kind is Kind.DOCUMENTS and isinstance(given[name], int):
                    self.assumed[f"{name}.chunk_tokens"] = CHUNK_TOKENS
            elif kind is Kind.DOCUMENTS:
                self.assumed[name] = f"{PLANNED_CHUNKS} chunks of {CHUNK_TOKENS} tokens"
                found[name] = [CHUNK_TOKENS] * PLANNED_CHUNKS
            elif not declared[name].optional:
                self.assumed[name] = f"{TEXT_TOKENS} tokens"
                found[name] = [TEXT_TOKENS] if kind is Kind.TEXTS else TEXT_TOKENS
        return found

    def _is_default(self, name: str) -> bool:
        """Whether an input has the default of its declaration, of any kind: that is no length."""
        return self.app.inputs[name] is Kind.ANY and name not in self.load.inputs

    def _values(self) -> dict[str, Any]:
        """Inputs of another query: nobody had its texts before."""
        values: dict[str, Any] = dict.fromkeys(self.app.builder.inputs)
        for name, value in self.given.items():
            if self._is_default(name):
                pass
            elif isinstance(value, list):
                value = [Tokens(tokens) for tokens in value]
            elif type(value) is int:
                value = Tokens(value)
            if self.app.inputs[name] is Kind.DOCUMENTS:
                values |= {"chunks": value, "scope": Tokens(0)}
            else:
                values[name] = value
        return values

    # --- running ------------------------------------------------------------------------------

    def result(self) -> SimResult:
        """Let the queries arrive, and wait for the last one."""
        load, app, values = self.load, self.app, self._values()
        kinds = app.builder.inputs
        sizes = {
            name: len(value)
            for name, value in values.items()
            if isinstance(value, list) and (name == "chunks" or kinds[name] in LISTS)
        }
        lacks = absent(app.declared, self.given)
        optimiser = Optimiser(app.builder, self.profile)
        plan = optimiser.plan(nested(load.overrides), sizes, app.passes, absent=lacks)
        outcomes = _Outcomes(self.lengths, self.branches, load.seed)
        sim = self._sim(outcomes)
        arrivals = list(_arrivals(load.rate, load.queries, load.seed))
        for k, at in enumerate(arrivals):
            sim.submit(plan, self._values(), at=at, id=f"{k}", app=app.name)
        results = sorted(sim.run(), key=lambda query: int(query.id))
        for p in self.primitives:
            if p.op is Op.TOOL_CALL and not self._takes_time(p):
                self.assumed[f"{p.component}.seconds"] = 0.0
        return self._summed(results, sim, arrivals[0], {**self.assumed, **outcomes.assumed})

    def _takes_time(self, p: Primitive) -> bool:
        """Whether one knows how long a function takes."""
        seen = self.profile.habit(self.app.name, p.component).seconds
        return seen is not None or p.op in self.profile.engine(p.engine).costs

    def _sim(self, outcomes: Planned) -> Sim:
        configs = self.configs

        def each(what: str) -> dict[str, Any]:
            return {name: getattr(config, what) for name, config in configs.items()}

        return Sim(
            self.profile,
            batching=each("batching"),
            routing=each("routing"),
            policy_options=each("batching_options"),
            routing_options=each("routing_options"),
            hedge={name: one.hedge for name, one in configs.items() if one.hedge is not None},
            instances=self.instances,
            outcomes=outcomes,
        )

    def _summed(
        self,
        results: Sequence[SimulatedQuery],
        sim: Sim,
        began: float,
        assumed: Mapping[str, Assumed],
    ) -> SimResult:
        answered = [query for query in results if query.state in ANSWERED]
        seconds = [query.latency_s if query.state in ANSWERED else inf for query in results]
        duration = max((query.finished for query in results if query.state), default=began) - began
        reasons = Counter(_reason(query) for query in results if query.state not in ANSWERED)
        third = max(1, len(answered) // 3)
        late = [query.latency_s for query in answered[-third:]]
        middle = [query.latency_s for query in answered[-2 * third : -third]]
        return SimResult(
            app=self.app.name,
            rate=self.load.rate,
            queries=self.load.queries,
            p50=_percentile(seconds, 50),
            p95=_percentile(seconds, 95),
            p99=_percentile(seconds, 99),
            mean=fmean(seconds),
            unfinished=len(results) - len(answered),
            instances=self.instances,
            busy=sim.busy_shares(duration),
            duration_s=duration,
            growth=fmean(late) / fmean(middle) if middle and fmean(middle) else 1.0,
            profile=self.profile.name,
            assumed=assumed,
            learned=self.learned,
            reasons=dict(reasons.most_common()),
        )


class _Outcomes(Planned):
    """As planned, but for branches, which are drawn by how often each is taken."""

    def __init__(
        self, lengths: Mapping[str, int], branches: Mapping[str, Mapping[str, float]], seed: int
    ) -> None:
        super().__init__(lengths=lengths, seed=seed)
        self.branches = branches

    def branch(self, query: Query, i: int) -> str:
        shares = self.branches.get(query.plan.primitives[i].component)
        if shares is None:
            return super().branch(query, i)
        draw = random.Random(f"{self.seed}/{query.id}/{i}/branch")
        return draw.choices(list(shares), list(shares.values()))[0]


def _timed(p: Primitive, profile: Profile) -> bool:
    """Whether one knows how long it takes; a function counts as nothing until it was seen."""
    if not p.engine or p.op is Op.TOOL_CALL:
        return True
    engine = profile.engine(p.engine)
    return engine.step != UNTIMED if p.op in PREFILLS | DECODES else p.op in engine.costs


def _writing(primitives: Sequence[Primitive]) -> dict[str, Primitive]:
    """Component -> one of its primitives that makes texts."""
    found: dict[str, Primitive] = {}
    for p in primitives:
        if isinstance(p.params, (DecodeParams, SearchParams, WebSearchParams, WaitParams)) or (
            p.op is Op.TOOL_CALL
        ):
            found.setdefault(p.component, p)
    return found


def _measured(name: str, kind: Kind, value: Any) -> Any:
    """A length or a text as its length; lists of them alike; documents as lengths of chunks."""
    if kind is Kind.DOCUMENTS:
        if type(value) is int and value >= 0:
            return [CHUNK_TOKENS] * value
        if not isinstance(value, list):
            raise InputError(
                f"input {name!r}: give the number of chunks, or a list of their lengths in tokens"
            )
    if isinstance(value, list):
        return [_tokens(name, one) for one in value]
    if kind is Kind.TEXTS:
        raise InputError(f"input {name!r} must be a list of texts, or of their lengths in tokens")
    return _tokens(name, value) if kind is Kind.TEXT or type(value) in (int, str) else value


def _tokens(name: str, value: Any) -> int:
    if isinstance(value, str):
        return tokens_of(value)
    _check_tokens(f"input {name!r}", value)
    return int(value)


def _check_tokens(what: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InputError(f"{what} must be a number of tokens, from 1 on, got {value!r}")


def _arrivals(rate: float, count: int, seed: int) -> Iterator[float]:
    """When queries arrive, by chance (a Poisson process). Another rate only scales the gaps."""
    draw, now = random.Random(f"arrivals/{seed}"), 0.0
    for _ in range(count):
        now += draw.expovariate(1.0)
        yield now / rate


def _percentile(seconds: Sequence[float], percent: float) -> float:
    """Linear between the nearest two."""
    ordered = sorted(seconds)
    at = (len(ordered) - 1) * percent / 100
    low = ordered[floor(at)]
    high = ordered[min(floor(at) + 1, len(ordered) - 1)]
    if high == inf:
        return low if at == floor(at) else inf
    return low + (high - low) * (at - floor(at))


def _reason(query: SimulatedQuery) -> str:
    """Why a query has no answer."""
    if query.state is None:
        return "never ended"
    return reason_of(query.error) if query.error is not None else query.state.value
