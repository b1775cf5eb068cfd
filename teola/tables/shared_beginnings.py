"""How much of the prompts begins the prompt before as well, by the order of fields: counted.

A field is shared by all rows but the first of each distinct beginning up to it. So a step along an
order counts rows by their beginning, and only rows whose beginning repeats go on:

    level 0   all rows, no beginning
    level 1   rows whose value of the first field repeats     beginning: that value
    level 2   of those, rows whose next value repeats, too    beginning: both values ...

For groups each beginning (a node) has a next field of its own. Rows whose value of it repeats part
by value. The others go on together, with the fields that are left; that one comes last for them.

Counts are exact: an estimate of distinct values is off by some hundredths, as far as the orders are
from each other. Values are 32 bits of their hash here, so a count may be off by a few rows of 10^6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

CODES: Final = "teola_codes"
POSITIONS: Final = "teola_positions"
"""Table with the order of each row's fields, where rows have orders of their own: `id` (its rowid),
`positions` (UTINYINT[], counted from 1)."""
WIDEST: Final = 63
"""How many fields groups can tell apart, with a bit for each."""


@dataclass(frozen=True, slots=True)
class FieldCount:
    """Counts of one field behind a beginning: its distinct values, the rows that repeat a value,
    and the characters of those rows' values."""

    distinct: int
    repeats: int
    repeated: int


