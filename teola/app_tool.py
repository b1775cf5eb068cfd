"""`component_tool`: an application, or a component, as a tool.

Each call is a query. Called within another one, as by an agent, it is a part of that: it runs on
its runtime, for its tenant, has at most its time, and stands in its trace
(docs/decisions/0018-queries-in-queries.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Unpack

from teola.app import App
from teola.errors import InputError, UnknownName
from teola.query.result import jsonable
from teola.query.spec import DEADLINE_S, Overrides
from teola.runtime.live.nesting import calling
from teola.tools.base import Tool, ToolOptions
from teola.tools.context import ToolContext
from teola.tools.function_tool import check_known, common
from teola.tools.gate import Gate
from teola.tools.json_schema import JsonSchema
from teola.tools.loop_life import here
from teola.workflow.component import Component
from teola.workflow.inputs import Input
from teola.workflow.kinds import Kind

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AppCall:
    """Runs an application. given: inputs that the model does not choose."""

    app: App
    given: Mapping[str, Any]
    overrides: Overrides
    deadline_s: float

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Its only output, or all by name."""
        result = await self.app.arun(
            {**arguments, **self.given},
            overrides=self.overrides,
            deadline_s=self.deadline_s,
            tenant=None if calling.get() is not None else context.tenant,
        )
        outputs = await here().aside(lambda: jsonable(result.outputs), result.outputs)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def component_tool(
    of: App | Component,
    *,
    given: Mapping[str, Any] = NOTHING,
    overrides: Overrides = NOTHING,
    about: Mapping[str, str] = NOTHING,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Make a tool of an application, or of a component that starts from texts.

    given: inputs that are the same in every call, such as a collection; the others are the model's
    to give. overrides: parameters of components. about: what inputs mean, for the model. The other
    options are those of `tool`; name and description are by default the application's.

    Raises InputError, UnknownName, and TemplateError for a component that cannot run alone.
    """
    app = _alone(of) if isinstance(of, Component) else of
    name = options.get("name") or app.name
    called = f"tool {name!r}"
    check_known(called, options)
    inputs = {key: declared for key, declared in app.declared.items() if key not in given}
    for key in about:
        if key not in inputs:
            raise UnknownName("input", key, inputs, called)
    longest = max(DEADLINE_S, (options.get("timeout_s") or 0.0) + 1.0)
    call = AppCall(app, given, overrides, longest)
    return Tool(
        name,
        options.get("description") or app.description,
        _schema(called, inputs, given, about),
        call,
        gate=Gate(options.get("at_once")),
        **common(options),
    )


def _schema(
    called: str,
    inputs: Mapping[str, Input],
    given: Mapping[str, Any],
    about: Mapping[str, str],
) -> JsonSchema:
    properties: dict[str, Any] = {}
    required = []
    for name, declared in inputs.items():
        kind = Kind(declared.kind)
        if kind is Kind.DOCUMENTS:
            if given.get("collection") is None:
                raise InputError(
                    f"{called}: a model has no documents to give; say which it reads, by "
                    f"given={{'collection': ...}} or given={{{name!r}: ...}}"
                )
            continue
        properties[name] = {
            **_KINDS[kind],
            **({"description": about[name]} if name in about else {}),
        }
        if not declared.optional:
            required.append(name)
        elif declared.default is not None:
            properties[name]["default"] = declared.default
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


_KINDS: Mapping[Kind, JsonSchema] = {
    Kind.TEXT: {"type": "string", "minLength": 1},
    Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
    Kind.ANY: {},
}


def _alone(component: Component) -> App:
    """The component as an application of its own. Raises InputError, TemplateError."""
    inputs: dict[str, Input] = {}
    for ports, needed in ((component.required, True), (component.extra, False)):
        for port, name in ports.items():
            kind = component.kind_of(port)
            if kind in _KINDS:
                inputs[name] = Input(kind) if needed else Input(kind, None)
            elif needed:
                raise InputError(
                    f"component {component.name!r} starts from {kind.value}, which no model can "
                    "give: make a tool of an App that starts from texts"
                )
    outputs = {name: name for name in component.outputs.values()}
    return App(component.name, component, inputs=inputs, outputs=outputs)
