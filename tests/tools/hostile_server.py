"""A server of tools by standard streams that does what a connection has to stand.

    python -m tests.tools.hostile_server [FAULT]

FAULT: what is wrong with its list of tools: `unlisted` (no answer), `deep` (more levels than the
SDK reads), `pages` (no last one), `many` (more tools than anybody needs), `patterns` (a schema of
results that takes for ever to check).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}
TOOLS = (
    *("pid", "sized", "endless", "nested", "blocks", "values", "commas", "pieces", "pair"),
    *("unended", "lines", "asks", "tells", "complains", "leaves"),
)
SLOW = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def answer(number: object, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def note(**params: Any) -> bytes:
    params = {"level": "info", "data": params}
    return json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    ).encode()


def leave(ways: int) -> list[int]:
    """Processes that have left: by a session of its own, and by two forks."""
    plain = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (child := os.fork()) == 0:
            time.sleep(3600)
        os.write(writing, str(child).encode())
        os._exit(0)
    os.wait()
    return [os.getpid(), plain.pid, int(os.read(reading, 20))]


def written(name: str, id_: object, number: int) -> Iterator[bytes]:
    """What a call writes."""
    match name:
        case "pid":
            yield answer(id_, text(str(os.getpid()))) + b"\n"
        case "sized":
            empty = len(answer(id_, text("")))
            yield answer(id_, text("x" * (number - empty))) + b"\n"
        case "endless":
            for _ in range(1024):
                yield b"x" * 2**20
        case "nested":
            yield answer(id_, text("deep")).replace(b'"deep"', b"[" * 300 + b"]" * 300) + b"\n"
        case "blocks":
            yield answer(id_, {"content": text("x")["content"] * number}) + b"\n"
        case "values":
            yield answer(id_, {**text("x"), "structuredContent": {"a": [[]] * number}}) + b"\n"
        case "commas":
            yield answer(id_, text('[{,\\"' * number)) + b"\n"
        case "pieces":
            for byte in answer(id_, text("ä" * 500)) + b"\n":
                yield bytes([byte])
        case "pair":
            yield note(a=1) + b"\r\n" + answer(id_, text("pair")) + b"\r\n"
        case "unended":
            yield answer(id_, text("unended"))
            os._exit(0)
        case "lines":
            yield answer(id_, {**text("x"), "structuredContent": {"text": "a" * 40 + "!"}}) + b"\n"
        case "asks":
            for index in range(1_000_000):
                yield json.dumps({"jsonrpc": "2.0", "id": index, "method": "ping"}).encode() + b"\n"
        case "tells":
            for index in range(number):
                yield note(text="x" * 10_000, index=index) + b"\n"
            yield answer(id_, text("told")) + b"\n"
        case "complains":
            for _ in range(number):
                sys.stderr.write("x" * 2**20)
            yield answer(id_, text("complained")) + b"\n"
        case "leaves":
            yield answer(id_, text(json.dumps(leave(number)))) + b"\n"


def listed(cursor: str | None) -> dict[str, Any] | None:
    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]
    match sys.argv[1:]:
        case ["unlisted"]:
            return None
        case ["deep"]:
            schema: dict[str, Any] = {}
            for _ in range(300):
                schema = {"not": schema}
            tools[0]["inputSchema"] = schema
        case ["pages"]:
            page = int(cursor or 0)
            tools = [{"name": f"t{page}-{i}", "inputSchema": SCHEMA} for i in range(200)]
            print(f"page {page}", file=sys.stderr, flush=True)
            return {"tools": tools, "nextCursor": str(page + 1)}
        case ["many"]:
            tools = [{"name": f"t{i}", "inputSchema": {"type": "object"}} for i in range(60_000)]
        case ["patterns"]:
            for one in tools:
                one["outputSchema"] = SLOW
    return {"tools": tools}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        given, id_ = message.get("params", {}), message.get("id")
        match message.get("method"):
            case "initialize":
                result: dict[str, Any] | None = {
                    "protocolVersion": given["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                }
            case "tools/list":
                result = listed(given.get("cursor"))
            case "tools/call":
                for data in written(given["name"], id_, given["arguments"].get("number", 0)):
                    write(data)
                continue
            case method:
                if id_ is not None and method is not None:
                    error = {"code": -32601, "message": "unknown"}
                    write(
                        json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}).encode() + b"\n"
                    )
                continue
        if result is not None:
            write(answer(id_, result) + b"\n")


if __name__ == "__main__":
    main()
