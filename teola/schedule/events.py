"""The core's vocabulary: what a driver may tell it, and what it may ask of a driver.

Records with slots compare by value (tests) and are quick to make and to read: a frozen one takes
three times as long to make, a tuple with names twice. Nobody changes one. `run` is a query's id,
`primitive` an index into its Plan, `lo..hi` a slice of the primitive's items.

Long because it is one vocabulary, to be searched.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from teola.policies.work import Size, Slice, WorkKey
from teola.schedule.faults import PolicyFailed
from teola.schedule.quota import Refusal


class State(Enum):
    """How a query ends; exactly one per query."""

    OK = "ok"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"

    __hash__ = object.__hash__


@dataclass(slots=True)
class Cause:
    """Why something failed. error: the exception itself, for the caller. lost: it was going on on
    an instance that is gone. refused: the server did not take it, which is no failure."""

    error: Exception
    retryable: bool = False
    lost: bool = False
    refused: Refusal | None = None


# --- events for a run -----------------------------------------------------------------------


@dataclass(slots=True)
class Started:
    """The query may begin; counts: items of each input (ABSENT: not given)."""

    counts: Mapping[str, int]


@dataclass(slots=True)
class Completed:
    """counts: of ports. branch: a Condition's. instance: who holds it. missing: in its parts."""

    primitive: int
    counts: Mapping[str, int]
    branch: str | None = None
    instance: int = -1
    missing: Mapping[str, Cause] | None = None


@dataclass(slots=True)
class Failed:
    """The primitive failed for good."""

    primitive: int
    cause: Cause


@dataclass(slots=True)
class Again:
    """What is known of a primitive is not its result: it is to be done after all."""

    primitive: int


@dataclass(slots=True)
class AlreadyKnown:
    """What a primitive gives is known: no engine is to do it. Control follows."""

    primitive: int


@dataclass(slots=True)
class RestExpected:
    """All that the query does is expected to take `more_s` seconds longer, one after another, than
    was expected until now: it grows more, or less."""

    more_s: float


@dataclass(slots=True)
class DeadlineMoved:
    """The query's deadline is `by_s` later: so long nothing could go on before people answered."""

    by_s: float


@dataclass(slots=True)
class Cancelled:
    """The caller does not want the query any more."""


@dataclass(slots=True)
class DeadlineReached:
    """The query's time is up. waited: for whom it waits just now, if a server refuses it."""

    waited: str = ""


@dataclass(slots=True)
class RowsCame:
    """The next window of a run of rows is there. row_tokens: of a row's prompt, on average. found:
    how many of them an instance had kept, on average, of the run's rows so far. keys: of the full
    blocks of its first row's prompt, as far as a row of average length has them."""

    count: int
    row_tokens: int
    found: int = 0
    keys: tuple[Hashable, ...] = ()


@dataclass(slots=True)
class SourceEnded:
    """A run of rows has had all its rows. error: why there are no more, if that is no end."""

    error: Exception | None = None


# --- events for an EngineQueue --------------------------------------------------------------


Outcome = Mapping[str, int] | Cause
"""Items of each port, or why there are none."""


@dataclass(slots=True)
class BatchCompleted:
    """A batch is over. outcomes: of its slices, in their order."""

    engine: str
    batch: int
    outcomes: Sequence[Outcome]


@dataclass(slots=True)
class CallEnded:
    """The stream of an LLM call has ended (of a prefix that is computed ahead: its prefilling).
    Calls of one batch end each for itself. cached: tokens of its prompt that the instance found in
    its cache; generated: tokens of its answer, as far as that came (None: it does not tell)."""

    engine: str
    batch: int
    run: str
    primitive: int
    outcome: Outcome
    cached: int | None = None
    generated: int | None = None


class RowFailure(NamedTuple):
    """A row of a slice came back without an answer. begun: it had given a token."""

    row: int
    cause: Cause
    begun: bool = False


@dataclass(slots=True)
class RowsEnded:
    """What has become of a slice of rows since this was told last. `lo` is its first row; it is
    over when all of its rows have come back.

    ended: ranges of rows that were answered.
    failed: rows that were not.
    firsts: rows that gave their first token, whether or not they have ended.
    cached, generated: see CallEnded, of all rows that ended now.
    given: what they gave, which the core passes on (RowsOver).
    """

    engine: str
    batch: int
    run: str
    primitive: int
    lo: int
    ended: Sequence[tuple[int, int]] = ()
    failed: Sequence[RowFailure] = ()
    firsts: int = 0
    cached: int | None = None
    generated: int | None = None
    given: Any = None


