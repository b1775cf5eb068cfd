"""Which field of a call comes first in its prompts, so that prompts which follow share beginnings.

    as written      the order of the query
    by score        mean length x rows / distinct values, the largest first (the paper's, 4.2)
    after           each time the column that saves most behind those before it
    exchanged       one of these two, once neighbours have changed places where that saves more
    by groups       an order for each group of rows: at every beginning the column that saves most
                    there; rows whose value repeats part by value, the others go on together

They are compared by one estimate: the share of the prompts' characters that begin the prompt before
as well, when rows are sorted by the order. It is counted over all rows (shared_beginnings), for
repetition shrinks in a sample, and a sample would mislead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teola.tables.prompt_text import lines_of
from teola.tables.shared_beginnings import POSITIONS, WIDEST, Beginnings
from teola.tables.sorted_rows import SortedRows

if TYPE_CHECKING:
    import duckdb

LONGEST_S: Final = 10.0
"""Seconds that planning an order may take."""
OF_RUN: Final = 0.03
"""Share of what the rows are estimated to take that planning an order may take."""
GAIN: Final = 0.001
"""By how much of all characters another order than the written one has to be better."""
GROUPS_GAIN: Final = 0.01
"""By how much of all characters groups have to be better than one order, which is easier to read.
With 0.02 a cache found 1.4 % less of `beer.csv` than groups would have given it."""
LEAST_COLUMNS: Final = 4
"""Columns from which on there may be groups: fewer leave nothing to choose behind the first."""
LEAST_ROWS: Final = 64
"""Rows from which on there may be groups."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one field over the rows to ask: mean length in characters, and distinct
    values."""

    mean_length: float
    distinct: int


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """An order of a call's fields. positions: in the written order; with groups, of most rows.
    share: of the prompts' characters that begin the prompt before, by estimate. reason: why this
    one. groups: each row has an order of its own, in the table POSITIONS."""

    positions: tuple[int, ...]
    share: float
    reason: str
    groups: bool = False


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
    where: which rows. names: of the fields. instruction: characters before the fields. longest_s:
    what it may take; what would take longer is left."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        table: str,
        where: str,
        names: Sequence[str],
        instruction: int,
        longest_s: float = LONGEST_S,
    ) -> None:
        self.con, self.count, self.instruction = con, len(names), instruction
        extra = [len(name) + 3 for name in names]
        self.beginnings = Beginnings(con, table, where, extra, time.monotonic() + longest_s)
        self.rows = self.beginnings.rows
        self.statistics = [
            ColumnStatistics(length / max(1, self.rows), max(1, self.beginnings.first[at].distinct))
            for at, length in enumerate(self.beginnings.lengths)
        ]
        lines = sum(self.beginnings.lengths) + self.rows * sum(extra)
        self._characters = lines + self.rows * instruction

    def best(self, *, groups: bool = True) -> ColumnOrder:
        """The best order among the candidates. groups: whether rows may have orders of their own.
        Call it once."""
        try:
            return self._best(groups)
        finally:
            self.beginnings.close()

    def _best(self, groups: bool) -> ColumnOrder:
        written, scored = tuple(range(self.count)), by_score(self.statistics, self.rows)
        after, behind = self.beginnings.after(scored)
        saved = {scored: self.beginnings.saved(scored), after: behind}
        exchanged, most = max(
            (self.beginnings.exchanged(*one) for one in saved.items()), key=lambda one: one[1]
        )
        orders = {
            "as written": written,
            "by score": scored,
            "each after those before it": after,
            "neighbours exchanged": exchanged,
        }
        shares = {
            "as written": self.share(written),
            "by score": self._share(saved[scored]),
            "each after those before it": self._share(behind),
            "neighbours exchanged": self._share(most),
        }
        best = max(shares, key=lambda name: shares[name])
        if shares[best] < shares["as written"] + GAIN:
            best = "as written"
        positions, grouped = orders[best], False
        if groups and self._may_group():
            shares["by groups"] = self._share(self.beginnings.groups(positions))
            if shares["by groups"] >= shares[best] + GROUPS_GAIN:
                best, grouped = "by groups", True
                positions = self._most_rows()
            else:
                self.con.execute(f"DROP TABLE {POSITIONS}")
        others = ", ".join(f"{name} {share:.3f}" for name, share in shares.items() if name != best)
        several = f", {self._several():,} orders, of most rows this one" if grouped else ""
        return ColumnOrder(
            positions,
            shares[best],
            f"{best}{several}: {shares[best]:.3f} of the characters begin the prompt before, by "
            f"estimate ({others})",
            grouped,
        )

    def share(self, order: Sequence[int]) -> float:
        """Share of the prompts' characters that begin the prompt before, in sorted order."""
        return self._share(self.beginnings.saved(order))

    def _share(self, saved: int) -> float:
        whole = self.instruction * max(0, self.rows - 1)
        return (saved + whole) / self._characters if self._characters else 0.0

    def _may_group(self) -> bool:
        enough = LEAST_COLUMNS <= self.count <= WIDEST and self.rows >= LEAST_ROWS
        return enough and time.monotonic() < self.beginnings.until

    def _most_rows(self) -> tuple[int, ...]:
        ((positions,),) = self.con.execute(
            f"SELECT positions FROM {POSITIONS} GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
        ).fetchall()
        return tuple(int(at) - 1 for at in positions)

    def _several(self) -> int:
        ((count,),) = self.con.execute(
            f"SELECT count(DISTINCT positions) FROM {POSITIONS}"
        ).fetchall()
        return int(count)


def rows_sql(
    table: str,
    where: str,
    names: Sequence[str],
    order: ColumnOrder,
    *,
    in_order: bool = True,
    text: str = "",
    opens: str = "",
) -> SortedRows:
    """The rows to ask. in_order: sorted by text, so that those which share a beginning follow each
    other. text, opens: SQL of these two where they are not the fields' lines and the first field's
    hash."""
    if order.groups:
        lines = ", ".join(lines_of([name], [f"f{at}"]) for at, name in enumerate(names))
        return SortedRows(
            "SELECT key, array_to_string(lines, '') AS text, hash(lines[1]) AS opens FROM "
            f"(SELECT key, list_select([{lines}], positions) AS lines FROM {table} t "
            f"JOIN {POSITIONS} p ON p.id = t.rowid)",
            ("text", "key"),
        )
    texts = [f"f{at}" for at in order.positions]
    text = text or lines_of([names[at] for at in order.positions], texts)
    opens = opens or (f"hash({texts[0]})" if texts else "0")
    sql = f"SELECT key, {text} AS text, {opens} AS opens FROM {table} {where}"
    return SortedRows(sql, ("text", "key") if in_order else ("key",))


def rank(selectivity: float, cost: float) -> float:
    """The rank of a condition: minus the share of rows that it removes for each second. The
    smallest is computed first."""
    return (selectivity - 1) / cost


def row_cost(
    prompt_tokens: float,
    completion_tokens: float,
    *,
    prefill_s: float,
    decode_s: float,
    hit: float = 0.0,
) -> float:
    """Seconds of a call: prompt tokens that are computed, and answer tokens."""
    return prefill_s * prompt_tokens * (1 - hit) + decode_s * completion_tokens
