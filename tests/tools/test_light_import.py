"""`teola.tools` is light, and says what it lacks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import teola.tools
from teola.errors import MissingExtra
from teola.tools import Toolbox, mcp_tools, tool

PROBE = """
import json, sys
import teola.tools
before = set(sys.modules)
for name in teola.tools.__all__:
    getattr(teola.tools, name)
from teola.tools import mcp_tools, tool

@tool
def act(x: int) -> int:
    "Acts."
    return x

mcp_tools(command=["x"])
print(json.dumps([name.partition(".")[0] for name in sys.modules]))
"""


def test_nothing_of_a_server_is_imported_before_there_is_one() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], check=True, capture_output=True, text=True
    )
    heavy = {"mcp", "httpx2", "jsonschema", "torch", "fastapi", "uvicorn", "opentelemetry"}
    assert not heavy & set(json.loads(done.stdout))


def test_every_name_is_there_and_documented() -> None:
    assert list(teola.tools.__all__) == sorted(teola.tools.__all__)
    for name in teola.tools.__all__:
        assert getattr(teola.tools, name).__doc__, name
    assert set(teola.tools.__all__) <= set(dir(teola.tools))
    with pytest.raises(AttributeError, match="no attribute 'tol'"):
        teola.tools.tol  # noqa: B018


async def test_who_lacks_the_extra_is_told_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    server = mcp_tools(name="time", command=["x"])
    told = (
        r"tool server 'time' needs the extra 'mcp' \(mcp is missing\): pip install 'teola\[mcp\]'"
    )
    with pytest.raises(MissingExtra, match=told):
        await Toolbox.of(server)

    @tool
    def act() -> str:
        """Acts."""
        return "done"

    assert (await (await Toolbox.of(act))["act"].call({})).text == "done"
