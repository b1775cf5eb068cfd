"""Rows of a result as they come, while the last call of the query is still asked.

    rows whose guard is false or whose answer is known   come first
    rows whose answer has come                           every second, or more seldom
    all others                                           when the query is over

Only of plans whose rows each stand for themselves and that say no order. Each row comes once: the
table OUT has those that did. Finding the rows costs a pass over the table, so it waits twenty times
as long as the last pass took.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Final, Protocol

from teola.tables.plan_steps import ROW, TablePlan

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

OUT: Final = "teola_out"
FRESH: Final = "teola_fresh"
LEAST_S: Final = 1.0
"""Seconds between two looks for answered rows."""
SHARE: Final = 20
"""The share of the time that looks may take."""
AT_ONCE: Final = 8192


class RowSink(Protocol):
    """Takes rows as they come."""

    def write(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Take the rows of a query, which may be none."""


class ResultStream:
    """Gives the rows of one plan to sinks, each once."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, plan: TablePlan, sinks: Sequence[RowSink]
    ) -> None:
        self.con, self.plan, self.sinks = con, plan, list(sinks)
        self.table = plan.streams if self.sinks else None
        """The table whose rows are streamed while they are asked; None: all rows come at the
        end."""
        self._due = 0.0
        con.execute(f"CREATE OR REPLACE TABLE {OUT} ({ROW} BIGINT)")

    def look(self, rows: Callable[[], str], condition: str, *, now: bool = False) -> None:
        """Give rows that are answered to the sinks, if it is time or `now`. rows: SQL of the
        table's answered rows, with their answers. condition: SQL that tells which of them are in
        the result."""
        began = time.monotonic()
        if self.table is None or not (now or began >= self._due):
            return
        self.con.execute(
            f"CREATE OR REPLACE TABLE {FRESH} AS SELECT * FROM ({rows()}) "
            f"WHERE {ROW} NOT IN (SELECT {ROW} FROM {OUT})"
        )
        self._give(f"SELECT * FROM {FRESH} WHERE {condition}")
        self.con.execute(f"INSERT INTO {OUT} SELECT {ROW} FROM {FRESH}")
        self.con.execute(f"DROP TABLE {FRESH}")
        ended = time.monotonic()
        self._due = ended + max(LEAST_S, SHARE * (ended - began))

    def rest(self, final: str | None) -> None:
        """Give the remaining rows to the sinks. final: SQL of all rows; None: there are none."""
        ((came,),) = self.con.execute(f"SELECT count(*) FROM {OUT}").fetchall()
        if final is not None and not came:
            self._write(final)
        elif final is not None:
            self._give(
                f"SELECT * FROM main.{self.table} WHERE {ROW} NOT IN (SELECT {ROW} FROM {OUT})"
            )

    def _give(self, rows: str) -> None:
        self._write(f"WITH {self.table} AS ({rows}) {self.plan.final}")

    def _write(self, sql: str) -> None:
        for sink in self.sinks:
            sink.write(self.con, sql)


class RowSpool:
    """Rows in a file of Arrow batches: one thread writes it, and others read as it grows. Batches
    leave memory, however slow a reader is."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._path, self._schema = path, schema
        self._changed = Condition()
        self._batches = 0
        self._over = False
        self._file = path.open("wb", buffering=0)
        self._writer = pa.ipc.new_stream(self._file, schema)

    def write(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Take rows."""
        for batch in con.sql(sql).to_arrow_reader(AT_ONCE):
            # Columns of one name have it twice here, and are told apart in the schema.
            self._writer.write_batch(batch.rename_columns(self._schema.names))
            with self._changed:
                self._batches += 1
                self._changed.notify_all()

    def close(self) -> None:
        """No more rows come."""
        if not self._over:
            self._writer.close()
            self._file.close()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def read(self) -> Iterator[pa.RecordBatch]:
        """All batches from the first on. It waits for batches that are still to come."""
        import pyarrow as pa

        seen = 0
        with contextlib.ExitStack() as stack:
            reader: pa.RecordBatchStreamReader | None = None
            while (there := self._more(seen)) > seen:
                # The schema is written with the first batch.
                reader = reader or pa.ipc.open_stream(stack.enter_context(self._path.open("rb")))
                while seen < there:
                    yield reader.read_next_batch()
                    seen += 1

    def _more(self, seen: int) -> int:
        """How many batches there are. It waits until there are more, or no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches > seen or self._over)
            return self._batches
