"""Replays a trace on simulated LLM instances, under the scheduler that serves.

Each call is a query of one LLM call, so the batching, routing and eviction policies that ship
decide everything: there is no second simulator. Prompts are identities (`calls`), times come from a
step's formula. A trace's calls arrive when they did, those of sessions when the one before was
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean
from typing import Any, Final, NamedTuple

from experiments.common.latencies import percentile
from experiments.replay.calls import Recording, TracedCall, turn_category
from experiments.replay.sessions import SESSION_BLOCK, AgentSession, AgentThread, Coming
from teola.graph import (
    QUERY,
    DecodeParams,
    Graph,
    Op,
    Part,
    PrefillParams,
    Primitive,
    Prompt,
    Ref,
    Role,
)
from teola.kv import policies as eviction_policies
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.profile import PUBLISHED, EngineProfile, Profile, StepTime
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.outcome import Delivery
from teola.runtime.values import Tokens, number_of
from teola.schedule.events import ProgramPaused, State
from teola.schedule.plan import Plan

LLM: Final = "llm"
HEAD, DECODING = 0, 1
"""The primitives of a call's plan."""
ANSWERS: Final = 1 << 52
"""The texts of answers have numbers from here on, which no prompt's have."""
TENANT: Final = number_of("default")
"""Whose keys all are."""
HORIZON_S: Final = 3900.0
"""An hour, and the warm-up before it."""
WARM_UP_S: Final = 300.0
"""Calls of sessions that were asked earlier are not counted."""
SERVED_FIRST_S: Final = 2.0
SERVED_PER_S: Final = 20.0
"""A session is served well if 95 % of its first tokens come within so many seconds, and its answers
are written at so many tokens a second on average."""
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Fleet:
    """Instances of one LLM, and the policies that rule them, by name and with their options.

    step: what a step takes. kv_tokens: room for KV of each instance. sequences: that one runs at
    once. budget: prompt tokens of a step. block_tokens: of a block, if not as the trace's.
    crowding: how much longer a step takes for each other instance at work (EngineProfile).
    """

    instances: int = 8
    step: StepTime = PUBLISHED["llama-8b-h100"].step
    kv_tokens: int = 412_000
    sequences: int = 256
    budget: int = 2048
    block_tokens: int | None = None
    crowding: float = 0.0
    batching: str = batching_policies.DEFAULT
    routing: str = routing_policies.DEFAULT
    eviction: str = eviction_policies.DEFAULT
    batching_options: Options = field(default_factory=dict)
    routing_options: Options = field(default_factory=dict)
    eviction_options: Options = field(default_factory=dict)

    def profile(self, block_tokens: int) -> Profile:
        """What scheduler and simulator know of them. block_tokens: of the trace's blocks."""
        block_tokens = self.block_tokens or block_tokens
        llm = EngineProfile(
            step=self.step,
            max_batch=self.budget,
            max_sequences=self.sequences,
            instances=self.instances,
            prefix_reuse=True,
            keeps_prefixes=True,
            block_tokens=block_tokens,
            kv_blocks=self.kv_tokens // block_tokens,
            crowding=self.crowding,
        )
        return Profile("replay", {LLM: llm})


AGENTS_AT_SCALE: Final = Fleet(
    instances=4, kv_tokens=1_500_000, sequences=64, budget=4096, block_tokens=512
)
"""Coding agents on larger machines, by larger blocks."""


class ReplayedCall(NamedTuple):
    """What became of a call. number: in the trace's order (of sessions: in the order asked). at:
    virtual seconds. hit: prompt tokens that its instance found in its cache. instance: which one
    answered. sent_s: until it was sent there. latency_s: to its end."""

    number: int
    at: float
    category: str
    session: str
    instance: int
    prompt: int
    hit: int
    output: int
    sent_s: float
    ttft_s: float
    latency_s: float


