"""An MCP server, written by hand so that it can send what no SDK would.

    python mcp_side.py LIST         # by standard streams; LIST: a content of the kind `list`

`give` answers with a content of the kind `value` as text, `write` with one of the kind `line`.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from experiments.doors.contents import BY_NAME

ANY: Final = {"type": "object", "properties": {"content": {"type": "string"}}}
OWN: Final = [
    {"name": name, "description": "Gives it.", "inputSchema": ANY} for name in ("give", "write")
]
ORDINARY: Final = "ordinary"
"""A list with nothing but `give` and `write`."""


def listed(name: str) -> list[dict[str, Any]]:
    """The tools of a server whose list is that content."""
    made = [] if name == ORDINARY else BY_NAME["list", name].make()
    return [*OWN, *made]


def text_of(name: str) -> str:
    """A content of the kind `value` as the text of an answer."""
    made = BY_NAME["value", name].make()
    return made if isinstance(made, str) else _json(made)


def _json(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "[" * 100_000 + "]" * 100_000


def answer(message: dict[str, Any], tools: str) -> bytes:
    """The answer to a request, in bytes. tools: the name of its list."""
    given = message.get("params", {})
    match message["method"]:
        case "initialize":
            version, about = given["protocolVersion"], {"name": "doors", "version": "1"}
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "tools/list":
            result = {"tools": listed(tools)}
        case "tools/call":
            content = given["arguments"]["content"]
            if given["name"] == "write":
                return bytes(BY_NAME["line", content].make())
            result = {"content": [{"type": "text", "text": text_of(content)}]}
        case _:
            error = {"code": -32601, "message": "unknown"}
            return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.buffer.write(answer(message, sys.argv[1]) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
