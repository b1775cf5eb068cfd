"""Plan: an e-graph compiled for running, shared by all queries of one shape.

Long because one compilation makes all of these tables.

Primitives become indices, edges become tuples of indices, and everything that does not depend on
a query's data is worked out once: in-degrees, depths, groups, readers, which items must exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    DecodeParams,
    Graph,
    GrowParams,
    Primitive,
    Prompt,
    Ref,
    ToolParams,
)
from teola.graph.ops import (
    CONTROL,
    DECODES,
    DONE_ONCE,
    GROUP_HEADS,
    PREFILLS,
    Op,
    has_effect,
    retries,
)
from teola.graph.primitive import refs_of
from teola.habit import Habit
from teola.passes import Optimised, estimate
from teola.passes.estimate import GrowthEstimate
from teola.passes.timetable import timetable
from teola.policies.work import Estimate, WorkSpec
from teola.profile import Profile
from teola.schedule.beginnings import Beginning, beginnings
from teola.schedule.feeding import Feeding, feeding

PlanPart = Callable[[Any, Mapping[str, int]], "Plan"]
"""(template of a part, lengths of its inputs that are lists) -> its plan."""

NO_PROFILE: Final = Profile("none", {})
ABSENT: Final = -1
"""Count of a port that delivers nothing at all (an empty list counts 0)."""


class Plan:
    """A compiled e-graph. All sequences are indexed like `primitives`.

    parents, children: indices of the primitives before and after it.
    indegree: how many parents it has.
    depth: primitives on the longest way from it to an output.
    members: of an LLM call's head, the decodings that share its stream.
    head: the head of the call that it is a member of, else itself.
    call: of a head or a member, the head (-1: it belongs to no call).
    sequence_of: who produces the sequence that it continues (-1: nobody).
    sources: whose data it reads, but for a call's head.
    held: whose data a call's head reads, which is kept until the call's last decoding has ended.
    readers: how many primitives and outputs read its data.
    rest: of a piece of a prompt, what computes the rest of it, if nobody else reads the piece (-1).
    piece: of what computes the rest of a prompt, the piece before it, likewise (-1).
    effects: whether it changes the world, and so runs although nobody reads what it gives.
    unread: those that nobody reads from the start.
    need: port -> items that must exist so that no consumer is short of any; query_need: of inputs.
    streams: whether its text is, or may become, an output of the application.
    later: of a decoding whose text is an output only if none of certain others follows, these.
    guarded: of a condition, the primitives behind it, each with its branch.
    conditions: the conditions that it stands behind.
    open: how many primitives a call has, or a condition decides on.
    refs: what it reads, query inputs included.
    item_refs, item_inputs: the lists that it may be cut along, with their names; only the names.
    pieces: those that read pieces of lists.
    specs: what queues and policies are told of it.
    optimised: how the passes made the graph, for whoever wants it explained.
    profile: what was known of the engines when it was made.
    total_s: all primitives one after another, with what they are expected to grow (0: the times of
        an engine are not known that it needs).
    grows: what each of those that grow is expected to become, where times are known.
    parts: plans of the parts that it may grow, by template and lengths of their lists.
    """

    def __init__(
        self,
        graph: Graph,
        profile: Profile | None = None,
        optimised: Optimised | None = None,
        parts: PlanPart | None = None,
    ) -> None:
        self.graph, self.optimised, self.parts = graph, optimised, parts
        self.primitives = graph.primitives
        self.ids = tuple(p.id for p in graph.primitives)
        self.index = {id: i for i, id in enumerate(self.ids)}
        index = self.index
        self.depth = tuple(graph.depth[id] for id in self.ids)
        self.parents = tuple(tuple(index[q] for q in graph.parents[id]) for id in self.ids)
        self.children = tuple(tuple(index[c] for c in graph.children[id]) for id in self.ids)
        self.indegree = tuple(len(parents) for parents in self.parents)
        self.control = tuple(p.op in CONTROL for p in self.primitives)
        self.sequence_of = tuple(self._sequence_of(p) for p in self.primitives)
        self.members = self._members()
        heads = {m: head for head, members in enumerate(self.members) for m in members}
        self.head = tuple(heads.get(i, i) for i in range(len(self.ids)))
        self.call = tuple(head if self.members[head] else -1 for head in self.head)
        self.sources, self.held = self._sources()
        self.readers = self._readers()
        self.rest, self.piece = self._pieces()
        self.need, self.query_need = self._need()
        self.refs = tuple(tuple(p.refs()) for p in self.primitives)
        self.item_refs = tuple(tuple(p.item_refs()) for p in self.primitives)
        self.item_inputs = tuple(frozenset(n for n, _ in refs) for refs in self.item_refs)
        self.pieces = frozenset(
            i for i, refs in enumerate(self.refs) if any(ref.items is not None for ref in refs)
        )
        self.streams, self.later = self._streams()
        self.guarded = self._guarded()
        self.open = tuple(
            len(of) + 1 if of else len(guarded)
            for of, guarded in zip(self.members, self.guarded, strict=True)
        )
        self.conditions = tuple(
            tuple(index[g.condition] for g in p.guards) for p in self.primitives
        )
        self.effects = tuple(has_effect(p.op, p.params) for p in self.primitives)
        self.unread = self._unread()
        self._know(profile)

    def _know(self, profile: Profile | None) -> None:
        """Work out all that depends on what is known of the engines."""
        self.profile = profile or NO_PROFILE
        self.total_s = 0.0
        self.grows: Mapping[int, GrowthEstimate] = {}
        self.specs = self._specs(self._estimates(profile), self.profile)

    def successor(
        self, profile: Profile, optimised: Optimised, parts: PlanPart | None = None
    ) -> Plan:
        """The plan of an equal graph, of whose engines more is known by now."""
        made = copy(self)
        made.__dict__.pop("beginnings", None)  # it is made of the specs
        made.optimised, made.parts = replace(optimised, e_graph=self.graph), parts
        made._know(profile)
        return made

    def __len__(self) -> int:
        return len(self.ids)

    def _sequence_of(self, p: Primitive) -> int:
        for name, value in p.inputs:
            if name == "sequence" and isinstance(value, Ref):
                return self.index[value.producer]
        return -1

    def _members(self) -> tuple[tuple[int, ...], ...]:
        members_of: list[list[int]] = [[] for _ in self.ids]
        for id in self.graph.order:
            i = self.index[id]
            if self.primitives[i].op in DECODES:
                head = self.sequence_of[i]
                while head >= 0 and self.primitives[head].op not in GROUP_HEADS:
                    head = self.sequence_of[head]
                members_of[head].append(i)
        return tuple(tuple(members) for members in members_of)

    def _sources(self) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """Whose data each primitive reads, and what a group's head does: that is kept until the
        group's last decoding has ended, because the whole call may have to be repeated."""
        sources = [
            tuple({self.index[r.producer]: None for r in p.refs() if r.producer != QUERY})
            for p in self.primitives
        ]
        held = [
            read if members else () for read, members in zip(sources, self.members, strict=True)
        ]
        own_reads = [
            () if members else read for read, members in zip(sources, self.members, strict=True)
        ]
        return tuple(own_reads), tuple(held)

    def _pieces(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rest, piece = [-1] * len(self.ids), [-1] * len(self.ids)
        for i, p in enumerate(self.primitives):
            before = self.sequence_of[i]
            alone = before >= 0 and self.readers[before] == 1 and not self.members[before]
            if p.op in PREFILLS and alone and self.primitives[before].engine == p.engine:
                rest[before], piece[i] = i, before
        return tuple(rest), tuple(piece)

    @cached_property
    def keepable(self) -> tuple[frozenset[str], ...]:
        """Output lists that only engines read, and not as part of a prompt: by primitive."""
        seen: dict[str, set[str]] = {}
        for p in self.primitives:
            plain = not (p.op in CONTROL or p.op in PREFILLS)
            for _, value in p.inputs:
                for ref in refs_of(value):
                    if not (plain and type(value) is Ref):
                        seen.setdefault(ref.producer, set()).add(ref.port)
        for ref in self.graph.outputs.values():
            seen.setdefault(ref.producer, set()).add(ref.port)
        return tuple(
            frozenset(p.outputs) - seen.get(p.id, set()) if p.batchable else frozenset()
            for p in self.primitives
        )

    @cached_property
    def texts(self) -> bool:
        """Whether it writes a text."""
        return any(map(writes_text, self.primitives))

    @cached_property
    def feeding(self) -> Mapping[int, tuple[Feeding, ...]]:
        """What may grow over the list that a call writes, by the call's head."""
        return feeding(self.primitives, self.index, self.head, self.members)

    @cached_property
    def beginnings(self) -> Mapping[int, Beginning]:
        """Which calls begin alike, for whoever keeps what they have computed."""
        return beginnings(self.primitives, self.specs, self.sequence_of)

    @cached_property
    def shown(self) -> tuple[frozenset[str], ...]:
        """Outputs that reach a prompt, an engine or the caller, besides functions and conditions:
        by primitive."""
        seen = {(ref.producer, ref.port) for ref in self.graph.outputs.values()}
        for id in reversed(self.graph.order):
            p = self.graph[id]
            passes_on = p.op is Op.AGGREGATE and (id, p.outputs[0]) not in seen
            if not passes_on and p.op not in (Op.TOOL_CALL, Op.CONDITION):
                seen |= {(ref.producer, ref.port) for ref in p.refs()}
        return tuple(
            frozenset(port for port in p.outputs if (p.id, port) in seen) for p in self.primitives
        )

    def _guarded(self) -> tuple[tuple[tuple[int, str], ...], ...]:
        found: list[list[tuple[int, str]]] = [[] for _ in self.ids]
        for i, p in enumerate(self.primitives):
            for guard in p.guards:
                found[self.index[guard.condition]].append((i, guard.branch))
        return tuple(map(tuple, found))

    def _unread(self) -> tuple[int, ...]:
        return tuple(
            i
            for i, readers in enumerate(self.readers)
            if not (readers or self.effects[i] or self.guarded[i])
        )

    def _estimates(self, profile: Profile | None) -> tuple[Estimate, ...]:
        """For policies. What may not be wanted counts as likely as it is, and its query as so much
        longer. As long as the times of an engine are not known that the query will need, depths
        stand for the paths."""
        if profile is None or not estimate.timed(self.graph, profile):
            return tuple(Estimate(rest_s=float(depth)) for depth in self.depth)
        graph = self.graph
        rest = timetable(graph, profile, backwards=True).ends_s
        total = self.total_s = estimate.total(graph, profile)
        chance = estimate.chances(graph, profile)
        self.grows = {
            i: estimate.growth(graph, p, profile)
            for i, p in enumerate(self.primitives)
            if p.op is Op.GROW
        }
        longest = max((rest[p.id] for p in self.primitives if chance[p.id] == 1), default=0.0)
        return tuple(
            Estimate(
                rest_s=rest[p.id] * chance[p.id],
                latest_s=max(0.0, longest - rest[p.id]),
                total_s=total / chance[p.id],
                base_s=profile.engine(p.engine).cost(p.op).base_s,
                takes_s=estimate.seconds(graph, p, profile),
                item_s=estimate.item_s(graph, p, profile),
                call_s=sum(estimate.seconds(graph, q, profile) for q in (p, *self._written(i))),
            )
            for i, p in enumerate(self.primitives)
        )

    def _written(self, i: int) -> Iterator[Primitive]:
        """The decodings of the call that `i` heads."""
        return (self.primitives[member] for member in self.members[i])

    def _specs(self, estimates: tuple[Estimate, ...], profile: Profile) -> tuple[WorkSpec, ...]:
        return tuple(
            WorkSpec(
                engine=p.engine,
                op=p.op,
                component=p.component,
                lane=None if p.op in PREFILLS else p.op,
                cuttable=p.batchable and p.op not in PREFILLS,
                depth=self.depth[i],
                members=self.members[i],
                retries=retries(p.op, p.params),
                estimate=estimates[i],
                measured=p.batchable or p.op in PREFILLS or p.op in DONE_ONCE,
                item_tokens=self._tokens(p) // max(1, p.items) if p.op is Op.EMBEDDING else 0,
                planned_tokens=self._tokens(p) if p.op in PREFILLS else 0,
                planned_output=self._output(i),
                expected_output=self._expected(i, profile.habit(self.graph.name, p.component)),
                most_output=self._most(i),
                continues=self._continued(i),
                ahead=self.rest[i] >= 0,
            )
            for i, p in enumerate(self.primitives)
        )

    def _continued(self, i: int) -> int:
        """Planned tokens of the sequence that `i` goes on with, at least 1 if there is one."""
        tokens, before = 0, self.sequence_of[i]
        while before >= 0:
            p = self.primitives[before]
            tokens += self._tokens(p) if p.op in PREFILLS else estimate.planned_output(p)
            before = self.sequence_of[before]
        return max(1, tokens) if self.sequence_of[i] >= 0 else 0

    def _output(self, i: int) -> int:
        """Planned tokens of all that the call generates that `i` heads."""
        return sum(estimate.planned_output(self.primitives[m]) for m in self.members[i])

    def _most(self, i: int) -> int:
        """Tokens that the call may generate which `i` heads."""
        params = self.primitives[self.members[i][0]].params if self.members[i] else None
        return params.max_tokens if isinstance(params, DecodeParams) else 0

    def _expected(self, i: int, habit: Habit) -> int:
        """The same by its component's habit; 0 as long as that is not known."""
        return max(1, round(self._output(i) * habit.output)) if habit.calls else 0

    def _tokens(self, p: Primitive) -> int:
        return estimate.planned_tokens(self.graph, p)

    def _readers(self) -> tuple[int, ...]:
        readers = [0] * len(self.ids)
        for sources in (*self.sources, *self.held):
            for source in sources:
                readers[source] += 1
        for producer in {ref.producer for ref in self.graph.outputs.values()} - {QUERY}:
            readers[self.index[producer]] += 1
        return tuple(readers)

    def _need(self) -> tuple[tuple[Mapping[str, int], ...], Mapping[str, int]]:
        need: list[dict[str, int]] = [dict.fromkeys(p.outputs, 0) for p in self.primitives]
        from_query: dict[str, int] = {}
        for p in self.primitives:
            listed = {ref for _, ref in p.item_refs()} | set(_part_refs(p))
            for ref in p.refs():
                at_least = ref.items[0] + 1 if ref.items else int(ref in listed)
                ports = from_query if ref.producer == QUERY else need[self.index[ref.producer]]
                ports[ref.port] = max(ports.get(ref.port, 0), at_least)
        return tuple(need), from_query

    def _streams(self) -> tuple[tuple[bool, ...], dict[int, tuple[int, ...]]]:
        streams = [False] * len(self.ids)
        later: dict[int, tuple[int, ...]] = {}
        frontier = [ref for ref in self.graph.outputs.values() if ref.producer != QUERY]
        while frontier:
            ref = frontier.pop()
            i = self.index[ref.producer]
            p = self.primitives[i]
            if p.op in DECODES:
                field = isinstance(p.params, DecodeParams) and p.params.field is not None
                streams[i] = ref.port == "text" or field
            elif isinstance(p.params, ToolParams):
                streams[i] = p.params.streams
            elif isinstance(p.params, GrowParams):
                streams[i] = True
            elif isinstance(p.params, AggregateParams) and p.params.mode in CHOOSES:
                parts = [r for r in p.refs() if r.producer != QUERY]
                if p.params.mode is not Aggregation.FIRST:
                    merged = p.params.mode is Aggregation.MERGED
                    chain = [self.index[r.producer] for r in parts]
                    texts = (k for k, r in enumerate(parts[:-1]) if r.port == "text")
                    later |= {chain[k]: tuple(chain[-1 if merged else k + 1 :]) for k in texts}
                    parts = parts[-1:]
                frontier += parts
        return tuple(streams), later


CHOOSES: Final = (Aggregation.FIRST, Aggregation.LAST, Aggregation.MERGED)
"""Aggregates that pass on one of their parts."""


def _part_refs(p: Primitive) -> list[Ref]:
    """Refs for which an empty list is as good as nothing: prompt parts."""
    return [ref for _, value in p.inputs if type(value) is Prompt for ref in value.refs()]


def writes_text(p: Primitive) -> bool:
    """Whether it is a decoding that writes a text, and no list."""
    return p.op is Op.DECODING and "items" not in p.outputs


class Absence:
    """Decides whether a primitive is to be skipped for lack of data.

    counts: what has been delivered, producer index -> port -> count; a producer that was skipped is
    missing from it. query: the same for the query's inputs.
    """

    def __init__(self, plan: Plan, query: Mapping[str, int]) -> None:
        self.plan, self.query = plan, query
        self.counts: dict[int, Mapping[str, int]] = {}

    def absent(self, ref: Ref, *, empty: bool) -> bool:
        """Whether `ref` has nothing; empty: an empty list counts as nothing."""
        if ref.producer == QUERY:
            count = self.query.get(ref.port, ABSENT)
        else:
            delivered = self.counts.get(self.plan.index[ref.producer])
            count = ABSENT if delivered is None else delivered.get(ref.port, ABSENT)
        if ref.items is not None:
            return count <= ref.items[0]
        return count < (1 if empty else 0)

    def skips(self, i: int, ended: Callable[[int], bool] | None = None) -> bool:
        """Whether primitive `i` has no work: an input it cannot do without is absent.

        ended: whether a producer has; what others will deliver is not known yet (None: all have).
        """
        p = self.plan.primitives[i]

        def absent(ref: Ref, *, empty: bool) -> bool:
            if ended is not None and ref.producer != QUERY:
                return ended(self.plan.index[ref.producer]) and self.absent(ref, empty=empty)
            return self.absent(ref, empty=empty)

        if isinstance(p.params, AggregateParams) and p.params.mode is not Aggregation.TOP_K:
            refs, mode = self.plan.refs[i], p.params.mode
            if mode is Aggregation.MERGED and ended is None and absent(refs[-1], empty=False):
                return sum(not absent(ref, empty=False) for ref in refs) != 1
            least = 2 if mode is Aggregation.SEVERAL else 1
            present = (ref for ref in refs if not absent(ref, empty=False))
            return len(list(islice(present, least))) < least
        listed = self.plan.item_inputs[i]
        optional = p.params.optional if isinstance(p.params, (ToolParams, GrowParams)) else ()
        for name, value in p.inputs:
            if type(value) is Ref:
                if name not in optional and absent(value, empty=name in listed):
                    return True
            elif type(value) is Prompt:
                for part in value.parts:
                    ref = part.content
                    if part.required and type(ref) is Ref and absent(ref, empty=True):
                        return True
        return False
