"""Reading statements with sqlglot: calls keep their names, and nothing is translated.

sqlglot has a class for most functions, and writes some of them under another name or with other
arguments. Here a call stays a name with arguments, so a dialect lists functions as the database
spells them, and what runs is what was written. Only functions with words between their arguments,
as in CAST(a AS b), are read by sqlglot's own parsers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from teola.errors import ToolError
from teola.extras import needs
from teola.sql.dialects.dialect import SqlDialect, names

if TYPE_CHECKING:
    from sqlglot import Parser, exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.tokenizer_core import Token

MOST_CHARACTERS: Final = 10_000
DEEPEST: Final = 200
"""Brackets inside brackets: a parser and a database go down into them by recursion."""
MOST_NODES: Final = 20_000
_TOKEN: Final = re.compile(r"<Token token_type: [\w.]+, text: (.*?), line: [^>]*>")
"""A token as sqlglot's errors print it."""
_ASCII: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_QUOTED: Final = names("STRING IDENTIFIER")
"""Kinds of tokens whose case counts."""
_SPELLED: Final = names(
    """
    BIT_STRING BYTE_STRING DOLLAR HEREDOC_STRING HEX_STRING HINT NATIONAL_RAW_STRING NATIONAL_STRING
    PARAMETER RAW_STRING UNICODE_STRING
    """
)
"""Kinds of tokens at which the parser looks at the text, or whose quotes are no part of theirs."""
_SPACED: Final = names("COMMA DPIPE EQ GT GTE LT LTE L_PAREN NEQ PLUS R_PAREN SEMICOLON SLASH")
"""Kinds of tokens that mean the same with blanks around them and without."""


class ParsedStatement(NamedTuple):
    """A statement as it was read. tokens: without the semicolons at its end; None: the tree may
    have come from more than its tokens."""

    tree: exp.Expr
    tokens: Sequence[Token] | None


def parsed_statement(sql: str, dialect: SqlDialect) -> exp.Expr:
    """The one statement of a text. Raises ToolError."""
    return read_statement(sql, dialect).tree


def read_statement(
    sql: str, dialect: SqlDialect, known: ParsedStatement | None = None
) -> ParsedStatement:
    """The one statement of a text. known: a reading of another text, which is returned where this
    text has the same tokens: the parser sees nothing else. Raises ToolError."""
    with needs("sql", "the filter of SQL statements"):
        import sqlglot  # noqa: F401
    if len(sql) > MOST_CHARACTERS:
        raise ToolError(f"the statement has {len(sql):,} characters; {MOST_CHARACTERS:,} are taken")
    if "\0" in sql:
        raise ToolError("the statement has a NUL character in it: leave it out")
    if _depth(sql) > DEEPEST:
        raise ToolError(f"brackets are nested deeper than {DEEPEST}: write it flatter")
    try:
        tokens = _tokens(sql, dialect)
        if known is not None and known.tokens is not None and _alike(known.tokens, tokens):
            return known
        statements, plain = _statements(sql, tokens, dialect)
    except Exception as error:  # noqa: BLE001 - the parser fails in many ways on what is no SQL
        lines = str(error).splitlines() or [type(error).__name__]
        message = _TOKEN.sub(lambda token: repr(token[1]), lines[0])
        raise ToolError(f"this is no SQL that can be read: {message}") from None
    if len(statements) != 1:
        raise ToolError("give one SELECT and nothing else")
    return ParsedStatement(statements[0], _ended(tokens) if plain else None)


def statement_text(tree: exp.Expr, dialect: SqlDialect) -> str:
    """A statement as text, without comments; the tree is of no use afterwards. Raises ToolError."""
    from sqlglot.errors import ErrorLevel

    try:
        # What this dialect has not would be left out, and the statement would mean something else.
        writer = _generator_class(dialect)(
            dialect=dialect.name,
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,
        )
        # A copy takes longer than reading does.
        return str(writer.generate(tree, copy=False))
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


def _loaded(dialect: SqlDialect) -> Dialect:
    """sqlglot's own. While another thread imports it, its registry has half of it, with the parser
    and the generator of no dialect, and what is made of those is kept: so wait for the import."""
    from sqlglot.dialects.dialect import Dialect

    with suppress(ModuleNotFoundError):  # of a plugin, which the registry imports
        import_module(f"sqlglot.dialects.{dialect.name}")
    return Dialect.get_or_raise(dialect.name)


