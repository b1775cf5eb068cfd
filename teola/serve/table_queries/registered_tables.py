"""Tables that clients may ask over: those of the configuration, each for the tenants that it names.

A query knows a table by its name. Where its rows are is told to nobody: errors name the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teola.config import (
    SQL_BYTES,
    SQL_CHARACTERS,
    SQL_QUERIES,
    SQL_QUESTIONS,
    SQL_ROWS,
)
from teola.errors import InputError
from teola.runtime.remembering import default_folder

if TYPE_CHECKING:
    from teola.tables.answers_place import AnswersDsn, AnswersPlace
    from teola.tables.sources import TableSource
    from teola.tables.workspace import Workspace

SHARED: Final = "shared"
"""Folder of the answers that all tenants have."""
Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class TableLimits:
    """characters: of a query. questions: that one of its calls may have to ask. rows, bytes: of its
    result; the latter as JSON. queries: at once."""

    characters: int = SQL_CHARACTERS
    questions: int = SQL_QUESTIONS
    rows: int = SQL_ROWS
    bytes: int = SQL_BYTES
    queries: int = SQL_QUERIES


def answers_home(where: bool | str, data_dir: str | Path | None) -> Path | AnswersDsn | None:
    """The folder or the database that `answers` of a configuration means; None: answers are not
    kept. data_dir: with the server's data. Raises InputError, also for a database that cannot be
    used."""
    import duckdb

    from teola.tables.answers_place import AnswersDsn, answers_place, opened_answers

    if where is True:
        return default_folder(data_dir).with_name("answers")
    home = answers_place(where)
    if isinstance(home, AnswersDsn):
        with duckdb.connect() as con, closing(opened_answers(con, home)):
            pass
    elif home is not None and "://" in str(where):
        kind = str(where).partition("://")[0]
        raise InputError(f"answers are kept in a folder or at postgresql://, not at {kind}://")
    return home


@dataclass(frozen=True, slots=True)
class AnswersByTenant:
    """Where answers are kept. home: a folder with a folder in it for each tenant, or a database
    (None: nowhere). shared: all tenants have the same ones."""

    home: Path | AnswersDsn | None = None
    shared: bool = False

    def path(self, tenant: str) -> Path | None:
        """The file of a tenant, in a folder of its own; None: there is no file."""
        if not isinstance(self.home, Path):
            return None
        digest = hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self.home / (SHARED if self.shared else digest) / "answers.duckdb"

    def place(self, tenant: str) -> AnswersPlace:
        """The answers of a tenant, for RunOptions."""
        if self.home is None:
            return False
        return self.path(tenant) if isinstance(self.home, Path) else self.home.dsn

    def owner(self, tenant: str) -> str:
        """Who answers belong to, which is a part of their keys; "": to nobody in particular."""
        return "" if self.shared else tenant


@dataclass(slots=True)
class RegisteredTables:
    """sources: where rows are, by the names of tables. tenants: who may ask over one, where that is
    not everybody."""

    sources: Mapping[str, TableSource]
    tenants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: TableLimits = field(default_factory=TableLimits)
    answers: AnswersByTenant = field(default_factory=AnswersByTenant)
    _known: dict[str, tuple[Stamp, TableSource]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {name: (_stamp(source), source) for name, source in self.sources.items()}

    def open_to(self, tenant: str) -> dict[str, TableSource]:
        """Those that a tenant may ask over. A file that has changed is a new source: its columns
        are read again."""
        found = {}
        for name, (stamp, source) in list(self._known.items()):
            if (whose := self.tenants.get(name)) and tenant not in whose:
                continue
            now = _stamp(source)
            if now != stamp:
                source = _again(source)
                self._known[name] = now, source
            found[name] = source
        return found

    def told(self, text: str) -> str:
        """A message without the places of tables."""
        named = [(p, name) for name, source in self.sources.items() for p in _places(source)]
        for place, name in sorted(named, key=lambda at: -len(at[0])):  # one may begin another
            text = text.replace(place, f"[{name}]")
        return text

    def confine(self, workspace: Workspace, tenant: str) -> None:
        """Let a query read its tables and its tenant's answers, and nothing else."""
        files = [Path(one) for source in self.sources.values() for one in _files(source)]
        path = self.answers.path(tenant)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        workspace.confine(files, [path.parent.absolute()] if path is not None else [])


def check_characters(query: str, limits: TableLimits) -> None:
    """Raise InputError for a query that is too long."""
    if len(query) > limits.characters:
        raise InputError(
            f"the query has {len(query):,} characters, more than the {limits.characters:,} that "
            "are taken: put long lists of values into a table, or shorten the instructions"
        )


def _files(source: TableSource) -> Iterable[str]:
    path = getattr(source, "path", None)
    return [str(path), str(path.absolute()), f"{path}.wal"] if path is not None else []


def _places(source: TableSource) -> Iterable[str]:
    dsn = getattr(source, "dsn", None)
    path = getattr(source, "path", None)
    places = [dsn] if dsn else []
    if path is not None:
        places += [str(path.absolute()), str(path)]
    return places


def _stamp(source: TableSource) -> Stamp:
    """What changes with a file."""
    path = getattr(source, "path", None)
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _again(source: TableSource) -> TableSource:
    return replace(source)  # type: ignore[type-var]
