"""What the steps of an LLM take, from what one sees of its calls: when they were sent, gave their
first token and ended, how many tokens they read and wrote, and what ran beside them.

While a call decodes, every step gives it a token. So the time between its first and its last one is

    steps x base + (sequences + context + prompt tokens + pairs of those steps) x their coefficients

and its steps are its tokens. A prompt that is computed where nothing else runs is the same with the
steps of its prefilling. (Terms of `StepTime`.)

How much of a prompt an instance had kept, one knows when the call is over. Until then, and for what
runs beside it, it is what the queue found there by the prompt's content, else as it was with
prompts like it.

Of each whole call one learns how slow its instance is (by_instance.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Final

from teola.learning.at_work import AtWork, Nobody
from teola.learning.by_instance import Pace, WholeCall
from teola.learning.habits import Habits
from teola.learning.least_squares import LeastSquares
from teola.learning.lessons import EngineTimes, Slowness
from teola.learning.observer import Observer
from teola.policies.work import Slice, Work, WorkKey
from teola.profile import StepTime

ENOUGH: Final = 3
"""Measurements after which the times of a step are known."""
TOGETHER_S: Final = 0.003
"""First tokens that come so close on each other come from one step."""
RIDGE: Final = (1e-4, 1e-4, 1e-2, 1e-4, 1e-2, 1e-4, 1e-3)
"""Terms in the order of `StepTime`, and crowding. Where prompts are of similar lengths, tokens
explain what pairs would explain, too, and far better what longer ones will take."""
ALL_OF: Final = 256
ONE_OF: Final = 4
"""After so many measurements every fourth is enough."""

NEWEST: Final = 1 / 8
"""Weight of the newest prompt of its kind."""
_NONE: Final = (0.0,) * 6
KINDS: Final = 1024
"""Kinds of prompts that are told apart, by component and planned length."""


@dataclass(slots=True)
class _Sums:
    """Of an instance, since it began. Of its decoding calls, over time: how many, the tokens of
    their prompts, and the seconds since their first tokens (in which their answers grow). Of its
    prefillings: tokens, pairs and steps."""

    sequences: float = 0.0
    context: float = 0.0
    ages: float = 0.0
    tokens: float = 0.0
    pairs: float = 0.0
    steps: float = 0.0

    def copy(self) -> _Sums:
        return replace(self)


@dataclass(slots=True)
class _Instance:
    """at: when `sums` were brought up to date. decoding, context, ages: as they are. calls: in
    flight. prefilled: when the last first token came. last: what was sent last. rows: in flight
    beside the calls, of which no more is known; rows_at: when that changed last. tokens, pairs: to
    be computed of calls that have given no token."""

    at: float = 0.0
    sums: _Sums = field(default_factory=_Sums)
    decoding: int = 0
    context: float = 0.0
    ages: float = 0.0
    calls: int = 0
    prefilled: float = float("-inf")
    mark: _Sums = field(default_factory=_Sums)
    last: _Batch | None = None
    rows: int = 0
    rows_at: float = float("-inf")
    tokens: float = 0.0
    pairs: float = 0.0

    def beside_rows(self, since: float) -> bool:
        """Whether rows have run there since that time."""
        return self.rows > 0 or self.rows_at >= since

    def advance(self, now: float) -> None:
        passed = now - self.at
        self.sums.sequences += self.decoding * passed
        self.sums.context += self.context * passed
        self.sums.ages += (self.ages + self.decoding * passed / 2) * passed
        self.ages += self.decoding * passed
        self.at = now


@dataclass(slots=True)
class _Batch:
    """Calls that were sent together. alone: the instance had nothing else to do. waiting: of them,
    for a first token; left: not over. steps: in which first tokens came, the last one at `at`.
    took: seconds of their prompts (0: others ran beside them). tokens, pairs: computed for them.
    crowd: the crowd's seconds when they were sent; others: who worked meanwhile, beside them."""

    sent: float
    waiting: int
    left: int
    alone: bool
    steps: int = 0
    at: float = float("-inf")
    took: float = 0.0
    tokens: float = 0.0
    pairs: float = 0.0
    crowd: float = 0.0
    others: float = 0.0


@dataclass(slots=True)
class _Call:
    """instance, batch: where it runs. tokens, pairs: of its prompt; before: all that was to be
    computed there until its first token. first: when that came, and the sums and the crowd's
    seconds then. context: what its answer attends to."""

    instance: int
    batch: _Batch
    tokens: float
    pairs: float
    before: tuple[float, float] = (0.0, 0.0)
    first: float = -1.0
    context: float = 0.0
    sums: _Sums | None = None
    crowd: float = 0.0


@dataclass(slots=True)
class _Prompts:
    """Prompts of a kind, on average: their length, and how much of it was kept."""

    length: float
    kept: float = 0.0


