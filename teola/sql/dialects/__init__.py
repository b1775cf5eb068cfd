"""Dialects of SQL, a file for each: which functions, nodes and names are harmless."""

from __future__ import annotations

from typing import Final

from teola.errors import UnknownName
from teola.sql.dialects.dialect import SqlDialect
from teola.sql.dialects.duckdb import DUCKDB
from teola.sql.dialects.postgres import POSTGRES
from teola.sql.dialects.sqlite import SQLITE

DIALECTS: Final = {dialect.name: dialect for dialect in (SQLITE, POSTGRES, DUCKDB)}


def dialect_named(name: str) -> SqlDialect:
    """The dialect of a name. Raises UnknownName."""
    if name not in DIALECTS:
        raise UnknownName("dialect", name, DIALECTS)
    return DIALECTS[name]
