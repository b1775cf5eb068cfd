"""Function agent: a model that calls functions (paper, figure 2b).

question ─▶ plan ─┬▶ calculator ───┬▶ answer, or a further plan
                  ├▶ sql_lookup ───┤
                  ├▶ web_search ───┤
                  ╰▶ time (MCP) ───╯

The calls of a plan begin while the rest of it is still being written. The database is the secret
LOOKUP_DATABASE (of the run, or of the environment); what is searched is the engine `websearch`.
"""

import ast
import math
import operator
import sys
from collections.abc import Callable

from teola import Agent, App, Input, WebSearch
from teola.tools import ToolError, component_tool, mcp_tools, sql_lookup, tool

OPERATIONS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
}
FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}
LONGEST = 500


@tool(pure=True)
def calculator(expression: str) -> float:
    """Work out a formula, such as (3 + 4) * sqrt(2) / 100.

    Args:
        expression: numbers, + - * / // % **, parentheses, and abs, ceil, exp, floor, log, max, min,
            round, sqrt
    """
    if len(expression) > LONGEST:
        raise ToolError(f"a formula has up to {LONGEST} characters")
    try:
        return _worked_out(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        raise ToolError(f"{expression!r} is no formula that can be worked out") from None
    except (ArithmeticError, TypeError) as error:
        raise ToolError(f"{expression!r} has no value: {error}") from None


def _worked_out(node: ast.expr) -> float:
    """Its value. Raises ValueError for what is no formula."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value) if abs(value) > 2**53 else value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_worked_out(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _worked_out(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](float(_worked_out(left)), float(_worked_out(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*map(_worked_out, args))
    raise ValueError


web_search = component_tool(
    App(
        "web_search",
        WebSearch(top_k=4, inputs={"queries": "query"}),
        inputs={"query": "text"},
        outputs={"hits": "hits"},
        description="Search the web: texts that may answer a query, with where they stand.",
    ),
    about={"query": "In a few words."},
    pure=True,
    most_chars=8000,
)
clock = mcp_tools(
    name="time",
    command=[sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"],
    only=["get_current_time", "convert_time"],
    pure=["get_current_time", "convert_time"],
    timeout_s=10,
)

app = App(
    "function-agent",
    Agent([calculator, sql_lookup(), web_search, clock]),
    inputs={
        "question": "text",
        "history": Input("text", default=None),
        "context": Input("any", default=None),
    },
    outputs={"answer": "answer", "steps": "steps"},
    description="An agent with a calculator, a database to read, web search and the time",
)
