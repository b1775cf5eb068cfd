"""What each node of a parsed statement has to pass."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final

from teola.errors import LONGEST_NAME, ToolError
from teola.sql.column_names import ColumnNames
from teola.sql.constant_bounds import MOST_REPEATED, check_format, check_series, check_width
from teola.sql.dialects.dialect import NODES, SqlDialect
from teola.sql.sql_schema import Schema, folded_tables
from teola.sql.with_scopes import part_name, parts_around, visible_parts
from teola.sql.written_names import table_name_text

if TYPE_CHECKING:
    from sqlglot import exp

MOST_LISTED: Final = 30
"""Tables that an error lists."""
TABLE_PARTS: Final = frozenset(
    ("this", "alias", "db", "catalog", "joins", "laterals", "pivots", "ordinality", "only",
     "sample", "indexed")
)  # fmt: skip
_SYSTEM_TYPE: Final = re.compile(r"_*(reg|pg_)|_|(xid8?|[ct]id|aclitem|refcursor)$")
"""Names of types that look up the database's own tables, and of arrays of types, which have other
names."""
_FILE: Final = re.compile(r"[./\\:*?\[\]{}]")
_SAMPLING: Final = frozenset(("", "system", "bernoulli", "reservoir"))


def check_statement(tree: exp.Expr, dialect: SqlDialect, schema: Schema | None) -> None:
    """Raises ToolError for the first node that is not taken."""
    checks, plain = _Checks(tree, dialect, schema), _plain_kinds(dialect)
    for node in tree.walk():
        if type(node) not in plain:
            checks.check(node)


@cache
def _plain_kinds(dialect: SqlDialect) -> frozenset[type[exp.Expr]]:
    """Kinds of nodes that are taken whatever they hold: most of a statement's."""
    from sqlglot import exp

    looked_into = (
        exp.Anonymous, exp.Table, exp.CTE, exp.In, exp.Lateral, exp.Dot, exp.Column, exp.DataType,
        exp.TableSample, exp.Select, exp.Star, exp.Pivot, exp.Columns, exp.Join, exp.Subquery,
        exp.Lambda,
    )  # fmt: skip
    kinds: list[type[exp.Expr]] = [getattr(exp, name) for name in NODES | dialect.nodes]
    return frozenset(kind for kind in kinds if not issubclass(kind, looked_into))


