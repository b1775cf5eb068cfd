"""Tables and columns that statements may read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from teola.errors import InputError
from teola.sql.dialects.dialect import SqlDialect

Columns = tuple[str, ...] | None
"""Names of a table's columns, in order; None: not known."""


@dataclass(frozen=True, eq=False)
class Schema:
    """The tables and columns that statements may read. Make one for a database and keep it:
    statements that were checked are remembered by it.

    tables: columns by table, both spelled as the database spells them (`schema.table` for a table
    of another schema). private: columns that no statement may read, as `table.column`. types: types
    of columns that a statement may cast to besides the database's own, spelled as it spells them.
    """

    tables: Mapping[str, Columns]
    private: frozenset[str] = field(default=frozenset())
    types: frozenset[str] = field(default=frozenset())

    def __post_init__(self) -> None:
        for name in self.private:
            table, _, column = name.rpartition(".")
            columns = self.tables.get(table)
            if table not in self.tables or (columns is not None and column not in columns):
                raise InputError(
                    f"the private column {name!r} is none of the database's: write table.column"
                )

    @classmethod
    def of(
        cls,
        tables: Mapping[str, Iterable[str] | None] | Collection[str],
        private: Iterable[str] = (),
        types: Iterable[str] = (),
    ) -> Schema:
        """A schema from names of tables, or from columns by table. Raises InputError."""
        columns: Mapping[str, Iterable[str] | None] = (
            tables if isinstance(tables, Mapping) else dict.fromkeys(tables)
        )
        by_table = {t: None if names is None else tuple(names) for t, names in columns.items()}
        return cls(by_table, frozenset(private), frozenset(types))

    def alike(self, other: Schema) -> bool:
        """Whether the same statements may run."""
        return (self.tables, self.private, self.types) == (other.tables, other.private, other.types)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of its tables."""
        return tuple(self.tables)


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """A table with its names as the database compares them."""

    name: str
    columns: Columns
    private: frozenset[str]


@lru_cache(maxsize=64)
def folded_tables(schema: Schema, dialect: SqlDialect) -> Mapping[str, FoldedTable]:
    """Tables by the name that a statement may call them, all folded."""
    hidden: dict[str, set[str]] = {}
    for name in schema.private:
        table, _, column = name.rpartition(".")
        hidden.setdefault(table, set()).add(dialect.folded(column, quoted=True))
    by_name: dict[str, FoldedTable] = {}
    for name, columns in schema.tables.items():
        folded = None if columns is None else tuple(dialect.folded(c, True) for c in columns)
        folded_table = FoldedTable(name, folded, frozenset(hidden.get(name, ())))
        key = dialect.folded(name, quoted=True)
        by_name[key] = folded_table
        if dialect.main:
            by_name.setdefault(f"{dialect.main}.{key}", folded_table)
            by_name.setdefault(key.removeprefix(f"{dialect.main}."), folded_table)
    return by_name
