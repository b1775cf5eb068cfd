"""GraphRun: the graph scheduler of one query (paper, section 6.1), as a state machine.

It counts in-degrees, submits what is ready, skips what has no data or whose branch was not taken
and withdraws what nobody will read any more, releases outputs after their last reader, and ends in
exactly one state: as soon as the outputs and the effects are done. It knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

from teola.errors import BudgetSpent, DeadlineExceeded, QueryCancelled
from teola.graph import Ref
from teola.policies.asker import Asker
from teola.schedule.events import (
    Again,
    AlreadyKnown,
    Cancelled,
    Cause,
    Completed,
    Control,
    DeadlineMoved,
    DeadlineReached,
    Failed,
    Finish,
    Fused,
    Outbox,
    Recall,
    Release,
    RestExpected,
    RunEvent,
    Skipped,
    Started,
    State,
    Submit,
    Withdraw,
)
from teola.schedule.plan import Absence, Plan
from teola.schedule.run import AskQueues

WAITING: Final = 0
RUNNING: Final = 1
DONE: Final = 2
SKIPPED: Final = 3
FAILED: Final = 4
CANCELLED: Final = 5
NAMES: Final = ("waiting", "running", "done", "skipped", "failed", "cancelled")
NOTHING_KNOWN: Final = frozenset[int]()  # one for all runs: each takes 216 bytes


class GraphRun:
    """State of one query, or of a part of one. `handle` takes events and gives commands; nothing
    else happens.

    asker, admitted, deadline, behind_s, longer_s: see Run. By default it is asked by nobody in
        particular.
    known: primitives that no engine is to do, since what they gave before is known.
    out: where its commands go. A run that belongs to no core keeps them here itself, with what it
        wants of the queues.
    """

    def __init__(
        self,
        id: str,
        plan: Plan,
        asker: Asker | None = None,
        *,
        began: float = 0.0,
        admitted: float | None = None,
        deadline: float = inf,
        behind_s: float = 0.0,
        longer_s: float = 0.0,
    ) -> None:
        self.id, self.plan = id, plan
        self.asker = asker or Asker(app=plan.graph.name, program=id, admitted=began)
        self.began, self.behind_s, self.longer_s = began, behind_s, longer_s
        self.admitted = began if admitted is None else admitted
        self.deadline = deadline
        self.known = NOTHING_KNOWN
        self.status = [WAITING] * len(plan)
        self.waits = list(plan.indegree)
        self.readers = list(plan.readers)
        self.left = len(plan)
        self.open = list(plan.open)
        self.state: State | None = None
        self.missing: list[str] = []
        self.reasons: list[Cause] = []
        self.instance: dict[int, int] = {}
        self.branches: dict[str, str] = {}
        self.fused: dict[int, tuple[int, ...]] = {}
        """Pieces of prompts that are computed with the rest of them, which is the key."""
        self._short = False
        self._absence = Absence(plan, {})
        self.out: Outbox = []
        self._ask: AskQueues = self.out.append
        self._unsettled: list[int] = []

    def attach(self, out: Outbox, ask: AskQueues) -> None:
        """From now on it belongs to a core; see Run."""
        self.out, self._ask = out, ask

    def handle(self, event: RunEvent, now: float) -> None:
        """Add to `out` the commands that follow from `event`; what is for the queues is asked of
        them at once. Events after the end change nothing."""
        if self.state is None:
            _HANDLERS[type(event)](self, event)
            if self.left == 0 and self.state is None:
                self._finish(State.PARTIAL if self.missing else State.OK, None)

    @property
    def total_s(self) -> float:
        """All of its query one after another, in seconds, as far as it is expected by now. 0: it is
        not known."""
        return self.plan.total_s + self.longer_s

    def ended(self, i: int) -> bool:
        """Whether primitive `i` is done, skipped, failed or cancelled."""
        return self.status[i] >= DONE

    def awaited(self, i: int) -> bool:
        """Whether primitive `i` waits, and has something to do as far as one knows by now."""
        return self.status[i] == WAITING and not self._absence.skips(i, self.ended)

    def before(self, i: int) -> int:
        """The primitive whose sequence the prompt of `i` continues, with the pieces that are part
        of it (-1: none)."""
        return self.plan.sequence_of[self.fused.get(i, (i,))[0]]

    def answers(self, i: int) -> bool:
        """Whether the text of decoding `i` is an output of the query, as far as one knows by now:
        of several that follow each other the last is, but there may be no data for the others."""
        if self.plan.streams[i]:
            return True
        later = self.plan.later.get(i)
        return later is not None and all(map(self._hopeless, later))

    def _hopeless(self, i: int) -> bool:
        """Whether it is certain that decoding `i` delivers nothing."""
        if self.ended(i):
            return self.status[i] != DONE
        while i >= 0:
            if self.status[i] > DONE or self._absence.skips(i, self.ended):
                return True
            i = self.plan.sequence_of[i]
        return False

    def delivered(self, ref: Ref) -> bool:
        """Whether there has been something behind `ref`, even if it is released by now."""
        return not self._absence.absent(ref, empty=False)

    def _started(self, event: Started) -> None:
        self._absence.query = event.counts
        self._short = any(
            event.counts.get(name, -1) < need for name, need in self.plan.query_need.items()
        )
        for i in self.plan.unread:
            if self.status[i] == WAITING:  # else one that it was read by has been skipped
                self._skip(i)
        for i, waits in enumerate(self.plan.indegree):
            if waits == 0 and self.status[i] == WAITING:
                self._ready(i)

    def _completed(self, event: Completed) -> None:
        i = event.primitive
        if self.status[i] >= DONE:
            return
        self.status[i] = DONE
        self._absence.counts[i] = event.counts
        counts = event.counts
        if not self._short:
            for port, need in self.plan.need[i].items():
                if counts.get(port, -1) < need:
                    self._short = True
        if event.branch is not None:
            self.branches[self.plan.ids[i]] = event.branch
        if event.instance >= 0:
            self.instance[i] = event.instance
        for component, cause in (event.missing or {}).items():
            self._lacks(component, cause)
        self._settled(i)

    def _failed(self, event: Failed) -> None:
        i = event.primitive
        group = [m for m in (i, *self.plan.members[i]) if self.status[m] < DONE]
        if not group:
            return
        primitive = self.plan.primitives[i]
        if not primitive.optional and type(event.cause.error) is not BudgetSpent:
            self.status[group[0]] = FAILED
            self._stop(State.FAILED, event.cause, group[0])
            return
        self._lacks(primitive.component, event.cause)
        self._short = True
        for member in group:
            if self.status[member] < DONE:  # it may have been skipped for want of the one before
                self.status[member] = FAILED
                self._settled(member)

    def _again(self, event: Again) -> None:
        self.known -= {event.primitive}
        if self.status[event.primitive] == RUNNING:
            self._ready(event.primitive)

    def _known(self, event: AlreadyKnown) -> None:
        if self.status[event.primitive] == RUNNING:
            self.known |= {event.primitive}
            self.out.append(Control(self.id, event.primitive))

    def _expected(self, event: RestExpected) -> None:
        self.longer_s += event.more_s

    def _postponed(self, event: DeadlineMoved) -> None:
        self.deadline += event.by_s

    def _lacks(self, component: str, cause: Cause) -> None:
        """The query will do without what an optional component gives."""
        if component not in self.missing:
            self.missing.append(component)
            self.reasons.append(cause)

    def _cancelled(self, event: Cancelled) -> None:
        self._stop(State.CANCELLED, Cause(QueryCancelled(f"query {self.id} was cancelled")))

    def _deadline(self, event: DeadlineReached) -> None:
        why = f": {event.waited}" if event.waited else ""
        error = DeadlineExceeded(f"query {self.id} did not finish before its deadline{why}")
        self._stop(State.DEADLINE, Cause(error))

    def _settled(self, ended: int) -> None:
        """Primitive `ended` is over: let go of what it read, and look at who waited for it.

        Skipping settles too; a worklist instead of recursion keeps long chains off the stack.
        """
        worklist = self._unsettled
        worklist.append(ended)
        if len(worklist) > 1:
            return
        plan, status, waits, readers = self.plan, self.status, self.waits, self.readers
        for i in worklist:  # grows while it is read
            self.left -= 1
            if plan.guarded[i]:
                self._decided(i)
            if status[i] != DONE:
                for condition in plan.conditions[i]:
                    self._close(condition)
            if plan.call[i] >= 0:
                self._close(plan.call[i])
            if not self.fused or not self._keeps(i):
                for source in plan.sources[i]:
                    if readers[source] == 1 and status[source] == DONE:  # as `_let_go`, for most
                        readers[source] = 0
                        self.out.append(Release(self.id, source))
                    else:
                        self._let_go(source)
            if readers[i] == 0 and status[i] == DONE:
                self.out.append(Release(self.id, i))
            for child in plan.children[i]:
                waits[child] -= 1
                if status[child] == WAITING:
                    if waits[child] == 0:
                        self._ready(child)
                    elif self._short and self._absence.skips(child, self.ended):
                        self._skip(child)
                    elif waits[child] == 1 and (piece := plan.piece[child]) >= 0:
                        self._fuse(piece, child)
        worklist.clear()

    def _fuse(self, piece: int, rest: int) -> None:
        """All that the rest of a prompt waits for is a piece of it: compute both at once, if the
        piece is still queued. A retry repeats both, so what the piece reads is kept like what the
        rest reads."""
        if self.status[piece] != RUNNING:
            return
        if not self._ask(Recall(self.id, piece, rest)):
            return
        self.fused[rest] = (*self.fused.pop(piece, ()), piece)
        self.status[piece] = DONE
        self._absence.counts[piece] = {"sequence": 1}
        self.out.append(Fused(self.id, piece))
        self._settled(piece)

    def _keeps(self, i: int) -> bool:
        """Whether `i` is a piece that is computed with the rest of its prompt, which lets go of
        what it reads. Where it is the rest, and no call, it does so now."""
        rest = self.plan.rest[i]
        if rest >= 0 and i in self.fused.get(rest, ()):
            return True
        if not self.plan.members[i]:
            self._let_go_of_pieces(i)
        return False

    def _let_go_of_pieces(self, i: int) -> None:
        """Nothing of what `i` computes has to be repeated any more."""
        for piece in self.fused.pop(i, ()):
            for source in self.plan.sources[piece]:
                self._let_go(source)

    def _decided(self, condition: int) -> None:
        """A condition has ended: what stands in another branch is skipped at once, and what was
        begun there on a guess never happened."""
        taken = self.branches.get(self.plan.ids[condition])
        for i, branch in self.plan.guarded[condition]:
            if branch != taken and self.status[i] <= DONE:
                self._skip(i)

    def _close(self, i: int) -> None:
        """One less is open of what group head `i` leads, or of what condition `i` decides on."""
        self.open[i] -= 1
        if self.open[i]:
            return
        members = self.plan.members[i]
        if members and self.status[i] == DONE and self.status[members[-1]] == SKIPPED:
            self._ask(Withdraw(self.id, i))  # it would go on for nobody
        for source in self.plan.held[i]:
            self._let_go(source)
        if self.fused:
            self._let_go_of_pieces(i)
        if self.plan.guarded[i]:
            self._drop(i)

    def _let_go(self, source: int) -> None:
        """One reader less of what `source` gives; after the last one it is released, or need not
        be computed."""
        self.readers[source] -= 1
        if self.readers[source] == 0:
            if self.status[source] == DONE:
                self.out.append(Release(self.id, source))
            else:
                self._drop(source)

    def _drop(self, i: int) -> None:
        """Skip `i` if nobody needs it: it has no effect, no reader, and nothing to decide."""
        needed = self.plan.effects[i] or self.readers[i] or (self.plan.guarded[i] and self.open[i])
        if self.status[i] < DONE and not needed:
            self._skip(i)

    def _skip(self, i: int) -> None:
        before = self.status[i]
        self.status[i] = SKIPPED
        self._short = True
        self._absence.counts.pop(i, None)
        if before == RUNNING and not self.plan.control[i] and self.plan.head[i] == i:
            self._ask(Withdraw(self.id, i))
        self.out.append(Skipped(self.id, i))
        if before != DONE:
            self._settled(i)

    def _ready(self, i: int) -> None:
        plan = self.plan
        if self._short and self._absence.skips(i):
            self._skip(i)
            return
        self.status[i] = RUNNING
        if plan.control[i] or i in self.known:
            self.out.append(Control(self.id, i))
        elif plan.head[i] == i:
            if self.fused:
                self._ask(self._fused_submit(i))
            else:
                self._ask(Submit(self.id, i, self.instance.get(plan.sequence_of[i], -1)))
            rest = plan.rest[i]
            alone = rest >= 0 and self.waits[rest] == 1 and not self._short
            if alone and self.status[rest] == WAITING:
                self._fuse(i, rest)

    def _fused_submit(self, i: int) -> Submit:
        """Primitive `i`, with the pieces of its prompt that are computed with it, if there are."""
        specs, pieces = self.plan.specs, self.fused.get(i, ())
        tokens = sum(specs[piece].planned_tokens for piece in pieces)
        return Submit(self.id, i, self.instance.get(self.before(i), -1), tokens)

    def _stop(self, state: State, cause: Cause, failed: int = -1) -> None:
        plan = self.plan
        for i, status in enumerate(self.status):
            if plan.control[i] or plan.head[i] != i:
                continue
            if status == RUNNING or (status == DONE and plan.members[i] and self.open[i]):
                self._ask(Withdraw(self.id, i))
        self.status = [CANCELLED if status < DONE else status for status in self.status]
        self._finish(state, cause, failed)

    def _finish(self, state: State, cause: Cause | None, failed: int = -1) -> None:
        self.state = state
        missing, reasons = tuple(self.missing), tuple(self.reasons)
        self.out.append(Finish(self.id, state, cause, missing, failed, reasons))


_HANDLERS: Mapping[type, Callable[[GraphRun, Any], None]] = {
    Started: GraphRun._started,
    Completed: GraphRun._completed,
    Failed: GraphRun._failed,
    Again: GraphRun._again,
    AlreadyKnown: GraphRun._known,
    RestExpected: GraphRun._expected,
    DeadlineMoved: GraphRun._postponed,
    Cancelled: GraphRun._cancelled,
    DeadlineReached: GraphRun._deadline,
}
