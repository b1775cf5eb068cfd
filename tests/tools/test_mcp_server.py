"""Where a server of tools is said to be."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import InputError
from teola.tools import mcp_tools


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give a command or a url"),
        ({"command": ["x"], "url": "http://x"}, "give a command or a url"),
        ({"command": "x y"}, r"command must be a list of texts, such as \['x', 'y'\]"),
        ({"command": []}, "command must be a list of texts"),
        ({"command": ["x", 3]}, "command must be a list of texts"),
        ({"url": "ftp://x"}, "url must begin with http"),
        ({"url": "http://x", "env": {}}, "env and cwd go with a command, headers with a url"),
        ({"command": ["x"], "headers": {}}, "env and cwd go with a command, headers with a url"),
        ({"command": ["x"], "timeout_s": 0}, "timeout_s must be positive"),
        ({"command": ["x"], "start_s": -1}, "start_s must be positive"),
        ({"command": ["x"], "at_once": 0}, "at_once must be 1, 2, 3"),
        ({"command": ["x"], "name": "a b"}, "a name has letters, digits"),
    ],
)
def test_what_cannot_be_is_refused(options: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        mcp_tools(**options)


def test_a_server_has_a_name() -> None:
    assert mcp_tools(command=["/usr/bin/mcp-server-time"]).name == "mcp-server-time"
    assert mcp_tools(url="https://me:pw@tools.example.org:8/mcp").name == "tools_example_org"
    for count in (63, 64, 65):
        assert mcp_tools(url=f"http://{'x' * count}/mcp").name == "x" * min(count, 64)
