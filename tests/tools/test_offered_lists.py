"""Lists of tools that servers offer, as long as they like."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("mcp")
from mcp.types import Tool as ListedTool

from teola.errors import UnknownName
from teola.tools import ToolServer, mcp_tools
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


# --- what becomes of each tool ------------------------------------------------------------------

Serve = Callable[..., tuple[ToolServer, Connection]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A server that offers tools of these names and descriptions."""

    def served(listed: Mapping[str, str], **options: Any) -> tuple[ToolServer, Connection]:
        server = mcp_tools(command=["x"], name="far", **options)
        connection = Connection(tools_of(listed))

        async def connected(self: Any) -> Any:
            return connection

        monkeypatch.setattr(ToolServer, "_connection", connected)
        return server, connection

    return served


def tools_of(listed: Mapping[str, str]) -> list[ListedTool]:
    schema = {"type": "object"}
    return [ListedTool(name=n, description=d, input_schema=schema) for n, d in listed.items()]


async def test_what_is_said_of_tools_goes_by_the_names_that_their_server_has(serve: Serve) -> None:
    names = dict.fromkeys(("get/one", "get/two", "put/one", "put/two"), "does it")
    pure, only, asked = ["get/one"], ["get/one", "put/one", "put/two"], ["put/two"]
    server, _ = serve(names, pure=pure, only=only, approval=asked, retries=4, timeout_s=9)
    tools = {tool.name: tool for tool in await server.tools()}
    assert list(tools) == ["get_one", "put_one", "put_two"]
    assert [tool.pure for tool in tools.values()] == [True, False, False]
    assert [tool.retries for tool in tools.values()] == [4, None, None]
    assert [tool.approval for tool in tools.values()] == [False, False, True]
    assert {(tool.source, tool.timeout_s, tool.gate) for tool in tools.values()} == {
        ("far", 9, server.gate)
    }


async def test_none_may_be_offered_or_all_be_asked_about(serve: Serve) -> None:
    none, _ = serve({"a": "x"}, only=[])
    assert await none.tools() == []
    every, _ = serve({"a": "x", "b": "x"}, approval=True)
    assert [tool.approval for tool in await every.tools()] == [True, True]


@pytest.mark.parametrize("option", ["pure", "only", "approval"])
async def test_a_name_that_a_server_has_not_is_told_with_the_nearest(
    serve: Serve, option: str
) -> None:
    server, _ = serve({"get_time": "x"}, **{option: ["get_time", "gettime"]})
    with pytest.raises(UnknownName, match=r"'gettime' in tool server 'far'; did you mean 'get_t"):
        await server.tools()


async def test_names_that_are_alike_here_are_told_apart(serve: Serve) -> None:
    long = "x" * 64
    server, _ = serve(dict.fromkeys(("a.b", "a b", "a_b", "a/b", long, long + "y", "\u00e4"), "x"))
    names = [tool.name for tool in await server.tools()]
    assert names == ["a_b", "a_b_2", "a_b_3", "a_b_4", long, f"{'x' * 60}_2", "_"]


async def test_a_tool_without_a_description_has_its_name_for_one(serve: Serve) -> None:
    server, _ = serve({"a": "", "b": "  ", "c": "y" * 4_001, "d": " z "})
    assert [tool.description for tool in await server.tools()] == ["a", "b", "y" * 4_000, "z"]


async def test_a_list_that_has_changed_is_looked_at_again_and_names_are_not(serve: Serve) -> None:
    server, connection = serve({"a": "x", "b": "x"}, pure=["a"])
    first = await server.tools()
    first.clear()
    again = await server.tools()
    assert [tool.name for tool in again] == ["a", "b"], "whoever asks has a list of his own"
    assert (await server.tools())[0] is again[0]
    connection.listed = tools_of({"b": "x", "c": "x"})
    assert [tool.name for tool in await server.tools()] == ["b", "c"]


async def test_a_list_may_be_exactly_as_long_as_it_may(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    about = {"a": "x" * 10, "b": "y" * 20, "c": "z" * 30}
    size = len(json.dumps({"type": "object"}))
    for less in (0, 1):
        server, _ = serve(about, most_tools=3, most_list_chars=60 + 3 * size - less)
        assert len(await server.tools()) == 3 - less
        assert bool(caplog.records) is bool(less)
    caplog.clear()
    server, _ = serve({f"t{k:02}": "x" for k in range(13)}, most_tools=2)
    await server.tools()
    named = ", ".join(f"t{k:02}" for k in range(2, 12))
    assert caplog.messages[0].endswith(f"{named}, ..."), "the first ten of eleven"
    caplog.clear()
    server, _ = serve({f"t{k:02}": "x" for k in range(12)}, most_tools=2)
    await server.tools()
    assert caplog.messages[0].endswith(named)
