"""The applications that are attacked: an agent for each kind of tool, and some without tools.

`teola serve` loads them. What a tool returns is made before it is called (`preparing`), in a
thread: the loop is measured with what Teola does to the value, and not with the making of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from experiments.doors.prepared import PREPARED
from teola import Agent, App, Generate, WebSearch, component
from teola.tools import ToolServer, component_tool, mcp_tools, sql_lookup, tool

QUESTION: Final = {"question": "text"}
ANSWER: Final = {"answer": "answer"}
MCP_URL: Final = "DOORS_MCP_URL"
SQLITE: Final = "DOORS_SQLITE"
POSTGRES: Final = "DOORS_POSTGRES"
"""Variables of the environment by which the measuring process tells where things are."""
SERVER: Final = Path(__file__).with_name("mcp_side.py")


@component(outputs="answer")
async def prepare(question: str) -> str:
    """Make the value that tools return next. question: its name."""
    await PREPARED.make(question)
    return "ready"


@tool(pure=True)
def give(content: str) -> Any:
    """Returns what was prepared, from a thread."""
    return PREPARED.value


@tool(pure=True)
async def give_async(content: str) -> Any:
    """Returns what was prepared, on the loop."""
    return PREPARED.value


@tool(pure=True)
async def take(text: str = "", texts: list[str] | None = None) -> int:
    """Counts characters."""
    return len(text) + sum(map(len, texts or ()))


@component(outputs="answer")
async def giving(question: str) -> Any:
    return PREPARED.value


inner = App("inner", giving, inputs=QUESTION, outputs=ANSWER, description="Gives a value.")


def _agent(name: str, *tools: Any) -> App:
    return App(name, Agent(tools, at_most=3), inputs=QUESTION, outputs=ANSWER)


preparing = App("preparing", prepare, inputs=QUESTION, outputs=ANSWER)
plain = App("plain", Generate(), inputs=QUESTION, outputs=ANSWER)
functions = _agent("functions", give, give_async, take)
nested = _agent("nested", component_tool(inner, pure=True))
sqlite = _agent("sqlite", sql_lookup(secret=SQLITE))
postgres = _agent("postgres", sql_lookup(secret=POSTGRES, trust_role=True))
web = App(
    "web", WebSearch(inputs={"queries": "question"}), inputs=QUESTION, outputs={"hits": "hits"}
)


# --- MCP --------------------------------------------------------------------------------------


def _server(way: str, listed: str, number: str) -> ToolServer:
    """A server that lists the tools of that content. way: `stdio` or `url`."""
    name = f"{way}-{number}"
    if way == "url":
        return mcp_tools(name=name, url=f"{os.environ[MCP_URL]}/{quote(listed)}", timeout_s=20)
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(SERVER), listed]
    return mcp_tools(name=name, command=command, env=environment, timeout_s=20)


@component(outputs="answer")
async def with_server(question: str) -> str:
    """An agent's run with an MCP server that begins and ends with it. question: the way to it, the
    content that is its list, and a number."""
    server = _server(*question.split("|"))
    agent = App("with-tools", Agent([server], at_most=3), inputs=QUESTION, outputs=ANSWER)
    try:
        return str((await agent.arun(question="What is it?")).answer)
    finally:
        await server.close()


mcp = App("mcp", with_server, inputs=QUESTION, outputs=ANSWER)
APPS: Final = (
    "preparing",
    "inner",
    "plain",
    "functions",
    "nested",
    "sqlite",
    "postgres",
    "web",
    "mcp",
)
"""Those that are served."""
