"""What the batches of an engine take, by op: base + per unit, a unit being a planned token or an
item; and how much longer it takes for each other that works at the same time (at_work.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from teola.graph.ops import Op
from teola.learning.at_work import WAITS, AtWork, Nobody
from teola.learning.by_instance import Pace, WholeCall, WorkKind
from teola.learning.habits import Habits
from teola.learning.least_squares import LeastSquares
from teola.learning.lessons import EngineTimes, Slowness
from teola.learning.observer import Observer
from teola.policies.work import Slice
from teola.profile import Cost

ENOUGH: Final = 1
"""Batches after which the times of an op are known: a first one that was slow (a model that was not
warm) counts little beside later ones, because errors are relative."""
SPREAD: Final = 2.0
"""The largest batch must be so many times the smallest to tell the base from the rest."""
RIDGE: Final = (1e-4, 1e-4, 1e-3)
ALL_OF: Final = 64
ONE_OF: Final = 8
"""After so many batches every eighth is enough: they teach little, and cost as much."""


class _Op:
    """Batches of one op. by_tokens: its units are planned tokens."""

    __slots__ = ("by_tokens", "least", "most", "per_item", "seconds", "squares")

    def __init__(self, per_item: int) -> None:
        self.by_tokens, self.per_item = per_item > 0, per_item
        self.squares = LeastSquares(RIDGE)
        self.least, self.most, self.seconds = float("inf"), 0.0, 0.0

    def add(self, units: float, others: float, seconds: float) -> None:
        self.least, self.most = min(self.least, units), max(self.most, units)
        self.seconds += seconds
        alone = self.squares.so_far((1.0, units)) if others else 0.0
        self.squares.add((1.0, units, others * alone), seconds)

    @property
    def varied(self) -> bool:
        return self.most >= SPREAD * self.least

    @property
    def crowding(self) -> float:
        return self.squares.solve()[2]

    def cost(self) -> Cost:
        base, per_unit, _ = self.squares.solve()
        if not self.varied:  # what of it is the base cannot be known: nothing waits on a guess
            per_unit += base / self.most
            base = 0.0
        if self.by_tokens:
            return Cost(base, per_token_s=per_unit, item_tokens=self.per_item)
        return Cost(base, per_item_s=per_unit)


class _Sent(NamedTuple):
    """A batch. works: not only waits. crowd: the crowd's seconds by then."""

    instance: int
    at: float
    works: bool
    crowd: float


class BatchTimes(Observer):
    """Learns the times of one batch engine. crowd: who works at the same time (None: that does not
    matter). names: of its instances."""

    def __init__(
        self, habits: Habits, crowd: AtWork | None = None, names: Sequence[str] = ()
    ) -> None:
        self._habits, self._crowd = habits, crowd or Nobody()
        self._names = names
        self._recalled: dict[WorkKind, Sequence[float]] = {}
        self._own = [Pace() for _ in names] if len(names) > 1 else []
        self._ops: dict[Op, _Op] = {}
        self._sent: dict[int, _Sent] = {}
        self._seen = 0

    def sent(self, i: int, batch: int, slices: Sequence[Slice], now: float) -> None:
        works = slices[0].work.spec.op not in WAITS
        if works:
            self._crowd.came(now)
        self._sent[batch] = _Sent(i, now, works, self._crowd.seconds(now))

    def completed(
        self, batch: int, slices: Sequence[Slice], outcomes: Sequence[object], now: float
    ) -> None:
        before = self._sent.pop(batch, None)
        if before is None:
            return
        sent, others = before.at, 0.0
        if before.works:
            others = self._crowd.others(before.crowd, now - sent, now)
            self._crowd.left(now)
        self._seen += 1
        seldom = self._seen > ALL_OF and self._seen % ONE_OF > 0
        if seldom and not self._own:
            return
        if now <= sent or not all(isinstance(outcome, Mapping) for outcome in outcomes):
            return
        work = slices[0].work
        spec = work.spec
        if spec.op is Op.TOOL_CALL:
            if len(slices) == 1 and not seldom:
                self._habits.ran(work.asker.app, spec.component, now - sent)
            return
        units = 0
        for work, lo, hi in slices:
            units += (hi - lo) * (work.spec.item_tokens or 1)
        op = self._ops.get(spec.op)
        if op is None:
            op = self._ops[spec.op] = _Op(spec.item_tokens)
        if not seldom:
            op.add(units, others, now - sent)
        if self._own:
            whole = WholeCall(now, spec.op, (1.0, units), others, now - sent)
            self._own[before.instance].ended(whole)

    def lost(self, i: int, now: float) -> None:
        for batch in [batch for batch, sent in self._sent.items() if sent.instance == i]:
            if self._sent.pop(batch).works:
                self._crowd.left(now)

    def times(self) -> EngineTimes | None:
        ops = {op: of for op, of in self._ops.items() if of.squares.count >= ENOUGH}
        if not ops:
            return None
        whole = sum(of.seconds for of in ops.values())
        return EngineTimes(
            {op: of.cost() for op, of in ops.items()},
            seen=sum(of.squares.count for of in ops.values()),
            varied=frozenset(op for op, of in ops.items() if of.varied),
            crowding=sum(of.seconds / whole * of.crowding for of in ops.values()),
        )

    def recall(self, times: EngineTimes) -> None:
        for op, cost in times.costs.items():
            per_unit = cost.per_token_s or cost.per_item_s
            self._recalled[op] = (cost.base_s, per_unit, times.crowding)

    def instances(self) -> Mapping[str, Slowness]:
        ops = {op: of for op, of in self._ops.items() if of.squares.count >= ENOUGH}
        times = self._recalled | {op: of.squares.solve() for op, of in ops.items()}
        slownesses = {
            name: own.slowness(times) for name, own in zip(self._names, self._own, strict=False)
        }
        return {name: slowness for name, slowness in slownesses.items() if slowness is not None}
