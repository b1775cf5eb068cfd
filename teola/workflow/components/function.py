"""component(): any Python function, sync or async, as a component."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, get_args, get_origin, get_type_hints, overload

from pydantic import field_serializer

from teola.errors import TemplateError, UnknownName
from teola.graph import Op, Ref, ToolParams, Value
from teola.workflow.block import UNKNOWN_ITEMS, Block, Feed
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind

_KINDS: dict[object, Kind] = {str: Kind.TEXT, list[str]: Kind.TEXTS}
_SCHEMAS: Mapping[Kind, Mapping[str, Any]] = {
    Kind.TEXT: {"type": "string"},
    Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
}


class Options(TypedDict, total=False):
    """What `component` takes besides the function; see there."""

    outputs: Sequence[str] | str | None
    batched: str | None
    most: int | None
    effect: bool
    pure: bool
    timeout: float | None
    retries: int | None
    name: str | None
    inputs: Mapping[str, str] | None
    engine: str | None
    optional: bool


class FunctionConfig(Config):
    """function: what is called; in JSON its name, `module:qualified.name`."""

    function: Callable[..., Any]

    @field_serializer("function", when_used="json")
    def _named(self, function: Callable[..., Any]) -> str:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{function.__module__}:{name}"


class Function(Component):
    """Calls `function` with the names of its parameters; see `component`."""

    default_engine = "python"
    config_type = FunctionConfig

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        outputs: Sequence[str] | str | None = None,
        batched: str | None = None,
        most: int | None = None,
        effect: bool = False,
        pure: bool = False,
        timeout: float | None = None,
        retries: int | None = None,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        engine: str | None = None,
        optional: bool = False,
        **unknown: Any,
    ) -> None:
        label = getattr(function, "__name__", "function").strip("<>")
        for option in unknown:
            raise UnknownName("option", option, Options.__annotations__, f"component({label})")
        parameters = _parameters(function, label)
        hints = _hints(function)
        kinds = {p: _KINDS.get(hints.get(p), Kind.ANY) for p in parameters}
        self.needs = {p: kinds[p] for p, free in parameters.items() if not free}  # type: ignore[misc]
        self.may_use = {p: kinds[p] for p, free in parameters.items() if free}  # type: ignore[misc]
        names = [outputs] if isinstance(outputs, str) else list(outputs or [label])
        self.streams = yields(function)
        if self.streams:
            _check_stream(label, hints.get("return"), names, batched)
            kind = Kind.TEXT
        else:
            kind = _KINDS.get(hints.get("return"), Kind.ANY) if len(names) == 1 else Kind.ANY
        _check_tries(label, pure and not effect, timeout, retries)
        self.gives = dict.fromkeys(names, kind)  # type: ignore[misc]
        self.listed = len(names) == 1 and _is_list(hints.get("return"))
        _check_lists(label, parameters, hints, names, batched, most)
        super().__init__(
            name or label,
            engine=engine,
            inputs=inputs,
            optional=optional,
            function=function,
        )
        self.batched, self.most, self.pure = batched, most, pure
        self.timeout, self.retries = timeout, retries
        self.effect = effect  # type: ignore[misc]

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        for port in self.extra:
            if feed := block.may_read(port):
                inputs[port] = feed.ref
        params = ToolParams(
            block.config.function,
            outputs=tuple(self.outputs),
            item_inputs=(self.batched,) if self.batched else (),
            optional=tuple(self.extra),
            pure=self.pure and not self.effect,
            most=self.most,
            streams=self.streams,
            timeout=self.timeout,
            retries=self.retries,
            schemas=tuple(map(self._schema, self.outputs)),
        )
        cut = block.may_read(self.batched) if self.batched else None
        items = cut.items if cut else None
        call = block.add("call", Op.TOOL_CALL, inputs, tuple(self.outputs), params, items=items)
        for port in self.outputs:
            self._give(block, port, Ref(call, port), cut)

    def _schema(self, port: str) -> Mapping[str, Any]:
        """JSON schema of an output."""
        listed = self.listed or self.batched is not None or self.most is not None
        schema = _SCHEMAS.get(self.gives[port], {"type": "array"} if listed else {})
        return schema if self.most is None else {**schema, "maxItems": self.most}

    def _give(self, block: Block, port: str, ref: Ref, cut: Feed | None) -> None:
        """An output is as long as the list that the function is given in batches, at most `most`
        items long, a list of any length, or one value."""
        if cut is not None:
            block.give(port, ref, cut.items, open=cut.open)
        elif self.most is not None:
            block.give(port, ref, self.most)
        elif self.listed:
            block.give(port, ref, UNKNOWN_ITEMS, open=True)
        else:
            block.give(port, ref)


def _check_lists(
    label: str,
    parameters: Mapping[str, bool],
    hints: Mapping[str, Any],
    outputs: Sequence[str],
    batched: str | None,
    most: int | None,
) -> None:
    """Raise TemplateError unless what is said of lists can be."""
    if batched is not None and (batched not in parameters or len(outputs) > 1):
        raise TemplateError(
            f"component({label}): batched={batched!r} must be a parameter, with one output"
        )
    if batched is not None and hints.get(batched) in (str, int, float, bool, dict):
        raise TemplateError(
            f"component({label}): with batched={batched!r} it gets some of the items at once, as a "
            "list, and returns a list as long; annotate it so"
        )
    if most is not None and (most < 1 or len(outputs) > 1 or batched is not None):
        raise TemplateError(
            f"component({label}): most={most} must be at least 1, for one output that is a list "
            "(one that is batched is as long as its input)"
        )


def _is_list(hint: Any) -> bool:
    """Whether an annotation says that it is a list."""
    return hint is list or get_origin(hint) in (list, Sequence)


def _parameters(function: Callable[..., Any], label: str) -> dict[str, bool]:
    """Parameter names, and whether each has a default."""
    parameters = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TemplateError(f"component({label}): parameter {name!r} cannot be given by name")
        if parameter.kind is not parameter.VAR_KEYWORD:
            parameters[name] = parameter.default is not parameter.empty
    return parameters


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # annotations that only a type checker can resolve
        return {}


def yields(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator, sync or async."""
    inner = getattr(function, "__call__", None)  # noqa: B004 - of an object, its method
    return any(
        inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate)
        for candidate in (function, inner)
    )


