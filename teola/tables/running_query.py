"""A query that runs in a thread of its own: its rows can be read as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from teola.errors import InputError
from teola.tables.done import Done
from teola.tables.plan_runs import RunOptions, no_rows, run_plan
from teola.tables.plan_steps import TablePlan
from teola.tables.result_stream import RowSpool
from teola.tables.run_limits import Spent
from teola.tables.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa


def begin_query(
    workspace: Workspace, plan: TablePlan, options: RunOptions, spent: Spent | None, check: bool
) -> RunningQuery:
    """Run a plan in a thread of its own. check: whether `wait` raises where it ends in an error.
    Raises InputError."""
    spent = spent or Spent(options.limits)
    schema = workspace.con.sql(no_rows(plan)).to_arrow_reader(1).schema
    spool = options.spool = RowSpool(workspace.folder / "rows.arrow", schema)

    def run() -> Done:
        try:
            return run_plan(workspace, plan, options, spent)
        except BaseException:
            workspace.close()
            raise

    return RunningQuery(run, schema, spent, spool, check)


class RunningQuery:
    """A query that runs in a thread. run: runs it there. cancel: ends it. spool: holds its rows."""

    def __init__(
        self, run: Callable[[], Done], schema: pa.Schema, spent: Spent, spool: RowSpool, check: bool
    ) -> None:
        self._run, self._schema, self._spent = run, schema, spent
        self._spool, self._check = spool, check
        self._done: Done | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="teola-query", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._done = self._run()
        except BaseException as error:  # noqa: BLE001 - raised to who waits
            self._error = error
        finally:
            self._spool.close()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the query. Rows that have come are kept. `wait` then raises QueryCancelled."""
        self._spent.cancelled.set()

    def wait(self) -> Done:
        """Wait for the result. Raises what `run` raises."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._done is not None
        return self._done.checked() if self._check else self._done

    def reader(self, batch_rows: int = 10_000) -> pa.RecordBatchReader:
        """Batches of its rows in the order in which they come, also while others are asked. Where
        rows say an order or do not stand for themselves (aggregates, LIMIT), they come at the end.
        Behind the last one it raises what `run` raises. Raises InputError."""
        import pyarrow as pa

        if batch_rows < 1:
            raise InputError(f"a batch has at least one row, not {batch_rows}")
        return pa.RecordBatchReader.from_batches(self._schema, self._batches(batch_rows))

    def _batches(self, most: int) -> Iterator[pa.RecordBatch]:
        for batch in self._spool.read():
            for start in range(0, batch.num_rows, most):
                yield batch.slice(start, most)
        self.wait()
