"""The core's vocabulary: what a driver may tell it, and what it may ask of a driver.

Tuples, because they are immutable, compare by value (tests) and are quick to make. `run` is a
query's id, `primitive` an index into its Plan, `lo..hi` a slice of the primitive's items.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from teola.policies.work import Size, Slice


class State(Enum):
    """How a query ends; exactly one per query."""

    OK = "ok"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"

    __hash__ = object.__hash__


class Cause(NamedTuple):
    """Why something failed. error: the exception itself, for the caller."""

    error: Exception
    retryable: bool = False


# --- events for a GraphRun ------------------------------------------------------------------


class Started(NamedTuple):
    """The query may begin; counts: items of each input (ABSENT: not given)."""

    counts: Mapping[str, int]


class Completed(NamedTuple):
    """counts: items of each port. branch: what a Condition decided. instance: who holds it."""

    primitive: int
    counts: Mapping[str, int]
    branch: str | None = None
    instance: int = -1


class Failed(NamedTuple):
    """The primitive failed for good."""

    primitive: int
    cause: Cause


class Cancelled(NamedTuple):
    """The caller does not want the query any more."""


class DeadlineReached(NamedTuple):
    """The query's time is up."""


# --- events for an EngineQueue --------------------------------------------------------------


Outcome = Mapping[str, int] | Cause
"""Items of each port, or why there are none."""


class BatchCompleted(NamedTuple):
    """A batch is over. outcomes: of its slices, in their order."""

    engine: str
    batch: int
    outcomes: Sequence[Outcome]


class CallEnded(NamedTuple):
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


class Sized(NamedTuple):
    """How large a primitive is that the core let measure."""

    engine: str
    run: str
    primitive: int
    size: Size


class PrefixChanged(NamedTuple):
    """An LLM instance tells what its cache has begun to keep and has forgotten, by the keys of
    blocks. cleared: it had forgotten everything before."""

    engine: str
    instance: int
    stored: Sequence[Hashable] = ()
    evicted: Sequence[Hashable] = ()
    cleared: bool = False


class FirstToken(NamedTuple):
    """The prefilling of a group is over. to_client: its tokens leave for the client at once, so it
    cannot be repeated any more."""

    engine: str
    instance: int
    run: str
    primitive: int
    to_client: bool = False


class MemberCompleted(NamedTuple):
    """A decoding of the group led by `head` delivered its output."""

    engine: str
    instance: int
    run: str
    head: int
    primitive: int
    counts: Mapping[str, int]


class Timer(NamedTuple):
    """The time that a queue asked to be woken at."""

    engine: str


class InstanceDown(NamedTuple):
    """An instance is gone: nothing more comes from it. healing: it is worth waiting for another."""

    engine: str
    instance: int
    healing: bool = True


class InstanceDraining(NamedTuple):
    """An instance is to finish what it has and to be sent nothing more."""

    engine: str
    instance: int


class InstanceUp(NamedTuple):
    """An instance can take work (again); it remembers nothing of what it did before."""

    engine: str
    instance: int


class InstanceWaits(NamedTuple):
    """A batch on it waits for queries that it began itself, and leaves its place to others (change
    1), or waits no more (-1)."""

    engine: str
    instance: int
    change: int


class InstanceChanged(NamedTuple):
    """An LLM instance reports how many more tokens its KV memory can take."""

    engine: str
    instance: int
    free_tokens: int


# --- commands -------------------------------------------------------------------------------


class Submit(NamedTuple):
    """GraphRun -> core: give the primitive (a group's head) to its engine's queue. affinity: the
    instance that keeps the sequence which it continues (-1: none)."""

    run: str
    primitive: int
    affinity: int


class Withdraw(NamedTuple):
    """GraphRun -> core: the query does not want this primitive any more."""

    run: str
    primitive: int


class Measure(NamedTuple):
    """Work out how large the primitive is, which takes a while, and send Sized."""

    run: str
    primitive: int


class Control(NamedTuple):
    """Run a control primitive (Condition, Aggregate) now."""

    run: str
    primitive: int


class Release(NamedTuple):
    """Nobody will read this primitive's outputs again."""

    run: str
    primitive: int


class Skipped(NamedTuple):
    """The primitive has no work and will not run."""

    run: str
    primitive: int


class Finish(NamedTuple):
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


class Dispatch(NamedTuple):
    """Send a batch to an instance."""

    engine: str
    instance: int
    batch: int
    slices: tuple[Slice, ...]


class AbortRequest(NamedTuple):
    """Stop working on a slice that was dispatched, if the engine can."""

    engine: str
    instance: int
    batch: int
    run: str
    primitive: int


class Retried(NamedTuple):
    """A failed slice is queued again (for traces)."""

    run: str
    primitive: int
    cause: Cause


class Ejected(NamedTuple):
    """An instance failed too often: it is sent nothing until then (for logs)."""

    engine: str
    instance: int
    until: float
    cause: Cause


class Recovered(NamedTuple):
    """The probe of an ejected instance succeeded: it gets its share back bit by bit (for logs)."""

    engine: str
    instance: int


class SetTimer(NamedTuple):
    """Send Timer(engine) at time `at`."""

    engine: str
    at: float


class Tell(NamedTuple):
    """EngineQueue -> core: an event of one of its runs."""

    run: str
    event: Completed | Failed


RunEvent = Started | Completed | Failed | Cancelled | DeadlineReached
QueueEvent = (
    BatchCompleted
    | CallEnded
    | FirstToken
    | MemberCompleted
    | Timer
    | InstanceDown
    | InstanceDraining
    | InstanceUp
    | InstanceWaits
    | InstanceChanged
    | Sized
    | PrefixChanged
)
RunCommand = Submit | Withdraw | Control | Release | Skipped | Finish
Command = (
    Control
    | Measure
    | Release
    | Skipped
    | Finish
    | Dispatch
    | AbortRequest
    | SetTimer
    | Retried
    | Ejected
    | Recovered
)

Outbox = list[Any]
"""Where commands go, in the order in which they are to be performed. Each part adds its own."""
