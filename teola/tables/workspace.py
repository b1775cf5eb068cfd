"""A DuckDB for one query: its tables, a limit of memory, and a folder for what does not fit."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from teola.errors import InputError
from teola.tables.prompt_text import literal
from teola.tables.sources import TableSource, source_of

MEMORY: Final = "256MB"
RESERVED: Final = "teola_"


class Workspace:
    """Use it as a context manager, or call `close`. Raises InputError where a table cannot be read.

    memory: what DuckDB may take, such as 256MB; what is more goes to the spill folder.
    """

    def __init__(
        self, tables: Mapping[str, Any], *, memory: str = MEMORY, threads: int | None = None
    ) -> None:
        sources = checked(tables)
        self.folder = Path(tempfile.mkdtemp(prefix="teola-tables-"))
        self.con = duckdb.connect()
        try:
            self._settle(memory, threads)
            for name, source in sources.items():
                source.register(self.con, name)
        except BaseException:
            self.close()
            raise

    def _settle(self, memory: str, threads: int | None) -> None:
        try:
            self.con.execute(f"SET memory_limit = {literal(memory)}")
        except duckdb.Error as error:
            raise InputError(f"memory {memory!r} is no size, such as 256MB: {error}") from None
        self.con.execute(f"SET temp_directory = {literal(str(self.folder))}")
        self.con.execute("SET preserve_insertion_order = true")
        self.con.execute("SET python_enable_replacements = false")
        self.con.execute("SET autoinstall_known_extensions = false")
        self.con.execute("SET TimeZone = 'UTC'")
        if threads is not None:
            self.con.execute(f"SET threads = {int(threads)}")

    def close(self) -> None:
        """Let go of everything, and remove the folder."""
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


def checked(tables: Mapping[str, Any]) -> dict[str, TableSource]:
    """Tables by name, with their names checked. Raises InputError."""
    found: dict[str, TableSource] = {}
    for name, value in tables.items():
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"a table's name must be a text, not {name!r}")
        if name.lower().startswith(RESERVED):
            raise InputError(f"table {name!r}: names that begin with {RESERVED} are Teola's own")
        if name.lower() in (one.lower() for one in found):
            raise InputError(f"two tables are called {name!r}: names do not differ by case")
        found[name] = value if hasattr(value, "register") else source_of(value)
    return found