@dataclass(slots=True)
class Sized:
    """How large a primitive is that the core let measure. cause: why it is not to be done, such as
    that its query may not take so much. known: what it gives is known, so it is not to be done."""

    engine: str
    run: str
    primitive: int
    size: Size
    cause: Cause | None = None
    known: bool = False


@dataclass(slots=True)
class PrefixChanged:
    """An LLM instance tells what its cache has begun to keep and has forgotten, by the keys of
    blocks. cleared: it had forgotten everything before."""

    engine: str
    instance: int
    stored: Sequence[Hashable] = ()
    evicted: Sequence[Hashable] = ()
    cleared: bool = False


@dataclass(slots=True)
class ProgramPaused:
    """A program (Asker.program) has an answer. reason: what it waits for until its next call, in
    its own words ("tool", "person"). ended: there is none, as the core knows of queries by itself.
    """

    engine: str
    program: str
    reason: str = ""
    ended: bool = False


@dataclass(slots=True)
class FirstToken:
    """The prefilling of a group is over. to_client: it cannot be repeated any more, because its
    tokens leave at once; told again where something that it wrote is used from then on."""

    engine: str
    instance: int
    run: str
    primitive: int
    to_client: bool = False


@dataclass(slots=True)
class MemberCompleted:
    """A decoding of the group led by `head` delivered its output."""

    engine: str
    instance: int
    run: str
    head: int
    primitive: int
    counts: Mapping[str, int]


@dataclass(slots=True)
class Timer:
    """The time that a queue asked to be woken at."""

    engine: str


@dataclass(slots=True)
class InstanceDown:
    """An instance is gone: nothing more comes from it. healing: it is worth waiting for another."""

    engine: str
    instance: int
    healing: bool = True


@dataclass(slots=True)
class InstanceDraining:
    """An instance is to finish what it has and to be sent nothing more."""

    engine: str
    instance: int


@dataclass(slots=True)
class InstanceUp:
    """An instance can take work (again); it remembers nothing of what it did before."""

    engine: str
    instance: int


@dataclass(slots=True)
class InstanceWaits:
    """A batch on it leaves its place to queries that it began (change 1), or takes it back (-1)."""

    engine: str
    instance: int
    change: int


@dataclass(slots=True)
class InstanceChanged:
    """An LLM instance reports how many more tokens its KV memory can take."""

    engine: str
    instance: int
    free_tokens: int


@dataclass(slots=True)
class LimitsTold:
    """A server tells what is left of this minute's budgets of its key, in how many seconds each is
    whole again, and how much that is then (None: it does not tell). ago_s: how long ago the call
    was sent that it answers so."""

    engine: str
    instance: int
    requests: float | None
    tokens: float | None
    requests_reset_s: float
    tokens_reset_s: float
    ago_s: float = 0.0
    requests_limit: float | None = None
    tokens_limit: float | None = None


@dataclass(slots=True)
class Parted:
    """A call in flight may not write what its equals want, since its query's budget has too little
    left: whoever follows it is to have a call of its own."""

    engine: str
    run: str
    primitive: int


@dataclass(slots=True)
class Tuned:
    """Options of one of the engine's policies are others from now on. kind: `batching` or
    `routing`."""

    engine: str
    kind: str
    options: Mapping[str, Any]


# --- commands -------------------------------------------------------------------------------


@dataclass(slots=True)
class Submit:
    """Run -> core: queue the primitive (a group's head). affinity: the instance that keeps the
    sequence which it continues (-1: none). fused_tokens: planned tokens of the pieces of its prompt
    that are computed with it. rows: how large a window of rows is."""

    run: str
    primitive: int
    affinity: int
    fused_tokens: int = 0
    rows: RowsCame | None = None


@dataclass(slots=True)
class Withdraw:
    """Run -> core: the query does not want this primitive any more."""

    run: str
    primitive: int


@dataclass(slots=True)
class Recall:
    """Run -> core: take a piece of a prompt back from its queue, if nothing of it was sent and
    there is room to compute it with the rest of its prompt, which `into` leads. The core answers
    whether it did."""

    run: str
    primitive: int
    into: int


@dataclass(slots=True)
class Measure:
    """Work out how large the primitive is, which takes a while, and send Sized."""

    run: str
    primitive: int


@dataclass(slots=True)
class Control:
    """Run a control primitive now, or take what is known of one that an engine would do."""

    run: str
    primitive: int


@dataclass(slots=True)
class Release:
    """Nobody will read this primitive's outputs again."""

    run: str
    primitive: int


@dataclass(slots=True)
class Skipped:
    """The primitive has no work and will not run."""

    run: str
    primitive: int


@dataclass(slots=True)
class Fused:
    """A piece of a prompt will be computed with the rest of it, and not by itself."""

    run: str
    primitive: int


