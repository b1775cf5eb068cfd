"""component(): any Python function, sync or async, as a component."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_origin, get_type_hints, overload

from teola.errors import TemplateError, UnknownName
from teola.graph import Op, Ref, ToolParams, Value
from teola.workflow.build import UNKNOWN_ITEMS, Block, Feed
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
        batched: str | None = None,
        most: int | None = None,
        effect: bool = False,
        pure: bool = False,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        engine: str | None = None,
        optional: bool = False,
        **unknown: Any,
    ) -> None:
        label = getattr(function, "__name__", "function").strip("<>")
        for option in unknown:
            raise UnknownName("option", option, OPTIONS, f"component({label})")
        parameters = _parameters(function, label)
        hints = _hints(function)
        kinds = {p: _KINDS.get(hints.get(p), Kind.ANY) for p in parameters}
        self.needs = {p: kinds[p] for p, free in parameters.items() if not free}  # type: ignore[misc]
        self.may_use = {p: kinds[p] for p, free in parameters.items() if free}  # type: ignore[misc]
        given = [outputs] if isinstance(outputs, str) else list(outputs or [label])
        kind = _KINDS.get(hints.get("return"), Kind.ANY) if len(given) == 1 else Kind.ANY
        self.gives = dict.fromkeys(given, kind)  # type: ignore[misc]
        self.listed = len(given) == 1 and _is_list(hints.get("return"))
        _check_lists(label, parameters, hints, given, batched, most)
        super().__init__(
            name or label,
            engine=engine,
            inputs=inputs,
            optional=optional,
            function=function,
        )
        self.batched, self.most, self.pure = batched, most, pure
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
        )
        cut = block.may_read(self.batched) if self.batched else None
        items = cut.items if cut else None
        call = block.add("call", Op.TOOL_CALL, inputs, tuple(self.outputs), params, items=items)
        for port in self.outputs:
            self._give(block, port, Ref(call, port), cut)

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


OPTIONS: Final = tuple(list(inspect.signature(Function).parameters)[1:-1])


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
    names what it returns (a dict, if several; by default the function's own name). batched: this
    input is a list of independent items, which may be cut: each call gets some of them, as a list,
    and returns a list as long. most: what it returns is a list of at most so many items, and more
    fail the query; of a list without it, `UNKNOWN_ITEMS` are planned and any number is taken.
    effect: it changes the world, so its place in the template's order is kept. pure: it may be
    called again after a failure. Async functions run on Teola's event loop, others in a worker
    thread.
    """
    if function is not None:
        return Function(function, **options)
    return lambda wrapped: Function(wrapped, **options)
