"""A DuckDB for one query: its tables, a limit of memory, and a folder for what does not fit."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

import duckdb

from teola.errors import InputError
from teola.tables.duckdb_schema import quoted
from teola.tables.prompt_text import literal
from teola.tables.sources import SPILLED, TableSource, source_of

MEMORY: Final = "256MB"
RESERVED: Final = "teola_"
GROUP_ROWS: Final = 8192
"""Rows of a table that are compressed, and written to the folder, together. DuckDB's own 122,880
would stay in memory until then: 120 MB where a row has 1 KB."""
WORK: Final = "teola_work"
"""The database of a query's tables: a file in its folder, for tables in memory are not
compressed."""
LIMIT: Final = f"memory.main.{RESERVED}limit"
"""Its value is the memory that the workspace was given, as it was given: DuckDB itself tells it
rounded down."""
SPILLED_MOST: Final = "16GB"
"""Bytes that a confined query may write to the spill folder."""


class Workspace:
    """Use it as a context manager, or call `close`. Raises InputError where a table cannot be read.

    memory: what DuckDB may take, such as 256MB; what is more goes to the spill folder. empty: the
    tables have their columns and no row; their sources are read once for it. in_file: tables are in
    a file of the folder, compressed, which nothing but the disk bounds; else in memory, and in the
    spill folder.
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        *,
        memory: str = MEMORY,
        threads: int | None = None,
        empty: bool = False,
        in_file: bool = True,
    ) -> None:
        sources = checked_tables(tables)
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{SPILLED}{os.getpid()}-"))
        self.con = duckdb.connect()
        try:
            self._settle(memory, threads)
            if in_file and not empty:
                self._use_file()
            for name, source in sources.items():
                if empty:
                    listed = ", ".join(
                        f"{quoted(column)} {type}" for column, type in _shape(source)
                    )
                    self.con.execute(f"CREATE TABLE {quoted(name)} ({listed})")
                else:
                    source.register(self.con, name)
            give_back(self.con)
        except BaseException:
            self.close()
            raise

    def _settle(self, memory: str, threads: int | None) -> None:
        try:
            self.con.execute(f"SET memory_limit = {literal(memory)}")
        except duckdb.Error as error:
            raise InputError(f"memory {memory!r} is no size, such as 256MB: {error}") from None
        self.con.execute(f"CREATE MACRO {LIMIT}() AS {literal(memory)}")
        self.con.execute(f"SET temp_directory = {literal(str(self.folder))}")
        # What is freed goes back to the system, and not only 128 MB later.
        self.con.execute("SET allocator_flush_threshold = '8MB'")
        self.con.execute("SET allocator_bulk_deallocation_flush_threshold = '8MB'")
        self.con.execute("SET preserve_insertion_order = true")
        self.con.execute("SET python_enable_replacements = false")
        self.con.execute("SET autoinstall_known_extensions = false")
        self.con.execute("SET TimeZone = 'UTC'")
        if threads is not None:
            self.con.execute(f"SET threads = {int(threads)}")

    def _use_file(self) -> None:
        file = literal(str(self.folder / "work.duckdb"))
        options = f"ROW_GROUP_SIZE {GROUP_ROWS}, RECOVERY_MODE NO_WAL_WRITES"
        self.con.execute(f"ATTACH {file} AS {WORK} ({options})")
        self.con.execute(f"USE {WORK}")

    def confine(self, files: Sequence[Path], folders: Sequence[Path]) -> None:
        """Forbid all other reading and writing from now on, whatever a query's text says. Only data
        that does not fit into memory is still written, up to SPILLED_MOST."""
        self.con.execute(f"SET allowed_paths = [{', '.join(literal(str(file)) for file in files)}]")
        listed = [str(path) for path in (*folders, self.folder)]
        self.con.execute(f"SET allowed_directories = [{', '.join(map(literal, listed))}]")
        self.con.execute(f"SET max_temp_directory_size = '{SPILLED_MOST}'")
        self.con.execute("SET enable_external_access = false")

    def close(self) -> None:
        """Close the connection, and remove the folder."""
        self.con.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def give_back(con: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB return memory that it has freed to the system. By itself it keeps what a statement
    took, up to some 100 MB, for the next ones, until its limit is set anew. A connection that no
    workspace has made keeps it."""
    with contextlib.suppress(duckdb.CatalogException):
        ((limit,),) = con.execute(f"SELECT {LIMIT}()").fetchall()
        con.execute(f"SET memory_limit = {literal(limit)}")


def cursor_of(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A second connection to the same tables, also while another thread uses the first one.
    (DuckDB's own forgets which database is in use.)"""
    cursor = con.cursor()
    databases = cursor.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    if (WORK,) in databases:
        cursor.execute(f"USE {WORK}")
    return cursor


def read_columns(name: str, source: TableSource) -> tuple[tuple[str, str], ...]:
    """Names and types of a table's columns. A file is read for it the first time. Raises
    InputError."""
    try:
        return _shape(source)
    except InputError as error:
        raise InputError(str(error).replace(f"table {SHAPED!r}", f"table {name!r}", 1)) from None


SHAPED: Final = "t"
_shapes: WeakKeyDictionary[TableSource, tuple[tuple[str, str], ...]] = WeakKeyDictionary()


def _shape(source: TableSource) -> tuple[tuple[str, str], ...]:
    """Names and types of a source's columns, which are read once."""
    if source not in _shapes:
        with duckdb.connect() as con:
            source.register(con, SHAPED)
            rows = con.execute(f"DESCRIBE SELECT * FROM {SHAPED}").fetchall()
        _shapes[source] = tuple((name, type) for name, type, *_ in rows)
    return _shapes[source]


@cache
def _sweep() -> None:
    """Remove files of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{SPILLED}*"):
        number = path.name.removeprefix(SPILLED).partition("-")[0]
        if not number.isdigit() or _alive(int(number)):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def checked_tables(tables: Mapping[str, Any]) -> dict[str, TableSource]:
    """Tables by name, with their names checked. Raises InputError."""
    sources: dict[str, TableSource] = {}
    for name, value in tables.items():
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"a table's name must be a text, not {name!r}")
        if name.lower().startswith(RESERVED):
            raise InputError(f"table {name!r}: names that begin with {RESERVED} are Teola's own")
        if name.lower() in (taken.lower() for taken in sources):
            raise InputError(f"two tables are called {name!r}: names do not differ by case")
        # A frame or a relation may have a column `register`.
        sources[name] = value if hasattr(type(value), "register") else source_of(value)
    return sources
