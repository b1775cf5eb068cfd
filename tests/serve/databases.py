"""Databases of PostgreSQL for one test or one server, and a look into them as the superuser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from teola.query.journal.journal import DAY_S, Given, Journal
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder


def rows(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a statement gives to who may see everything."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def new_database(admin: str) -> Iterator[str]:
    """DSN of an empty database on the server that `admin` leads to; it is gone afterwards."""
    name = f"journal_{uuid4().hex[:8]}"
    rows(admin, f"CREATE DATABASE {name}")
    try:
        yield make_conninfo(admin, dbname=name)
    finally:
        rows(admin, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def journal_on(admin: str) -> Iterator[Journal]:
    """A journal of nobody else's: no other server's queries are in it, to be taken over."""
    with new_database(admin) as dsn:
        yield journal_in(dsn)


def journal_in(dsn: str) -> Journal:
    """The journal in a database."""
    return Journal(Given(dsn), DAY_S)


@contextmanager
def place_of_servers() -> Iterator[tuple[Path, str]]:
    """A folder whose data/ holds a database server that outlives who uses it; DSN of its
    superuser."""
    with temporary_folder() as folder:
        folder.chmod(0o755)  # the account that serves root must come in
        embedded = EmbeddedPostgres(folder / "data")
        try:
            yield folder, embedded.start()[0]
        finally:
            embedded.close()