def _tokens(sql: str, dialect: SqlDialect) -> list[Token]:
    return _loaded(dialect).tokenize(sql)


def _statements(sql: str, tokens: list[Token], dialect: SqlDialect) -> tuple[list[exp.Expr], bool]:
    """The statements of a text, and whether they came from these tokens and nothing else."""
    from sqlglot.errors import ParseError

    plain = not any(token.comments for token in tokens) and _SPELLED.isdisjoint(
        kind.name for kind in {token.token_type for token in tokens}
    )
    try:
        trees = _parser(dialect).parse(tokens, sql)
    except ParseError:
        if (bracketed := _limits_in_brackets(sql, tokens)) is None:
            raise
        trees, plain = _parser(dialect).parse(_tokens(bracketed, dialect), bracketed), False
    return [tree for tree in trees if tree is not None], plain


def _ended(tokens: Sequence[Token]) -> Sequence[Token]:
    """Tokens without the semicolons at their end."""
    end = len(tokens)
    while end and tokens[end - 1].token_type.name == "SEMICOLON":
        end -= 1
    return tokens[:end]


def _alike(tokens: Sequence[Token], others: Sequence[Token]) -> bool:
    """Whether a parser reads the same from both. Case and blanks may differ where neither the
    parser nor a check nor a database looks at them."""
    if len(tokens) != len(others):
        return False
    before, before_other = tokens[0], others[0]
    for token, other in zip(tokens, others, strict=True):
        kind = token.token_type
        if kind is not other.token_type:
            return False
        if token.text != other.text and (
            kind.name in _QUOTED or token.text.translate(_ASCII) != other.text.translate(_ASCII)
        ):
            return False
        touches, touches_too = before.end + 1 == token.start, before_other.end + 1 == other.start
        if touches is not touches_too and _SPACED.isdisjoint((kind.name, before.token_type.name)):
            return False
        before, before_other = token, other
    return True


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
    parser_class: Any = _parser_class(dialect)
    parser: Parser = parser_class(dialect=_loaded(dialect), max_nodes=MOST_NODES)
    return parser


@cache
def _parser_class(dialect: SqlDialect) -> type[Parser]:
    """The dialect's parser without classes of functions."""
    base: Any = _loaded(dialect).parser_class
    functions = {n: f for n, f in base.FUNCTION_PARSERS.items() if n.lower() in dialect.grammar}
    parser_class: type[Parser] = type(
        f"Plain{base.__name__}",
        (base,),
        {
            "__slots__": (),
            "FUNCTIONS": {},
            "FUNCTION_PARSERS": functions,
            "LAMBDAS": _arrows(base, dialect),
            "_warn_unsupported": lambda parser: None,  # it is refused, and needs no line in a log
        },
    )
    return parser_class


def _arrows(base: Any, dialect: SqlDialect) -> dict[Any, Any]:
    """What an arrow in a call is: without lambdas, `f(data -> 'crew')` is a step into JSON."""
    from sqlglot.tokenizer_core import TokenType

    if "Lambda" in dialect.nodes:
        return dict(base.LAMBDAS)
    return {kind: read for kind, read in base.LAMBDAS.items() if kind is not TokenType.ARROW}


@cache
def _generator_class(dialect: SqlDialect) -> Any:
    """The dialect's generator without translations, which expect classes of functions: they make
    one argument of `string_agg(DISTINCT kind, ',')`, and lose WITHIN GROUP and IGNORE NULLS."""
    from sqlglot import exp
    from sqlglot.generator import Generator

    base: Any = _loaded(dialect).generator_class

    def written_lambda(writer: Any, node: exp.Lambda) -> str:
        parameters = {name.name.lower() for name in node.expressions}
        used = {name.name.lower() for name in node.this.find_all(exp.Identifier)}
        if len(parameters) == 1 and not parameters & used:  # f(data -> 'crew') steps into JSON
            return str(Generator.lambda_sql(writer, node))
        return str(base.lambda_sql(writer, node))

    changed = {
        "MULTI_ARG_DISTINCT": True,
        "withingroup_sql": Generator.withingroup_sql,
        "ignorenulls_sql": Generator.ignorenulls_sql,
        "lambda_sql": written_lambda,
    }
    return type(f"Plain{base.__name__}", (base,), changed)