@dataclass(slots=True)
class Finish:
    """The query has ended; outputs may be read now and for the last time.

    missing: components that failed but were optional; reasons: why, in the same order. failed: the
    primitive whose failure ended it.
    """

    run: str
    state: State
    cause: Cause | None
    missing: tuple[str, ...]
    failed: int = -1
    reasons: tuple[Cause, ...] = ()


@dataclass(slots=True)
class RowsWanted:
    """A run of rows has room for a window: send RowsCame when one is there, or SourceEnded."""

    run: str


@dataclass(slots=True)
class RowsOver:
    """Rows of a window are over: `given` is what those that were answered gave; `failed` are those
    that will not be, each with the reason. Of what comes back for nobody this is not said."""

    run: str
    primitive: int
    given: Any
    failed: Sequence[tuple[int, Cause]] = ()


@dataclass(slots=True)
class Dispatch:
    """Send a batch to an instance."""

    engine: str
    instance: int
    batch: int
    slices: tuple[Slice, ...]


@dataclass(slots=True)
class AbortRequest:
    """Stop working on a slice that was dispatched, if the engine can."""

    engine: str
    instance: int
    batch: int
    run: str
    primitive: int


@dataclass(slots=True)
class AbortRows:
    """Stop working on the rows of a slice that begins at `lo`, those that have not come back."""

    engine: str
    instance: int
    batch: int
    run: str
    primitive: int
    lo: int


@dataclass(slots=True)
class Retried:
    """A failed slice is queued again (for traces)."""

    run: str
    primitive: int
    cause: Cause


@dataclass(slots=True)
class Ejected:
    """An instance failed too often: it is sent nothing until then (for logs)."""

    engine: str
    instance: int
    until: float
    cause: Cause


@dataclass(slots=True)
class FirstTokenLate:
    """A call has given no token for so long that it was ended, or that its server is suspected of
    hanging (for logs). elsewhere: whether it is tried elsewhere, and not waited for."""

    engine: str
    instance: int
    after_s: float
    elsewhere: bool


@dataclass(slots=True)
class Recovered:
    """The probe of an ejected instance succeeded: it gets its share back bit by bit (for logs)."""

    engine: str
    instance: int


@dataclass(slots=True)
class Waits:
    """A work was refused and is queued where it stood. until: before then no instance takes it
    (now, if one does)."""

    engine: str
    instance: int
    run: str
    primitive: int
    until: float
    cause: Cause


@dataclass(slots=True)
class Retuned:
    """A policy's options have changed, or not (for logs). refused: why not ("": they have)."""

    engine: str
    kind: str
    options: Mapping[str, Any]
    refused: str = ""


@dataclass(slots=True)
class Joined:
    """A work follows another one, which is in flight: it is told what has come of that, and what
    comes. leader: run and primitive."""

    engine: str
    run: str
    primitive: int
    leader: WorkKey


@dataclass(slots=True)
class SetTimer:
    """Send Timer(engine) at time `at`."""

    engine: str
    at: float


@dataclass(slots=True)
class RowsBegan:
    """Rows of a run's first window have given their first tokens."""

    primitive: int


@dataclass(slots=True)
class Tell:
    """EngineQueue -> core: an event of one of its runs."""

    run: str
    event: Completed | Failed | AlreadyKnown | RowsBegan


RunEvent = (
    Started
    | Completed
    | Failed
    | Again
    | AlreadyKnown
    | RestExpected
    | DeadlineMoved
    | Cancelled
    | DeadlineReached
    | RowsCame
    | RowsBegan
    | SourceEnded
)
QueueEvent = (
    BatchCompleted
    | CallEnded
    | FirstToken
    | MemberCompleted
    | RowsEnded
    | Timer
    | InstanceDown
    | InstanceDraining
    | InstanceUp
    | InstanceWaits
    | InstanceChanged
    | LimitsTold
    | Sized
    | Parted
    | PrefixChanged
    | ProgramPaused
    | Tuned
)
RunCommand = Submit | Withdraw | Recall | Control | Release | Skipped | Fused | RowsWanted | Finish
OfRun = Control | Measure | Release | Skipped | Fused | RowsWanted | Finish
OfEngine = (
    Dispatch
    | AbortRequest
    | AbortRows
    | RowsOver
    | SetTimer
    | Retried
    | Waits
    | Joined
    | Ejected
    | FirstTokenLate
    | Recovered
    | Retuned
    | PolicyFailed
)
Command = OfRun | OfEngine

Outbox = list[Any]
"""Where commands go, in the order in which they are to be performed. Each part adds its own."""
