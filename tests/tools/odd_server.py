"""A server of tools by standard streams, written by hand so that it can misbehave.

    python -m tests.tools.odd_server [--log FILE] [FAULT]

FAULT: what goes wrong at its start: `dies`, `hangs`, `babbles` (no messages, without end). Each
start and each call adds a line to FILE: the process id, and the tool.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"description": "Says it again.", "inputSchema": TEXT},
    "pid": {"description": "The process id.", "inputSchema": NONE},
    "die": {"description": "Ends the process.", "inputSchema": NONE},
    "hang": {"description": "Never answers.", "inputSchema": NONE},
    "stop": {"description": "Reads nothing any more.", "inputSchema": NONE},
    "garbage": {"description": "Writes other things, and answers.", "inputSchema": NONE},
    "fail": {"description": "Is an error.", "inputSchema": NONE},
    "picture": {"description": "Is no text.", "inputSchema": NONE},
    "grow": {"description": "Learns another tool.", "inputSchema": NONE},
    "notes.add/one": {"description": "Has an odd name.", "inputSchema": NONE},
    "notes.add.one": {"description": "Has another.", "inputSchema": NONE},
    "outside": {
        "description": "Refers to a schema elsewhere.",
        "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://localhost:1/x"}}},
    },
    "environment": {"description": "Names of its variables.", "inputSchema": NONE},
}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def log(*words: object) -> None:
    if "--log" in sys.argv:
        with open(sys.argv[sys.argv.index("--log") + 1], "a") as file:
            print(os.getpid(), *words, file=file)


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a call; None for none."""
    text: Any = ""
    match name:
        case "echo":
            text = arguments["text"]
        case "pid":
            text = str(os.getpid())
        case "die":
            os._exit(3)
        case "hang":
            return None
        case "stop":
            time.sleep(3600)
        case "garbage":
            print("this is no message\n{}\n[]", flush=True)
            text = "after all"
        case "fail":
            return {"content": [{"type": "text", "text": "there is no ink"}], "isError": True}
        case "picture":
            return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
        case "grow":
            TOOLS["grown"] = {"description": "Is new.", "inputSchema": NONE}
            say({"method": "notifications/tools/list_changed"})
            text = "grown"
        case "environment":
            return {
                "content": [{"type": "text", "text": "names"}],
                "structuredContent": {"names": sorted(os.environ)},
            }
    return {"content": [{"type": "text", "text": text}]}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for none."""
    given = message.get("params", {})
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": given["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "odd", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": name, **about} for name, about in TOOLS.items()]}
        case "tools/call":
            arguments = given.get("arguments") or {}
            log(given["name"], *arguments.values())
            return called(given["name"], arguments)
    raise LookupError


def main() -> None:
    log("start")
    print("I am odd", file=sys.stderr, flush=True)
    if "dies" in sys.argv:
        sys.exit("I will not")
    if "hangs" in sys.argv:
        time.sleep(3600)
    while "babbles" in sys.argv:
        print("blah", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            found = answer(message)
        except LookupError:
            say({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
            continue
        if found is not None:
            say({"id": message["id"], "result": found})


if __name__ == "__main__":
    main()
