"""workload_balanced: a call where it runs fast and little is ahead of it, weighed by `alpha`.

(Hexgen-Text2SQL, section 4.1.) Of the instances that a call may go to, it is bound to that with the
highest

    score = (1 - alpha) x beta / max(t_queue, FLOOR_S) - alpha x t_comp

t_comp: seconds of the call there, by learned times and the expected length of its answer. t_queue:
seconds of all calls that wait or run there, each as it was counted when it was placed. Ties go to
the instance where the call is quicker, then to the lower number. `beta` (s^2) makes the two terms
comparable: the square of the mean t_comp of calls so far.

score="ratio" is what the authors' code does instead, to compare with: speed and all work ever
given, both relative to the first instance, which gets the first call.

Each piece of a call that passes have split is counted by itself, at the instance that keeps the
first one, so that the call is counted once. Kinds of equal instances are looked at and not the
instances: each has a heap by seconds ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import ClassVar, Final

from teola.errors import InputError
from teola.plain_number import is_number
from teola.policies.reason import Because, Reason
from teola.policies.routing.base import (
    ANY,
    Dispatched,
    EngineView,
    Finished,
    Happening,
    InstanceView,
    Left,
    Loads,
    RoutingPolicy,
    WentDown,
)
from teola.policies.routing.call_seconds import InstanceKinds
from teola.policies.routing.destinations import bound, compared
from teola.policies.work import Work, WorkKey

FLOOR_S: Final = 1e-3
"""Least t_queue, below which an empty queue would weigh more than anything."""
SLOWER: Final = 0.75
"""Relative speed below which an instance is a slow one for score="ratio", and counts half."""
LAST: Final = 1000
"""Calls whose mean t_comp counts, about."""
SCORES: Final = ("paper", "ratio")


def alpha_of(value: object, where: str) -> float:
    """A weight from 0 to 1. Raises InputError."""
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(
            f"{where}: alpha must be a number from 0 (what is ahead) to 1 (speed), got {value!r}"
        )
    return float(value)


class WorkloadBalanced(RoutingPolicy):
    """alpha: from 0, the least is ahead, to 1, the fastest. beta: see the module; None: learned.
    count_running: whether calls that run count as ahead, too. score: `paper` or `ratio`."""

    observes = (Dispatched, Finished, Left, WentDown)
    tunable: ClassVar[Mapping[str, tuple[float, ...]]] = {"alpha": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)}

    def __init__(
        self,
        alpha: float = 0.0,
        beta: float | None = None,
        count_running: bool = True,
        score: str = "paper",
    ) -> None:
        where = "routing policy 'workload_balanced'"
        self.alpha = alpha_of(alpha, where)
        if beta is not None and not (is_number(beta) and 0 < beta < inf):
            raise InputError(f"{where}: beta must be a number above 0, or None, got {beta!r}")
        if not isinstance(count_running, bool):
            raise InputError(f"{where}: count_running must be true or false, got {count_running!r}")
        if score not in SCORES:
            raise InputError(f"{where}: score must be 'paper' or 'ratio', got {score!r}")
        self.beta, self.count_running, self.score = beta, count_running, score
        self._mean_s, self._calls = 0.0, 0
        self._why: Reason | None = None

    def attach(self, view: EngineView) -> None:
        super().attach(view)
        count = len(view)
        self._kinds = InstanceKinds(view)
        self._ahead_s = [0.0] * count
        """Seconds of calls that each instance has."""
        self._given_s = [0.0] * count
        """Of all that it was ever given."""
        self._placed: dict[WorkKey, tuple[int, float]] = {}
        self._on: list[set[WorkKey]] = [set() for _ in range(count)]
        self._rank()

    def tune(self, alpha: float) -> None:
        """From the next call on."""
        self.alpha = alpha_of(alpha, "routing policy 'workload_balanced'")

    def _rank(self) -> None:
        """Put the instances of each kind in order."""
        load = self._load()
        self._heaps = [[(load[i], i) for i in members] for members in self._kinds.members]
        for heap in self._heaps:
            heap.sort()

    def _load(self) -> list[float]:
        """What the instances of a kind are ordered by."""
        return self._ahead_s if self.score == "paper" else self._given_s

    # --- placing ----------------------------------------------------------------------------

    @property
    def ordered(self) -> Because:  # type: ignore[override]
        """Why what was bound to none went where it went."""
        return Because.ROOM if self._kinds.timed else Because.UNTIMED

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        return loads.instances

    def place(self, work: Work, now: float) -> int:
        if work.spec.lane is not None:
            return work.home
        kinds = self._kinds
        if kinds.renew():
            self._rank()
        if not kinds.timed:
            return work.home
        key = work.run, work.primitive
        again = self._forget(key)
        seconds = kinds.seconds(work)
        if not again and not work.tries:
            self._calls += 1
            self._mean_s += (kinds.mean(seconds) - self._mean_s) / min(self._calls, LAST)
        at = bound(self.view, work, now)
        if at < 0:
            at = self._best(work, seconds, now)
        if at >= 0:
            if self.explains:
                ends = {i: self._ahead_s[i] + seconds[k] for i, k in enumerate(kinds.of)}
                self._why = compared(Because.ENDS, at, "s", ends)
            self._count(key, at, seconds[kinds.of[at]] * work.entries(work.total))
        return at

    def why(self, work: Work, at: int, now: float) -> Reason:
        return self._why or super().why(work, at, now)

    def _best(self, work: Work, seconds: list[float], now: float) -> int:
        instances, avoid = self.view.instances(now), work.avoid
        score = self._score(seconds)
        best: tuple[float, float, int] | None = None
        for kind, own_s in enumerate(seconds):
            i = self._first(kind, instances, avoid)
            if i >= 0:
                rank = -score(i, own_s), own_s, i
                if best is None or rank < best:
                    best = rank
        return ANY if best is None else best[-1]

    def _score(self, seconds: list[float]) -> Callable[[int, float], float]:
        """Of an instance and the call's seconds there."""
        alpha = self.alpha
        if self.score == "paper":
            beta = self.beta if self.beta is not None else self._mean_s * self._mean_s
            weight, ahead_s = (1 - alpha) * beta, self._ahead_s
            return lambda i, own_s: weight / max(ahead_s[i], FLOOR_S) - alpha * own_s
        base_s, given_s = seconds[self._kinds.of[0]], self._given_s
        first_s = given_s[0] or max(given_s)  # the first one may be away
        if not first_s:
            return lambda i, own_s: -float(i)
        fastest = min(seconds)

        def ratio(i: int, own_s: float) -> float:
            counts = 1.0 if fastest > SLOWER * own_s else 0.5
            return alpha * base_s / own_s - (1 - alpha) * counts * given_s[i] / first_s

        return ratio

    def _first(self, kind: int, instances: Sequence[InstanceView], avoid: int) -> int:
        """The instance of a kind with the least load that may be sent something (ANY: none)."""
        heap, load = self._heaps[kind], self._load()
        aside = []
        least = ANY
        while heap:
            score, i = heap[0]
            if score != load[i]:
                heappop(heap)
                continue
            if instances[i].usable and i != avoid:
                least = i
                break
            aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        return least

    # --- what is ahead ----------------------------------------------------------------------

    def _count(self, key: WorkKey, i: int, seconds: float) -> None:
        self._placed[key] = i, seconds
        self._on[i].add(key)
        self._ahead_s[i] += seconds
        self._given_s[i] += seconds
        self._moved(i)

    def _forget(self, key: WorkKey) -> bool:
        """Take off what was added for a work; whether something was."""
        placed = self._placed.pop(key, None)
        if placed is None:
            return False
        i, seconds = placed
        on = self._on[i]
        on.discard(key)
        self._ahead_s[i] = self._ahead_s[i] - seconds if on else 0.0
        self._moved(i)
        return True

    def _moved(self, i: int) -> None:
        heap = self._heaps[self._kinds.of[i]]
        heappush(heap, (self._load()[i], i))
        if len(heap) > 64 + 4 * len(self._kinds.members[self._kinds.of[i]]):
            self._rank()

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, (Finished, Left)):
            self._forget((event.work.run, event.work.primitive))
        elif isinstance(event, WentDown):
            for key in self._on[event.instance]:
                del self._placed[key]
            self._on[event.instance].clear()
            self._ahead_s[event.instance] = 0.0
            self._moved(event.instance)
        elif isinstance(event, Dispatched) and not self.count_running:
            for work in event.works:
                self._forget((work.run, work.primitive))

    @property
    def ahead_s(self) -> tuple[float, ...]:
        """Seconds of calls that each instance has."""
        return tuple(self._ahead_s)
