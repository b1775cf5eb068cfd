"""The configuration reference, written from the schema itself: it can't say anything else."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from teola.config import Configuration

_HEAD: Final = """\
# Configuration reference

A file for `teola serve --config FILE`, TOML or YAML. `teola config init` writes one with all
defaults, `teola config check FILE` looks one over, and `teola config reference` writes this page
from the schema. A key that is not below is refused, with the nearest one that is. `${NAME}` in a
text stands for the environment's variable.
"""
_TABLES: Final[dict[str, str]] = {
    "engines": "One table for each engine, by the name that applications use: `[engines.NAME]`.",
    "databases": "One table for each SQL database, by the name that applications use as an engine: "
    "`[databases.NAME]`. It has a `path` or a `secret`, and [is only read](text-to-sql.md).",
    "tables": "One table for each table that clients may ask over by SQL, by the name that queries "
    "have for it: `[tables.NAME]`. It has a `path` or a `secret`; see "
    "[Over HTTP](tables.md#over-http).",
    "tools": "One table for each server of tools (MCP), by the name under which agents ask for it: "
    "`[tools.NAME]`. It has a `command` or a `url`.",
    "prices": "One table for each model, by the name that its server has for it (of a model "
    "without a name: by its engine): `[prices.MODEL]`. Money for a million tokens, in any "
    "currency.",
    "budgets": "One table for each application that is bounded, by its name: `[budgets.APP]`. What "
    "all its queries may take in a day of UTC; [keys](serving.md) have budgets, too.",
}


def markdown() -> str:
    """Every table of the file, with each key's type, default and meaning."""
    parts = [_HEAD, "## Top level\n", _table(Configuration)]
    for name, field in Configuration.model_fields.items():
        model = _model(field)
        if model is not None:
            title = f"{name}.NAME" if name in _TABLES else name
            parts += [f"## [{title}]\n", _TABLES.get(name, _about(model)) + "\n", _table(model)]
    return "\n".join(parts)


def _table(model: type[BaseModel]) -> str:
    rows = [
        f"| `{name}` | {_kind(field.annotation)} | {_default(field)} | {field.description or ''} |"
        for name, field in model.model_fields.items()
        if _model(field) is None
    ]
    return "\n".join(["| key | type | default | |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """The table that a key holds, or that each of its keys holds."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _about(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


_NAMES: Final[dict[Any, str]] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"
}  # fmt: skip


def _kind(kind: Any) -> str:
    """A type as people call it."""
    if kind in _NAMES:
        return _NAMES[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _kind(args[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(arg) for arg in args if arg is not type(None))
    if origin is list:
        return f"list of {_kind(args[0])}s"
    if origin is dict:
        return "table" if args[1] is Any else f"table of {_kind(args[1])}s"
    return " or ".join(_values(args)) if args else str(kind)


def _values(args: tuple[Any, ...]) -> Iterator[str]:
    for arg in args:
        yield f"`{arg}`"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or value == {}:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"
