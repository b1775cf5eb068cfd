"""How fast one query can be at best: a lower bound on its latency under a profile.

Two things bound it, whoever schedules:

* the longest path of its graph, with every primitive alone on its engine;
* what one engine has to do: if a set of primitives can start at `r` at the earliest, takes the
  engine's instances at least `w` together and has paths of at least `d` behind it, then nothing
  behind all of them starts before `r + w + d`. `w` counts what batching saves: it is the time of
  the work in as few batches as the profile allows, spread over all instances.

The second is needed because stages of one embedding are parallel in the graph and yet run on one
instance, one after the other. Both are worked out from the graph, the profile and what the workload
answers; nothing of the schedulers or of the simulated engines is in here, so the bound is a check
on them. What a prefix cache could have of a prompt is not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from teola.graph import Op
from teola.graph.ops import CONTROL, DECODES, GROUP_HEADS, PREFILLS
from teola.kv import Excerpt, excerpt_keys
from teola.profile import Cost, EngineProfile, Profile
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Trace
from teola.runtime.sim.content import prompt_of
from teola.runtime.sim.outcome import Outcomes
from teola.runtime.store import Store
from teola.runtime.values import Tokens, is_literal
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Absence, Plan


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds. path: of the longest path alone. bound: with the engines' instances as well."""

    path_s: float
    bound_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a primitive asks of its engine. seconds: alone there. variable: the part of it that
    batching does not save. items: of its list, or 1 for a prefill."""

    seconds: float
    variable: float = 0.0
    items: int = 1


def bound(
    plan: Plan, inputs: Mapping[str, Any], id: str, outcomes: Outcomes, profile: Profile
) -> Bound:
    """The bounds of query `id` with these inputs."""
    works = _Walk(plan, inputs, id, outcomes, profile).works()
    return Bound(*(_Earliest(plan, works, profile, share).end() for share in (False, True)))


class _Walk:
    """Goes through the graph once, in order, to learn what every primitive has to do."""

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        id: str,
        outcomes: Outcomes,
        profile: Profile,
    ) -> None:
        self.plan, self.outcomes, self.profile = plan, outcomes, profile
        self.store = Store(plan, inputs)
        self.query = Query(id, plan, self.store, GraphRun(id, plan), Trace(id, "", plan, 0.0))
        self._absence = Absence(plan, self.store.counts())
        self._branches: dict[str, str] = {}
        self._found: dict[int, Work] = {}
        self._said: dict[int, tuple[Excerpt, ...]] = {}
        self._seen: dict[str, set[int]] = defaultdict(set)

    def works(self) -> dict[int, Work]:
        """Work by primitive; those that are skipped are left out."""
        for id in self.plan.graph.order:
            i = self.plan.index[id]
            p = self.plan.primitives[i]
            if p.op in DECODES:
                continue  # delivered with its prefill
            guarded = all(self._branches.get(g.condition) == g.branch for g in p.guards)
            if guarded and not self._absence.skips(i):
                self._run(i, p.op)
        return self._found

    def _run(self, i: int, op: Op) -> None:
        if op is Op.CONDITION:
            branch = self.outcomes.branch(self.query, i)
            self._branches[self.plan.ids[i]] = branch
            self._put(i, {"branch": branch}, Work(0.0))
        elif op in CONTROL:
            self._put(i, self.store.control(i), Work(0.0))
        elif op in PREFILLS:
            self._prefill(i, op)
        else:
            self._batch(i, op)

    def _put(self, i: int, result: Mapping[str, Any], work: Work) -> None:
        self._absence.counts[i] = self.store.put(i, result)
        self._found[i] = work

    def _prefill(self, i: int, op: Op) -> None:
        engine, cost = self._engine(i)
        tokens = self._uncached(i, engine)
        seconds = self.profile.dispatch_s + cost.seconds(1, tokens)
        work = Work(seconds, cost.per_item_s + cost.per_token_s * tokens)
        self._put(i, {"sequence": Tokens(tokens)}, work)
        if op not in GROUP_HEADS:
            return
        before = 1  # the first token comes with the prefill
        for delivery in self.outcomes.call(self.query, i)[1]:
            steps = max(0, delivery.at - before)
            before = max(before, delivery.at)
            step = engine.step.seconds(1)
            self._put(delivery.primitive, delivery.result, Work(steps * step))

    def _uncached(self, i: int, engine: EngineProfile) -> int:
        """Tokens that a prefill has to compute at least: not those that earlier ones of the query
        have in common with it, nor blocks at the beginning that are in every query's prompt."""
        own = prompt_of(self.query, i)
        before = self._said.get(self.plan.sequence_of[i], ())
        said = self._said[i] = before + own
        keys = excerpt_keys(said, engine.block_tokens)
        seen = self._seen[self.plan.primitives[i].engine]
        hits = next((k for k, key in enumerate(keys) if key not in seen), len(keys))
        seen.update(keys)
        literal = sum(e.length for e in takewhile(lambda excerpt: is_literal(excerpt.text), said))
        size = engine.block_tokens
        found = max(hits, literal // size) * size if engine.prefix_reuse else 0
        lengths = (sum(excerpt.length for excerpt in some) for some in (said, before))
        whole, there = lengths
        return whole - max(there, min(found, whole))

    def _batch(self, i: int, op: Op) -> None:
        engine, cost = self._engine(i)
        items = self.store.items(i)
        stretch = self.outcomes.stretch(self.query, i, cost.sigma) if cost.sigma else 1.0
        variable = (cost.per_item_s * items + cost.per_token_s * self._tokens(i, cost)) * stretch
        batches = -(-items // engine.max_batch)
        base = cost.base_s * stretch + self.profile.dispatch_s
        result = self.outcomes.result(self.query, i, 0, items)
        self._put(i, result, Work(batches * base + variable, variable, items))

    def _tokens(self, i: int, cost: Cost) -> int:
        if not cost.per_token_s:
            return 0
        return int(sum(self.store.cut(i)))

    def _engine(self, i: int) -> tuple[EngineProfile, Cost]:
        p = self.plan.primitives[i]
        engine = self.profile.engine(p.engine)
        return engine, engine.cost(p.op)


class _Earliest:
    """When each primitive can end at the earliest. share: heed that engines are shared."""

    def __init__(
        self, plan: Plan, works: Mapping[int, Work], profile: Profile, share: bool
    ) -> None:
        self.plan, self.works, self.profile, self.share = plan, works, profile, share
        self.ends: dict[int, float] = {}
        self.starts: dict[int, float] = {}
        self.order = [plan.index[id] for id in plan.graph.order if plan.index[id] in works]
        self.parents = {i: [q for q in plan.parents[i] if q in works] for i in self.order}

    def end(self) -> float:
        """When the query can be done."""
        for i in self.order:
            start = self._start(self.parents[i])
            self.starts[i] = start
            self.ends[i] = start + self.works[i].seconds
        read = {q for parents in self.parents.values() for q in parents}
        return self._start([i for i in self.order if i not in read])

    def _start(self, parents: Sequence[int]) -> float:
        """Earliest moment at which all of `parents` have ended."""
        found = max((self.ends[q] for q in parents), default=0.0)
        if self.share and parents:
            behind = self._behind(parents)
            for group in self._groups(behind):
                found = max(found, self._crowd(group, behind))
        return found

    def _behind(self, parents: Iterable[int]) -> dict[int, float]:
        """Ancestors (parents among them) -> longest path from their end to that of all parents."""
        behind = dict.fromkeys(parents, 0.0)
        for i in reversed(self.order):
            if i in behind:
                for q in self.parents[i]:
                    path = behind[i] + self.works[i].seconds
                    behind[q] = max(behind.get(q, 0.0), path)
        return behind

    def _groups(self, among: Iterable[int]) -> Iterable[list[int]]:
        """Primitives that use the same engine in the same way."""
        found: dict[tuple[str, bool, Op | None], list[int]] = defaultdict(list)
        for i in among:
            p = self.plan.primitives[i]
            if p.op not in CONTROL and p.op not in DECODES:
                prefill = p.op in PREFILLS
                found[p.engine, prefill, None if prefill else p.op].append(i)
        return (group for group in found.values() if len(group) > 1)

    def _crowd(self, group: Sequence[int], behind: Mapping[int, float]) -> float:
        """The bound by the second rule, over all its subsets by earliest start and path behind."""
        best = 0.0
        for after in {behind[i] for i in group}:
            rest = sorted((i for i in group if behind[i] >= after), key=self.starts.__getitem__)
            for k in range(len(rest)):
                work = self._together(rest[k:])
                best = max(best, self.starts[rest[k]] + work + after)
        return best

    def _together(self, members: Sequence[int]) -> float:
        """Least time that the engine's instances need for all members, which may share batches."""
        p = self.plan.primitives[members[0]]
        engine = self.profile.engine(p.engine)
        base = engine.cost(p.op).base_s + self.profile.dispatch_s
        works = [self.works[i] for i in members]
        if p.op in PREFILLS:  # calls are not cut: one instance has at least the k smallest
            k = -(-len(works) // engine.instances)
            return base + sum(sorted(work.variable for work in works)[:k])
        lanes = engine.instances * engine.concurrency
        batches = -(-sum(work.items for work in works) // engine.max_batch)
        return -(-batches // lanes) * base + sum(work.variable for work in works) / lanes
