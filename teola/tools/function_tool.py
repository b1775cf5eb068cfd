"""`@tool`: a typed Python function, sync or async, as a tool.

Its type hints say what arguments it takes, its docstring what it is for and what each argument
means (Google's, numpy's or Sphinx' style). pydantic makes the schema and the values: a `date`
parameter gets a date, a model gets a model. Parameters annotated `ToolContext` or `IdempotencyKey`
are not the model's to give.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, Union, Unpack, get_args, get_origin, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from teola.errors import InputError, UnknownName
from teola.tools.arguments import argument_at
from teola.tools.base import Tool, ToolOptions
from teola.tools.context import IdempotencyKey, ToolContext
from teola.tools.gate import Gate
from teola.tools.json_schema import JsonSchema, mapped, shown
from teola.tools.loop_life import here

LANGCHAIN: Final = "langchain_core"
"""The package of its classes; it is not imported here."""
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@overload
def tool(function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(
    function: None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function; also a decorator.

    name, description: by default the function's own. pure: it changes nothing, so it may be
    repeated, or begun before it is certain that it is needed; all others are effects. timeout_s:
    seconds that a try may take. retries: further tries after any failure, of a pure function or of
    one that takes an IdempotencyKey. at_once: calls that run at the same time, over all queries.
    approval: True, or a function of the arguments: a person has to agree first. most_chars: of the
    result's text. most_bytes: of the result as JSON; more is left out. most_argument_chars: of the
    arguments as JSON, with results in the place of references.

    Raises InputError for a function that a model could not call.
    """
    if function is not None:
        return _made(function, options)
    return lambda wrapped: _made(wrapped, options)


def _made(function: Callable[..., Any], options: ToolOptions) -> Tool:
    _check_own(function)
    label = options.get("name") or getattr(function, "__name__", "").strip("<>")
    called = f"tool {label!r}"
    check_known(called, options)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"{called}: it yields; let it return its result, such as a list")
    summary, about = _documented(function)
    call = _taken(function, called, about)
    return Tool(
        label,
        options.get("description") or summary,
        call.schema,
        call,
        keyed=bool(call.keys),
        gate=Gate(options.get("at_once")),
        further=call.problems,
        **common(options),
    )


def _check_own(function: object) -> None:
    """Raise InputError for what is no function, and say what makes a tool of LangChain's."""
    classes = type(function).__mro__
    if any(ancestor.__module__.partition(".")[0] == LANGCHAIN for ancestor in classes):
        raise InputError(
            f"a {classes[0].__name__} is an object of LangChain; make a tool of it: "
            "from_langchain(...), of teola.adapters"
        )
    if not callable(function):
        raise InputError(f"a tool is a function, got {function!r:.80}")


def check_known(called: str, options: Mapping[str, Any]) -> None:
    """Raises UnknownName for an option that tools have not."""
    for option in options:
        if option not in ToolOptions.__annotations__:
            raise UnknownName("option", option, ToolOptions.__annotations__, called)


