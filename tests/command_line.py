"""Runs command lines in this process, and looks into the database as the superuser."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teola.cli import call

STORED = {"run", "explain", "index", "collections", "delete"}
"""Commands that take --data-dir."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def refused(self, code: int) -> str:
        """The one line of an error."""
        assert self.code == code, self
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("teola: ")
        return line.removeprefix("teola: ")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`teola`, with the data of the tests' own server."""

    capture: pytest.CaptureFixture[str]
    data_dir: Path
    admin: str

    def __call__(self, *words: str | Path) -> Ended:
        line = [str(word) for word in words]
        if line[0] in STORED and "--dsn" not in line:
            line += ["--data-dir", str(self.data_dir)]
        self.capture.readouterr()
        code = call(line)
        return Ended(code, *self.capture.readouterr())

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the database as the superuser, who sees everything."""
        with psycopg.connect(self.admin, autocommit=True) as connection:
            return connection.execute(statement).fetchall()

    def state(self) -> dict[str, int]:
        """Rows, and transactions that somebody left open."""
        counts = """
        SELECT (SELECT count(*) FROM teola.documents), (SELECT count(*) FROM teola.chunks),
            (SELECT count(*) FROM teola.documents WHERE NOT ready),
            (SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%')
        """
        (row,) = self.rows(counts)
        return dict(zip(("documents", "chunks", "pending", "open"), row, strict=True))
