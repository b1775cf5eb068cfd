"""Results in files: written under a temporary name, and renamed when they are whole."""

from __future__ import annotations

import glob
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teola.errors import InputError
from teola.tables.duckdb_schema import said
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb

FORMATS: Final = {
    ".parquet": "FORMAT parquet",
    ".csv": "FORMAT csv, HEADER true",
    ".jsonl": "FORMAT json",
}

OLD_S: Final = 86_400
"""After so long nobody writes a file any more: its process was killed."""


def checked_out(path: str | Path) -> Path:
    """The path of a result's file, which can be written there. Raises InputError."""
    found = Path(path).expanduser()
    if found.suffix.lower() not in FORMATS:
        raise InputError(f"{found}: the name of a result must end in one of {', '.join(FORMATS)}")
    if not found.parent.is_dir():
        raise InputError(f"{found}: there is no folder {found.parent}")
    if found.is_dir() or not os.access(found.parent, os.W_OK):
        raise InputError(f"{found} cannot be written")
    return found


def write_result(con: duckdb.DuckDBPyConnection, sql: str, path: Path) -> int:
    """Write a query's rows; how many. Raises InputError where the disk takes no more, and leaves
    no file then."""
    import duckdb

    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if time.time() - old.stat().st_mtime > OLD_S:
            old.unlink(missing_ok=True)
    try:
        try:
            (row,) = con.execute(
                f"COPY ({sql}) TO {literal(str(part))} ({FORMATS[path.suffix.lower()]})"
            ).fetchall()
        except duckdb.Error as error:
            raise InputError(f"{path} cannot be written: {said(error)}") from None
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return int(row[0])
