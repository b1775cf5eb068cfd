"""The servers that are not ours, in one: a language model, a search engine, MCP by URL.

    with Fakes() as fakes:
        fakes.replies = [said("Paris.")]        # what the model writes next; then it says "done"

It runs in threads of the measuring process, and answers as OpenAI, SearXNG and MCP document it.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import unquote

from experiments.doors import mcp_side
from experiments.doors.contents import said

MODEL: Final = "scripted"


class Fakes:
    """replies: deltas of the model's next answers. pages: what every search finds, as pairs of
    address and text."""

    def __init__(self) -> None:
        self.replies: list[list[dict[str, Any]]] = []
        self.pages: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def next_reply(self) -> list[dict[str, Any]]:
        return self.replies.pop(0) if self.replies else said("done")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(fakes: Fakes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path != "/v1/models":
                self._send(404, b"{}")
                return
            model = {"id": MODEL, "object": "model", "created": 1, "owned_by": "nobody"}
            self._send(200, json.dumps({"object": "list", "data": [model]}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with suppress(ConnectionError):  # whoever asked has left
                if self.path == "/v1/chat/completions":
                    self._write()
                elif self.path == "/search":
                    self._found()
                elif self.path.startswith("/mcp/"):
                    self._called(json.loads(body), unquote(self.path.removeprefix("/mcp/")))
                else:
                    self._send(404, b"{}")

        def do_DELETE(self) -> None:
            self._send(200, b"")

        def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _write(self) -> None:
            """A stream of one answer."""
            deltas = fakes.next_reply()
            reason = "tool_calls" if any("tool_calls" in one for one in deltas) else "stop"
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            stamp = {"id": "c", "created": 1, "model": MODEL, "object": "chat.completion.chunk"}
            for delta, ended in [*((one, None) for one in deltas), ({}, reason)]:
                choice = {"index": 0, "delta": delta, "finish_reason": ended}
                event = json.dumps({**stamp, "choices": [choice]})
                self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _found(self) -> None:
            results = [
                {"url": url, "title": "lamp", "content": text, "score": 0.5}
                for url, text in fakes.pages
            ]
            self._send(200, json.dumps({"results": results}).encode())

        def _called(self, message: dict[str, Any], tools: str) -> None:
            if "id" not in message:
                self._send(202, b"")
            else:
                self._send(200, mcp_side.answer(message, tools))

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it would be a line for each request."""

    return Handler
