"""Work: what an engine's queue holds, an entry for each primitive (or LLM call), and slices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from teola.graph import Op
from teola.policies.asker import Asker
from teola.policies.reason import Reason


class Estimate(NamedTuple):
    """What a profile says of a primitive before it runs, in seconds (zeros: no profile is known).

    rest_s: the longest path from its start to the end of its run (without a profile: its depth).
    latest_s: how long after its run began it may start and not delay that path. total_s:
    all of the run's primitives one after another, with those of parts that it is expected to grow.
    base_s: what a batch costs whatever is in it.
    takes_s: the primitive alone. item_s: by how much each of its items makes a batch longer.
    call_s: the primitive, of an LLM call with all that it writes.
    """

    rest_s: float = 0.0
    latest_s: float = 0.0
    total_s: float = 0.0
    base_s: float = 0.0
    takes_s: float = 0.0
    item_s: float = 0.0
    call_s: float = 0.0


UNKNOWN: Final = Estimate()
NOBODY: Final = Asker()


class Size(NamedTuple):
    """How large a work is. total: items; of an LLM call, prompt tokens. keys: of its prompt's full
    blocks, each of which says what stands in the prompt up to its end; equal keys, equal KV. same:
    digest of all that its result depends on; works of one engine with equal ones have equal results
    (None: it is done for itself)."""

    total: int
    keys: tuple[Hashable, ...] = ()
    same: Hashable | None = None


@dataclass(frozen=True, slots=True)
class WorkSpec:
    """What a Plan knows of a primitive that goes to an engine, the same for all queries.

    lane: works of one lane may share a batch (None: that of all prefills).
    cuttable: whether it may be dispatched in slices.
    measured: whether its size depends on its inputs (else it is one item).
    depth: primitives on the longest way from it to an output.
    members: of an LLM call, the decodings that share its stream.
    retries: further tries that it may have.
    item_tokens: planned tokens of an item (0: its time does not depend on them).
    planned_tokens: of its prompt. planned_output: that its call generates in all.
    expected_output: the same, by the habits of its component (0: they are not known).
    most_output: tokens that it may generate (0: that is not said).
    continues: planned tokens of the sequence that its prompt goes on with (0: none).
    ahead: a piece of a prompt, computed before the rest of it is there, which can take it along.
    rows: a work of it is a window of rows, calls of one instruction, and may be dispatched by row.
    yields: its rows leave room to calls that are no rows (`Slots.kept`).
    """

    engine: str
    op: Op
    component: str
    lane: Op | None
    cuttable: bool
    depth: int
    members: tuple[int, ...] = ()
    retries: int = 0
    estimate: Estimate = UNKNOWN
    measured: bool = True
    item_tokens: int = 0
    planned_tokens: int = 0
    planned_output: int = 0
    expected_output: int = 0
    most_output: int = 0
    continues: int = 0
    ahead: bool = False
    rows: bool = False
    yields: bool = False

    @property
    def answer_tokens(self) -> int:
        """Tokens that an LLM call is expected to generate."""
        return self.expected_output or self.planned_output


WorkKey = tuple[str, int]
"""Run and primitive of a piece of work."""


@dataclass(slots=True, eq=False)
class Window:
    """What the queue knows of a window of rows besides what it knows of any work.

    tries: of rows that were tried more than once, how many more times.
    failed: rows that are to be tried again once all others are over, and why; failed_at: the
        instance where one failed last.
    generated: tokens of the answers so far. errors: rows that will not be answered.
    told: the instance where the routing policy knows it to be, as one call (-1: nowhere); begun:
        it was told of a first token, too.
    """

    tries: dict[int, int] = field(default_factory=dict)
    failed: dict[int, object] = field(default_factory=dict)
    failed_at: int = -1
    generated: int = 0
    errors: int = 0
    told: int = -1
    begun: bool = False


@dataclass(slots=True, eq=False)
class Work:
    """A primitive in an engine's queue, waiting or in flight. Queues change it, policies read it.

    total: items; of an LLM call, prompt tokens; of a window of rows, rows.
    arrival, seq: when it was queued, and the tie-break.
    asker: on whose behalf it is done, the same object as its run's.
    began: when its run did: its query's admission; of a part's, when the part began.
    admitted: from when its age counts: see Run.
    deadline: when its query is given up, on the driver's clock.
    longer_s: by how much its whole query takes longer than its run (see total_s).
    affinity: the instance that it is bound to (-1: none). When it is submitted: its home.
    home: the instance that keeps the sequence which it continues (-1: none).
    keys: of its prompt's full blocks, if a policy of its engine wants to know (see Size).
    found: tokens of its prompt that its instance kept, or was to compute, when it was bound.
    fused_tokens: planned tokens of the pieces of its prompt that are computed with it.
    avoid: the instance where it failed (-1: none).
    tries: tries used up; excused: those of them that were not its own fault.
    spans: what is still to be dispatched.
    flying: instance and batch of each slice in flight.
    sent: when the last of it was dispatched. drawn: tokens of its answer (of a row's) that a
        minute's budget had to have for it then.
    done: items that have come back.
    counts: what those delivered by port, if they came in several slices.
    prefilling: an LLM call is under way and has given no token.
    streamed: what it writes has begun to leave for the client, or to be used.
    priority: how urgent its engine's own queue is to take it; more is sooner.
    wanted: of a piece of a prompt: the rest of it is there, and cannot take it along.
    withdrawn: nobody waits for it any more; it is kept until what is in flight has ended.
    behind_s: of a part's, the time of what is expected to follow the part in its query.
    budget_s: its share of what is left until its query's objective, since it was queued first.
    reason: why an LLM call goes where it goes, or is held, if somebody observes that.
    limited_from: seconds for which something had waited for its servers' limits when it came.
    same: see Size. leader: whose result is its own, too, while that is not there.
    row_tokens: of a window, prompt tokens of a row, on average (0: it is none). row_found: how many
    of them an instance had kept, on average, of the run's rows so far. window: what else is known
    of it.
    """

    spec: WorkSpec
    run: str
    primitive: int
    total: int
    arrival: float
    seq: int
    affinity: int = -1
    asker: Asker = NOBODY
    began: float = 0.0
    behind_s: float = 0.0
    longer_s: float = 0.0
    admitted: float = 0.0
    deadline: float = inf
    fused_tokens: int = 0
    avoid: int = -1
    tries: int = 0
    excused: int = 0
    queued: bool = True
    spans: list[tuple[int, int]] = field(default_factory=list)
    flying: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    sent: float = 0.0
    drawn: int = 0
    done: int = 0
    counts: dict[str, int] | None = None
    prefilling: bool = False
    streamed: bool = False
    withdrawn: bool = False
    priority: int = 0
    home: int = -1
    keys: tuple[Hashable, ...] = ()
    found: int = 0
    wanted: bool = False
    budget_s: float | None = None
    reason: Reason | None = None
    limited_from: float = 0.0
    same: Hashable | None = None
    leader: WorkKey | None = None
    row_tokens: int = 0
    row_found: int = 0
    window: Window | None = None

    def __lt__(self, other: object) -> bool:
        """For heaps of policies, whose entries end with a work. Of two with equal keys one stands
        where the other stood, which is not queued any more: either may come first."""
        return False

    @property
    def total_s(self) -> float:
        """All primitives of its query one after another, with all that this grows; of a part's work
        too. 0: times are not known."""
        return self.spec.estimate.total_s + self.longer_s

    @property
    def remaining(self) -> int:
        """Items (tokens, rows) not yet dispatched."""
        return sum(hi - lo for lo, hi in self.spans)

    @property
    def tokens(self) -> int:
        """Items; of an LLM call, or of one row of a window, tokens of its prompt."""
        return self.row_tokens or self.total

    @property
    def missing(self) -> int:
        """Items; of an LLM call or a row, tokens of its prompt that are to be computed."""
        return self.tokens - self.found

    def weighs(self, items: int) -> int:
        """Tokens of so many rows; of anything else, so many items (tokens)."""
        return items * (self.row_tokens or 1)

    def entries(self, items: int) -> int:
        """Calls that so many of its items are: rows are one each, all else is one together."""
        return items if self.row_tokens else 1

    def take(self, lo: int, hi: int) -> bool:
        """Items lo..hi are being dispatched; whether they were still to be."""
        spans = self.spans
        if spans and spans[0] == (lo, hi):
            spans.pop(0)
            return True
        for k, (a, b) in enumerate(spans):
            if a <= lo < hi <= b:
                spans[k : k + 1] = [span for span in ((a, lo), (hi, b)) if span[0] < span[1]]
                return True
        return False

    def joined(self, counts: Mapping[str, int]) -> Mapping[str, int]:
        """Items of each port in all slices that have come back, now with these."""
        joined = self.counts = self.counts or {}
        for port, count in counts.items():
            joined[port] = joined.get(port, 0) + count
        return joined

    def on(self, instance: int) -> bool:
        """Whether some of it is in flight there: what comes from elsewhere is late."""
        return any(at == instance for at, _ in self.flying.values())


def ranges(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges of those that follow each other."""
    found: list[tuple[int, int]] = []
    for row in rows:
        if found and found[-1][1] == row:
            found[-1] = found[-1][0], row + 1
        else:
            found.append((row, row + 1))
    return found


def merged_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of numbers, of which no two have one in common, in order and as few as can be."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(spans):
        if found and found[-1][1] == lo:
            lo = found.pop()[0]
        found.append((lo, hi))
    return found


class Slice(NamedTuple):
    """Take items lo..hi of `work`."""

    work: Work
    lo: int
    hi: int


class Slots(NamedTuple):
    """What an instance can take now. weight: items (tokens); entries: primitives (calls).

    idle: nothing runs there, so that one entry larger than `weight` may go alone. running: calls
    in flight there, which another prefill holds up (0 where batches do not disturb each other).
    lane: only work of this lane is wanted (None: of any). rationed: what it runs is counted, by its
    server, in requests a minute, so that whatever can share one does. kept: of `entries`, those
    that rows leave free which yield.
    """

    instance: int
    weight: int
    entries: int
    idle: bool
    running: int = 0
    lane: Op | None = None
    rationed: bool = False
    kept: int = 0


class Taker:
    """Fills one batch: takes from work after work until the slots are used up.

    `take` answers whether the batch can hold more. A work that is not for this instance or lane is
    left alone (`fits`); one that cannot be cut and is too large closes the batch.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.weight, self.entries = slots.weight, slots.entries
        self.lane = slots.lane
        self.slices: list[Slice] = []

    @property
    def room(self) -> bool:
        """Whether something small would still have a place."""
        return self.weight > 0 and self.entries > 0

    def fits(self, work: Work) -> bool:
        """Whether this batch may hold `work` at all."""
        if work.affinity >= 0 and work.affinity != self.slots.instance:
            return False
        if work.avoid == self.slots.instance:
            return False
        if self.slices or self.slots.lane is not None:
            return work.spec.lane is self.lane
        return True

    def take(self, work: Work) -> bool:
        """Take as much of `work` as there is room for; False when the batch is full."""
        if self.weight <= 0 or self.entries <= 0:
            return False
        self.lane = work.spec.lane
        if work.row_tokens:
            return self._take_rows(work)
        for lo, hi in work.spans:
            size = hi - lo - work.found
            if size > self.weight:
                if not work.spec.cuttable:
                    if self.slices or not self.slots.idle:
                        return False
                else:
                    hi = lo + self.weight
            self.slices.append(Slice(work, lo, hi))
            self.weight -= hi - lo - work.found
            if self.weight <= 0:
                self.entries -= 1
                return False
        self.entries -= 1
        return self.entries > 0

    def _take_rows(self, work: Work) -> bool:
        """Take as many rows as there is room for, at least one if nothing else is there."""
        tokens_a_row = max(1, work.missing)
        for lo, hi in work.spans:
            least = 1 if self.slots.idle and not self.slices else 0
            count = min(hi - lo, self.entries, max(least, self.weight // tokens_a_row))
            if work.spec.yields:
                count = min(count, self.entries - self.slots.kept)
            if count <= 0:
                break
            self.slices.append(Slice(work, lo, lo + count))
            self.weight -= count * tokens_a_row
            self.entries -= count
            if lo + count < hi:
                break
        return self.weight > 0 and self.entries > 0
