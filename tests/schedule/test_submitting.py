"""What becomes of a primitive of a Plan when it is queued: the Work that policies see, by field."""

from __future__ import annotations

from typing import Any

from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.asker import Asker
from teola.policies.batching.topology import Topology
from teola.policies.work import Estimate, Work
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    Cancelled,
    Dispatch,
    FirstToken,
    MemberCompleted,
    Started,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Limits
from teola.schedule.plan import Plan
from tests.planted import catches, edited
from tests.schedule.ends import ended
from tests.schedule.plans import aggregate, call, plan, tool

START = Started({"question": 1, "notes": 2})
TOKENS = 40


class Spy(Topology):
    """The policy `topology`, which notes what it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Work] = []

    def add(self, work: Work, now: float) -> None:
        self.seen.append(work)
        super().add(work, now)


class Bed:
    """A core with an LLM and a batch engine. seen: works by the id of their primitive."""

    def __init__(self, *, instances: int = 1, max_batch: int = 100, **policies: str) -> None:
        self.spies: dict[str, Any] = {}
        queues = {}
        for name, llm in (("llm", True), ("python", False)):
            policy = batching.make(policies[name]) if name in policies else Spy()
            self.spies[name] = policy
            limits = Limits(max_batch if llm else 4, 8, 1, llm)
            least = routing.make("least_loaded")
            queues[name] = EngineQueue(name, [limits] * instances, policy, least)
        self.core = Core(queues, self._measure)
        self._sizes: dict[tuple[str, str], int] = {}

    def _measure(self, run: str, i: int) -> int:
        primitive = self.core.runs[run].plan.primitives[i]
        return self._sizes.get((run, primitive.id), TOKENS if primitive.engine == "llm" else 3)

    def begin(
        self, id: str, p: Plan, now: float = 0.0, *, admitted: float = 0.0, **more: Any
    ) -> None:
        """Start a query. sizes: of its primitives by id; the rest goes to GraphRun."""
        sizes = more.pop("sizes", {})
        self._sizes |= {(id, name): size for name, size in sizes.items()}
        who = {name: more.pop(name) for name in ("tenant", "app") if name in more}
        run = GraphRun(id, p, Asker(program=id, admitted=admitted, **who), began=admitted, **more)
        self.core.add(run)
        self.core.tell(id, START, now)

    def sent(self, now: float = 0.0) -> list[Dispatch]:
        return [c for c in self.core.flush(now) if isinstance(c, Dispatch)]

    def seen(self, p: Plan) -> dict[str, Work]:
        return {p.ids[w.primitive]: w for spy in self.spies.values() for w in spy.seen}

    def answer(self, dispatch: Dispatch, now: float) -> None:
        """Calls of one decoding each run to their end."""
        for work, *_ in dispatch.slices:
            run, head = work.run, work.primitive
            self.core.handle(FirstToken("llm", dispatch.instance, run, head), now)
            done = MemberCompleted("llm", dispatch.instance, run, head, head + 1, {"out": 1})
            self.core.handle(done, now)
        self.end(dispatch, now)

    def end(self, dispatch: Dispatch, now: float, **counts: int) -> None:
        calls = dispatch.slices if dispatch.engine == "llm" else dispatch.slices[:1]
        for k in range(len(calls)):
            outcomes = [counts or None] * len(dispatch.slices)
            self.core.handle(ended(dispatch, *outcomes, k=k), now)


def call_ahead() -> Plan:
    """An LLM call with a prefix ahead, of which two functions read an item each."""
    return plan(
        tool("late"),
        *call("m", 2, ahead=True, late="late"),
        tool("x", "m.0"),
        tool("y", "m.1"),
        aggregate("z", "x", "y"),
    )


PROFILE = Profile(
    "by hand",
    {
        "python": EngineProfile({Op.TOOL_CALL: Cost(base_s=2.0)}),
        "llm": EngineProfile(step=StepTime.of(Cost(base_s=0.5), Cost(base_s=0.01))),
    },
)


@catches(
    "no-app",
    "works name no application",
    edited(Core._submit, "run.asker,", "type(run.asker)('t'),"),
)
@catches("no-depth", "all depths are 0", edited(Plan._specs, "self.depth[i]", "0"))
@catches(
    "tenant-lost",
    "works of all tenants look alike",
    edited(Core._submit, "run.asker,", "type(run.asker)(app=run.asker.app),"),
)
@catches(
    "age-from-queueing",
    "a query's age is counted from when a primitive is queued",
    edited(Core._submit, "run.began,", "now,"),
)
@catches(
    "no-estimate",
    "policies are not told what a profile says",
    edited(Plan._specs, "estimate=estimates[i],", ""),
)
def test_a_work_says_what_the_plan_and_the_run_know() -> None:
    p = Plan(plan(tool("a"), tool("b", "a", batchable=True)).graph, PROFILE)
    bed = Bed()
    bed.begin("q", p, 5.0, admitted=4.0, tenant="t", app="rag")
    (a,) = bed.sent(5.0)
    bed.end(a, 6.0)
    bed.sent(6.0)
    found = bed.seen(p)
    assert [(w.run, w.primitive, w.spec.component) for w in found.values()] == [
        ("q", 0, "a"),
        ("q", 1, "b"),
    ]
    assert {(w.asker.tenant, w.asker.app, w.began) for w in found.values()} == {("t", "rag", 4.0)}
    assert [(w.spec.depth, w.arrival, w.total) for w in found.values()] == [
        (1, 5.0, 1),
        (0, 6.0, 3),
    ]
    assert [w.spec.cuttable for w in found.values()] == [False, True]
    assert [w.spec for w in found.values()] == list(p.specs)
    assert found["a"].spec.estimate != found["b"].spec.estimate != Estimate()
    assert [w.affinity for w in found.values()] == [-1, -1]
    assert [w.spec.retries for w in found.values()] == [0, 0]


@catches(
    "no-retries-given", "nothing is retried", edited(Plan._specs, "retries(p.op, p.params)", "0")
)
def test_a_call_may_be_retried_as_often_as_the_plan_says() -> None:
    p = plan(*call("m"))
    bed = Bed()
    bed.begin("q", p)
    assert bed.seen(p)["m.prefill"].spec.retries == p.specs[0].retries == 2


@catches(
    "lanes-parted",
    "partial and full prefills never share a batch",
    edited(Plan._specs, "None if p.op in PREFILLS else p.op", "p.op"),
)
def test_all_prefills_share_a_lane_and_other_operations_have_one_each() -> None:
    ahead, whole, other = call_ahead(), plan(*call("m")), plan(tool("a"))
    bed = Bed()
    for id, p in (("ahead", ahead), ("whole", whole), ("other", other)):
        bed.begin(id, p)
    found = {(w.run, w.spec.op): w.spec.lane for spy in bed.spies.values() for w in spy.seen}
    assert found == {
        ("ahead", Op.PARTIAL_PREFILLING): None,
        ("ahead", Op.TOOL_CALL): Op.TOOL_CALL,
        ("whole", Op.PREFILLING): None,
        ("other", Op.TOOL_CALL): Op.TOOL_CALL,
    }
    batches = {tuple(p.work.run for p in d.slices) for d in bed.sent()}
    assert batches == {("ahead", "whole"), ("ahead", "other")}


@catches(
    "no-home",
    "a call does not go where its prefix is",
    edited(Core._submit, " command.affinity,", " -1,"),
)
def test_a_call_follows_its_prefix_although_another_instance_is_idle() -> None:
    p = call_ahead()
    bed = Bed(instances=2)
    bed.begin("other", plan(*call("n")))
    (first,) = bed.sent()
    bed.begin("q", p)
    late, ahead = sorted(bed.sent(), key=lambda sent: sent.engine, reverse=True)
    assert ahead.instance != first.instance
    bed.end(late, 1.0, out=1)
    bed.answer(first, 1.0)
    bed.end(ahead, 1.0, sequence=1)
    assert bed.seen(p)["m.prefill"].affinity == ahead.instance
    assert [d.instance for d in bed.sent(1.0)] == [ahead.instance]
    assert bed.seen(p)["m.prefill"].spec.members == p.members[p.index["m.prefill"]]


@catches(
    "one-tenant",
    "policy `fair` sees one tenant",
    edited(Core._submit, "run.asker,", "type(run.asker)(),"),
)
def test_two_tenants_take_turns_under_fair() -> None:
    bed = Bed(max_batch=TOKENS, llm="fair")
    for k in range(4):
        bed.begin(f"a{k}", plan(*call("m")), tenant="a")
    for k in range(2):
        bed.begin(f"b{k}", plan(*call("m")), tenant="b")
    order = []
    for now in range(6):
        (dispatch,) = bed.sent(now)
        order += [piece.work.run for piece in dispatch.slices]
        bed.answer(dispatch, now)
    assert order == ["a0", "b0", "a1", "b1", "a2", "a3"]


GONE = "del self.unsettled[spec.engine]; queue.withdraw("
SILENT = edited(Core._ask, "queue.withdraw(", GONE)


@catches("no-round-after-withdraw", "nobody looks at a queue that something has left", SILENT)
def test_what_waited_behind_something_cancelled_goes_at_once() -> None:
    """A prompt too large for what is free keeps its place at the head of the queue."""
    bed = Bed(llm="fifo")
    bed.begin("runs", plan(*call("m")), sizes={"m.prefill": 60})
    assert len(bed.sent()) == 1
    bed.begin("large", plan(*call("m")), sizes={"m.prefill": 90})
    bed.begin("small", plan(*call("m")), sizes={"m.prefill": 30})
    assert bed.sent() == []
    assert not bed.core.unsettled
    bed.core.tell("large", Cancelled(), 1.0)
    assert [p.work.run for d in bed.sent(1.0) for p in d.slices] == ["small"]


def test_what_is_cancelled_in_flight_leaves_its_room_when_it_has_ended() -> None:
    bed = Bed(max_batch=TOKENS)
    bed.begin("runs", plan(*call("m")))
    (dispatch,) = bed.sent()
    bed.begin("waits", plan(*call("m")))
    assert bed.sent() == []
    commands = bed.core.tell("runs", Cancelled(), 1.0)
    assert AbortRequest("llm", 0, dispatch.batch, "runs", 0) in commands
    assert bed.sent(1.0) == [], "it holds its room until the instance says that it has ended"
    bed.end(dispatch, 2.0)
    assert [p.work.run for d in bed.sent(2.0) for p in d.slices] == ["waits"]
