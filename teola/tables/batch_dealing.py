"""Rows for an engine that finds in a batch only what batches before it have computed.

    sorted    [1,1,1][2,2,2][3,3,3]    each row computes its beginning: 9
    dealt     [1,2,3][1,2,3][1,2,3]    the first batch computes all three: 3

Rows of a beginning go to batches that follow each other, one to each, and a batch has as many
beginnings as it has places, the most frequent first. When one has no more rows, the next takes its
place. So behind the first batch a row finds its beginning, and what it shares with the row before
it in sorted order as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final

from teola.tables.sorted_rows import SortedRows
from teola.tables.workspace import cursor_of

if TYPE_CHECKING:
    import duckdb

DEALT: Final = "teola_dealt"
"""A table of the beginnings that several rows share: the first batch of each, and its place in
batches."""
AT_ONCE: Final = 8192


def dealt_rows(con: duckdb.DuckDBPyConnection, rows: SortedRows, places: int) -> SortedRows:
    """Rows, dealt to batches of so many. Makes the table DEALT. What
    changes is where windows may be cut: between batches."""
    import pyarrow as pa

    con.execute(f"CREATE OR REPLACE TABLE {DEALT} (opens UBIGINT, start BIGINT, place BIGINT)")
    cursor = cursor_of(con)
    try:
        counts = cursor.execute(
            f"SELECT CAST(opens AS UBIGINT), count(*) FROM ({rows.sql}) GROUP BY 1 "
            "HAVING count(*) > 1 ORDER BY 2 DESC, min(text)"
        )
        free = [(0, place) for place in range(places)]
        heapify(free)
        for batch in _batches(counts):
            dealt = []
            for opens, count in batch:
                start, place = free[0]
                dealt.append((opens, start, place))
                heapreplace(free, (start + count, place))
            types = (pa.uint64(), pa.int64(), pa.int64())
            columns = [
                pa.array(values, type)
                for values, type in zip(zip(*dealt, strict=True), types, strict=True)
            ]
            con.register("teola_batch", pa.Table.from_arrays(columns, ["opens", "start", "place"]))
            con.execute(f"INSERT INTO {DEALT} SELECT * FROM teola_batch")
            con.unregister("teola_batch")
    finally:
        cursor.close()
    # Rows that share no beginning fill batches behind all others.
    last = max(start for start, _ in free)
    return SortedRows(
        f"SELECT key, text, coalesce(d.start + k, {last} + "
        f"(row_number() OVER (PARTITION BY d.start IS NULL ORDER BY text, key) - 1) // {places}) "
        f"AS opens, coalesce(d.place, {places}) AS place FROM "
        "(SELECT key, text, CAST(opens AS UBIGINT) AS opens, "
        "row_number() OVER (PARTITION BY opens ORDER BY text, key) - 1 AS k "
        f"FROM ({rows.sql})) r LEFT JOIN {DEALT} d USING (opens)",
        ("opens", "place", "text", "key"),
    )


def _batches(cursor: duckdb.DuckDBPyConnection) -> Iterator[list[tuple[int, int]]]:
    while rows := cursor.fetchmany(AT_ONCE):
        yield rows
