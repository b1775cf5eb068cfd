"""A server of tools in the configuration file: each key reaches the server."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from teola.tools import mcp_tools
from teola.tools.mcp_transport import ByCommand, ByUrl
from teola.tools.tool_table import ToolTable

NUMBERS: dict[str, Any] = {
    "timeout_s": 5.0,
    "start_s": 6.0,
    "retries": 7,
    "most_chars": 800,
    "most_tools": 9,
    "most_list_chars": 10,
    "most_bytes": 11_000,
    "most_argument_chars": 12,
}


def test_every_key_is_an_option_of_a_server_and_has_its_default() -> None:
    table = ToolTable(command=["x"])
    server, alike = table.server("time"), mcp_tools(command=["x"], name="time")
    options = [name for name in type(server).__slots__ if name not in ("gate", "_made")]
    for name in options:
        assert getattr(server, name) == getattr(alike, name), name
    assert server.gate.most is None


def test_what_a_table_says_reaches_the_server() -> None:
    names = {"pure": ["a", "b"], "only": ["b", "c"], "approval": ["c"]}
    process = {"command": ["x", "y"], "env": {"K": "v"}, "cwd": "/tmp", "most_message_bytes": 5000}
    server = ToolTable(**process, **names, **NUMBERS, at_once=3).server("time")
    assert server.name == "time"
    assert server.reached == ByCommand(("x", "y"), {"K": "v"}, "/tmp", 5000)
    assert (server.pure, server.only, server.approval) == ({"a", "b"}, {"b", "c"}, {"c"})
    assert {name: getattr(server, name) for name in NUMBERS} == NUMBERS
    assert server.gate.most == 3
    by_url = {"url": "http://x/mcp", "headers": {"A": "b"}, "most_message_bytes": 6000}
    server = ToolTable(**by_url, only=[], approval=True).server("far")
    assert server.reached == ByUrl("http://x/mcp", {"A": "b"}, 6000)
    assert (server.only, server.approval) == (frozenset(), True)


@pytest.mark.parametrize(
    ("key", "least"),
    [
        ("retries", 0),
        ("at_once", 1),
        ("most_chars", 200),
        ("most_tools", 1),
        ("most_list_chars", 1),
        ("most_bytes", 1_000),
        ("most_argument_chars", 1),
        ("most_message_bytes", 4_096),
    ],
)
def test_a_number_that_is_too_small_is_refused_where_it_is_written(key: str, least: int) -> None:
    ToolTable(command=["x"], **{key: least}).server("x")
    with pytest.raises(ValidationError, match=key):
        ToolTable(command=["x"], **{key: least - 1})


@pytest.mark.parametrize("key", ["timeout_s", "start_s"])
def test_no_time_is_no_time(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        ToolTable(command=["x"], **{key: 0})
