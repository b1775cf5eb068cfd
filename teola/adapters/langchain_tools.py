"""Tools, from LangChain and to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from teola.adapters.langchain_values import received
from teola.errors import InputError, ToolError
from teola.extras import needs
from teola.runtime.default_runtime import default_runtime
from teola.tools.base import Tool, ToolOptions
from teola.tools.context import ToolContext
from teola.tools.foreign_schema import check_foreign
from teola.tools.function_tool import check_known, common
from teola.tools.gate import Gate
from teola.tools.loop_life import here

with needs("langchain", "teola.adapters.langchain"):
    from langchain_core.tools import BaseTool, StructuredTool, ToolException


def tool_of(of: BaseTool, options: ToolOptions) -> Tool:
    """A tool of LangChain's as one of ours. Raises InputError, UnknownName."""
    name = options.get("name") or of.name
    called = f"tool {name!r}"
    check_known(called, options)
    schema = _schema_of(of)
    if hidden := _hidden(of, schema):
        listed = ", ".join(sorted(hidden))
        raise InputError(f"{called} takes {listed}, which only LangChain's own agents give")
    about = options.get("description") or of.description
    carry_out, gate = _ToolCall(of), Gate(options.get("at_once"))
    return Tool(name, about, check_foreign(schema), carry_out, gate=gate, **common(options))


def _hidden(of: BaseTool, schema: Mapping[str, Any]) -> set[str]:
    """Arguments that the model does not give."""
    if of.args_schema is None or isinstance(of.args_schema, dict):
        return set()
    every: Any = of.get_input_schema()
    fields = every.model_fields if hasattr(every, "model_fields") else every.__fields__
    return set(fields) - set(schema.get("properties", ()))


def _schema_of(of: BaseTool) -> dict[str, Any]:
    if of.args_schema is None:
        return {"type": "object", "properties": of.args, "required": list(of.args)}
    schema: Any = of.tool_call_schema
    if isinstance(schema, dict):
        return schema
    json_schema: dict[str, Any] = (
        schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema.schema()
    )
    return json_schema


class _ToolCall:
    """Carries out a tool. What the tool would have its own agents read of a failure is told to
    ours, which also know that it is one."""

    def __init__(self, of: BaseTool) -> None:
        self._handled = of.handle_tool_error
        self._of = of.model_copy(update={"handle_tool_error": None})

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        try:
            returned = await self._of.ainvoke(dict(arguments))
            return await here().aside(partial(received, returned), returned)
        except ToolException as error:
            raise ToolError(self._told(error)) from error

    def _told(self, error: ToolException) -> str:
        handled: Any = self._handled
        if callable(handled):
            handled = handled(error)
        return handled if isinstance(handled, str) else str(error) or "it gives no reason"


def structured_tool(of: Tool) -> StructuredTool:
    """A tool of ours as one of LangChain's: its agents read the text, and the value goes along as
    artifact. Raises InputError."""
    if of.approval is True:
        raise InputError(
            f"tool {of.name!r} needs a person's approval, for which LangChain does not ask: make "
            "one without, and let its agent ask"
        )

    async def call(**arguments: Any) -> tuple[str, Any]:
        if of.needs_approval(arguments):
            raise ToolException(f"{of.name} was not called: a person has to agree to that")
        result = await of.call(arguments)
        if result.failed:
            raise ToolException(result.text)
        return result.text, result.value

    def wait(**arguments: Any) -> tuple[str, Any]:
        return default_runtime().start(call(**arguments)).result()

    return StructuredTool(
        name=of.name,
        description=of.description,
        args_schema=dict(of.schema),
        func=wait,
        coroutine=call,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )
