"""A server of tools over streamable HTTP, made with the SDK.

python -m tests.tools.http_server PORT
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("shop")


class Offer(BaseModel):
    """What something costs."""

    article: str
    cents: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def price(article: str, pieces: int = 1) -> Offer:
    """What pieces of an article cost."""
    return Offer(article=article, cents=250 * pieces)


@server.tool()
def refuse() -> str:
    """Never works."""
    raise ToolError("the shop is closed")


@server.tool()
async def sleep(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def key(context: Context) -> str:
    """The key that came with the request."""
    return (context.headers or {}).get("x-key", "none")


@server.tool()
def long(characters: int) -> str:
    """A long answer."""
    return "x" * characters


@server.tool()
def leave() -> str:
    """Ends the server."""
    os._exit(0)


@server.tool()
async def stock(name: str, context: Context) -> str:
    """Lets the shop have one more tool."""
    server.add_tool(lambda: name, name=name, description=f"Is {name}.")
    await context.notify_tools_changed()
    return "stocked"


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