@dataclass(frozen=True)
class ReplayResult:
    """calls: those that are counted and were answered, in order of arrival. refused: how many could
    never fit in the KV memory. horizon_s: until when it was looked at (sessions alone)."""

    calls: tuple[ReplayedCall, ...]
    refused: int = 0
    horizon_s: float | None = None

    @property
    def hit_ratio(self) -> float:
        """Part of the prompt tokens that were found."""
        return sum(call.hit for call in self.calls) / max(
            1, sum(call.prompt for call in self.calls)
        )

    def mean(self, of: str) -> float:
        """The mean of a field: ttft_s, latency_s, ..."""
        return fmean(getattr(call, of) for call in self.calls) if self.calls else 0.0

    def percentile(self, of: str, percent: float) -> float:
        return percentile([getattr(call, of) for call in self.calls], percent)

    @property
    def served_well(self) -> tuple[int, int]:
        """How many sessions were served well (`SERVED_FIRST_S`, `SERVED_PER_S`), and how many there
        were. A call of no session counts as one."""
        sessions: dict[str | int, list[ReplayedCall]] = {}
        for call in self.calls:
            sessions.setdefault(call.session or call.number, []).append(call)
        return sum(map(_served_well, sessions.values())), len(sessions)


def _served_well(calls: Sequence[ReplayedCall]) -> bool:
    """Whether the calls of one session were."""
    tokens = sum(call.output - 1 for call in calls)
    seconds = sum(call.latency_s - call.ttft_s for call in calls)
    first_s = percentile([call.ttft_s for call in calls], 95)
    return first_s <= SERVED_FIRST_S and tokens >= SERVED_PER_S * seconds


def replay(recording: Recording, fleet: Fleet, *, speedup: float = 1.0) -> ReplayResult:
    """The trace's calls, with `speedup` times as many a second, to the last answer."""
    player = _Player(fleet, recording.name, recording.block_tokens)
    for call in recording.calls:
        player.ask(call._replace(at=call.at / speedup))
    player.sim.run()
    return player.outcome()