def common(options: ToolOptions) -> dict[str, Any]:
    """Options that a Tool takes as they are."""
    ours = ("name", "description", "at_once")
    return {key: value for key, value in options.items() if key not in ours}


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Calls a function with arguments from a model.

    arguments: the model of them; its fields are numbered, since any name may be a parameter's.
    fields: parameter -> field. contexts, keys: parameters that get those.
    """

    function: Callable[..., Any]
    asynchronous: bool
    arguments: type[BaseModel]
    schema: JsonSchema
    fields: Mapping[str, str]
    contexts: tuple[str, ...]
    keys: tuple[str, ...]

    def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """What types and validators have to say beyond the schema."""
        try:
            self._parsed(arguments)
        except ValidationError as error:
            return [_told(detail) for detail in error.errors(include_url=False)]
        except (TypeError, ValueError, RecursionError):
            return ["arguments must be JSON"]
        return []

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """What the function returns. Sync ones run in threads."""
        parsed = self._parsed(arguments)
        values = {name: getattr(parsed, field) for name, field in self.fields.items()}
        values |= dict.fromkeys(self.contexts, context)
        values |= dict.fromkeys(self.keys, context.key)
        try:
            if self.asynchronous:
                return await self.function(**values)
            within = copy_context()
            value = await here().threads.run(lambda: within.run(_called, self.function, values))
            return await value if inspect.isawaitable(value) else value
        except GeneratorExit as error:  # a task that it leaves would never be seen to end
            raise RuntimeError("it raised GeneratorExit") from error

    def _parsed(self, arguments: Mapping[str, Any]) -> BaseModel:
        """By way of JSON, where a text may be a date although nothing is converted."""
        return self.arguments.model_validate_json(
            json.dumps(dict(arguments), allow_nan=False), strict=True
        )


def _called(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    try:
        return function(**values)
    except (StopIteration, GeneratorExit) as error:  # no future takes them
        raise RuntimeError(f"it raised {type(error).__name__}") from error


def _told(error: Any) -> str:
    where, message = argument_at(error["loc"]), error["msg"]
    return f"{where}: {message[:1].lower()}{message[1:]}, got {shown(error['input'])}"


# --- what a function takes --------------------------------------------------------------------


def _taken(function: Callable[..., Any], called: str, about: Mapping[str, str]) -> FunctionCall:
    """Its parameters, as a model and as a schema. Raises InputError."""
    hints = _hints(function, called)
    fields: dict[str, str] = {}
    declared: dict[str, Any] = {}
    contexts: list[str] = []
    keys: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _BY_NAME:
            raise InputError(f"{called}: parameter {name!r} cannot be given by name")
        if name not in hints:
            raise InputError(f"{called}: annotate {name!r}; its type is what a model is told")
        if _is(hints[name], ToolContext):
            contexts.append(name)
        elif _is(hints[name], IdempotencyKey):
            keys.append(name)
        else:
            fields[name] = f"p{len(fields)}"
            declared[fields[name]] = (hints[name], _field(parameter, hints[name], about))
    try:
        model = create_model("Arguments", __config__=_CONFIG, **declared)
        schema = mapped(model.model_json_schema(), _tidy)
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{called}: a parameter has no form in JSON: {first}") from None
    asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object, its method
    )
    return FunctionCall(function, asynchronous, model, schema, fields, tuple(contexts), tuple(keys))


_CONFIG: Final = ConfigDict(extra="forbid", frozen=True)


def _hints(function: Callable[..., Any], called: str) -> dict[str, Any]:
    routine = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(routine, include_extras=True)
    except (NameError, TypeError) as error:
        raise InputError(f"{called}: its annotations cannot be read: {error}") from None


def _is(hint: Any, type_: Any) -> bool:
    """Whether the hint is this type, or this type or None."""
    return hint is type_ or (get_origin(hint) in (Union, UnionType) and type_ in get_args(hint))


def _field(parameter: inspect.Parameter, hint: Any, about: Mapping[str, str]) -> Any:
    name = parameter.name
    more: dict[str, Any] = {"alias": name}
    described = any(
        isinstance(annotation, FieldInfo) and annotation.description
        for annotation in get_args(hint)
    )
    if name in about and not described:
        more["description"] = about[name]
    default = parameter.default
    if default is parameter.empty:
        return Field(**more)
    if _is_json(default):
        return Field(default, **more)
    return Field(default_factory=lambda: default, **more)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(to_jsonable_python(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Without titles, which repeat names, and closed: a field that nobody reads is a mistake."""
    kept = {key: value for key, value in schema.items() if key != "title"}
    if "properties" in kept:
        kept.setdefault("additionalProperties", False)
    return kept


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What its docstring says of it, and of its parameters."""
    text = inspect.getdoc(function)
    if not text:
        return "", {}
    from docstring_parser import ParseError, parse

    try:
        docstring = parse(text)
    except ParseError:  # then it is prose
        return text, {}
    about = {
        parameter.arg_name.lstrip("*"): parameter.description or ""
        for parameter in docstring.params
    }
    return (docstring.description or "").strip(), {
        k: " ".join(v.split()) for k, v in about.items() if v
    }
