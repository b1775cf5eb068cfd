"""A server of tools over streamable HTTP with sessions, as older ones are, in a thread."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ANSWERS: dict[str, Any] = {
    "tools/list": {
        "tools": [{"name": "hello", "description": "Greets.", "inputSchema": {"type": "object"}}]
    },
    "tools/call": {"content": [{"type": "text", "text": "hello"}]},
}


class OldServer:
    """`session` is the only one that it knows; sessions: how many it has begun; ended: how many its
    clients have ended."""

    def __init__(self) -> None:
        self.session, self.sessions, self.ended = "", 0, 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/mcp"

    def forget(self) -> None:
        """As if it had been started anew."""
        self.session = "none"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The body of an answer to a request."""
        method = message["method"]
        if method == "initialize":
            self.sessions += 1
            self.session = f"session-{self.sessions}"
            found: dict[str, Any] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
        elif method in ANSWERS:
            found = ANSWERS[method]
        else:
            return {"error": {"code": -32601, "message": "unknown"}}
        return {"result": found}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                message = json.loads(body)
                known = self.headers.get("mcp-session-id") in (None, server.session)
                if not known:
                    self.reply(404, {})
                elif "id" not in message:
                    self.reply(202, None)
                else:
                    answer = server.answer(message)
                    self.reply(200, {"jsonrpc": "2.0", "id": message["id"], **answer})

            def do_GET(self) -> None:
                self.reply(405, None)

            def do_DELETE(self) -> None:
                server.ended += 1
                self.reply(200, None)

            def reply(self, status: int, body: dict[str, Any] | None) -> None:
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if server.session:
                    self.send_header("mcp-session-id", server.session)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
