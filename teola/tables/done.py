"""A query that was run: its rows, and what became of it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teola.errors import DeadlineExceeded, InputError, QueryCancelled, QueryFailed, TeolaError
from teola.tables.plan_steps import Column
from teola.tables.report import with_rows
from teola.tables.workspace import cursor_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from teola.tables.workspace import Workspace

SHOWN: int = 20
"""Rows that a notebook shows."""


class Done:
    """The result of a query. Its rows are in DuckDB, which is closed with it.

    state: ok; partial, where rows have errors or a budget ended it; failed, cancelled, deadline.
    reason: why it is not ok ("": it is). report: as `teola sql --json` prints it, without rows.
    notes: what its user has to know of the answers. file: where its rows are instead; of a query
    that was ended, NAME.partial.SUFFIX (None: there is none).
    """

    def __init__(
        self,
        workspace: Workspace,
        sql: str | None,
        columns: tuple[Column, ...],
        report: Mapping[str, Any],
        reason: str = "",
        cause: Exception | None = None,
        notes: tuple[str, ...] = (),
        file: Path | None = None,
    ) -> None:
        self._workspace, self._sql, self.columns = workspace, sql, columns
        self.report, self.reason, self.cause = report, reason, cause
        self.notes, self.file = notes, file
        self._close = weakref.finalize(self, workspace.close)

    @property
    def state(self) -> str:
        """How the query ended."""
        return str(self.report["state"])

    @property
    def row_count(self) -> int:
        """Rows of the result."""
        return int(self.report["row_count"])

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, as Python values."""
        rows: list[tuple[Any, ...]] = self._cursor().execute(self._sql).fetchall()
        return rows

    def to_json(self) -> dict[str, Any]:
        """The report with all rows, as `teola sql --json` prints it."""
        return with_rows(self.report, self.rows)

    def fetched(self, batch_rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """All rows as Python values, so many at a time."""
        cursor = self._cursor().execute(self._sql)
        while batch := cursor.fetchmany(batch_rows):
            yield batch

    def arrow(self) -> pa.Table:
        """All rows, as an Arrow table."""
        return self.reader().read_all()

    def pandas(self) -> pd.DataFrame:
        """All rows, as a pandas frame."""
        return self._cursor().execute(self._sql).fetchdf()

    def polars(self) -> Any:
        """All rows, as a Polars frame."""
        try:
            import polars
        except ModuleNotFoundError:
            raise InputError("polars is not installed: pip install polars") from None
        return polars.from_arrow(self.arrow())

    def reader(self, batch_rows: int = 10_000) -> pa.RecordBatchReader:
        """Batches of rows, one after another."""
        if batch_rows < 1:
            raise InputError(f"a batch has at least one row, not {batch_rows}")
        return self._cursor().sql(self._sql).to_arrow_reader(batch_rows)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow stream of its rows: so a result is a table of further queries."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def checked(self) -> Done:
        """This result if it has ended well. Raises the error otherwise, with this result as its
        `result`."""
        if self.state in ("ok", "partial"):
            return self
        kinds: dict[str, type[TeolaError]] = {
            "cancelled": QueryCancelled,
            "deadline": DeadlineExceeded,
        }
        error = kinds.get(self.state, QueryFailed)(self.reason)
        error.result = self
        raise error from self.cause

    def close(self) -> None:
        """Close DuckDB and remove its files. The rows cannot be read any more."""
        self._close()

    def _cursor(self) -> Any:
        if self._sql is None:
            where = f" {self.file}" if self.file is not None else ", which was not written"
            raise InputError(f"the rows of this result are in its file{where}")
        if not self._close.alive:
            raise InputError("this result is closed")
        return cursor_of(self._workspace.con)

    def __repr__(self) -> str:
        names = ", ".join(column.name for column in self.columns)
        return f"<{self.row_count:,} rows of {names}; {self.state}>"

    def _repr_html_(self) -> str:
        from teola.tables.notebook import table_html

        rows = []
        if self._sql is not None:
            rows = self._cursor().execute(self._sql).fetchmany(SHOWN)
        return table_html([column.name for column in self.columns], rows, self.report)
