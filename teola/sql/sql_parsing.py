"""Reading statements with sqlglot: calls keep their names, and nothing is translated.

sqlglot has a class for most functions, and writes some of them under another name or with other
arguments. Here a call stays a name with arguments, so a dialect lists functions as the database
spells them, and what runs is what was written. Only functions with words between their arguments,
as in CAST(a AS b), are read by sqlglot's own parsers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from teola.errors import ToolError
from teola.extras import needs
from teola.sql.dialects.dialect import SqlDialect

if TYPE_CHECKING:
    from sqlglot import Parser, exp
    from sqlglot.tokenizer_core import Token

MOST_CHARACTERS: Final = 10_000
DEEPEST: Final = 200
"""Brackets inside brackets: a parser and a database go down into them by recursion."""
MOST_NODES: Final = 20_000
_TOKEN: Final = re.compile(r"<Token token_type: [\w.]+, text: (.*?), line: [^>]*>")
"""A token as sqlglot's errors print it."""


def parsed_statement(sql: str, dialect: SqlDialect) -> exp.Expr:
    """The one statement of a text. Raises ToolError."""
    with needs("sql", "the filter of SQL statements"):
        import sqlglot  # noqa: F401
    if len(sql) > MOST_CHARACTERS:
        raise ToolError(f"the statement has {len(sql):,} characters; {MOST_CHARACTERS:,} are taken")
    if "\0" in sql:
        raise ToolError("the statement has a NUL character in it: leave it out")
    if _depth(sql) > DEEPEST:
        raise ToolError(f"brackets are nested deeper than {DEEPEST}: write it flatter")
    try:
        statements = _statements(sql, dialect)
    except Exception as error:  # noqa: BLE001 - the parser fails in many ways on what is no SQL
        lines = str(error).splitlines() or [type(error).__name__]
        message = _TOKEN.sub(lambda token: repr(token[1]), lines[0])
        raise ToolError(f"this is no SQL that can be read: {message}") from None
    if len(statements) != 1:
        raise ToolError("give one SELECT and nothing else")
    return statements[0]


def statement_text(tree: exp.Expr, dialect: SqlDialect) -> str:
    """A statement as text, without comments; the tree is of no use afterwards. Raises ToolError."""
    from sqlglot.errors import ErrorLevel

    try:
        # What this dialect has not would be left out, and the statement would mean something else.
        return tree.sql(
            dialect=dialect.name,
            copy=False,  # a copy takes longer than reading does
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,
        )
    except Exception as error:  # noqa: BLE001 - as above
        lines = str(error).splitlines() or [type(error).__name__]
        raise ToolError(f"this is no SQL that can be written: {lines[0]}") from None


def _depth(sql: str) -> int:
    depth = deepest = 0
    for character in sql:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _statements(sql: str, dialect: SqlDialect) -> list[exp.Expr]:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError

    sqlglot_dialect = Dialect.get_or_raise(dialect.name)
    tokens = sqlglot_dialect.tokenize(sql)
    try:
        trees = _parser(dialect).parse(tokens, sql)
    except ParseError:
        if (bracketed := _limits_in_brackets(sql, tokens)) is None:
            raise
        trees = _parser(dialect).parse(sqlglot_dialect.tokenize(bracketed), bracketed)
    return [tree for tree in trees if tree is not None]


def _limits_in_brackets(sql: str, tokens: Sequence[Token]) -> str | None:
    """The statement with brackets around what follows LIMIT: `LIMIT 4 - a % 2 OFFSET 1` is right,
    and sqlglot takes the % for a percentage. None: there is nothing like it."""
    from sqlglot.tokenizer_core import TokenType

    cuts: list[int] = []
    for at, token in enumerate(tokens):
        if token.token_type is not TokenType.LIMIT:
            continue
        depth, end, operators = 0, at + 1, False
        while end < len(tokens):
            kind = tokens[end].token_type
            if kind in (TokenType.L_PAREN, TokenType.L_BRACKET):
                depth += 1
            elif kind in (TokenType.R_PAREN, TokenType.R_BRACKET):
                if not depth:
                    break
                depth -= 1
            elif not depth and kind in (TokenType.OFFSET, TokenType.SEMICOLON, TokenType.COMMA):
                break
            operators |= kind is TokenType.MOD
            end += 1
        if operators and end > at + 1:
            cuts += [tokens[at + 1].start, tokens[end - 1].end + 1]
    if not cuts:
        return None
    pieces, before = [], 0
    for turn, cut in enumerate(sorted(cuts)):
        pieces += [sql[before:cut], ")" if turn % 2 else "("]
        before = cut
    return "".join([*pieces, sql[before:]])


def _parser(dialect: SqlDialect) -> Parser:
    from sqlglot.dialects.dialect import Dialect

    parser_class: Any = _parser_class(dialect)
    parser: Parser = parser_class(dialect=Dialect.get_or_raise(dialect.name), max_nodes=MOST_NODES)
    return parser


@cache
def _parser_class(dialect: SqlDialect) -> type[Parser]:
    """The dialect's parser without classes of functions."""
    from sqlglot.dialects.dialect import Dialect

    base: Any = Dialect.get_or_raise(dialect.name).parser_class
    functions = {n: f for n, f in base.FUNCTION_PARSERS.items() if n.lower() in dialect.grammar}
    parser_class: type[Parser] = type(
        f"Plain{base.__name__}",
        (base,),
        {
            "__slots__": (),
            "FUNCTIONS": {},
            "FUNCTION_PARSERS": functions,
            "_warn_unsupported": lambda parser: None,  # it is refused, and needs no line in a log
        },
    )
    return parser_class
