"""The least that an ASGI application can do with a query, on the same uvicorn: what Teola's server
is compared with. Prints its URL."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, Final

import uvicorn

from teola.runtime.live import loops

ANSWER: Final = {
    "app": "null",
    "query_id": "0" * 32,
    "state": "ok",
    "outputs": {"answer": "Why?"},
    "latency_s": 0.000123,
    "primitives": 1,
}


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Read the body as JSON, and answer as the null application would."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    json.loads(body)
    text = json.dumps(ANSWER).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        answer, log_config=None, access_log=False, lifespan="off", server_header=False
    )
    with asyncio.Runner(loop_factory=loops.quick) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
