"""component(): any Python function, sync or async, as a component."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints, overload

from teola.errors import TemplateError
from teola.graph import Op, Ref, ToolParams, Value
from teola.workflow.build import Block
from teola.workflow.component import Component, Config, Kind

_KINDS: dict[object, Kind] = {str: Kind.TEXT, list[str]: Kind.TEXTS}


class FunctionConfig(Config):
    """function: what is called."""

    function: Callable[..., Any]


class Function(Component):
    """Calls `function` with the names of its parameters; see `component`."""

    default_engine = "python"
    config_type = FunctionConfig

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        outputs: Sequence[str] | str | None = None,
        each: str | None = None,
        effect: bool = False,
        pure: bool = False,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        engine: str | None = None,
        optional: bool = False,
    ) -> None:
        label = getattr(function, "__name__", "function").strip("<>")
        parameters = _parameters(function, label)
        hints = _hints(function)
        kinds = {p: _KINDS.get(hints.get(p), Kind.ANY) for p in parameters}
        self.needs = {p: kinds[p] for p, free in parameters.items() if not free}  # type: ignore[misc]
        self.may_use = {p: kinds[p] for p, free in parameters.items() if free}  # type: ignore[misc]
        given = [outputs] if isinstance(outputs, str) else list(outputs or [label])
        kind = _KINDS.get(hints.get("return"), Kind.ANY) if len(given) == 1 else Kind.ANY
        self.gives = dict.fromkeys(given, kind)  # type: ignore[misc]
        if each is not None and (each not in parameters or len(given) > 1):
            raise TemplateError(
                f"component({label}): each={each!r} must be a parameter, with one output"
            )
        super().__init__(
            name or label,
            engine=engine,
            inputs=inputs,
            optional=optional,
            function=function,
        )
        self.each, self.pure = each, pure
        self.effect = effect  # type: ignore[misc]

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        for port in self.extra:
            if feed := block.may_read(port):
                inputs[port] = feed.ref
        params = ToolParams(
            block.config.function,
            outputs=tuple(self.outputs),
            item_inputs=(self.each,) if self.each else (),
            optional=tuple(self.extra),
            pure=self.pure and not self.effect,
        )
        feed = block.may_read(self.each) if self.each else None
        items = feed.items if feed else None
        call = block.add("call", Op.TOOL_CALL, inputs, tuple(self.outputs), params, items=items)
        for port in self.outputs:
            block.give(port, Ref(call, port), items)


def _parameters(function: Callable[..., Any], label: str) -> dict[str, bool]:
    """Parameter names, and whether each has a default."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TemplateError(f"component({label}): parameter {name!r} cannot be given by name")
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[name] = parameter.default is not parameter.empty
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # annotations that only a type checker can resolve
        return {}


@overload
def component(function: Callable[..., Any], **options: Any) -> Function: ...
@overload
def component(
    function: None = None, **options: Any
) -> Callable[[Callable[..., Any]], Function]: ...
def component(
    function: Callable[..., Any] | None = None, **options: Any
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Make a component of a Python function; also a decorator.

    The function's parameters are its inputs by name (those with defaults may be absent), `outputs`
    names what it returns (a dict, if several; by default the function's own name). each: this input
    is a list of independent items; the function gets some of them and returns a list aligned with
    what it got. effect: it changes the world, so its place in the template's order is kept. pure:
    it may be called again after a failure. Async functions run on Teola's event loop, others in a
    worker thread.
    """
    if function is not None:
        return Function(function, **options)
    return lambda wrapped: Function(wrapped, **options)
