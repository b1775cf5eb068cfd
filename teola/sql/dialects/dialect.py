"""What a dialect of SQL brings: the names that the filter takes, as the database spells them."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_ASCII: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True, eq=False)
class SqlDialect:
    """See docs/add-a-dialect.md. All names are in lower case.

    name: sqlglot's. functions: that may be called anywhere. row_functions: that may also stand in
    the place of a table; what they give comes from their arguments. series: that make rows of
    nothing; their bounds have to be constants. widths: functions whose result is as long as an
    argument says, with the place of that argument (from 0) and of the text that it pads or repeats.
    formats: functions with a format text of widths, with its place. grammar: functions with words
    between their arguments, as in CAST(a AS b). nodes: kinds of sqlglot's nodes beside those of
    all dialects. session: bare words that tell about the session. system: start of names of
    the database's own tables and schemas. hidden_columns: that every table has and that tell about
    the storage. main: the schema of tables without one, where that is certain. quoted_folds:
    whether names in quotes are compared without case, too. texts_in_quotes: whether a name in
    double quotes that is no column is a text. methods: whether a.f() calls f(a). fields_call:
    whether a.f does, where a has no field f. files_as_tables: whether a name of a table may be a
    file. types: of the database's own types those that sqlglot takes for somebody's; other such
    types have to be some column's, since every table is a type, too (none: types tell nothing).
    """

    name: str
    functions: frozenset[str]
    row_functions: frozenset[str]
    series: frozenset[str]
    widths: Mapping[str, tuple[int, int]]
    formats: Mapping[str, int]
    grammar: frozenset[str]
    nodes: frozenset[str]
    session: frozenset[str]
    system: re.Pattern[str]
    hidden_columns: frozenset[str] = frozenset()
    free_columns: frozenset[str] = frozenset()
    main: str = ""
    quoted_folds: bool = True
    texts_in_quotes: bool = False
    methods: bool = False
    fields_call: bool = False
    files_as_tables: bool = False
    types: frozenset[str] = frozenset()
    callable: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        everything = self.functions | self.row_functions | self.series
        object.__setattr__(self, "callable", everything | self.widths.keys() | self.formats.keys())

    def folded(self, name: str, quoted: bool = False) -> str:
        """A name as the database compares it."""
        return name if quoted and not self.quoted_folds else name.translate(_ASCII)

    def is_system(self, name: str) -> bool:
        """Whether a table or a schema of that name is the database's own."""
        return self.system.match(name.translate(_ASCII)) is not None


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


COMMON: Final = names(
    """
    abs acos asin atan atan2 avg ceil ceiling coalesce concat concat_ws cos count cume_dist degrees
    dense_rank exp first_value floor lag last_value lead length ln log log10 lower ltrim max min mod
    nth_value ntile nullif octet_length percent_rank pi pow power radians rank replace round
    row_number rtrim sign sin sqrt string_agg substr substring sum tan trim trunc upper
    """
)
"""Functions that all three have and that cost little."""
NODES: Final = names(
    """
    Add Alias All And Any Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift
    Boolean CTE Case Cast Collate Column CurrentDate CurrentTime CurrentTimestamp DPipe DataType
    DataTypeParam Distinct Div EQ Escape Except Exists Fetch Filter From GT GTE Group Having
    Identifier If In Intersect Is JSONExtract JSONExtractScalar JSONPath JSONPathKey JSONPathRoot
    JSONPathSubscript Join LT LTE Like Limit LimitOptions Literal Mod Mul NEQ Neg Not Null
    NullSafeEQ NullSafeNEQ Offset Or Order Ordered Paren Select Star Sub Subquery Table TableAlias
    Tuple Union Values Var Where Window WindowSpec With HexString
    """
)
"""Kinds of sqlglot's nodes that do nothing but read, in every dialect. A call is an Anonymous node,
whose name is looked up in a dialect's functions."""
