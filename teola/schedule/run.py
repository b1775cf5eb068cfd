"""Run: what a core needs of whatever runs in it. A query's graph is one (`GraphRun`).

Anything else that wants work of the engines' queues can be another: the rows of a table, a single
call of a gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from teola.policies.asker import Asker
from teola.policies.work import WorkSpec
from teola.schedule.events import Outbox, Recall, RunEvent, State, Submit, Withdraw

AskQueues = Callable[[Submit | Withdraw | Recall], object]
"""Takes what a run wants of the queues and does it at once; of a Recall it answers whether it was
done."""


class HasSpecs(Protocol):
    """What a run goes by. specs: of its primitives, by their index."""

    @property
    def specs(self) -> Sequence[WorkSpec]: ...


class Run(Protocol):
    """A state machine in a core: events in, commands out.

    id: its name in the core and in all commands.
    asker: on whose behalf it runs.
    began: when it was admitted to the core, on the driver's clock. A part begins later than the
        query that it belongs to.
    admitted: from when its age counts: the admission of the query that its user asked for, in which
        it is at any depth. Where the times of that one are not known, its own beginning: an old map
        that weighs nothing would go before everybody.
    deadline: when it is given up, on the driver's clock: the earliest of all queries that it is in.
    behind_s: the time of what follows it in its query, in seconds, as far as that is known.
    longer_s: by how much all of its query takes longer than its own specs say (Estimate.total_s):
        of a part, by what is around it; of what has grown, by what was not expected.
    state: how it ended (None: it goes on).
    """

    id: str
    asker: Asker
    began: float
    admitted: float
    deadline: float
    behind_s: float
    longer_s: float
    state: State | None

    @property
    def plan(self) -> HasSpecs: ...

    def attach(self, out: Outbox, ask: AskQueues) -> None:
        """Called once, before anything else. out: takes its commands for the driver. ask: takes
        what it wants of the queues."""
        ...

    def handle(self, event: RunEvent, now: float) -> None:
        """Something happened. Events after its end change nothing."""
        ...
