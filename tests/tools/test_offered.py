"""Tools that clients bring along, checked once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from teola.errors import InputError, UnknownName
from teola.tools import Tool, Toolbox, tool
from teola.tools.offered import (
    KNOWN,
    MOST_DESCRIPTION,
    CheckedTools,
    ToolsCheck,
    checked_tools,
    chosen_of,
    known_tools,
    listed_tools,
    of_client,
    tools_digest,
)


def described(name: str, schema: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def test_what_was_checked_is_known() -> None:
    looked_at: list[Any] = []
    check = ToolsCheck(looked_at.append)
    tools = [described("a", {"type": "object"}), described("b", {"properties": {}})]
    first, again = check.checked(tools), check.checked([dict(one) for one in tools])
    assert first.digest == again.digest
    assert first.names == ["a", "b"]
    assert len(looked_at) == 2, "the second time nothing is looked at"
    check.checked([tools[0]])
    assert len(looked_at) == 3


def test_an_agent_does_not_check_again_what_a_server_has_checked() -> None:
    tools = CheckedTools([described("a", {"type": "array"})], "digest")
    assert checked_tools(tools) is tools
    with pytest.raises(InputError, match=r"tools\.0: its arguments are 'array'"):
        checked_tools(list(tools))


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ({}, "must be a list"),
        ([described("a", {})] * 3, "3 tools, more than the 2 of `max_client_tools`"),
        ([described("a", {"title": "x" * 200})], "200 characters of JSON of `max_client_tool_ch"),
        ([described("a", {"default": object()})], "must be JSON"),
        ([described("a", {})] * 2, "tools.1: two tools are called 'a'"),
    ],
)
def test_limits_are_named(tools: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        ToolsCheck().checked(tools, most=2, characters=200)


def test_limits_are_those_that_may_be_reached() -> None:
    tools = [described("a", {}), described("b", {})]
    size = len(json.dumps(tools))
    assert len(ToolsCheck().checked(tools, most=2, characters=size)) == 2
    with pytest.raises(InputError, match=f"the {size - 1} characters"):
        ToolsCheck().checked(tools, most=2, characters=size - 1)


def test_so_many_lists_are_known_and_then_all_are_checked_again() -> None:
    looked_at: list[Any] = []
    check = ToolsCheck(looked_at.append)
    lists = [[described(f"t{k}", {})] for k in range(KNOWN + 1)]
    for tools in (*lists[:KNOWN], lists[0]):
        check.checked(tools)
    assert len(looked_at) == KNOWN
    for tools in (lists[KNOWN], lists[KNOWN], lists[0]):
        check.checked(tools)
    assert len(looked_at) == KNOWN + 2


def test_a_list_that_is_wrong_is_never_known() -> None:
    check = ToolsCheck()
    for _ in range(2):
        with pytest.raises(InputError, match="two tools are called 'a'"):
            check.checked([described("a", {})] * 2)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (3, r"tools.0 must be {"),
        ({"type": "function"}, r"tools.0 must be {"),
        ({"type": "web_search", "function": {"name": "a"}}, r"tools.0 must be {"),
        ({"function": {"name": "a b"}}, "tools.0.function.name must be 1 to 64"),
        ({"function": {"name": "x" * 65}}, "tools.0.function.name must be 1 to 64"),
        ({"function": {"name": 3}}, "tools.0.function.name must be 1 to 64"),
        ({"function": {"name": "a", "description": 3}}, "description must be a text"),
        ({"function": {"name": "a", "parameters": [3]}}, r"tools.0: its schema is \[3\], not an"),
    ],
)
def test_what_is_no_tool_is_told_by_its_place(spec: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        ToolsCheck().checked([spec])


def test_a_client_may_leave_out_what_can_be_left_out() -> None:
    long = "d" * (MOST_DESCRIPTION + 1)
    functions = [
        {"name": "a"},
        {"name": "b", "description": "  ", "parameters": {}},
        {"name": "c", "description": f" {long}", "parameters": {"$id": "x", "title": "T"}},
    ]
    specs = ToolsCheck().checked([{"function": function} for function in functions])
    tools, names = of_client(specs, Toolbox([]))
    assert [made.description for made in tools] == ["a", "b", long[:-1]]
    nothing = {"type": "object", "properties": {}}
    assert [made.schema for made in tools] == [nothing, nothing, {"type": "object", "title": "T"}]
    assert {made.source for made in tools} == {"client"}
    assert names == {"a": "a", "b": "b", "c": "c"}


def test_a_clients_tool_may_not_have_the_name_of_one_of_the_application() -> None:
    specs = ToolsCheck().checked([described("other", {}), described("look", {})])
    with pytest.raises(InputError, match=r"tools\.1: the application has a tool called 'look'"):
        of_client(specs, Toolbox([look]))


@tool(pure=True, approval=lambda arguments: True)
def look(what: str) -> str:
    """Look something up."""
    return what


@tool
def send(what: str) -> str:
    """Send something."""
    return what


async def test_tools_as_values_are_the_same_tools_again() -> None:
    """Those of servers can be decided on, and are called where their server is."""
    far = replace(send, name="far", source="server", approval=True)
    like_own = replace(send, source="server")
    listed = json.loads(json.dumps(listed_tools(Toolbox([look, far, like_own]))))
    assert [(one["name"], one["pure"], one["approval"], one["source"]) for one in listed] == [
        ("look", True, True, ""),
        ("far", False, True, "server"),
        ("send", False, False, "server"),
    ]
    first, second, third = known_tools(listed, Toolbox([look, send]))
    assert first is look
    assert third is not send, "a server's tool is its own"
    for made, of in ((second, far), (third, like_own)):
        assert isinstance(made, Tool)
        for name in ("name", "description", "schema", "pure", "approval", "source"):
            assert getattr(made, name) == getattr(of, name)
        result = await made.call({"what": "x"})
        assert result.failed
        assert "this tool is not called here" in result.text


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (None, ()),
        ("auto", ()),
        ("none", ()),
        ("required", ("here_a", "here_b")),
        ({"type": "function", "function": {"name": "b"}}, ("here_b",)),
    ],
)
def test_which_tool_a_client_wants_called_goes_by_its_names(
    choice: Any, chosen: tuple[str, ...]
) -> None:
    assert chosen_of(choice, {"here_a": "a", "here_b": "b"}) == chosen


def test_a_choice_that_cannot_be_is_refused() -> None:
    for wrong in ("any", 3, {}, {"function": "a"}, {"function": {"name": 3}}):
        with pytest.raises(InputError, match="tool_choice is none, auto, required"):
            chosen_of(wrong, {"here_a": "a"})
    with pytest.raises(UnknownName, match=r"unknown tool 'here_a' .*valid: a\)"):
        chosen_of({"function": {"name": "here_a"}}, {"here_a": "a"})


def test_a_digest_goes_by_values_and_where_they_end() -> None:
    values: list[Any] = [{"a": 1, "b": "\ud800"}, "x"]
    assert tools_digest(values) == tools_digest([{"b": "\ud800", "a": 1}, "x"])
    others: list[list[Any]] = [values[::-1], values[:1], [*values, ""], [{"a": 1, "b": "?"}, "x"]]
    assert len({tools_digest(other) for other in (values, *others)}) == 5
    assert tools_digest([1, 23]) != tools_digest([12, 3])