def _check_stream(label: str, hint: Any, outputs: Sequence[str], batched: str | None) -> None:
    """Raise TemplateError unless what a generator function yields can be one text."""
    of = get_args(hint)
    if len(outputs) > 1 or batched is not None or (hint is not None and of and of[0] is not str):
        raise TemplateError(
            f"component({label}): it yields, so it must have one output, a text, of which it "
            "yields the pieces (`-> Iterator[str]`); for anything else let it return a list"
        )


def _check_tries(label: str, pure: bool, timeout: float | None, retries: int | None) -> None:
    """Raise TemplateError where a call could not be limited or repeated so."""
    if timeout is not None and not timeout > 0:
        raise TemplateError(f"component({label}): timeout must be positive, got {timeout}")
    if retries is None:
        return
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise TemplateError(f"component({label}): retries must be 0, 1, 2, ..., got {retries!r}")
    if retries and not pure:
        raise TemplateError(
            f"component({label}): retries={retries} calls it again after a failure, which may do "
            "twice what it does: say pure=True if that is harmless, or leave retries out"
        )


@overload
def component(function: Callable[..., Any], **options: Unpack[Options]) -> Function: ...
@overload
def component(
    function: None = None, **options: Unpack[Options]
) -> Callable[[Callable[..., Any]], Function]: ...
def component(
    function: Callable[..., Any] | None = None, **options: Unpack[Options]
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Make a component of a Python function; also a decorator.

    The function's parameters are its inputs by name (those with defaults may be absent), `outputs`
    names what it returns (a dict, if several; by default the function's own name). batched: this
    input is a list of independent items, which may be cut: each call gets some of them, as a list,
    and returns a list as long. most: what it returns is a list of at most so many items, and more
    fail the query; of a list without it, `UNKNOWN_ITEMS` are planned and any number is taken.
    effect: it changes the world, so its place in the template's order is kept. pure: it may be
    called again after a failure. timeout: seconds that a call may take; what a thread still does
    afterwards counts for nothing. retries: further calls of a pure function after any failure; left
    out, after those that another call may mend. engine: what runs it. optional: if it fails, the
    query goes on without it.

    Async functions run on Teola's event loop, others in a worker thread. A function that yields
    texts, sync or async, streams its output.
    """
    if function is not None:
        return Function(function, **options)
    return lambda wrapped: Function(wrapped, **options)
