"""Rows to ask in sorted order, in memory that does not grow with them.

    rows   1,000,000 x 1 KB, as SQL makes them, unsorted
    parts  16, each of the rows between two sampled ones      rows are made 16 times
    parts of the first part, each small enough to be sorted   it is read 16 times

DuckDB sorts long texts in memory only: where it has 256 MB, 300,000 rows of 1 KB end in an error,
and 600,000 that are in a table already. So a part is taken out of the rows, sorted and read before
the next one is, and what DuckDB has freed goes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from teola.tables.workspace import give_back

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

PART: Final = 4 << 20
"""Bytes of rows that are sorted at once."""
FAN: Final = 16
"""Parts that rows are split into at a time."""
SAMPLE: Final = 2 << 20
"""Bytes of rows among which the first ones of parts are looked for."""
LEAST_SAMPLED: Final = 4 * FAN
MOST_SAMPLED: Final = 64 * FAN
ROWS: Final = "teola_rows"


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows to ask. sql: of their key, text, and a number that changes with the first ordered field,
    unsorted. order: columns that they are sorted by; together they tell all rows apart."""

    sql: str
    order: tuple[str, ...]

    @property
    def sorted_sql(self) -> str:
        """SQL of the rows in order, for few of them."""
        return f"SELECT key, text, opens FROM ({self.sql}) ORDER BY {', '.join(self.order)}"

    def batches(self, con: duckdb.DuckDBPyConnection, size: int) -> Iterator[pa.RecordBatch]:
        """The rows in order, so many at a time. It makes tables, and drops them if it is read to
        its end."""
        yield from self._read(con, f"({self.sql})", ROWS, size)

    def _read(
        self, con: duckdb.DuckDBPyConnection, table: str, name: str, size: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table, or of SQL in brackets, in order. name: what names of its parts begin
        with."""
        ((count, whole),) = con.execute(
            f"SELECT count(*), coalesce(sum(strlen(text) + strlen(key)), 0) FROM {table}"
        ).fetchall()
        parts = min(FAN, -(-int(whole) // PART), int(count))
        starts = self._starts(con, table, parts, int(whole) / count) if parts > 1 else []
        for at in range(len(starts) + 1):
            where, values = self._between(starts, at)
            if not starts:
                yield from self._sorted(con, table, "", [], size)
                give_back(con)
            elif int(whole) <= FAN * PART:
                yield from self._sorted(con, table, where, values, size)
                give_back(con)
            else:
                part = f"{name}_{at}"
                con.execute(f"CREATE OR REPLACE TABLE {part} AS FROM {table} {where}", values)
                yield from self._read(con, part, part, size)
                con.execute(f"DROP TABLE {part}")

    def _starts(
        self, con: duckdb.DuckDBPyConnection, table: str, parts: int, mean: float
    ) -> list[tuple[Any, ...]]:
        """Where parts but the first begin: values of the order's columns, ascending."""
        sampled = min(MOST_SAMPLED, max(LEAST_SAMPLED, int(SAMPLE / max(1.0, mean))))
        columns = ", ".join(self.order)
        rows = con.execute(
            f"SELECT {columns} FROM (FROM {table} USING SAMPLE reservoir({sampled} ROWS) "
            f"REPEATABLE (1)) ORDER BY {columns}"
        ).fetchall()
        starts = [rows[len(rows) * at // parts] for at in range(1, parts)]
        return [start for at, start in enumerate(starts) if at == 0 or start != starts[at - 1]]

    def _between(self, starts: Sequence[tuple[Any, ...]], at: int) -> tuple[str, list[Any]]:
        """A condition for the rows of a part, and its parameters."""
        conditions: list[str] = []
        values: list[Any] = []
        if at > 0:
            conditions.append(self._from(">="))
            values += starts[at - 1]
        if at < len(starts):
            conditions.append(self._from("<"))
            values += starts[at]
        return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), values

    def _from(self, sign: str) -> str:
        """SQL that compares the order's columns with parameters."""
        return f"({', '.join(self.order)}, 0) {sign} ({', '.join('?' for _ in self.order)}, 0)"

    def _sorted(
        self,
        con: duckdb.DuckDBPyConnection,
        table: str,
        where: str,
        values: Sequence[Any],
        size: int,
    ) -> Iterator[pa.RecordBatch]:
        yield from con.sql(
            f"SELECT key, text, opens FROM {table} {where} ORDER BY {', '.join(self.order)}",
            params=values,
        ).to_arrow_reader(size)
