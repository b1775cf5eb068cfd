"""Queries as stages of calls with known lengths, which any recorded query can be reduced to.

    stage 1      stage 2                  stage 3
    plan    ──▶  search, search      ──▶  report    each stage begins when the one before has ended

What is replayed is a graph of that shape, in the simulator, on the scheduler that serves: lengths
are exact, texts are not known, so nothing is found in a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from teola.graph import DecodeParams, Graph, Op, Part, PrefillParams, Prompt, Ref, Role
from teola.graph.primitive import Order, Primitive
from teola.graph.prompt import QUERY
from teola.profile import Profile
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Trace, scopes
from teola.runtime.sim.outcome import Delivery, Planned
from teola.runtime.values import Tokens, new_text
from teola.schedule.plan import Plan

ENGINE: Final = "llm"
UNNAMED_APP: Final = "recorded"
"""The application of a query that names none."""
MOST_PLANS: Final = 512


class StagedCall(NamedTuple):
    """A call of one component. prompt, answer: tokens, at least 1. engine: of the language
    model."""

    component: str
    prompt: int
    answer: int
    engine: str = ENGINE


Stages = tuple[tuple[StagedCall, ...], ...]


@dataclass(frozen=True, slots=True)
class StagedQuery:
    """stages: see the module. arrival: seconds on some clock. finish_by_s: its objective from then
    on (None: it has none). latency_s: that it took (None: it has not ended). counted: whether a
    figure over queries counts this one, or it is there as load for the others."""

    stages: Stages
    app: str = ""
    arrival: float = 0.0
    tenant: str = "default"
    finish_by_s: float | None = None
    latency_s: float | None = None
    counted: bool = True

    @property
    def calls(self) -> int:
        return sum(map(len, self.stages))


def staged(trace: Trace, engine: str | None = None) -> Stages:
    """The calls of a query that has ended, or of what has ended of one. engine: of that one
    only."""
    calls: list[tuple[float, float, StagedCall]] = []
    for scope in scopes(trace):
        trace_of_part = scope.trace
        if trace_of_part.plan is None:
            continue
        sent, ended, _ = trace_of_part.raw
        queued = {record[0]: record[3] for record in sent}
        ends: dict[int, float] = {}
        for i, _, at, _ in ended:
            head = trace_of_part.plan.head[i]
            ends[head] = max(at, ends.get(head, at))
        for i, usage in trace_of_part.used_by_head.items():
            p = trace_of_part.plan.primitives[i]
            if i in queued and i in ends and engine in (None, p.engine):
                lengths = max(1, usage.prompt_tokens), max(1, usage.completion_tokens)
                call = StagedCall(p.component, *lengths, p.engine)
                calls.append((queued[i], ends[i], call))
    return in_stages(calls)


def in_stages(calls: Iterable[tuple[float, float, StagedCall]]) -> Stages:
    """Calls by when they were ready and when they ended: one that was ready before the first of a
    stage had ended belongs to that stage."""
    stages: list[list[StagedCall]] = []
    until = float("-inf")
    for queued, end, call in sorted(calls, key=lambda one: one[:2]):
        if not stages or queued >= until:
            stages.append([call])
            until = end
        else:
            stages[-1].append(call)
            until = min(until, end)
    return tuple(tuple(stage) for stage in stages)


class StagedPlans:
    """Plans of staged queries under a profile, each made once."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._plans: dict[object, Plan] = {}

    def plan(self, query: StagedQuery) -> Plan:
        """The plan of queries of this shape."""
        shape = query.app, tuple(tuple((c.component, c.engine) for c in s) for s in query.stages)
        plan = self._plans.get(shape)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[shape] = Plan(graph_of(query), self._profile)
        return plan


def graph_of(query: StagedQuery) -> Graph:
    """A call for each of the query's, whose prompt is one input."""
    primitives: list[Primitive] = []
    before: list[str] = []
    k, answers = 0, list[Ref]()
    for stage in query.stages:
        ends: list[str] = []
        for call in stage:
            id = f"{call.component}.{k}"
            prompt = Prompt((Part(Role.QUESTION, Ref(QUERY, f"p{k}"), required=True),))
            after = tuple(Order(end, "stage") for end in before)
            head = Primitive(
                f"{id}.prefill",
                Op.PREFILLING,
                call.component,
                call.engine,
                (("prompt", prompt),),
                ("sequence",),
                PrefillParams(),
                after=after,
            )
            decode = Primitive(
                f"{id}.decode",
                Op.DECODING,
                call.component,
                call.engine,
                (("sequence", Ref(head.id, "sequence")),),
                ("text",),
                DecodeParams(),
            )
            primitives += [head, decode]
            ends.append(decode.id)
            answers.append(Ref(decode.id, "text"))
            k += 1
        before = ends
    outputs = {f"a{k}": ref for k, ref in enumerate(answers)}
    return Graph(query.app or UNNAMED_APP, primitives, outputs, [f"p{j}" for j in range(k)])


def inputs_of(query: StagedQuery) -> Mapping[str, Any]:
    """Prompts of the recorded lengths."""
    calls = [call for stage in query.stages for call in stage]
    return {f"p{k}": Tokens(call.prompt) for k, call in enumerate(calls)}


class StagedAnswers(Planned):
    """What staged queries gave, by their ids."""

    def __init__(self, queries: Mapping[str, StagedQuery] | None = None) -> None:
        super().__init__()
        self.queries: dict[str, Sequence[StagedCall]] = {}
        for id, query in (queries or {}).items():
            self.put(id, query)

    def put(self, id: str, query: StagedQuery) -> None:
        """Answer query `id` so."""
        self.queries[id] = [call for stage in query.stages for call in stage]

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        (member,) = query.plan.members[head]
        length, text = self.queries[query.id][head // 2].answer, new_text()
        return length, [Delivery(member, length, {"text": Tokens.of(text, 0, length)})]
