"""What SQL a model may have run: one SELECT, parsed, over tables and by functions that are known.

A statement is parsed and written anew; what was written is parsed again, checked, and runs. This is
the first of two walls: the connection that it runs on can only read, for a while (`sql_lookup.py`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from teola.errors import ToolError
from teola.extras import needs

if TYPE_CHECKING:
    from sqlglot import exp

MOST_CHARACTERS: Final = 10_000
FORBIDDEN: Final = (
    "Alter", "Analyze", "Attach", "Command", "Copy", "Create", "Delete", "Describe", "Detach",
    "Drop", "Execute", "Export", "Grant", "Insert", "Into", "Kill", "LoadData", "Lock", "Merge",
    "ObjectIdentifier", "Operator", "Parameter", "Placeholder", "Pragma", "Put", "Get", "Refresh",
    "Rename", "Revoke", "SessionParameter", "Set", "Show", "TableSample", "Transaction",
    "TruncateTable", "Update", "Use",
)  # fmt: skip
"""Kinds of nodes that stand nowhere in a statement that only reads."""
FUNCTIONS: Final = frozenset(
    (
        "Abs", "All", "And", "Any", "ArrayAgg", "Avg", "Case", "Cast", "Ceil", "Coalesce",
        "Concat", "ConcatWs", "Count", "CountIf", "CumeDist", "CurrentDate", "CurrentTime",
        "CurrentTimestamp", "Date", "DateAdd", "DateDiff", "DateSub", "DateTrunc", "Day",
        "DayOfMonth", "DayOfWeek", "DayOfYear", "DenseRank", "Exists", "Exp", "Extract",
        "FirstValue", "Floor", "Greatest", "GroupConcat", "Hour", "If", "Initcap", "Lag",
        "LastValue", "Lead", "Least", "Left", "Length", "Ln", "Log", "LogicalAnd", "LogicalOr",
        "Lower", "Max", "Median", "Min", "Minute", "Mod", "Month", "NthValue", "Ntile", "Nullif",
        "Or", "PercentRank", "PercentileCont", "PercentileDisc", "Pow", "Quarter", "Rank",
        "Replace", "Right", "Round", "RowNumber", "Second", "Sign", "Sqrt", "Stddev",
        "StddevPop", "StddevSamp", "StrPosition", "StrToDate", "StrToTime", "StringAgg",
        "Substring", "Sum", "TimeToStr", "TimestampTrunc", "TryCast", "Trim", "TsOrDsToDate",
        "TsOrDsToTimestamp", "Upper", "Variance", "VariancePop", "Week", "Xor", "Year",
    )
)  # fmt: skip
"""Those that sqlglot knows and that cost little."""
OTHERS: Final = frozenset(
    (
        "dense_rank",
        "ifnull",
        "instr",
        "julianday",
        "now",
        "percent_rank",
        "rank",
        "to_char",
        "total",
    )
)
"""Those that it has no class for."""

SESSION: Final = frozenset(("current_role", "system_user", "user"))
"""Words that PostgreSQL takes for functions and that are parsed as columns."""
_ASCII: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_SYSTEM: Final = re.compile(r"(pg_|sqlite_|pragma_|information_schema|dbstat$)")
_SYSTEM_TYPE: Final = re.compile(r"\b(reg|pg_|information_schema)")


def select_only(sql: str, dialect: str, tables: Collection[str] | None = None) -> str:
    """The statement as it may run. tables: that it may read, spelled as the database spells them;
    None: all but the database's own. Raises ToolError for anything that is more than one SELECT,
    with what to do about it."""
    if len(sql) > MOST_CHARACTERS:
        raise ToolError(f"the statement has {len(sql):,} characters; {MOST_CHARACTERS:,} are taken")
    written = _parsed(sql, dialect).sql(dialect=dialect, comments=False)
    # The text that runs is the text that is checked, whatever was lost while it was written.
    checks = _Checks(dialect, tables)
    for node in _parsed(written, dialect).walk():
        checks.check(node)
    return written


def folded(name: str, dialect: str, quoted: bool = False) -> str:
    """A name as the database compares it: letters of ASCII in lower case, but PostgreSQL takes
    names in quotes as they are."""
    return name if quoted and dialect == "postgres" else name.translate(_ASCII)


def is_system(name: str) -> bool:
    """Whether a table or a schema of that name is the database's own."""
    return _SYSTEM.match(name.translate(_ASCII)) is not None