def replay_sessions(
    threads: Sequence[AgentThread],
    sessions: int,
    fleet: Fleet,
    *,
    seed: int = 0,
    horizon_s: float = HORIZON_S,
    warm_up_s: float = WARM_UP_S,
    tells: bool = True,
    reads: Callable[[Sequence[int], float], None] | None = None,
) -> ReplayResult:
    """So many sessions at a time, for a fixed time: one that has ended is replaced at once. Calls
    count that were asked after the warm-up and answered before the horizon.

    tells: a session says what it does with an answer, and that it has ended. reads: told which
    blocks are read next, and when, as soon as that is certain.
    """
    player = _Player(fleet, "agents", SESSION_BLOCK)
    coming, block_tokens = Coming(threads, seed), fleet.block_tokens or SESSION_BLOCK

    def begin(at: float) -> None:
        go_on(coming.begin(), at)

    def go_on(session: AgentSession, at: float) -> None:
        request = session.next
        assert request is not None
        category, prompt = turn_category(session.asked + 1), session.ask()
        if reads is not None:
            keys = prompt.keys(block_tokens, TENANT)
            reads(keys[: request.reused // block_tokens], at)
        call = TracedCall(at, prompt, request.output, category, session.id)
        player.sim.at(at, player.ask, call, lambda: answered(session, request.stop))

    def answered(session: AgentSession, stop: str) -> None:
        following, now = session.next, player.sim.now
        if tells:
            player.pauses(session.id, stop, ended=following is None)
        if following is None:
            begin(now)
        else:
            go_on(session, now + following.think_s)

    for at in coming.starts(sessions):
        begin(at)
    player.sim.run(until=horizon_s)
    return replace(player.outcome(since=warm_up_s), horizon_s=horizon_s)


class _Player:
    """Calls on a simulator. name: of the trace, which stands for the application."""

    def __init__(self, fleet: Fleet, name: str, block_tokens: int) -> None:
        self.name, self._profile = name, fleet.profile(block_tokens)
        self._asked: list[TracedCall] = []
        self._then: dict[str, Callable[[], None]] = {}
        self._answered: list[ReplayedCall] = []
        self._refused: list[float] = []
        self._plan = cache(self._planned)
        self.sim = Sim(
            self._profile,
            batching=fleet.batching,
            routing=fleet.routing,
            eviction=fleet.eviction,
            policy_options={LLM: fleet.batching_options},
            routing_options={LLM: fleet.routing_options},
            eviction_options={LLM: fleet.eviction_options},
            outcomes=_Answers(self._asked),
            on_finish=self._ended,
        )

    def ask(self, call: TracedCall, then: Callable[[], None] | None = None) -> None:
        """Let a call arrive. then: called when it has ended."""
        id = str(len(self._asked))
        self._asked.append(call)
        if then is not None:
            self._then[id] = then
        given = {"prompt": call.prompt}
        plan = self._plan(call.category)
        self.sim.submit(plan, given, at=call.at, id=id, app=self.name, program=call.session)

    def pauses(self, session: str, reason: str, *, ended: bool) -> None:
        """A session has an answer, and tells what it does with it."""
        event = ProgramPaused(LLM, session, reason, ended)
        self.sim.at(self.sim.now, self.sim.handle, event, self.sim.now)

    def outcome(self, since: float = 0.0) -> ReplayResult:
        """Of all calls that were asked from then on and have ended."""
        calls = sorted(call for call in self._answered if call.at >= since)
        return ReplayResult(tuple(calls), sum(at >= since for at in self._refused))

    def _planned(self, category: str) -> Plan:
        return Plan(call_graph(self.name, category), self._profile)

    def _ended(self, query: Query, result: SimulatedQuery) -> None:
        number = int(query.id)
        call, then = self._asked[number], self._then.pop(query.id, None)
        if result.state is State.OK:
            self._answered.append(_replayed(number, call, query, result))
        else:
            self._refused.append(call.at)
        if then is not None:
            # Its answer is not needed any more, and prompts of sessions are long.
            self._asked[number] = call._replace(prompt=type(call.prompt)())
            then()


def _replayed(number: int, call: TracedCall, query: Query, result: SimulatedQuery) -> ReplayedCall:
    sent, ended, _ = query.trace.raw
    _, _, _, _, at, instance, _, _ = sent[-1]
    first = next(when for primitive, _, when, _ in ended if primitive == HEAD)
    usage = query.trace.calls[query.plan.ids[HEAD]]
    return ReplayedCall(
        number,
        call.at,
        call.category,
        call.session,
        instance,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        at - result.admitted,
        first - result.admitted,
        result.latency_s,
    )


def call_graph(name: str, category: str) -> Graph:
    """One call of an LLM, whose prompt is the query's input. category: its component."""
    prompt = Prompt((Part(Role.QUESTION, Ref(QUERY, "prompt"), required=True),))
    head, answer = f"{category}.prefilling", f"{category}.decoding"
    primitives = (
        Primitive(
            head,
            Op.PREFILLING,
            category,
            LLM,
            (("prompt", prompt),),
            ("sequence",),
            PrefillParams(),
        ),
        Primitive(
            answer,
            Op.DECODING,
            category,
            LLM,
            (("sequence", Ref(head, "sequence")),),
            ("text",),
            DecodeParams(),
        ),
    )
    graph = Graph(name, primitives, {"answer": Ref(answer, "text")}, ["prompt"])
    graph.validate()
    return graph


class _Answers:
    """Outcomes of calls: each as long as the trace says. calls: by query, numbered."""

    def __init__(self, calls: Sequence[TracedCall]) -> None:
        self._calls = calls

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        number = int(query.id)
        length = self._calls[number].output
        answer = {"text": Tokens.of(ANSWERS + number, 0, length)}
        return length, [Delivery(DECODING, length, answer)]

    def result(self, query: Query, i: int, lo: int, hi: int) -> Mapping[str, Any]:
        raise AssertionError("a replayed call has an LLM call and nothing else")

    def branch(self, query: Query, i: int) -> str:
        raise AssertionError("a replayed call has an LLM call and nothing else")

    def stretch(self, query: Query, i: int, sigma: float) -> float:
        raise AssertionError("a replayed call has an LLM call and nothing else")
