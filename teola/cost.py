"""The formulas of profiles: what a batch takes, and a step of an LLM, by what is in it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from math import sqrt
from typing import Final

GAIN_THRESHOLD: Final = 0.05
"""Doubling a batch must raise throughput by this fraction to be worth it (paper, section 7.1)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds for a batch: base + per_item x items + per_token x tokens.

    item_tokens: tokens of a typical item, for questions about batch sizes alone. sigma: the time is
    the median of a lognormal distribution of this shape (0: constant).
    """

    base_s: float = 0.0
    per_item_s: float = 0.0
    per_token_s: float = 0.0
    item_tokens: int = 0
    sigma: float = 0.0

    def seconds(self, items: float, tokens: float) -> float:
        """Time of one batch of `items` with `tokens` tokens in all."""
        return self.base_s + self.per_item_s * items + self.per_token_s * tokens

    def times(self, factor: float) -> Cost:
        """The cost of batches that take `factor` times as long."""
        base, items, tokens = self.base_s, self.per_item_s, self.per_token_s
        return replace(
            self, base_s=factor * base, per_item_s=factor * items, per_token_s=factor * tokens
        )

    def max_efficient(self, limit: int) -> int:
        """The batch size past which throughput gains less than 5 % by doubling, at most `limit`.

        `limit` where no time is known.
        """
        if self.seconds(1, self.item_tokens) <= 0:
            return limit
        size = 1
        while size * 2 <= limit:
            now = size / self.seconds(size, size * self.item_tokens)
            then = 2 * size / self.seconds(2 * size, 2 * size * self.item_tokens)
            if then < now * (1 + GAIN_THRESHOLD):
                break
            size *= 2
        return size


NO_COST: Final = Cost()


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step of an LLM: base + per_sequence x sequences that decode + per_context x
    tokens that they attend to + per_token x prompt tokens + per_pair x pairs of a prompt token and
    one that it attends to; and `prefill_s` more if there are prompt tokens at all, since engines
    run such steps by other means (or less, if that is negative and nothing decodes beside them).
    """

    base_s: float = 0.0
    per_sequence_s: float = 0.0
    per_context_s: float = 0.0
    per_token_s: float = 0.0
    per_pair_s: float = 0.0
    prefill_s: float = 0.0

    @classmethod
    def of(cls, prefill: Cost, decode: Cost) -> StepTime:
        """Times of steps: one that computes one prompt takes as long as `prefill`, one that only
        decodes as long as `decode`."""
        return cls(
            base_s=decode.base_s,
            per_sequence_s=decode.per_item_s,
            per_token_s=prefill.per_token_s,
            prefill_s=prefill.base_s + prefill.per_item_s - decode.base_s,
        )

    def times(self, factor: float) -> StepTime:
        """The times of steps that take `factor` times as long."""
        return StepTime(*(factor * value for value in astuple(self)))

    def seconds(
        self,
        sequences: int,
        context: float = 0,
        tokens: int = 0,
        pairs: int = 0,
        repeat: int = 1,
    ) -> float:
        """Time of `repeat` steps, one after another; from each to the next the context grows by a
        token for each sequence. 0 where there is nothing to compute."""
        if not sequences and not tokens:
            return 0.0
        first = self.base_s + self.per_sequence_s * sequences + self.per_context_s * context
        if tokens:
            fixed = max(0.0, self.prefill_s) if sequences else self.prefill_s
            first += fixed + self.per_token_s * tokens + self.per_pair_s * pairs
        if repeat == 1:
            return first
        growth = self.per_context_s * sequences
        return repeat * first + growth * (repeat * (repeat - 1) // 2)

    def steps(self, seconds: float, sequences: int, context: float) -> int:
        """How many steps of decoding have begun after so many seconds of them, at least 1: the
        inverse of `seconds`."""
        first, growth = self.seconds(sequences, context), self.per_context_s * sequences
        if first <= 0:
            return 1
        half = first - growth / 2
        about = (sqrt(half * half + 2 * growth * seconds) - half) / growth if growth else 0.0
        steps = max(1, int(about if growth else seconds / first))
        while steps > 1 and self.seconds(sequences, context, repeat=steps - 1) >= seconds:
            steps -= 1
        while self.seconds(sequences, context, repeat=steps) < seconds:
            steps += 1
        return steps

    def prefill(self, tokens: int) -> float:
        """Time of a step that computes one prompt and nothing else."""
        pairs = tokens * (tokens + 1) // 2
        fixed = self.base_s + self.prefill_s
        return fixed + self.per_token_s * tokens + self.per_pair_s * pairs


UNTIMED: Final = StepTime()
"""Of an LLM whose times nobody knows."""
