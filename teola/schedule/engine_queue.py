"""EngineQueue: the scheduler of one engine (paper, section 6.2), as a state machine.

It holds primitives of many queries, lets the batching policy choose what goes together and the
routing policy where to, keeps each instance's capacity, joins the slices of a primitive, and
retries what may be retried. What is sent to an instance is bounded by what it can run now, so the
order is decided here and not in the engine's own queue.

An instance that keeps failing is ejected for a while (`health`), unless it is the last one. When
none is left that is up or worth waiting for, what is queued fails. So it does when a policy fails
(`faults`). Long because every event of one state machine has its place here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from teola.errors import BudgetSpent, EngineError, EngineUnavailable, QueryCancelled
from teola.learning.observer import Observer
from teola.policies.batching.base import BatchingPolicy, is_eager, priorities
from teola.policies.reason import Because, Reason
from teola.policies.routing.base import RoutingPolicy
from teola.policies.routing.call_seconds import MeanAnswer
from teola.policies.routing.destinations import TYPICAL, memory_wait_s, wait_s
from teola.policies.tuning import tune
from teola.policies.work import Slice, Work
from teola.profile import DIFFER, EngineProfile
from teola.schedule.events import (
    AbortRequest,
    AbortRows,
    AlreadyKnown,
    BatchCompleted,
    CallEnded,
    Cause,
    Completed,
    Dispatch,
    Ejected,
    Failed,
    FirstToken,
    FirstTokenLate,
    InstanceChanged,
    InstanceDown,
    InstanceDraining,
    InstanceUp,
    InstanceWaits,
    Joined,
    LimitsTold,
    MemberCompleted,
    OfEngine,
    Outbox,
    Outcome,
    Parted,
    PrefixChanged,
    ProgramPaused,
    Recovered,
    Retried,
    Retuned,
    RowsEnded,
    SetTimer,
    Sized,
    Tell,
    Timer,
    Tuned,
    Waits,
)
from teola.schedule.faults import Faults, PolicyFailed
from teola.schedule.followers import Followers
from teola.schedule.hedging import Backup, Due, EndingTry, Hedging
from teola.schedule.instances import Instances, Limits
from teola.schedule.overdue import Late, Overdue
from teola.schedule.placing import Placing
from teola.schedule.preference import Preference
from teola.schedule.quota import Quota
from teola.schedule.retry_budget import RetryBudget
from teola.schedule.row_slices import RowSlices
from teola.schedule.waiting_line import WaitingLine

Output = OfEngine | Tell


class EngineQueue:
    """State of one engine. Methods take what happened and return what follows from it; those that
    tell no run anything add it to `out`, where one is given. limits, profiles: of each instance (no
    profiles: none is known). observer: told how long work takes."""

    def __init__(
        self,
        engine: str,
        limits: Sequence[Limits],
        batching: BatchingPolicy,
        routing: RoutingPolicy,
        profiles: Sequence[EngineProfile] = (),
    ) -> None:
        self.engine, self.continuous = engine, limits[0].continuous
        self.instances = Instances(limits)
        self.works: dict[tuple[str, int], Work] = {}
        self._batches: dict[int, Dispatch] = {}
        self._one, eager = len(limits) == 1, is_eager(batching)
        self.faults = Faults(engine, type(batching).__name__, type(routing).__name__)
        self.line = WaitingLine(
            batching, self.faults, lone=self._one and eager and not self.continuous
        )
        self.placing = Placing(routing, self.works, self.line, self.instances, profiles)
        self._priority = priorities(batching)
        self.next_batch = 0
        """Number of the next batch."""
        self.followers = Followers(self.works)
        self.retry_budget = RetryBudget()
        self._answers = MeanAnswer()
        self.overdue: Overdue | None = None
        """Notices first tokens that do not come. None where nothing can hang."""
        self.hedging: Hedging | None = None
        """Lets calls whose first token is late run a second time. None where nobody wants that."""
        self.rows = RowSlices(self)
        self._timer: float | None = None
        self._refusal: EngineUnavailable | None = None
        self.observer = Observer()

    def prefer(self, ranks: Sequence[int], most_s: float) -> None:
        """Let instances of a lower rank come first, for which what is queued waits for so long."""
        self.line.asking.preference = Preference(ranks, most_s, self.instances)

    # --- what comes in --------------------------------------------------------------------

    def submit(self, work: Work, now: float, out: Outbox | None = None) -> None:
        """Queue a primitive; `dispatch` will send it, unless it follows an equal one."""
        self.works[work.run, work.primitive] = work
        self.retry_budget.requests += work.total if work.row_tokens else 1
        if self.continuous:
            self.rows.submitted(work, now)
        work.home = work.affinity
        if self.instances.has_limited:
            work.limited_from = self.instances.limited_s(now)
        if work.same is None or not self._follows(work, now, [] if out is None else out):
            self._enter(work, now)

    def hold(self, work: Work) -> None:
        """Keep a primitive that is being measured; `sized` will queue it. No policy knows of it."""
        self.works[work.run, work.primitive] = work
        self.retry_budget.requests += 1
        self.rows.submitted(work, work.arrival)
        work.home, work.queued, work.spans = work.affinity, False, []

    def sized(self, event: Sized, now: float) -> list[Output]:
        """A primitive that was held is measured, or refused."""
        work = self.works.get((event.run, event.primitive))
        if work is not None and not (work.total or work.withdrawn):
            if event.cause is not None:
                del self.works[event.run, event.primitive]
                return [Tell(event.run, Failed(event.primitive, event.cause))]
            if event.known:
                del self.works[event.run, event.primitive]
                return [Tell(event.run, AlreadyKnown(event.primitive))]
            size, out = event.size, list[Output]()
            work.total, work.keys, work.queued = max(1, size.total), size.keys, True
            work.same, work.limited_from = size.same, self.instances.limited_s(now)
            if work.same is None or not self._follows(work, now, out):
                self._enter(work, now)
            return out
        return []

    def _follows(self, work: Work, now: float, out: Outbox) -> bool:
        """Whether an equal work is queued or in flight, which `work` follows then, or leads if it
        is more urgent."""
        leader = self.followers.leader(work.same)
        if leader is None:
            self.followers.leads(work)
            return False
        earlier = (
            work.asker.finish_by < leader.asker.finish_by
            or work.admitted < leader.admitted
            or work.deadline < leader.deadline
        )
        if leader.queued and not leader.flying and earlier:
            self.line.remove(leader, now)
            self.placing.left(leader, now)
            self._promote(leader, [work, leader, *self.followers.ended(leader)], now)
            return True
        self.followers.join(work, leader)
        if leader.flying:
            out.append(
                Joined(self.engine, work.run, work.primitive, (leader.run, leader.primitive))
            )
        return True

    def parted(self, event: Parted, now: float) -> list[Output]:
        """A call in flight may write less than its equals want: it goes on alone."""
        work = self.works.get((event.run, event.primitive))
        if work is not None and work.same is not None and work.leader is None:
            followers = self.followers.ended(work)
            work.same = None
            if followers:
                self._promote(followers[0], followers, now)
        return []

    def _promote(self, old: Work, equals: list[Work], now: float) -> None:
        """Of these, the first with the earliest objective is queued where `old` stood, and the
        others follow it. It is as old as the oldest of them, wanted by the earliest deadline, and
        has had the tries of `old`: what is done for all is tried again as one. It is a work of its
        own, as another try is (`Placing`), since it may have been queued before."""
        first, *rest = sorted(equals, key=lambda work: work.asker.finish_by)
        failed = max(old.tries - old.excused, first.tries - first.excused)
        tries = max(old.tries, first.tries) + 1
        first = replace(first, tries=tries, excused=tries - failed, avoid=old.avoid)
        self.works[first.run, first.primitive] = first
        first.admitted = min(work.admitted for work in equals)
        first.deadline = min(work.deadline for work in equals)
        first.arrival, first.seq, first.queued = old.arrival, old.seq, True
        self.followers.leads(first)
        for work in rest:
            self.followers.join(work, first)
        self._enter(first, now)

    def _enter(self, work: Work, now: float) -> None:
        work.spans = [(0, work.total)]
        if self.placing.bind(work, now, may_hold=True):
            self.line.hold(work, now)
        else:
            self.line.add(work, now)

    def withdraw(self, run: str, primitive: int, now: float, out: Outbox | None = None) -> Outbox:
        """Forget a primitive: dequeue it, abort what runs, free its slot when that has ended."""
        out = [] if out is None else out
        if (work := self.works.get((run, primitive))) is None:
            return out
        if work.leader is not None:
            del self.works[run, primitive]
            last = self.followers.leave(work)
            if last is not None and last.withdrawn:
                self.followers.ended(last)
                self._abort(last, out)
            return out
        waited = work.queued
        if waited:
            self.line.remove(work, now)
            self.placing.left(work, now)
        work.withdrawn = True
        if work.same is not None and self.followers.followed(work):
            if work.flying and not waited and not (work.done and not work.spec.members):
                return out  # it goes on for the others
            self._promote(work, self.followers.ended(work), now)
        elif work.same is not None:
            self.followers.ended(work)
        if not work.flying:
            del self.works[run, primitive]
        self._abort(work, out)
        return out

    def _abort(self, work: Work, out: Outbox) -> None:
        key = work.run, work.primitive
        self._end_backup(key, out)
        for (lo, _), (instance, batch) in work.flying.items():
            if work.row_tokens:
                out.append(AbortRows(self.engine, instance, batch, *key, lo))
            else:
                out.append(AbortRequest(self.engine, instance, batch, *key))

    def source(self, run: str, primitive: int) -> Work | None:
        """The work whose result a primitive waits for: its own, or one that it follows."""
        work = self.works.get((run, primitive))
        return work if work is None or work.leader is None else self.works.get(work.leader)

    def completed(self, event: BatchCompleted, now: float) -> list[Output]:
        """A batch is over: tell each run whose primitive is complete or has failed for good, and
        queue again what may be tried again."""
        if (batch := self._batches.pop(event.batch, None)) is None:
            return []  # of an instance that is gone
        self.observer.completed(event.batch, batch.slices, event.outcomes, now)
        out: Outbox = []
        for (work, lo, hi), outcome in zip(batch.slices, event.outcomes, strict=True):
            key = work.run, work.primitive
            self._ended(out, key, lo, hi, batch.instance, event.batch, outcome, now)
        return out

    def call_ended(self, event: CallEnded, now: float) -> list[Output]:
        """An LLM call is over."""
        key = event.run, event.primitive
        if self.hedging is not None and (gone := self.hedging.ending.pop((key, event.batch), None)):
            self.instances.land(gone.instance, event.batch, gone.items, gone.weight)
            return []
        if (work := self.works.get(key)) is None:
            return []
        instance, batch = work.flying.get((0, work.total), (-1, -1))
        if (backup := self._backup(key)) is not None and isinstance(event.outcome, Cause):
            return self._one_failed(work, backup, event.batch, event.outcome, now)
        if batch != event.batch:
            return []  # of an instance that is gone, or ended since another try was sooner
        usage = event.cached, event.generated
        self.observer.ended(work, type(event.outcome) is Cause, *usage, now)
        out: Outbox = []
        self._ended(out, key, 0, work.total, instance, batch, event.outcome, now, usage)
        return out

    def rows_ended(self, event: RowsEnded, now: float) -> list[Output]:
        """Rows of a window gave tokens, were answered, or failed."""
        return self.rows.ended(event, now)

    def _ended(
        self,
        out: Outbox,
        key: tuple[str, int],
        lo: int,
        hi: int,
        instance: int,
        batch: int,
        outcome: Outcome,
        now: float,
        usage: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """A slice of what `key` names has come back: add to `out` what follows."""
        work = self.works[key]
        del work.flying[lo, hi]
        begun = self.continuous and not work.prefilling  # it gave a token
        weight = 0 if begun else hi - lo - work.found
        work.prefilling = False
        if self.overdue is not None:
            if type(outcome) is not Cause:
                self.overdue.gave(key, now)
                if usage[1]:
                    self._answers.came(usage[1])
            self.overdue.left(key)
        target = self.instances.land(instance, batch, hi - lo, weight)
        health = target.health
        if self.placing.follows:
            self.placing.finished(instance, work, now, type(outcome) is Cause, *usage)
        goes_on = False
        if work.withdrawn:
            if not work.flying:
                del self.works[key]
            goes_on = work.same is not None and self.followers.followed(work)
        if isinstance(outcome, Cause):
            if goes_on:
                self._left_and_failed(out, work, (instance, batch), outcome, begun, now)
            elif outcome.refused is not None and not begun:
                self._refused(out, work, lo, hi, (instance, batch), outcome, now)
            else:
                self._failed(out, work, lo, hi, instance, outcome, now)
            return
        if (prefers := self.line.asking.preference) is not None:
            prefers.came_back(instance, now - work.sent)
        if target.quota is not None:
            self.instances.came_back(instance, batch, now)
            if usage[1] is not None:
                target.quota.settled(usage[1] - work.drawn, work.sent, now)
        if health is not None:
            ramp = health.succeeded(now)
            out += [Recovered(self.engine, instance)] if ramp else []
            out += [SetTimer(self.engine, at) for at in ramp]
        if work.withdrawn and not goes_on:
            return
        counts: Mapping[str, int] = outcome
        work.done += hi - lo
        if work.done < work.total or work.counts:
            counts = work.joined(counts)
        if work.done >= work.total:
            self.works.pop(key, None)
            if not (work.spec.members or work.withdrawn):
                out.append(Tell(work.run, Completed(work.primitive, counts, None, instance)))
            if work.same is None:
                return
            for follower in self.followers.ended(work):
                del self.works[follower.run, follower.primitive]
                if not work.spec.members:
                    done = Completed(follower.primitive, counts, None, instance)
                    out.append(Tell(follower.run, done))

    def _left_and_failed(
        self,
        out: Outbox,
        work: Work,
        place: tuple[int, int],
        cause: Cause,
        begun: bool,
        now: float,
    ) -> None:
        """What went on for its followers only has failed, or was refused: it is tried again as the
        first one's, if the rules allow. place: the instance and the batch. begun: it gave a
        token."""
        (i, batch), why = place, cause.refused
        if why is not None and not begun:
            self.instances.refused(i, self.engine, why, batch, self.next_batch, now)
            self.unbind(i, now)
        else:
            self.blame(out, i, cause, now)
        costs_no_try = cause.refused is not None or isinstance(cause.error, QueryCancelled)
        followers = self.followers.ended(work)
        if not (costs_no_try or self.retry_budget.may_retry(work, cause)):
            self._fail(out, followers, cause)
            return
        if not costs_no_try:
            self.retry_budget.count(cause)
            work.tries += 1
        self._promote(work, followers, now)

    def _fail(self, out: Outbox, works: Iterable[Work], cause: Cause) -> None:
        """Works that followed another one fail with it."""
        for work in works:
            del self.works[work.run, work.primitive]
            out.append(Tell(work.run, Failed(work.primitive, cause)))

    def _failed(
        self, out: Outbox, work: Work, lo: int, hi: int, instance: int, cause: Cause, now: float
    ) -> None:
        """A slice failed: queue it again if the rules allow, else tell the run."""
        self.blame(out, instance, cause, now)
        if work.withdrawn:
            return
        work = self.works[work.run, work.primitive]
        if self.retry_budget.may_retry(work, cause):
            self.retry_budget.count(cause)
            self.placing.retry(work, lo, hi, instance, now)
            out.append(Retried(work.run, work.primitive, cause))
            return
        out.append(Tell(work.run, Failed(work.primitive, cause)))
        if work.same is not None and not isinstance(cause.error, BudgetSpent):
            self._fail(out, self.followers.ended(work), cause)
        self.withdraw(work.run, work.primitive, now, out)

    def _refused(
        self,
        out: Outbox,
        work: Work,
        lo: int,
        hi: int,
        place: tuple[int, int],
        cause: Cause,
        now: float,
    ) -> None:
        """A server did not take a slice: leave it alone for a while, and queue the slice where it
        stood, if the rules allow. place: the instance and the batch."""
        (i, batch), why = place, cause.refused
        assert why is not None
        until = self.instances.refused(i, self.engine, why, batch, self.next_batch, now)
        self.unbind(i, now)
        if work.withdrawn:
            return
        work = self.works[work.run, work.primitive]
        if not self.placing.may_move(work, cause, now):
            out.append(Tell(work.run, Failed(work.primitive, cause)))
            if work.same is not None:
                self._fail(out, self.followers.ended(work), cause)
            self.withdraw(work.run, work.primitive, now, out)
            return
        self.placing.put_back(work, lo, hi, i, now, away=why.kind == "away")
        if not any(instance.usable(now) for instance in self.instances):
            until = self.instances.opens_at(now) or until
        else:
            until = now
        out.append(Waits(self.engine, i, work.run, work.primitive, until, cause))

    def limits_told(self, event: LimitsTold, now: float) -> list[Output]:
        """A server told what is left of its budgets."""
        account = self.instances.limit(event.instance, self.engine).account
        sent = now - event.ago_s
        if event.requests is not None:
            reset_s, limit = event.requests_reset_s, event.requests_limit
            account.requests.told(event.requests, reset_s, now, sent, limit)
        if event.tokens is not None:
            reset_s, limit = event.tokens_reset_s, event.tokens_limit
            account.tokens.told(event.tokens, reset_s, now, sent, limit)
        return []

    def unbind(self, i: int, now: float) -> None:
        """Instance `i` takes nothing for a while: what is bound to it may go elsewhere."""
        if not self._one and self.line.asking.bound_to(i):
            self.placing.unbind(i, now)

    def blame(self, out: Outbox, i: int, cause: Cause, now: float) -> None:
        """The instance may be at fault: eject it if that is certain enough, but never the last."""
        if not (cause.retryable and self.instances[i].up and self.instances.others(i, now)):
            return
        lost = isinstance(cause.error, EngineUnavailable)
        until = self.instances.failed(i, now, lost=lost)
        if until is not None:
            self.placing.unbind(i, now)
            out += [Ejected(self.engine, i, until, cause), SetTimer(self.engine, until)]

    def first_token(self, event: FirstToken, now: float) -> list[Output]:
        """The prefilling of a group is over: its tokens no longer count against the budget."""
        work = self.source(event.run, event.primitive)
        out: Outbox = []
        if work is not None and self.hedging is not None:
            self._first_of_two(work, event.instance, out, now)
        if work is None or not work.on(event.instance):
            return out
        work.streamed |= event.to_client
        if (work.run, work.primitive) != (event.run, event.primitive):
            followed = Completed(event.primitive, {"sequence": 1}, None, event.instance)
            return [Tell(event.run, followed)]
        if not work.prefilling:
            return out
        work.prefilling = False
        if self.overdue is not None:
            self.overdue.came((event.run, event.primitive), now)
        self.instances.began(event.instance)
        self.instances.prefilled(event.instance, work.missing)
        self.observer.first(event.instance, work, now)
        if self.placing.follows:
            self.placing.prefilled(event.instance, work, now)
        if not work.withdrawn:
            done = Completed(event.primitive, {"sequence": 1}, None, event.instance)
            out.append(Tell(event.run, done))
        return out

    def member(self, event: MemberCompleted, now: float) -> list[Output]:
        """A decoding of a group delivered."""
        work = self.source(event.run, event.head)
        if work is None or not work.on(event.instance):
            return []
        if self.overdue is not None:
            self.overdue.gave((work.run, work.primitive), now)
        if work.withdrawn and (work.run, work.primitive) == (event.run, event.head):
            return []
        return [Tell(event.run, Completed(event.primitive, event.counts))]

    def down(self, event: InstanceDown, now: float) -> list[Output]:
        """An instance is gone: everything on it has failed there."""
        self.observer.lost(event.instance, now)
        error = EngineUnavailable(f"instance {event.instance} of {event.engine!r} is gone")
        cause = Cause(error, retryable=True, lost=True)
        self.instances.down(event.instance, event.healing)
        self.placing.down(event.instance, now, lost=True)
        self.placing.unbind(event.instance, now)
        self.line.asking.forget()
        out: Outbox = []
        for (key, batch), gone in list(self.hedging.ending.items()) if self.hedging else ():
            if gone.instance == event.instance:
                self.call_ended(CallEnded(self.engine, batch, *key, cause), now)
        for key, backup in list(self.hedging.running.items()) if self.hedging is not None else ():
            at_risk = self.works[key]
            if backup.instance == event.instance:
                self._land_backup(key)
            elif at_risk.on(event.instance):
                self._take_place(at_risk, backup, now)
                self._waits_there(at_risk, backup, now)
        for key, work in list(self.works.items()):
            work.avoid = -1
            if work.row_tokens:
                continue
            for (lo, hi), (instance, batch) in list(work.flying.items()):
                if instance == event.instance:
                    self._batches.pop(batch, None)
                    self._ended(out, key, lo, hi, instance, batch, cause, now)
        self.rows.lost(event.instance, cause, now, out)
        return out

    def draining(self, event: InstanceDraining, now: float) -> list[Output]:
        """An instance is sent nothing more; what it has goes on."""
        self.instances.down(event.instance, healing=True)
        self.placing.down(event.instance, now, lost=False)
        self.placing.unbind(event.instance, now)
        return []

    def up(self, event: InstanceUp, now: float) -> list[Output]:
        """An instance can take work, as a fresh one."""
        self.instances.restored(event.instance)
        self.placing.up(event.instance, now)
        if self.placing.early:
            self.placing.rebind(now)
        return []

    def prefixes(self, event: PrefixChanged, now: float) -> list[Output]:
        """An instance told what its cache keeps."""
        self.placing.changed(event, now)
        return []

    def paused(self, event: ProgramPaused, now: float) -> list[Output]:
        """A program told what comes next."""
        self.placing.paused(event, now)
        return []

    def tuned(self, event: Tuned, now: float) -> list[Output]:
        """Options of a policy are others. What is refused changes nothing, and is told."""
        policy = {"batching": self.line.policy, "routing": self.placing.routing}.get(event.kind)
        refused = (
            tune(policy, event.options)
            if policy is not None
            else (f"there is no kind of policies {event.kind!r}: say 'batching' or 'routing'")
        )
        self.line.asking.forget()
        return [Retuned(self.engine, event.kind, event.options, refused)]

    def changed(self, event: InstanceChanged, now: float) -> list[Output]:
        """An instance told how much more its KV memory can take."""
        self.instances.told(event.instance, event.free_tokens)
        return []

    def waits(self, event: InstanceWaits, now: float) -> list[Output]:
        """A batch leaves its place to others, or takes it back."""
        self.instances.waits(event.instance, event.change)
        return []

    def woken(self, event: Timer, now: float) -> list[Output]:
        """The timer fired, perhaps a little early: it may be set again for the same time."""
        self._timer = None
        out: Outbox = []
        for late in self.overdue.late(now) if self.overdue is not None else ():
            self._late(out, late, now)
        self.rows.late(now, out)
        for due in self.hedging.late(now) if self.hedging is not None else ():
            self._back_up(out, due, now)
        return out

    # --- a second try beside the first ------------------------------------------------------

    def _backup(self, key: tuple[str, int]) -> Backup | None:
        return None if self.hedging is None else self.hedging.running.get(key)

    def runs_twice(self, key: tuple[str, int]) -> bool:
        """Whether a second try of a call runs beside its first one."""
        return self._backup(key) is not None

    def goes_on_without(self, key: tuple[str, int], batch: int) -> bool:
        """Whether a call is here, and its try in this batch is over."""
        work, backup = self.works.get(key), self._backup(key)
        if work is None or (backup is not None and backup.batch == batch):
            return False
        return all(batch != sent for _, sent in work.flying.values())

    def _back_up(self, out: Outbox, due: Due, now: float) -> None:
        """A call is late: if it still waits for its first token, it runs a second time where
        nothing else does, as soon as there is such an instance."""
        hedging, key = self.hedging, due.key
        work = self.works.get(key)
        if hedging is None or work is None or not work.prefilling or key in hedging.running:
            return
        at, current = work.flying.get((0, work.total), (-1, -1))
        if current != due.batch or work.withdrawn:
            return
        if work.same is not None and self.followers.followed(work):
            return  # they hear one stream
        affords = hedging.affords(self.retry_budget.requests, now - due.sent >= 2 * due.usual_s)
        if not affords or (i := self._idle_besides({at, work.avoid}, now)) is None:
            hedging.again(due, now)
            return
        if work.same is not None:  # who comes later makes a call of its own
            self.followers.ended(work)
            work.same = None
        second, self.next_batch = self.next_batch, self.next_batch + 1
        hedging.began(key, Backup(i, second, now))
        target = self.instances.send(i, second, work.total, 1)
        target.sent_at = now
        if (quota := target.quota) is not None:
            quota.sent(_draws(quota, work, 0, work.total), now, together=False)
        if self.placing.explaining is not None:
            work.reason = Reason(Because.BACKUP, instances=len(self.instances))
        out.append(Dispatch(self.engine, i, second, (Slice(work, 0, work.total),)))

    def _idle_besides(self, but: Container[int], now: float) -> int | None:
        """An instance besides these where nothing is in flight or waits, none that is known to be
        slow, and none that is dearer than what would take a call."""
        prefers, asking, instances = self.line.asking.preference, self.line.asking, self.instances
        for i in instances.open(now).instances:
            slow = instances.slowness and instances.slowness[i] > DIFFER
            busy = instances[i].entries or asking.bound_to(i) or slow
            if i not in but and not busy and (prefers is None or prefers.takes(i, 0, now)):
                return i
        return None

    def _first_of_two(self, work: Work, instance: int, out: Outbox, now: float) -> None:
        """A try gave its first token: the other one is ended."""
        key = work.run, work.primitive
        backup = self._backup(key)
        if backup is None:
            return
        if instance == backup.instance:
            at, batch = work.flying[0, work.total]
            out.append(AbortRequest(self.engine, at, batch, *key))
            if self.overdue is not None:
                self.overdue.came(key, now, here=False)  # it took so long at least
            self.observer.outrun(work, now)
            self._take_place(work, backup, now, ends=True)
            self._waits_there(work, backup, backup.sent)
        elif work.on(instance):
            self._end_backup(key, out)

    def _end_backup(self, key: tuple[str, int], out: Outbox) -> None:
        """Nobody waits for the second try any more."""
        if (backup := self._backup(key)) is not None:
            assert self.hedging is not None
            out.append(AbortRequest(self.engine, backup.instance, backup.batch, *key))
            total = self.works[key].total
            del self.hedging.running[key]
            self.hedging.ending[key, backup.batch] = EndingTry(backup.instance, total, total)

    def _land_backup(self, key: tuple[str, int]) -> Backup:
        """The second try is over."""
        assert self.hedging is not None
        backup, total = self.hedging.running.pop(key), self.works[key].total
        self.instances.land(backup.instance, backup.batch, total, total)
        return backup

    def _take_place(self, work: Work, backup: Backup, now: float, *, ends: bool = False) -> None:
        """The second try goes on alone: the first one is over, where it was counted. ends: it has
        been ended, and keeps its place until its instance says so."""
        assert self.hedging is not None
        key, whole = (work.run, work.primitive), (0, work.total)
        del self.hedging.running[key]
        i, batch = work.flying[whole]
        self.observer.ended(work, True, None, None, now)
        if self.placing.follows:
            self.placing.finished(i, work, now, True, None, None)
        if ends:
            self.hedging.ending[key, batch] = EndingTry(i, work.total, work.missing)
        else:
            self.instances.land(i, batch, work.total, work.missing)
        work.flying[whole] = backup.instance, backup.batch
        work.found, work.sent = 0, backup.sent
        if self.placing.follows:
            self.placing.took_over(backup.instance, work, now)

    def _waits_there(self, work: Work, backup: Backup, now: float) -> None:
        """What was the second try goes on alone, and may be overdue as well. now: since when it
        waits for a token."""
        if self.overdue is not None:
            expected = self.expected_s(backup.instance, 0, 0, 0, work.spec.answer_tokens, now)
            pending, key = self.instances[backup.instance].weight, (work.run, work.primitive)
            self.overdue.sent(key, backup.instance, backup.batch, expected, now, pending)

    def _one_failed(
        self, work: Work, backup: Backup, batch: int, cause: Cause, now: float
    ) -> list[Output]:
        """One of two tries has failed, or was refused, before any token: the other one goes on."""
        out: Outbox = []
        key = work.run, work.primitive
        if batch == backup.batch:
            i = self._land_backup(key).instance
        else:
            i, current = work.flying[0, work.total]
            if current != batch:
                return []
            self._take_place(work, backup, now)
            self._waits_there(work, backup, now)
        if cause.refused is not None:
            self.instances.refused(i, self.engine, cause.refused, batch, self.next_batch, now)
            self.unbind(i, now)
        else:
            self.blame(out, i, cause, now)
        return out

    # --- calls that are overdue --------------------------------------------------------------

    def _late(self, out: Outbox, late: Late, now: float) -> None:
        """A call has given no token in time: it goes elsewhere, if there is another instance and it
        has another try; else it stays, for it may yet be answered. Of an instance that was late
        twice, no more than one call at a time is wanted; and until that gives a token, what is
        there counts as lost with it, so that all of it may move, whatever the budget of retries."""
        (run, primitive), i, work = late.key, late.instance, self.works[late.key]
        if work.withdrawn and not (work.same is not None and self.followers.followed(work)):
            return
        elsewhere, calls = self.instances.others(i, now), self.instances[i].calls
        quota = self.instances.limit(i, self.engine)
        quota.late(calls, now, others=elsewhere, again=late.again)
        self.instances.changed.add(i)
        complaint = f"instance {i} of {self.engine!r} gave no token for {late.after_s:.0f} s"
        cause = Cause(EngineError(complaint, retryable=True), True, lost=quota.probing > 0)
        if (backup := self._backup(late.key)) is not None:
            out.append(FirstTokenLate(self.engine, i, late.after_s, elsewhere=True))
            out.append(AbortRequest(self.engine, i, late.batch, run, primitive))
            self._take_place(work, backup, now, ends=True)
            self._waits_there(work, backup, now)
            self.blame(out, i, cause, now)
            return
        moves = elsewhere and self.retry_budget.may_retry(work, cause)
        out.append(FirstTokenLate(self.engine, i, late.after_s, moves))
        if not moves:
            return
        out.append(AbortRequest(self.engine, i, late.batch, run, primitive))
        self.observer.ended(work, True, None, None, now)
        self._ended(out, late.key, 0, work.total, i, late.batch, cause, now)

    def refuse(self, why: EngineUnavailable | None) -> None:
        """No instance could be started, so what is queued fails for that reason; None: they are."""
        self._refusal = why
        for i in range(len(self.instances)):
            self.instances.found(i, why is None)

    # --- what goes out --------------------------------------------------------------------

    def dispatch(self, now: float, out: Outbox | None = None) -> Outbox:
        """One scheduling round: fill every instance that has room."""
        out = [] if out is None else out
        if not self._one:
            for key in self.overdue.slow(now) if self.overdue is not None else ():
                self.observer.late(self.works[key], now)
            self.placing.weigh()
        self.placing.reconsider(now)
        if self.instances.leaves_room:
            self.rows.reconsider(now)
        alone = self.line.alone
        if alone is not None:
            slots = self.instances.room(0, now)
            if slots is None:
                self.instances.limited(now, waits=True)
                self._wake_at(self.instances.opens_at(now), out)
                return out
            if alone.total <= slots.weight and alone.avoid != 0:
                self.instances.limited(now, waits=False)
                command = self._send(0, [Slice(alone, 0, alone.total)], now)
                assert command is not None
                out.append(command)
                return out
            self.line.tell(now)
        while self.line.ready and (command := self._round(now)) is not None:
            out.append(command)
        self.instances.limited(now, waits=self.line.ready > 0)
        wake = self.placing.round_at(now) if self.line.count else None
        if self.instances.leaves_room and (at := self.rows.wake(now)) is not None:
            wake = at if wake is None else min(wake, at)
        prefers = self.line.asking.preference
        if prefers is not None and self.line.ready and (at := prefers.wake_at(now)) is not None:
            wake = at if wake is None else min(wake, at)
        if wake is None and self.line.ready and not self.instances.busy:
            self._stalled(now)
        self._wake_at(wake, out)
        return out

    def _wake_at(self, wake: float | None, out: Outbox) -> None:
        if wake is not None and wake != self._timer:
            self._timer = wake
            out.append(SetTimer(self.engine, wake))
        for overdue in (self.overdue, self.rows.overdue):
            if overdue is not None and (due := overdue.alarm()) is not None:
                out.append(SetTimer(self.engine, due))
        if self.hedging is not None and (due := self.hedging.alarm()) is not None:
            out.append(SetTimer(self.engine, due))

    def _stalled(self, now: float) -> None:
        """Work waits, every instance could take it, and nothing is to come that would change the
        policy's mind: it would wait until its deadline."""
        rooms = [self.instances.room(i, now) for i in range(len(self.instances))]
        if all(room is not None and room.lane is None for room in rooms):
            complaint = (
                f"{self.line.ready} wait, every instance is idle, and it chooses none of them"
            )
            self.faults.of_batching(complaint)

    def give_up(self, now: float) -> list[Output]:
        """No instance is left and none is worth waiting for, or a policy is broken."""
        all_gone = EngineUnavailable(f"engine {self.engine!r}: all its instances are gone")
        error = self.faults.error or self._refusal or all_gone
        out: Outbox = []
        for work in [work for work in self.works.values() if work.queued]:
            out.append(Tell(work.run, Failed(work.primitive, Cause(error))))
            if work.same is not None:
                self._fail(out, self.followers.ended(work), Cause(error))
            self.withdraw(work.run, work.primitive, now, out)
        if self.faults.error is not None:
            out.append(PolicyFailed(self.engine, self.faults.error))
            self.faults.error = None
        return out

    def _round(self, now: float) -> Dispatch | None:
        for i in self._candidates(now):
            slots = self.instances.room(i, now)
            try:
                slices = self.line.policy.choose(slots, now) if slots else None
                wake = None if slices else self.line.policy.wake_at(now)
            except Exception as error:  # noqa: BLE001 - anybody's code; the queue fails its work
                self.faults.of_batching(error)
                return None
            if slices:
                return self._send(i, self._share(i, slices, now), now)
            self.line.asking.declined(i, wake)
        return None

    def _share(self, i: int, slices: list[Slice], now: float) -> list[Slice]:
        """What goes to instance `i` of a batch for it. While several LLM instances have no work,
        none takes more than its part of the calls: those that share a prefill wait for each other's
        tokens, and elsewhere they need not."""
        rows = slices[0].work.row_tokens
        if (len(slices) < 2 and not rows) or not self.continuous:
            return slices
        idle = self.instances.open(now).idle
        if rows and idle >= 2:
            return self.rows.shared(slices, idle)
        return slices if idle < 2 else slices[: self.line.asking.part(i, idle)]

    def _candidates(self, now: float) -> Iterable[int]:
        """The instances to ask."""
        if self._one:
            return (0,)
        loads = self.instances.open(now)
        self.line.asking.changed(self.instances.changed)
        self.instances.changed.clear()
        routing = self.placing.routing
        worth: Callable[[int, int, float], bool] | None = None
        if self.instances.slowness and type(routing).order is RoutingPolicy.order:
            worth = self.instances.worth
        if (prefers := self.line.asking.preference) is not None:
            worth = partial(prefers.worth, speeds=worth is not None)
        return self.line.asking.candidates(routing, loads, now, worth)

    def _send(self, i: int, slices: list[Slice], now: float) -> Dispatch | None:
        batch, items, hit_tokens, continuous = self.next_batch, 0, 0, self.continuous
        entries = rows = 0
        self.next_batch += 1
        for k, (work, lo, hi) in enumerate(slices):
            if not (work.queued and work.take(lo, hi)):
                complaint = (
                    f"it chose items {lo}..{hi} of {work.total}, which are not queued (any more)"
                )
                self.faults.of_batching(complaint)
                if not k:
                    return None
                slices = slices[:k]
                break
            work.flying[lo, hi] = (i, batch)
            work.sent = now
            calls, size = 1, hi - lo
            if work.row_tokens:
                self.rows.sent(work, lo, hi, (i, batch), now)
                rows += size
                calls, size = size, size * work.row_tokens
            elif continuous:
                work.prefilling = True
            if continuous:
                try:
                    work.priority = self._priority(work, now)
                except Exception as error:  # noqa: BLE001 - as above
                    self.faults.of_batching(error)
            if not work.spans:
                self.line.remove(work, now)
            entries += calls
            items += size
            hit_tokens += work.found * calls
            if self.overdue is not None and not work.row_tokens:
                own, pending = items - hit_tokens, self.instances[i].weight
                expected = self.expected_s(i, own, items, entries, work.spec.answer_tokens, now)
                key, tokens = (work.run, work.primitive), pending + own
                self.overdue.sent(key, i, batch, expected, now, tokens, compared=not self._one)
                if self.hedging is not None:
                    self.hedging.sent(work, batch, expected, self.overdue, now)
        target = self.instances.send(i, batch, items, entries, hit_tokens)
        target.sent_at = now
        if (quota := target.quota) is not None:
            drawn = [call_tokens for slice in slices for call_tokens in _draws(quota, *slice)]
            quota.sent(drawn, now, together=not continuous)
        news = self.rows.news(i, slices) if rows else slices
        if self.placing.follows and news:
            self.placing.dispatched(i, news, now)
        command = Dispatch(self.engine, i, batch, tuple(slices))
        if not continuous:
            self._batches[batch] = command
        if rows:
            slices = [part for part in slices if not part.work.row_tokens]
            self.observer.rows(i, rows, now)
        if slices:
            self.observer.sent(i, batch, slices, now)
        return command

    def expected_s(
        self, i: int, tokens: int, context: int, calls: int, answer: int, now: float
    ) -> float | None:
        """Seconds to the first token of the last of so many calls that go to instance `i` now;
        None: nobody knows. tokens: to be computed for them. context: tokens of their prompts.
        answer: tokens that it is expected to generate, by which those of others are judged as long
        as no answer has come."""
        profile, there = self.placing.profiles[i], self.instances[i]
        if not profile.timed:
            return None
        # Of short prompts alone a time may be learned for pairs that would make seconds minutes if
        # there were thousands of tokens before each.
        before = min(TYPICAL, (self.instances.mean_tokens or tokens) / 2)
        seconds, kv_tokens = wait_s(profile, there.weight + tokens, before), there.limits.kv_tokens
        if kv_tokens is not None:
            beside = there.entries + calls - 1
            usual = self._answers.tokens if self._answers.count else float(answer)
            written_s = 0.0 if self.overdue is None else self.overdue.written_s(i, now)
            seconds += memory_wait_s(
                profile, kv_tokens, beside, there.context, context, usual, written_s
            )
        return seconds

    @property
    def retries(self) -> int:
        """How often something was tried again so far."""
        return self.retry_budget.retries

    @property
    def queued(self) -> int:
        """Primitives (calls) that wait to be dispatched, in whole or in part."""
        return self.line.count

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self.works and not self.instances.busy


def _draws(quota: Quota, work: Work, lo: int, hi: int) -> list[int]:
    """About so many tokens of a minute's budget a slice takes, and notes it; rows take each their
    own."""
    if work.spec.item_tokens:
        return [(hi - lo) * work.spec.item_tokens]
    prompt, calls = (work.row_tokens, hi - lo) if work.row_tokens else (hi - lo, 1)
    work.drawn = quota.answer(prompt, work.spec)
    return [prompt + work.drawn] * calls