def _parsed(sql: str, dialect: str) -> exp.Query:
    with needs("sql", "the tool that looks up tables"):
        import sqlglot
        from sqlglot import exp
    try:
        statements = [one for one in sqlglot.parse(sql, read=dialect) if one is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise ToolError(f"this is no SQL that can be read: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise ToolError("give one SELECT and nothing else")
    return statements[0]


class _Checks:
    """What each node of a statement has to pass."""

    def __init__(self, dialect: str, tables: Collection[str] | None) -> None:
        self.dialect = dialect
        self.tables = tables
        # SQLite folds all names, so its tables are compared folded; PostgreSQL's keep their case.
        self.allowed = {folded(t, dialect, quoted=True) for t in tables or ()}

    def check(self, node: exp.Expr) -> None:
        """Raises ToolError."""
        from sqlglot import exp

        kind = type(node).__name__
        if kind in FORBIDDEN:
            raise ToolError(f"{kind.upper()} is not taken: only a SELECT that reads is")
        if isinstance(node, exp.Anonymous):
            if node.name.lower() not in OTHERS:
                raise ToolError(f"the function {node.name} is not taken here")
        elif isinstance(node, exp.Func) and kind not in FUNCTIONS:
            raise ToolError(f"the function {node.sql_name()} is not taken here")
        elif isinstance(node, exp.Table):
            self._table(node)
        elif isinstance(node, exp.CTE):
            self._cte(node)
        elif isinstance(node, exp.In) and node.args.get("field"):
            raise ToolError("IN takes a list or a SELECT in brackets, and no name of a table")
        elif isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Subquery):
            raise ToolError("LATERAL takes a SELECT in brackets and nothing else")
        elif isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Star):
            # PostgreSQL calls a function so: (boat).pg_read_file
            raise ToolError(f"a field is not taken here: {node.sql(dialect=self.dialect)}")
        elif isinstance(node, exp.Column):
            self._column(node)
        elif isinstance(node, exp.DataType):
            self._type(node)

    def _table(self, table: exp.Table) -> None:
        from sqlglot import exp

        if not isinstance(table.this, exp.Identifier):
            raise ToolError("a function is not taken in the place of a table")
        name, schema = self._folded(table.this), self._folded(table.args.get("db"))
        if not schema and any(self._folded(_name(cte)) == name for cte in _visible(table)):
            return
        if not name or table.catalog or is_system(name) or is_system(schema):
            raise ToolError(f"the table {name or '?'} is not for this; read the tables of the data")
        if self.tables is not None and f"{schema}.{name}".lstrip(".") not in self.allowed:
            itself = any(self._folded(_name(cte)) == name for cte in _around(table))
            hint = "; a part of WITH that reads itself needs WITH RECURSIVE" if itself else ""
            listed = ", ".join(self.tables)
            raise ToolError(f"there is no table {name!r} to read; there are {listed}{hint}")

    def _cte(self, cte: exp.CTE) -> None:
        """Its name is no table's, so that no two readings of a statement are possible."""
        name = cte.alias.translate(_ASCII)
        if is_system(name) or name in {t.translate(_ASCII) for t in self.allowed}:
            raise ToolError(
                f"a part of WITH may not be called {cte.alias!r}, which names a table: "
                "give it another name"
            )

    def _column(self, column: exp.Column) -> None:
        identifier = column.this
        bare = not column.table and not identifier.args.get("quoted")
        if self.dialect == "postgres" and bare and column.name.lower() in SESSION:
            raise ToolError(f"the function {column.name} is not taken here")

    def _type(self, kind: exp.DataType) -> None:
        """Types such as regclass look up the database's own tables."""
        from sqlglot import exp

        written = kind.sql(dialect=self.dialect)
        if kind.is_type(exp.DType.USERDEFINED) and _SYSTEM_TYPE.search(written.lower()):
            raise ToolError(f"the type {written} is not taken here")

    def _folded(self, identifier: exp.Expr | None) -> str:
        if identifier is None:
            return ""
        return folded(identifier.name, self.dialect, bool(identifier.args.get("quoted")))


def _visible(table: exp.Table) -> Iterator[exp.CTE]:
    """Parts of WITH that a name in the place of this table surely means, for both databases.

    Those of every statement around it; within a part itself only the parts before it, and the part
    itself where WITH is RECURSIVE. (SQLite lets a part read itself and later ones without that
    word, PostgreSQL later ones with it: a name that means either is taken for a table's.)
    """
    from sqlglot import exp

    node: exp.Expr = table
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With):
            yield from parent.expressions[: (node.index or 0) + bool(parent.recursive)]
        elif (own := parent.args.get("with_")) is not None and own is not node:
            yield from own.expressions
        node = parent


def _around(table: exp.Table) -> Iterator[exp.CTE]:
    """Parts of WITH that the table stands in."""
    from sqlglot import exp

    node: exp.Expr | None = table
    while node is not None:
        if isinstance(node, exp.CTE):
            yield node
        node = node.parent


def _name(cte: exp.CTE) -> exp.Expr | None:
    named: exp.Expr | None = cte.args["alias"].this
    return named
