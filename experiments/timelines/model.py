"""A server with OpenAI's API whose model writes what the queries of this experiment need.

It takes PREFILL_S before the first token and STEP_S for each one, and counts the calls that it was
sent. It answers searches as SearXNG does, too. It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from experiments.common.http_requests import read_request

NAME: Final = "scripted"
PREFILL_S: Final = 0.15
STEP_S: Final = 0.02
CALLS: Final = 10
"""Tools that the agent calls, one in each of its turns."""
FOUND: Final = [{"url": "http://tower.example", "title": "Tower", "content": "40 metres"}]
LONG: Final = "on and on " * 2_000
OPENING: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Model:
    """calls: requests for a completion so far."""

    def __init__(self) -> None:
        self.calls = 0
        self._loop = asyncio.new_event_loop()
        self._port = 0
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._begun.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (received := await read_request(b"", reader)) is not None:
                path = received.path
                if path == "/v1/models":
                    models = {"object": "list", "data": [{"id": NAME, "object": "model"}]}
                    await _send(writer, 200, models)
                elif path.startswith("/search"):
                    await _send(writer, 200, {"results": FOUND})
                elif path == "/v1/chat/completions":
                    self.calls += 1
                    await self._answer(received.body, writer)
                else:
                    await _send(writer, 404, {"error": {"message": "there is no such page"}})
        writer.close()

    async def _answer(self, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        prompt = json.dumps(body["messages"])
        await asyncio.sleep(PREFILL_S)
        if "out of memory" in prompt:
            await _send(writer, 500, {"error": {"message": "out of memory on rank 0"}})
            return
        deltas, reason = _said(body, prompt)
        if not body.get("stream"):
            message = {"role": "assistant", **_joined(deltas)}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            await _send(writer, 200, {"model": NAME, "choices": [choice], "usage": _usage(1)})
            return
        writer.write(OPENING)
        for delta in deltas:
            await _chunk(writer, {"choices": [{"index": 0, "delta": delta}]})
            await asyncio.sleep(STEP_S)
        await _chunk(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        await _chunk(writer, {"choices": [], "usage": _usage(len(deltas))})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


def _said(body: Mapping[str, Any], prompt: str) -> tuple[list[dict[str, Any]], str]:
    """Deltas of the answer, and why it ends."""
    results = len(set(re.findall(r"stone (\d+) is", prompt)))
    if body.get("tools") and results < CALLS:
        function = {"name": "measure", "arguments": json.dumps({"number": results})}
        call = {"index": 0, "id": f"call-{results}", "type": "function", "function": function}
        return [{"tool_calls": [call]}], "tool_calls"
    if "Write 3 queries" in prompt:
        text = "height of the tower\nwho built the tower\nwhen it was built"
    elif "Reply with one word" in prompt:
        text = "no"
    else:
        text = LONG if "at length" in prompt else "It is forty metres high and stands by the sea."
    return [{"content": token} for token in re.findall(r"\s*\S+", text)], "stop"


def _joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    text = "".join(delta.get("content", "") for delta in deltas)
    return {"content": text or None, **({"tool_calls": calls} if calls else {})}


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}


async def _chunk(writer: asyncio.StreamWriter, told: dict[str, Any]) -> None:
    event = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": NAME, **told}
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, status: int, told: dict[str, Any]) -> None:
    data = json.dumps(told).encode()
    head = f"HTTP/1.1 {status} .\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
    writer.write(head.encode() + b"\r\n\r\n" + data)
    await writer.drain()
