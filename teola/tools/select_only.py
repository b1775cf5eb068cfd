"""What SQL a model may have run: one SELECT, parsed, over tables and by functions that are known.

What runs is written anew from what was parsed, so that both are the same. This is the first of two
walls: the connection it runs on can only read, for a while (`sql_lookup.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from teola.errors import ToolError
from teola.extras import needs

MOST_CHARACTERS: Final = 10_000
FORBIDDEN: Final = (
    "Alter", "Analyze", "Attach", "Command", "Copy", "Create", "Delete", "Describe", "Detach",
    "Drop", "Execute", "Export", "Grant", "Insert", "Into", "Kill", "LoadData", "Lock", "Merge",
    "Parameter", "Placeholder", "Pragma", "Put", "Get", "Refresh", "Rename", "Revoke",
    "SessionParameter", "Set", "Show", "Transaction", "TruncateTable", "Update", "Use",
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


def select_only(sql: str, dialect: str, tables: Collection[str] | None = None) -> str:
    """The statement as it may run. tables: that it may read; None: all but the database's own.
    Raises ToolError for anything that is more than one SELECT, with what to do about it."""
    with needs("sql", "the tool that looks up tables"):
        import sqlglot
        from sqlglot import exp
    if len(sql) > MOST_CHARACTERS:
        raise ToolError(f"the statement has {len(sql):,} characters; {MOST_CHARACTERS:,} are taken")
    try:
        parsed = [one for one in sqlglot.parse(sql, read=dialect) if one is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise ToolError(f"this is no SQL that can be read: {str(error).splitlines()[0]}") from None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise ToolError("give one SELECT and nothing else")
    tree = parsed[0]
    named = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    for node in tree.walk():
        kind = type(node).__name__
        if kind in FORBIDDEN:
            raise ToolError(f"{kind.upper()} is not taken: only a SELECT that reads is")
        if isinstance(node, exp.Anonymous):
            if node.name.lower() not in OTHERS:
                raise ToolError(f"the function {node.name} is not taken here")
        elif isinstance(node, exp.Func) and kind not in FUNCTIONS:
            raise ToolError(f"the function {node.sql_name()} is not taken here")
        elif isinstance(node, exp.Table):
            _check_table(node.name.lower(), node.db.lower(), node.catalog, named, tables)
    return tree.sql(dialect=dialect, comments=False)


def _check_table(
    name: str, schema: str, catalog: str, named: Collection[str], tables: Collection[str] | None
) -> None:
    if not schema and name in named:
        return
    own = name.startswith(("pg_", "sqlite_")) or schema.startswith(("pg_", "information_schema"))
    if not name or catalog or own:
        raise ToolError(f"the table {name or '?'} is not for this; read the tables of the data")
    if tables is not None and f"{schema}.{name}".lstrip(".") not in {t.lower() for t in tables}:
        raise ToolError(f"there is no table {name!r} to read; there are {', '.join(tables)}")
