"""What E2 remembers of an instance: the calls that it got in the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from teola.policies.routing.radix import RadixNode, RadixTree

RECENT_S: Final = 30.0
"""Calls of so many last seconds count for `hit_ratio`."""


@dataclass(slots=True, eq=False)
class Routed:
    """A call that was routed. prefill_s: by the profile; found: tokens of its `total` that were
    kept. leaf: where its prompt ends in the tree, key: whose node it is (None: it has no keys).
    first: when its first token came. gone: it does not count, as it ran elsewhere or never."""

    instance: int
    at: float
    prefill_s: float
    total: int
    found: int
    leaf: RadixNode | None
    key: RadixNode | None
    sent: bool = False
    first: float | None = None
    gone: bool = False


class History:
    """Recent calls of one instance, over `window_s` seconds. decode_s: seconds of an answer, until
    one is complete."""

    def __init__(self, window_s: float, decode_s: float) -> None:
        self.window_s, self._decode_s = window_s, decode_s
        self._calls: deque[Routed] = deque()
        self._prefill_s, self._count = 0.0, 0
        self._recent: deque[Routed] = deque()
        self._found = self._total = 0
        self._answers: deque[tuple[float, float]] = deque()
        self._answers_s = 0.0

    @property
    def decode_s(self) -> float:
        """Mean seconds of decoding, of the calls that ended in the window."""
        return self._answers_s / len(self._answers) if self._answers else self._decode_s

    @property
    def load_s(self) -> float:
        """Seconds of the window's calls together: their prefills, and a mean decoding for each."""
        return self._prefill_s + self._count * self.decode_s if self._count else 0.0

    @property
    def hit_ratio(self) -> float:
        """Share of the prompt tokens of the last half minute that were cached."""
        return self._found / self._total if self._total else 0.0

    def add(self, call: Routed) -> None:
        """Add a call that goes there."""
        self._calls.append(call)
        self._recent.append(call)
        self._prefill_s += call.prefill_s
        self._count += 1
        self._found += call.found
        self._total += call.total

    def forget(self, call: Routed) -> bool:
        """Drop a call that does not run there. Returns whether it was in the window."""
        if call.gone:
            return False
        call.gone = True
        self._prefill_s -= call.prefill_s
        self._count -= 1
        return True

    def answered(self, seconds: float, now: float) -> None:
        """Note an answer that is complete, and its seconds of decoding."""
        self._answers.append((now, seconds))
        self._answers_s += seconds

    def expire(self, now: float, tree: RadixTree) -> None:
        """Drop what is older than the window."""
        calls, answers, recent = self._calls, self._answers, self._recent
        while calls and calls[0].at < now - self.window_s:
            call = calls.popleft()
            if self.forget(call) and call.leaf is not None:
                tree.expired(call.leaf, call.instance)
            if not self._count:
                self._prefill_s = 0.0  # without what rounding left
        while answers and answers[0][0] < now - self.window_s:
            self._answers_s -= answers.popleft()[1]
        while recent and recent[0].at < now - RECENT_S:
            call = recent.popleft()
            self._found -= call.found
            self._total -= call.total

    def calls(self) -> Sequence[Routed]:
        """The calls of the window."""
        return [call for call in self._calls if not call.gone]


def overloaded(waits: Sequence[tuple[float, float]], now: float, window_s: float) -> bool:
    """Whether the mean wait has doubled from the first half of the window to the second. waits:
    when, and how long."""
    old = [wait for at, wait in waits if now - window_s <= at < now - window_s / 2]
    new = [wait for at, wait in waits if at >= now - window_s / 2]
    return bool(old and new) and sum(new) / len(new) >= 2 * (sum(old) / len(old))
