"""Which field of a call comes first in its prompts, so that prompts which follow share beginnings.

    as written      the order of the query
    by score        mean length x rows / distinct values, the largest first (the paper's, 4.2)
    after           each time the column that saves most behind those before it

They are compared by one estimate: the share of the prompts' characters that begin the prompt before
as well, when rows are sorted by the order. A field is shared by all rows but the first of each
distinct beginning up to it, so counts of distinct beginnings are all it takes. DuckDB counts them
over all rows: repetition shrinks in a sample, and a sample would mislead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

LONGEST_S: Final = 10.0
"""Seconds that planning an order may take."""
GAIN: Final = 0.001
"""By how much of all characters another order than the written one has to be better."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Of one field over the rows to ask: mean length in characters, and distinct values."""

    mean_length: float
    distinct: int


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """An order of a call's fields. positions: in the written order. share: of the prompts'
    characters that begin the prompt before, by estimate. reason: why this one."""

    positions: tuple[int, ...]
    share: float
    reason: str


def score(statistics: ColumnStatistics, rows: int) -> float:
    """ASL x N / C, the paper's (section 4.2 of its sheet)."""
    return statistics.mean_length * rows / max(1, statistics.distinct)


def by_score(statistics: Sequence[ColumnStatistics], rows: int) -> tuple[int, ...]:
    """Positions by descending score; of equal ones fewer distinct values, then as written."""
    if rows == 0:
        return tuple(range(len(statistics)))
    return tuple(
        sorted(
            range(len(statistics)),
            key=lambda at: (-score(statistics[at], rows), statistics[at].distinct, at),
        )
    )


class Orders:
    """Finds the best order for the rows of a table. table: with columns f0, f1, ... of text.
    where: which rows. overhead: characters of each prompt besides the values, for each field its
    name's, and the instruction's."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        table: str,
        where: str,
        names: Sequence[str],
        instruction: int,
    ) -> None:
        self.con, self.table, self.where = con, table, where
        self.count = len(names)
        self.name_lengths = [len(name) + 3 for name in names]
        self.instruction = instruction
        self._until = time.monotonic() + LONGEST_S
        self._distinct: dict[tuple[int, ...], int] = {}
        listed = ", ".join(
            f"coalesce(avg(length(f{at})), 0), approx_count_distinct(f{at})"
            for at in range(self.count)
        )
        (row,) = con.execute(f"SELECT count(*), {listed} FROM {table} {where}").fetchall()
        self.rows = int(row[0])
        self.statistics = [
            ColumnStatistics(float(row[1 + 2 * at]), max(1, min(int(row[2 + 2 * at]), self.rows)))
            for at in range(self.count)
        ]
        for at, one in enumerate(self.statistics):
            self._distinct[at,] = one.distinct

    def best(self) -> ColumnOrder:
        """The best of the candidates."""
        written = tuple(range(self.count))
        candidates = {
            "as written": written,
            "by score": by_score(self.statistics, self.rows),
        }
        after = self._after()
        if after is not None:
            candidates["each after those before it"] = after
        shares = {name: self.share(order) for name, order in candidates.items()}
        best = max(shares, key=lambda name: shares[name])
        if shares[best] < shares["as written"] + GAIN:
            best = "as written"
        others = ", ".join(f"{name} {share:.3f}" for name, share in shares.items() if name != best)
        return ColumnOrder(
            candidates[best],
            shares[best],
            f"{best}: {shares[best]:.3f} of the characters begin the prompt before, by estimate "
            f"({others})",
        )

    def share(self, order: Sequence[int]) -> float:
        """Share of the prompts' characters that begin the prompt before, in sorted order."""
        if not self.rows:
            return 0.0
        total = float(self.instruction)
        shared = self.instruction * (1 - 1 / self.rows)
        for at in range(len(order)):
            length = self.statistics[order[at]].mean_length + self.name_lengths[order[at]]
            total += length
            shared += length * self._repeats(tuple(order[: at + 1]))
        return shared / total if total else 0.0

    def _repeats(self, beginning: tuple[int, ...]) -> float:
        """Share of rows whose beginning is that of the row before."""
        self._count([beginning])
        return 1 - self._distinct[beginning] / self.rows

    def _after(self) -> tuple[int, ...] | None:
        """Each time the column that saves most behind those before it; None where that would take
        too long to find."""
        chosen: tuple[int, ...] = ()
        left = list(range(self.count))
        while left:
            if time.monotonic() > self._until:
                return None
            self._count([(*chosen, at) for at in left])
            best = max(
                left,
                key=lambda at: (
                    self.statistics[at].mean_length * self._repeats((*chosen, at)),
                    -self._distinct[*chosen, at],
                    -at,
                ),
            )
            chosen = (*chosen, best)
            left.remove(best)
        return chosen

    def _count(self, beginnings: Sequence[tuple[int, ...]]) -> None:
        """Count distinct beginnings, all in one query."""
        unknown = [one for one in beginnings if one not in self._distinct]
        if not unknown:
            return
        listed = ", ".join(
            f"approx_count_distinct(hash({', '.join(f'f{at}' for at in one)}))" for one in unknown
        )
        (row,) = self.con.execute(f"SELECT {listed} FROM {self.table} {self.where}").fetchall()
        for one, found in zip(unknown, row, strict=True):
            # A longer beginning has at least as many values, which an estimate may miss.
            least = self._distinct.get(one[:-1], 1)
            self._distinct[one] = max(1, least, min(int(found), self.rows))


def rank(selectivity: float, cost: float) -> float:
    """What a condition is worth for what it costs: the smaller, the sooner (the sheet, 4.5)."""
    return (selectivity - 1) / cost


def row_cost(
    prompt_tokens: float,
    completion_tokens: float,
    *,
    prefill_s: float,
    decode_s: float,
    hit: float = 0.0,
) -> float:
    """Seconds of a call: prompt tokens that are computed, and answer tokens (the sheet, 4.5)."""
    return prefill_s * prompt_tokens * (1 - hit) + decode_s * completion_tokens