class CallTimes(Observer):
    """Learns the times of one LLM engine. budget: prompt tokens of one step. crowd: who works at
    the same time (None: that does not matter). names: of its instances."""

    def __init__(
        self, habits: Habits, budget: int, crowd: AtWork | None = None, names: Sequence[str] = ()
    ) -> None:
        self._habits, self._budget, self._crowd = habits, budget, crowd or Nobody()
        self._squares = LeastSquares(RIDGE)
        self._names = names
        self._recalled: Sequence[float] = ()
        self._own = [Pace() for _ in names] if len(names) > 1 else []
        self._instances: dict[int, _Instance] = {}
        self._calls: dict[WorkKey, _Call] = {}
        self._prompts: dict[tuple[str, str, int], _Prompts] = {}
        self._tells = False
        """Whether its engine says how much of a prompt it had kept."""
        self._seen = 0

    def sent(self, i: int, batch: int, slices: Sequence[Slice], now: float) -> None:
        instance = self._instances.setdefault(i, _Instance(now))
        if not instance.calls and slices:
            self._crowd.came(now)
        group = _Batch(now, len(slices), len(slices), alone=not instance.calls)
        group.crowd = self._crowd.seconds(now)
        if instance.last is not None:
            instance.last.alone = False
        instance.last = group
        calls = []
        for work, _, _ in slices:
            tokens, pairs = self._computed(work, None) if self._own else (0.0, 0.0)
            call = self._calls[work.run, work.primitive] = _Call(i, group, tokens, pairs)
            calls.append(call)
            instance.tokens += tokens
            instance.pairs += pairs
        for call in calls:
            call.before = instance.tokens, instance.pairs
        instance.calls += len(slices)

    def first(self, i: int, work: Work, now: float) -> None:
        call = self._calls.get((work.run, work.primitive))
        if call is None or call.instance != i or call.first >= 0:
            return
        instance, batch = self._instances[i], call.batch
        instance.advance(now)
        instance.tokens -= call.tokens
        instance.pairs -= call.pairs
        tokens, pairs = self._computed(work, None)
        sums = instance.sums
        if now - instance.prefilled > TOGETHER_S:
            sums.steps += 1
            instance.mark = sums.copy()
        sums.tokens += tokens
        sums.pairs += pairs
        sums.steps += tokens // self._budget
        mark = instance.mark
        mark.tokens, mark.pairs, mark.steps = sums.tokens, sums.pairs, sums.steps
        instance.prefilled = now
        instance.decoding += 1
        call.first, call.sums, call.context = now, mark, self._before(work) + work.total
        call.crowd = self._crowd.seconds(now)
        instance.context += call.context
        batch.steps += now - batch.at > TOGETHER_S
        batch.at = now
        batch.waiting -= 1
        if batch.alone and not batch.waiting:
            batch.took = now - batch.sent
            batch.others = self._crowd.others(batch.crowd, batch.took, now)

    def ended(
        self, work: Work, failed: bool, cached: int | None, generated: int | None, now: float
    ) -> None:
        call = self._calls.pop((work.run, work.primitive), None)
        if call is None:
            return
        if call.first < 0 and not (failed or work.spec.members):
            self._calls[work.run, work.primitive] = call
            self.first(call.instance, work, now)  # the end of a prefix that is computed ahead
            del self._calls[work.run, work.primitive]
        instance = self._instances[call.instance]
        instance.advance(now)
        instance.calls -= 1
        if not instance.calls:
            self._crowd.left(now)
        if call.first >= 0:
            instance.decoding -= 1
            instance.context -= call.context
            instance.ages -= now - call.first
        else:
            instance.tokens -= call.tokens
            instance.pairs -= call.pairs
        self._tells = self._tells or cached is not None
        self._prefilled(instance, call.batch, work, cached)
        app, spec = work.asker.app, work.spec
        planned = spec.planned_tokens + work.fused_tokens
        if planned and not (failed or work.withdrawn):
            kept = None if spec.continues > work.fused_tokens else cached
            self._habits.prompted(app, spec.component, work.total / planned, kept)
            if cached is not None or not self._tells:
                self._remember(work, kept or 0)
        if not generated or call.sums is None:
            return
        if spec.planned_output and (work.withdrawn or not failed):
            factor = generated / spec.planned_output
            self._habits.generated(app, spec.component, factor, cut=work.withdrawn)
        passed, steps = now - call.first, generated - 1
        if failed or work.withdrawn:
            return
        own = self._computed(work, cached) if self._own else (0.0, 0.0)
        if steps < 1 or passed <= 0:
            self._whole(call, own, _NONE, now)
            return
        if instance.beside_rows(call.first):
            return  # what they made of its steps, nobody knows
        began, sums = call.sums, instance.sums
        share = steps / passed
        others = self._crowd.others(call.crowd, passed, now)
        decoding = (
            steps,
            (sums.sequences - began.sequences) * share,
            (sums.context - began.context + (sums.ages - began.ages) * share) * share,
            sums.tokens - began.tokens,
            sums.pairs - began.pairs,
            sums.steps - began.steps,
        )
        self._whole(call, own, decoding, now)
        self._add(decoding, others, passed)

    def late(self, work: Work, now: float) -> None:
        """Its first token takes longer than this, so the instance is as slow at least. Else one
        that is would not be found out before it has ended calls by itself."""
        call = self._calls.get((work.run, work.primitive))
        if call is not None and call.first < 0:
            self._whole(call, (call.tokens, call.pairs), _NONE, now)

    def outrun(self, work: Work, now: float) -> None:
        self.late(work, now)
        self.ended(work, True, None, None, now)

    def _whole(
        self, call: _Call, own: tuple[float, float], decoding: Sequence[float], now: float
    ) -> None:
        """A call has ended well, or is late. own: tokens and pairs of its prompt, as is known now.
        decoding: the quantities of its decoding."""
        if not self._own:
            return
        (tokens, pairs), (own_tokens, own_pairs) = call.before, own
        tokens += own_tokens - call.tokens
        pairs += own_pairs - call.pairs
        steps = max(1.0, tokens / self._budget)
        first = (steps, 0.0, 0.0, tokens, pairs, steps)
        quantities = [a + b for a, b in zip(first, decoding, strict=True)]
        passed = now - call.batch.sent
        others = self._crowd.others(call.batch.crowd, passed, now)
        self._own[call.instance].ended(WholeCall(now, None, quantities, others, passed))

    def rows(self, i: int, change: int, now: float) -> None:
        instance = self._instances.setdefault(i, _Instance(now))
        instance.rows, instance.rows_at = max(0, instance.rows + change), now

    def lost(self, i: int, now: float) -> None:
        instance = self._instances.pop(i, None)
        if instance is not None and instance.calls:
            self._crowd.left(now)
        self._calls = {key: call for key, call in self._calls.items() if call.instance != i}

    def _prefilled(
        self, instance: _Instance, batch: _Batch, work: Work, cached: int | None
    ) -> None:
        """A call of the batch is over, and it is known now how much of its prompt was computed.
        (Not of a prefix, for instance: engines do not tell it there.)"""
        if cached is None and self._tells:
            batch.took = 0.0
        tokens, pairs = self._computed(work, cached)
        batch.tokens += tokens
        batch.pairs += pairs
        batch.left -= 1
        if batch.took and not batch.left and not instance.beside_rows(batch.sent):
            steps = max(batch.steps, -(-batch.tokens // self._budget))
            self._add((steps, 0.0, 0.0, batch.tokens, batch.pairs, steps), batch.others, batch.took)

    def _computed(self, work: Work, cached: int | None) -> tuple[float, float]:
        """Tokens and pairs of a prompt that were not kept. cached: how many were (None: what the
        queue found where it sent the prompt, else as many as of others like it)."""
        total, before = work.total, self._before(work)
        if before:
            return total, total * (2 * before + total + 1) / 2
        if cached is None and work.keys and work.affinity >= 0:
            cached = work.found
        elif cached is None:
            like = self._prompts.get(_kind(work))
            cached = int(like.kept) if like else 0
        kept = min(cached, total - 1)
        tokens = total - kept
        return tokens, tokens * (2 * kept + tokens + 1) / 2

    def _before(self, work: Work) -> float:
        """Tokens of the sequence that its prompt continues: as many as such prefixes have."""
        planned = max(0, work.spec.continues - work.fused_tokens)
        like = (
            self._prompts.get((work.asker.app, work.spec.component, planned)) if planned else None
        )
        return like.length if like else planned

    def _remember(self, work: Work, kept: int) -> None:
        """Remember the length of a prompt, and how much of it was kept."""
        kind = _kind(work)
        like = self._prompts.get(kind)
        if like is None:
            if len(self._prompts) >= KINDS:
                self._prompts.clear()
            self._prompts[kind] = _Prompts(work.total, kept)
            return
        like.length += (work.total - like.length) * NEWEST
        like.kept += (kept - like.kept) * NEWEST

    def _add(self, quantities: Sequence[float], others: float, seconds: float) -> None:
        self._seen += 1
        if seconds > 0 and (self._seen <= ALL_OF or self._seen % ONE_OF == 0):
            alone = self._squares.so_far(quantities) if others else 0.0
            self._squares.add((*quantities, others * alone), seconds)

    def times(self) -> EngineTimes | None:
        if self._squares.count < ENOUGH:
            return None
        *step, crowding = self._squares.solve()
        return EngineTimes(step=StepTime(*step), seen=self._squares.count, crowding=crowding)

    def recall(self, times: EngineTimes) -> None:
        if times.step is not None:
            self._recalled = (*astuple(times.step), times.crowding)

    def instances(self) -> Mapping[str, Slowness]:
        enough = self._squares.count >= ENOUGH
        times = self._squares.solve() if enough else self._recalled
        pairs = zip(self._names, self._own, strict=False)
        slownesses = {name: own.slowness({None: times}) for name, own in pairs}
        return {name: slowness for name, slowness in slownesses.items() if slowness is not None}


def _kind(work: Work) -> tuple[str, str, int]:
    """The kind of a prompt: prompts that were planned alike turn out alike."""
    return work.asker.app, work.spec.component, work.spec.planned_tokens + work.fused_tokens
