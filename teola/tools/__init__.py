"""Tools: what a model may call, and everything that has to do with it.

Each name is imported when it is first used, so that who has no tools need not wait for them.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from teola.app_tool import component_tool
    from teola.errors import ToolError
    from teola.graph import ToolStep
    from teola.tools.base import Tool
    from teola.tools.context import IdempotencyKey, ToolContext
    from teola.tools.decision import Decision, PlannedCall
    from teola.tools.function_tool import tool
    from teola.tools.mcp_server import ToolServer, mcp_tools
    from teola.tools.sql_lookup import sql_lookup
    from teola.tools.tool_result import ToolResult
    from teola.tools.toolbox import Toolbox

__all__ = [
    "Decision",
    "IdempotencyKey",
    "PlannedCall",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "ToolServer",
    "ToolStep",
    "Toolbox",
    "component_tool",
    "mcp_tools",
    "sql_lookup",
    "tool",
]

_HOMES = {
    "Decision": "teola.tools.decision",
    "IdempotencyKey": "teola.tools.context",
    "PlannedCall": "teola.tools.decision",
    "Tool": "teola.tools.base",
    "ToolContext": "teola.tools.context",
    "ToolError": "teola.errors",
    "ToolResult": "teola.tools.tool_result",
    "ToolServer": "teola.tools.mcp_server",
    "ToolStep": "teola.graph",
    "Toolbox": "teola.tools.toolbox",
    "component_tool": "teola.app_tool",
    "mcp_tools": "teola.tools.mcp_server",
    "sql_lookup": "teola.tools.sql_lookup",
    "tool": "teola.tools.function_tool",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'teola.tools' has no attribute {name!r}")
    value = getattr(_import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
