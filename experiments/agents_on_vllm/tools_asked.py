"""What the agents have: tools whose arguments are choices, and a question each.

A random model writes them. Held to a schema it can only choose, so what it calls is valid or else
the server, or whoever reads its reply, has made a mistake.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from teola.tools import tool

Harbour = Literal["north", "south", "east", "west"]
Quantity = Literal["depth", "tide", "wind", "traffic"]
HARBOURS: Final = ("north", "south", "east", "west")
LOOK_UP_S: Final = 0.05
"""Both tools wait so long, as a service elsewhere would make them."""


async def measured(harbour: str, quantity: str) -> str:
    """What both systems' first tool gives."""
    await asyncio.sleep(LOOK_UP_S)
    return f"{quantity} at {harbour}: {len(harbour) + len(quantity)}"


async def compared(first: str, second: str) -> str:
    """What both systems' second tool gives."""
    await asyncio.sleep(LOOK_UP_S)
    return f"{first} is {'like' if len(first) == len(second) else 'unlike'} {second}"


@tool(pure=True)
async def measure(harbour: Harbour, quantity: Quantity) -> str:
    """What is measured at a harbour."""
    return await measured(harbour, quantity)


@tool(pure=True)
async def compare(first: Harbour, second: Harbour) -> str:
    """Whether two harbours are alike."""
    return await compared(first, second)


TOOLS: Final = (measure, compare)


def for_langgraph() -> list[Any]:
    """The same tools in its form."""
    from langchain_core.tools import tool as as_tool

    @as_tool("measure")
    async def measure_(harbour: Harbour, quantity: Quantity) -> str:
        """What is measured at a harbour."""
        return await measured(harbour, quantity)

    @as_tool("compare")
    async def compare_(first: Harbour, second: Harbour) -> str:
        """Whether two harbours are alike."""
        return await compared(first, second)

    return [measure_, compare_]


def question(number: int) -> str:
    """Of an agent: another one for each."""
    return f"Ship {number} comes to {HARBOURS[number % 4]} harbour. Is it deep enough there now?"