class _Checks:
    """The checks of one statement."""

    def __init__(self, tree: exp.Expr, dialect: SqlDialect, schema: Schema | None) -> None:
        self.dialect, self.schema = dialect, schema
        self.tables = {} if schema is None else folded_tables(schema, dialect)
        self.nodes = NODES | dialect.nodes
        self.repeated, self.widest = 1, 1
        self.columns = ColumnNames(tree, dialect, self.tables)

    def check(self, node: exp.Expr) -> None:
        """Raises ToolError."""
        from sqlglot import exp

        kind = type(node).__name__
        if isinstance(node, exp.Anonymous):
            self._call(node)
        elif kind not in self.nodes:
            raise ToolError(f"{_spaced(kind)} is not taken: only a SELECT that reads is")
        elif isinstance(node, exp.Table):
            self._table(node)
        elif isinstance(node, exp.CTE):
            self._part(node)
        elif isinstance(node, exp.In) and node.args.get("field"):
            raise ToolError("IN takes a list or a SELECT in brackets, and no name of a table")
        elif isinstance(node, exp.Lateral):
            self._lateral(node)
        elif isinstance(node, exp.Dot):
            self._dot(node)
        elif isinstance(node, exp.Column):
            self._column(node)
        elif isinstance(node, exp.DataType):
            self._type(node)
        elif isinstance(node, exp.TableSample):
            method = str(getattr(node.args.get("method"), "name", node.args.get("method")) or "")
            if method.lower() not in _SAMPLING:
                raise ToolError(f"the sampling {method[:LONGEST_NAME]} is not taken here")
        elif isinstance(node, exp.Select) and (node.args.get("into") or node.args.get("locks")):
            raise ToolError("INTO and FOR UPDATE are not taken: only a SELECT that reads is")
        self.columns.check(node)

    def _call(self, call: exp.Anonymous) -> None:
        from sqlglot import exp

        quoted = isinstance(call.this, exp.Identifier)
        name = call.name if quoted and not self.dialect.quoted_folds else call.name.lower()
        if name not in self.dialect.callable:
            near = get_close_matches(name[:LONGEST_NAME], self.dialect.callable, n=1, cutoff=0.75)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ToolError(f"the function {call.name[:LONGEST_NAME]} is not taken here{hint}")
        if name in self.dialect.series:
            check_series(call, name)
        elif name in self.dialect.widths:
            width = check_width(call, name, self.dialect)
            if name == "repeat":  # which may repeat one another's texts, and a padded one
                self.repeated *= width
            else:
                self.widest = max(self.widest, width)
            if self.repeated > 1 and self.repeated * self.widest > MOST_REPEATED:
                raise ToolError("texts are repeated too often: repeat less")
        elif name in self.dialect.formats:
            check_format(call, name, self.dialect)

    def _table(self, table: exp.Table) -> None:
        from sqlglot import exp

        if unknown := [key for key, part in table.args.items() if part and key not in TABLE_PARTS]:
            raise ToolError(f"{unknown[0].upper()} of a table is not taken here")
        if table.arg_key == "indexed":
            return  # the name of an index
        if not isinstance(table.this, exp.Identifier):
            self._rows(table.this)
            if table.args.get("db"):
                raise ToolError("a function is named without a schema here")
            return
        name, schema = self._folded(table.this), self._folded(table.args.get("db"))
        if not schema and any(
            self._folded(part_name(part)) == name for part in visible_parts(table)
        ):
            return
        if not name or table.catalog or self.dialect.is_system(name):
            raise ToolError(
                f"the table {name[:LONGEST_NAME] or '?'} is not for this; read the tables of the "
                "data"
            )
        if self.schema is None:
            if self.dialect.is_system(schema):
                raise ToolError(f"the schema {schema} is not for this; read the tables of the data")
            if self.dialect.files_as_tables and (_FILE.search(name) or _FILE.search(schema)):
                raise ToolError(f"{name[:LONGEST_NAME]!r} may be a file: name a table of the data")
        elif (full := f"{schema}.{name}".lstrip(".")) not in self.tables:
            itself = any(self._folded(part_name(part)) == name for part in parts_around(table))
            hint = "; a part of WITH that reads itself needs WITH RECURSIVE" if itself else ""
            raise ToolError(
                f"there is no table {full[:LONGEST_NAME]!r} to read{self._near(full)}{hint}"
            )

    def _near(self, name: str) -> str:
        assert self.schema is not None
        listed = self.schema.names
        for spelled, table in self.tables.items():
            if spelled.lower() == name.lower():
                return f"; write it in quotes: {table_name_text(table.name, self.dialect)}"
        near = get_close_matches(name[:LONGEST_NAME], self.tables, n=1)
        meant = f"; did you mean {self.tables[near[0]].name!r}?" if near else ""
        if len(listed) > MOST_LISTED:
            return meant or f"; there are {len(listed)}"
        return f"{meant}; there are {', '.join(listed) or 'none'}"

    def _rows(self, call: exp.Expr | None) -> None:
        """Raises ToolError for what may not stand in the place of a table."""
        from sqlglot import exp

        if isinstance(call, exp.Unnest) and "unnest" in self.dialect.row_functions:
            return
        name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
        if name not in self.dialect.row_functions | self.dialect.series:
            raise ToolError(
                f"the function {name[:LONGEST_NAME] or '?'} is not taken in the place of a table"
            )

    def _part(self, part: exp.CTE) -> None:
        """Refuse a part of WITH that has the name of a table, since the statement could then be
        read in two ways, and one that is no SELECT."""
        from sqlglot import exp

        name = self.dialect.folded(part.alias)
        tables = {self.dialect.folded(table.name) for table in self.tables.values()}
        if self.dialect.is_system(name) or name in tables:
            raise ToolError(
                f"a part of WITH may not be called {part.alias!r}, which names a table: "
                "give it another name"
            )
        pivots = isinstance(part.this, exp.Pivot) and "Pivot" in self.nodes
        if not pivots and not isinstance(part.this, (exp.Query, exp.Values)):
            raise ToolError("a part of WITH is a SELECT here and nothing else")

    def _lateral(self, lateral: exp.Lateral) -> None:
        from sqlglot import exp

        if lateral.args.get("view"):
            raise ToolError("LATERAL VIEW is not taken here")
        if not isinstance(lateral.this, exp.Subquery):
            self._rows(lateral.this)

    def _dot(self, dot: exp.Dot) -> None:
        """PostgreSQL calls a function by a field: (boat).pg_read_file."""
        from sqlglot import exp

        if isinstance(dot.expression, exp.Star):
            return
        if self.dialect.methods:
            if isinstance(dot.expression, exp.Identifier):
                return
            if isinstance(dot.expression, exp.Anonymous):
                name = dot.expression.name.lower()
                if name in self.dialect.functions:
                    return
        raise ToolError(f"a field is not taken here: {_short(dot, self.dialect)}")

    def _column(self, column: exp.Column) -> None:
        from sqlglot import exp

        if not isinstance(column.this, exp.Identifier):
            return
        name = column.name.lower()
        if not column.table and not column.this.args.get("quoted") and name in self.dialect.session:
            raise ToolError(f"the function {column.name} is not taken here")
        if name in self.dialect.hidden_columns and not self._has(name):
            raise ToolError(f"the column {name} is the database's own and not taken here")

    def _has(self, column: str) -> bool:
        return any(column in (table.columns or ()) for table in self.tables.values())

    def _type(self, kind: exp.DataType) -> None:
        """A type that only this database has may be the rows of any of its tables."""
        from sqlglot import exp

        own = kind.args.get("kind")
        if kind.this == exp.DType.XML:  # reads a document's definitions
            raise ToolError("the type xml is not taken here: compare with a text")
        if not self.dialect.types or kind.this != exp.DType.USERDEFINED:
            return
        name = self._folded(own) if isinstance(own, exp.Identifier) else ""
        if name in self.dialect.types or (self.schema and name in self.schema.types):
            return
        if not name or self.schema is not None or _SYSTEM_TYPE.match(name):
            written = kind.sql(dialect=self.dialect.name)
            raise ToolError(
                f"the type {written[:LONGEST_NAME]} is not taken here: it is no column's; compare "
                "with a text"
            )

    def _folded(self, identifier: exp.Expr | None) -> str:
        if identifier is None:
            return ""
        return self.dialect.folded(identifier.name, bool(identifier.args.get("quoted")))


def _spaced(kind: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).upper()


def _short(node: exp.Expr, dialect: SqlDialect) -> str:
    text = node.sql(dialect=dialect.name)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..."
