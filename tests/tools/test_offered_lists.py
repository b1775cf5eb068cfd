"""Lists of tools that servers offer, as long as they like."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("mcp")
from mcp.types import Tool as ListedTool

from teola.tools import mcp_tools
from tests.longest_turn import MOST_S, longest_turn

WIDE = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20)}}


class Connection:
    """Offers so many tools."""

    def __init__(self, listed: list[ListedTool]) -> None:
        self.listed = listed

    async def tools(self) -> list[ListedTool]:
        return self.listed


async def offered(count: int, schema: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    server = mcp_tools(command=["x"], name="many", **options)
    listed = [ListedTool(name=f"t{i}", input_schema=schema) for i in range(count)]
    connection = Connection(listed)

    async def connected(self: Any) -> Any:
        return connection

    monkeypatch.setattr(type(server), "_connection", connected)
    with longest_turn() as turn:
        tools = await server.tools()
    assert turn.seconds < MOST_S
    return tools


async def test_as_many_are_offered_as_may_be(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        tools = await offered(3_003, WIDE, monkeypatch)
    assert [one.name for one in tools] == [f"t{i}" for i in range(512)]
    (record,) = caplog.records
    assert "2491 of its tools are left out" in record.message
    assert "the 512 of most_tools" in record.message
    assert ": t512, t513, " in record.message


async def test_their_schemas_are_bounded_together(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        tools = await offered(5, WIDE, monkeypatch, most_tools=4, most_list_chars=2_000)
    assert len(tools) == 3
    assert "2000 characters of most_list_chars: t3, t4" in caplog.text


async def test_a_schema_of_megabytes_is_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = {"type": "object", "enum": list(range(1_000_000))}
    with caplog.at_level(logging.WARNING):
        assert await offered(3, huge, monkeypatch) == []
    assert caplog.text.count("its schema is too large: it may have 65,536 characters") == 3