class Beginnings:
    """Counts the rows of a table with fields f0, f1, ... of text. where: which rows. names: the
    characters that a field has in a prompt besides its value. until: by `time.monotonic`; what
    would take longer is left."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        table: str,
        where: str,
        names: Sequence[int],
        until: float,
    ) -> None:
        self.con, self.names, self.until = con, names, until
        self._known: dict[frozenset[int], tuple[int, dict[int, int]]] = {}
        self.count = len(names)
        listed = "".join(
            f", CAST(hash(f{at}) & 4294967295 AS UINTEGER) AS h{at}"
            f", CAST(length(f{at}) AS UINTEGER) AS l{at}"
            for at in range(self.count)
        )
        con.execute(
            f"CREATE OR REPLACE TABLE {CODES} AS SELECT rowid AS id, 0::UBIGINT AS node{listed} "
            f"FROM {table} {where}"
        )
        sums = "".join(f", coalesce(sum(l{at}), 0)" for at in range(self.count))
        (row,) = con.execute(f"SELECT count(*){sums} FROM {CODES}").fetchall()
        self.rows = int(row[0])
        self.lengths = [int(length) for length in row[1:]]
        """Characters of all values of each field."""
        self.first = self._counts(CODES, range(self.count))
        """The counts of each field as the first one."""

    def close(self) -> None:
        """Drop the tables of counting."""
        for table in (CODES, "teola_level", "teola_next"):
            self.con.execute(f"DROP TABLE IF EXISTS {table}")

    # --- one order for all rows -----------------------------------------------------------

    def saved(self, order: Sequence[int]) -> int:
        """Characters that begin the prompt before, of fields and names, where rows are sorted."""
        characters, level = 0, CODES
        for at in order:
            counts = self.first[at] if level == CODES else self._counts(level, [at])[at]
            characters += self._worth(at, counts)
            if not counts.repeats:
                break
            level = self._narrow(level, at)
        return characters

    def after(self, otherwise: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The order with, each time, the field that saves most behind those before it; and what it
        saves. otherwise: the order of the fields that save nothing any more, or that there is no
        time for."""
        chosen: list[int] = []
        saved, level, counts = 0, CODES, self.first
        clock = _Clock(self.until)
        while True:
            left = [at for at in otherwise if at not in chosen]
            best = max(left, key=lambda at: (counts[at].repeated, -counts[at].distinct, -at))
            if not counts[best].repeats:
                break
            chosen.append(best)
            saved += self._worth(best, counts[best])
            left.remove(best)
            if not left or not clock.allows_a_step():
                break
            level = self._narrow(level, best)
            counts = self._counts(level, left)
        return (*chosen, *(at for at in otherwise if at not in chosen)), saved

    def exchanged(self, order: Sequence[int], saved: int) -> tuple[tuple[int, ...], int]:
        """The order once neighbours have changed places for as long as that saves more, and what it
        saves. saved: what it saves as it is.

        So a field that another one decides, such as the style of a beer, comes before that one:
        behind it all is shared that was, and beers of a style share theirs, too.
        """
        found, clock, moved = list(order), _Clock(self.until), True
        while moved:
            moved = False
            for at in range(len(found) - 1):
                before, (one, other) = found[:at], found[at : at + 2]
                if not (clock.allows_a_step() and self._repeats(before)):
                    break
                gain = self._behind([*before, other], one) - self._behind([*before, one], other)
                if gain > 0:
                    found[at : at + 2] = other, one
                    saved, moved = saved + gain, True
        return tuple(found), saved

    def _repeats(self, fields: Sequence[int]) -> int:
        """Rows that repeat a beginning of these fields."""
        return self._counted(fields)[0] if fields else self.rows

    def _behind(self, fields: Sequence[int], last: int) -> int:
        """What the last of these fields and one behind them save."""
        return self.saves(fields, fields[-1]) + self.saves([*fields, last], last)

    def saves(self, fields: Sequence[int], at: int) -> int:
        """What one of these fields saves where it is their last one."""
        repeats, lengths = self._counted(fields)
        return lengths[at] + repeats * self.names[at]

    def _counted(self, fields: Sequence[int]) -> tuple[int, dict[int, int]]:
        """Of rows that repeat a beginning of these fields, in whatever order: how many there are,
        and the characters of their values of each."""
        key = frozenset(fields)
        if key not in self._known:
            hashes = ", ".join(f"h{at}" for at in key)
            lengths = "".join(f", any_value(l{at}) AS l{at}" for at in key)
            sums = "".join(f", coalesce(sum((n - 1) * l{at}), 0)" for at in key)
            (row,) = self.con.execute(
                f"SELECT coalesce(sum(n - 1), 0){sums} FROM (SELECT count(*) AS n{lengths} "
                f"FROM {CODES} GROUP BY {hashes} HAVING count(*) > 1)"
            ).fetchall()
            repeats, *repeated = map(int, row)
            self._known[key] = repeats, dict(zip(key, repeated, strict=True))
        return self._known[key]

    def _worth(self, at: int, count: FieldCount) -> int:
        return count.repeated + count.repeats * self.names[at]

    def _counts(self, level: str, fields: Sequence[int]) -> dict[int, FieldCount]:
        """Counts of some fields behind the beginnings of a level, in one query."""
        parts = [
            f"SELECT {at} AS at, count(*), coalesce(sum(n - 1), 0), "
            f"coalesce(sum((n - 1) * length), 0) FROM (SELECT count(*) AS n, any_value(l{at}) AS "
            f"length FROM {level} GROUP BY node, h{at})"
            for at in fields
        ]
        rows = self.con.execute(" UNION ALL ".join(parts)).fetchall()
        return {int(at): FieldCount(*map(int, counts)) for at, *counts in rows}

    def _narrow(self, level: str, at: int) -> str:
        """The next level: rows that share their beginning with another row when one more field is
        added."""
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_next AS SELECT l.* REPLACE (hash(node, h{at}) AS node) "
            f"FROM {level} l SEMI JOIN (SELECT node, h{at} FROM {level} GROUP BY ALL "
            f"HAVING count(*) > 1) USING (node, h{at})"
        )
        return self._renamed()

    def _renamed(self) -> str:
        self.con.execute("DROP TABLE IF EXISTS teola_level")
        self.con.execute("ALTER TABLE teola_next RENAME TO teola_level")
        return "teola_level"

    # --- an order for each group of rows --------------------------------------------------

    def groups(self, otherwise: Sequence[int]) -> int:
        """Make POSITIONS, by groups. Returns the characters that it saves. otherwise: the order of
        fields behind those that a row shares."""
        self.con.execute(f"CREATE OR REPLACE TABLE {POSITIONS} (id BIGINT, path UTINYINT[])")
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_level AS SELECT *, 0::UBIGINT AS used, "
            f"[]::UTINYINT[] AS path FROM {CODES}"
        )
        saved = 0
        clock = _Clock(self.until)
        for _ in range(self.count):
            gained = self._best(otherwise)
            if not gained:
                break
            saved += gained
            self._part()
            if not clock.allows_a_step():
                break
        self.con.execute(f"INSERT INTO {POSITIONS} SELECT id, path FROM teola_level")
        rest_sql = f"[{', '.join(str(at + 1) for at in otherwise)}]::UTINYINT[]"
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_next AS SELECT id, list_concat(path, "
            f"list_filter({rest_sql}, lambda x: NOT list_contains(path, x))) AS positions "
            f"FROM {POSITIONS}"
        )
        self.con.execute(f"DROP TABLE {POSITIONS}")
        self.con.execute(f"ALTER TABLE teola_next RENAME TO {POSITIONS}")
        self.con.execute("DROP TABLE IF EXISTS teola_best")
        return saved

    def _best(self, otherwise: Sequence[int]) -> int:
        """Make `teola_best`, the field that saves most at each node. Returns the characters that
        these save. Of equal ones the first of `otherwise`."""
        parts = [
            f"SELECT node, {at} AS field, {len(otherwise) - rank} AS preferred, "
            f"sum((n - 1) * length) AS value, sum((n - 1) * (length + {self.names[at]})) AS saved "
            f"FROM (SELECT node, count(*) AS n, any_value(l{at}) AS length FROM teola_level "
            f"WHERE used & {1 << at}::UBIGINT = 0 GROUP BY node, h{at} HAVING count(*) > 1) "
            "GROUP BY node"
            for rank, at in enumerate(otherwise)
        ]
        self.con.execute(
            "CREATE OR REPLACE TABLE teola_best AS SELECT node, "
            "arg_max({'field': field, 'saved': saved}, {'value': value, 'preferred': preferred}) "
            f"AS best FROM ({' UNION ALL '.join(parts)}) GROUP BY node"
        )
        ((saved,),) = self.con.execute("SELECT sum(best.saved) FROM teola_best").fetchall()
        return int(saved or 0)

    def _part(self) -> None:
        """Split the rows of each node by their value of its best field. Rows of nodes without one
        are done."""
        self.con.execute(
            f"INSERT INTO {POSITIONS} SELECT id, path FROM teola_level "
            "ANTI JOIN teola_best USING (node)"
        )
        value = " ".join(f"WHEN {at} THEN h{at}" for at in range(self.count))
        self.con.execute(
            "CREATE OR REPLACE TABLE teola_valued AS SELECT l.*, best.field AS field, "
            f"CASE best.field {value} END AS value FROM teola_level l JOIN teola_best USING (node)"
        )
        self.con.execute(
            "CREATE OR REPLACE TABLE teola_next AS SELECT v.* EXCLUDE (field, value) REPLACE ("
            "CASE WHEN r.n IS NULL THEN hash(v.node, field) ELSE hash(v.node, field, v.value) END "
            "AS node, used | (1::UBIGINT << field) AS used, CASE WHEN r.n IS NULL THEN path "
            "ELSE list_append(path, CAST(field + 1 AS UTINYINT)) END AS path) FROM teola_valued v "
            "LEFT JOIN (SELECT node, value, count(*) AS n FROM teola_valued GROUP BY ALL "
            "HAVING count(*) > 1) r ON r.node = v.node AND r.value = v.value"
        )
        self.con.execute("DROP TABLE teola_valued")
        self._renamed()


class _Clock:
    """Whether there is time for a step, which takes about as long as the one before."""

    def __init__(self, until: float, now: Callable[[], float] = time.monotonic) -> None:
        self._until, self._now, self._began = until, now, now()

    def allows_a_step(self) -> bool:
        """Whether there is time for another step. Ask it between steps."""
        now = self._now()
        took, self._began = now - self._began, now
        return now + took <= self._until
