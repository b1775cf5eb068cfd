"""Results in files: written under a temporary name, and renamed when they are whole."""

from __future__ import annotations

import glob
import os
import shutil
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
    file = Path(path).expanduser()
    if file.suffix.lower() not in FORMATS:
        raise InputError(f"{file}: the name of a result must end in one of {', '.join(FORMATS)}")
    if not file.parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.parent}")
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise InputError(f"{file} cannot be written")
    return file


class PartFolder:
    """A folder of files with rows of a result as they come, beside the result's file: `001.csv` and
    so on, each complete. It is removed when the result is written."""

    def __init__(self, path: Path) -> None:
        self._format = FORMATS[path.suffix.lower()]
        self._suffix, self._path = path.suffix, path
        self.folder = part_of(path).with_suffix(".rows")
        self._count = 0

    def write(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Take rows. Raises InputError where the disk takes no more."""
        import duckdb

        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"{self._count + 1:03d}{self._suffix}"
        hidden = file.with_name(f".{file.name}")
        try:
            (row,) = con.execute(
                f"COPY ({sql}) TO {literal(str(hidden))} ({self._format})"
            ).fetchall()
        except duckdb.IOException as error:
            raise InputError(f"{self._path} cannot be written: {said(error)}") from None
        if not row[0]:
            hidden.unlink(missing_ok=True)
            return
        hidden.replace(file)
        self._count += 1

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def part_of(path: Path) -> Path:
    """The path under which a file is written until it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def write_result(con: duckdb.DuckDBPyConnection, sql: str, path: Path) -> int:
    """Write a query's rows. Returns how many. Raises InputError where the disk takes no more, and
    leaves no file then."""
    import duckdb

    part = part_of(path)
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
        if time.time() - old.stat().st_mtime > OLD_S:
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
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
