"""Reading a DuckDB file: read-only, without other files, extensions or settings, in one thread.

It runs in a process of its own only (`sql_child.py`): a function such as repeat() can take all
memory that there is, and does not see that it is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from teola.errors import ToolError
from teola.extras import needs
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.stopped import StatementStopped

if TYPE_CHECKING:
    import duckdb

SHARE: Final = 0.6
"""Share of the process's memory that DuckDB may use; the rest is for the interpreter and
results."""
AS_TEXT: Final = frozenset(("INTERVAL", "TIMESTAMP", "DATE"))
"""Types of which Python has other values: its months have 30 days, and nothing is infinite."""
BATCH: Final = 64
"""Rows that are fetched at once."""


def read_duckdb(path: str, sql: str, limits: LookupLimits) -> Rows:
    """Run one statement on the file. Raises ToolError."""
    result = Rows(limits)
    with opened_duckdb(path, limits) as connection:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type.name not in ("SELECT", "MULTI"):  # a PIVOT
            raise ToolError("give one SELECT and nothing else")
        planned = connection.execute(f"SELECT * FROM ({sql}\n) LIMIT 0").description or ()
        result.columns = [column[0] for column in planned]
        shown = ", ".join(
            f"CAST(#{n} AS VARCHAR)" if str(column[1]) in AS_TEXT else f"#{n}"
            for n, column in enumerate(planned, 1)
        )
        cursor = connection.execute(f"SELECT {shown} FROM ({sql}\n) LIMIT {limits.rows + 1}")
        value_bytes = limits.value_bytes_among(len(result.columns))
        long_values = 0
        while rows := cursor.fetchmany(BATCH):
            for row in rows:
                cut = [_cut(value, value_bytes) for value in row]
                if not result.add(cut):
                    break
                long_values += sum(a is not b for a, b in zip(cut, row, strict=True))
            if result.truncated:
                break
    if long_values:
        result.notes.append(
            f"values of more than {value_bytes:,} bytes (value_bytes, total_bytes) are cut, or "
            f"null where they are no text (in these rows: {long_values}); ask for parts of them"
        )
    return result


@contextmanager
def opened_duckdb(path: str, limits: LookupLimits) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that can only read, for limited seconds. Errors of DuckDB become ToolError."""
    with needs("sql", "reading a DuckDB file"):
        import duckdb
    until = monotonic() + limits.seconds
    settings: dict[str, Any] = {
        "threads": 1,
        "memory_limit": f"{int(limits.memory_bytes * SHARE) // 2**20}MiB",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
    }
    try:
        with closing(duckdb.connect(path, read_only=True, config=settings)) as connection:
            timer = Timer(limits.seconds, connection.interrupt)
            timer.daemon = True
            timer.start()
            try:
                connection.execute("SET enable_external_access=false")
                connection.execute("SET lock_configuration=true")
                yield connection
            finally:
                timer.cancel()
    except duckdb.OutOfMemoryException:
        raise StatementStopped(too_much_memory(limits), "memory") from None
    except duckdb.Error as error:
        if monotonic() > until:
            raise StatementStopped(limits.late, "time", limits.seconds) from None
        message = next(iter(str(error).splitlines()), type(error).__name__)
        if "lock on file" in str(error):
            message = "another process writes this file: try again when it has closed it"
        elif "older version" in str(error) or "version number" in str(error):
            message = f"another version of DuckDB wrote this file: {message}"
        raise ToolError(f"the database says: {message}") from None


def too_much_memory(limits: LookupLimits) -> str:
    """The message to the model about a statement that took all its memory."""
    return f"it took more than {limits.memory_bytes // 2**20:,} MiB of memory: ask for less"


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) * 4 > most and len(value.encode()) > most:
        return value[: most // 4]
    if isinstance(value, (list, dict)) and len(str(value)) > most:
        return None
    return value
