"""Bugs to plant in the code that serves, one at a time; each must break an invariant soon.

Each is a small change such as a careless edit might make. `about` is what docs/reliability.md says
of it.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from teola.policies.routing.graph_aware import GraphAware
from teola.policies.work import Taker
from teola.runtime.hosts import supervisor
from teola.runtime.hosts.remote import RemoteEngine
from teola.runtime.hosts.server import EngineServer
from teola.runtime.hosts.supervisor import Supervisor
from teola.runtime.live.live import Live
from teola.runtime.store import Store
from teola.runtime.values import joined_lists
from teola.schedule import graph_run, retry_budget
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import DeadlineReached, Failed, InstanceUp, State
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Instances
from teola.schedule.placing import Placing
from teola.schedule.retry_budget import RetryBudget
from tests.planted import Bug, edited


def _effects_repeated(patch: pytest.MonkeyPatch) -> None:
    def may_retry(self: Any, work: Any, cause: Any) -> bool:
        return bool(cause.retryable and not work.streamed and work.tries < 2)

    patch.setattr(RetryBudget, "may_retry", may_retry)


def _stream_again(patch: pytest.MonkeyPatch) -> None:
    def may_retry(self: Any, work: Any, cause: Any) -> bool:
        return bool(cause.retryable and work.tries < work.spec.retries)

    patch.setattr(RetryBudget, "may_retry", may_retry)


def _no_retries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retry_budget, "RETRY_FLOOR", 0)


def _rest_forgotten(patch: pytest.MonkeyPatch) -> None:
    retry = Placing.retry

    def forgetting(self: Any, work: Any, *how: Any) -> None:
        self._line.remove(work, how[-1])
        work.spans = []
        retry(self, work, *how)

    patch.setattr(Placing, "retry", forgetting)


def _not_unbound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Placing, "unbind", lambda self, i, now: None)


def _bound_to_the_dead(patch: pytest.MonkeyPatch) -> None:
    def bind(self: Any, work: Any, now: float, *, may_hold: bool = False) -> bool:
        early = self.early and not work.spec.cuttable
        work.affinity = max(-1, self.routing.place(work, now) if early else work.home)
        return False

    patch.setattr(Placing, "bind", bind)


def _queued_before_measured(patch: pytest.MonkeyPatch) -> None:
    def hold(self: Any, work: Any) -> None:
        self.works[work.run, work.primitive] = work
        self.line.add(work, work.arrival)

    patch.setattr(EngineQueue, "hold", hold)


def _slot_kept(patch: pytest.MonkeyPatch) -> None:
    ended = EngineQueue._ended

    def keeping(self: Any, out: Any, key: Any, lo: int, hi: int, *more: Any) -> None:
        work = self.works[key]
        if not work.withdrawn:
            ended(self, out, key, lo, hi, *more)
            return
        del work.flying[lo, hi]
        if not work.flying:
            del self.works[key]

    patch.setattr(EngineQueue, "_ended", keeping)


def _load_miscounted(patch: pytest.MonkeyPatch) -> None:
    land = Instances.land

    def landing(self: Any, i: int, *more: Any) -> Any:
        instance = land(self, i, *more)
        if instance.entries > 0:
            instance.entries -= 1
        return instance

    patch.setattr(Instances, "land", landing)


def _not_withdrawn(patch: pytest.MonkeyPatch) -> None:
    stop = GraphRun._stop

    def stopping(self: Any, *arguments: Any) -> None:
        self._ask = lambda command: None
        stop(self, *arguments)

    patch.setattr(GraphRun, "_stop", stopping)


def _not_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Live, "abort", lambda self, command, now: None)


def _both_branches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GraphRun, "_decided", lambda self, condition: None)


def _one_parent(patch: pytest.MonkeyPatch) -> None:
    init = GraphRun.__init__

    def hasty(self: Any, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        self.waits = [min(waits, 1) for waits in self.waits]

    patch.setattr(GraphRun, "__init__", hasty)


def _released_early(patch: pytest.MonkeyPatch) -> None:
    init = GraphRun.__init__

    def generous(self: Any, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        self.readers = [max(readers - 1, min(readers, 1)) for readers in self.readers]

    patch.setattr(GraphRun, "__init__", generous)


def _slices_unsorted(patch: pytest.MonkeyPatch) -> None:
    def put_slice(self: Any, i: int, lo: int, hi: int, total: int, result: Any) -> dict[str, int]:
        if hi - lo >= total:
            return dict(self.put(i, result))
        slices = self._slices.setdefault(i, {})
        slices[lo] = (hi, result)
        if sum(hi - lo for lo, (hi, _) in slices.items()) >= total:
            parts = [part for _, part in slices.values()]
            self.values[i] = {port: joined_lists([part[port] for part in parts]) for port in result}
            del self._slices[i]
        return {port: len(value) for port, value in result.items()}

    patch.setattr(Store, "put_slice", put_slice)


def _another_query(patch: pytest.MonkeyPatch) -> None:
    request = Live._request

    def mistaken(self: Any, *given: Any) -> Any:
        found = request(self, *given)
        other: Any = next(iter(self.queries.values()), None)
        return found if found is None else found._replace(context=other.context)

    patch.setattr(Live, "_request", mistaken)


def _deadline_ignored(patch: pytest.MonkeyPatch) -> None:
    late = Live._late

    def patient(self: Any, id: str, event: Any) -> None:
        if not isinstance(event, DeadlineReached):
            late(self, id, event)

    patch.setattr(Live, "_late", patient)


def _caller_ignored(patch: pytest.MonkeyPatch) -> None:
    late = Live._late

    def stubborn(self: Any, id: str, event: Any) -> None:
        if isinstance(event, DeadlineReached):
            late(self, id, event)

    patch.setattr(Live, "_late", stubborn)


def _hanging_left_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervisor, "PING_LIMIT_S", 1e6)


def _successor_not_announced(patch: pytest.MonkeyPatch) -> None:
    init = Supervisor.__init__

    def silent(self: Any, post: Any) -> None:
        init(self, lambda event: None if isinstance(event, InstanceUp) else post(event))

    patch.setattr(Supervisor, "__init__", silent)


def _batch_too_large(patch: pytest.MonkeyPatch) -> None:
    init = Taker.__init__

    def roomy(self: Any, slots: Any) -> None:
        init(self, replace_weight(slots))

    def replace_weight(slots: Any) -> Any:
        return slots._replace(weight=slots.weight * 2)

    patch.setattr(Taker, "__init__", roomy)


def _not_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EngineServer, "release", lambda self, keys: None)


def _fatal(patch: pytest.MonkeyPatch) -> None:
    def failed(self: Any, event: Failed) -> None:
        self.status[event.primitive] = graph_run.FAILED
        self._stop(State.FAILED, event.cause, event.primitive)

    patch.setitem(graph_run._HANDLERS, Failed, failed)


BUGS: Final = {
    "effects-repeated": Bug("whatever fails is tried again, effects too", _effects_repeated),
    "stream-repeated": Bug("an answer that a client has begun to read is repeated", _stream_again),
    "no-retries": Bug("the first failure is final", _no_retries),
    "not-unbound": Bug("what waits for an instance that died goes on waiting", _not_unbound),
    "bound-to-the-dead": Bug("work is bound to an instance that is gone", _bound_to_the_dead),
    "queued-before-measured": Bug(
        "a call is offered to policies before its size is known", _queued_before_measured
    ),
    "rest-forgotten": Bug("a retry forgets what was still queued of it", _rest_forgotten),
    "slot-kept": Bug("a slice of a query that has ended never gives its slot back", _slot_kept),
    "load-miscounted": Bug("an instance counts two slices as ended for each", _load_miscounted),
    "not-withdrawn": Bug("a query that ends leaves its work where it is", _not_withdrawn),
    "not-aborted": Bug("LLM calls go on after their query's end", _not_aborted),
    "both-branches": Bug("a branch that was not taken runs", _both_branches),
    "one-parent": Bug("a primitive begins when one of its parents has ended", _one_parent),
    "released-early": Bug("outputs are released one reader too early", _released_early),
    "slices-by-arrival": Bug("slices are joined in the order in which they came", _slices_unsorted),
    "another-query": Bug("a request carries another query's identity", _another_query),
    "deadline-ignored": Bug("deadlines are not kept", _deadline_ignored),
    "caller-ignored": Bug("a caller that goes away is not noticed", _caller_ignored),
    "hanging-left-alone": Bug("an instance that hangs is never replaced", _hanging_left_alone),
    "successor-unknown": Bug("nobody is told of an instance's successor", _successor_not_announced),
    "batch-too-large": Bug("batches hold twice what they may", _batch_too_large),
    "never-forgotten": Bug("prefixes that nobody needs stay in memory", _not_forgotten),
    "lost-answer-kept": Bug(
        "prefixes of which the answer was lost stay in memory",
        edited(RemoteEngine.prefill, "self._forgotten.append(key)", "pass"),
    ),
    "kept-at-the-end": Bug(
        "prefixes that a query holds at its end stay in memory",
        edited(Live.finished, "self.forgotten(values)", "pass"),
    ),
    "optional-is-fatal": Bug("the failure of an optional component fails the query", _fatal),
    "wrong-guess-kept": Bug(
        "what was begun for a branch that is not taken runs on",
        edited(GraphRun._skip, "self._ask(Withdraw(self.id, i))", "pass"),
    ),
    "wrong-guess-counted": Bug(
        "what was begun for a branch that is not taken is read",
        edited(GraphRun._decided, "<= DONE", "< DONE"),
    ),
    "tenants-alike": Bug(
        "the queues are not told whose a query is",
        edited(
            Core._submit, "run.asker,", "type(run.asker)('default', program=run.asker.program),"
        ),
    ),
    "dropped-returns": Bug(
        "a late result of what was skipped comes back",
        edited(Store.put, "if i not in self._dropped:", "if True:"),
    ),
    "held-for-nobody": Bug(
        "the routing policy keeps in mind what is withdrawn while it is held",
        edited(GraphAware.observe, "self._forget(event.work)", "pass"),
    ),
    "refused-forgotten": Bug(
        "what a server refused is not queued again",
        edited(
            EngineQueue._refused,
            'self.placing.put_back(work, lo, hi, i, now, away=why.kind == "away")',
            "pass",
        ),
    ),
    "never-asked-again": Bug(
        "what the routing policy holds is asked about only when something happens",
        edited(Placing.round_at, "self._frees_at(now)", "None"),
    ),
}
