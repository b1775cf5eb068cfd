"""What FakeOpenAI writes: responses, streams and errors as OpenAI and vLLM document them."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fake_openai import FakeOpenAI


@dataclass(frozen=True)
class Fail:
    """An error status; the body is the documented one, unless given. headers: besides."""

    status: int
    message: str = "scripted failure"
    type: str = "invalid_request_error"
    code: str | int | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """A stream that goes wrong after `tokens` tokens.

    then: "reset" (TCP reset), "cut" (closed within the chunked body), "end" (a proper end without
    finish_reason), "stall" (silence), "garbage" (an event that is not JSON), "binary" (not UTF-8),
    "error" (an error event, as vLLM sends it), "no_done" (all but [DONE]), "no_usage".
    """

    then: str
    tokens: int = 0


@dataclass(frozen=True)
class Says:
    """A whole stream of these deltas, as a server's model may write one, tool calls included.
    reason: its finish_reason; None: it tells none."""

    deltas: Sequence[Mapping[str, Any]]
    reason: str | None = "stop"


class Hang:
    """No answer at all, until the client goes."""


@dataclass
class Seen:
    """One request, and how it went. `disconnected`: the client left before the answer ended."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    began: float = field(default_factory=time.monotonic)
    tokens_sent: int = 0
    cached_tokens: int = 0
    disconnected: bool = False
    ended: float | None = None


def prompt_text(body: dict[str, Any]) -> str:
    """The prompt as a chat template would render it."""
    if "messages" not in body:
        prompt = body.get("prompt")
        return "".join(map(chr, prompt)) if isinstance(prompt, list) else str(prompt)
    turns = (f"<|{turn['role']}|>{turn['content']}<|end|>" for turn in body["messages"])
    return "".join(turns) + "<|assistant|>"


class Answer:
    """Writes the answer to one request."""

    def __init__(self, server: FakeOpenAI, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self._server, self._seen, self._writer = server, seen, writer
        self._chat = seen.path.endswith("chat/completions")
        self._stamp = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{len(server.requests)}",
            "created": 1_760_000_000,
            "model": server.model,
        }

    async def send(self) -> None:
        server, seen = self._server, self._seen
        if seen.path == "/version" and server.vllm:
            return await self._whole({"version": "0.32.0"})
        if (page := server.beside(seen)) is not None:
            return await self._whole(page)
        if refused := server.refusal(seen):
            return await self._fail(refused)
        if seen.path == "/v1/models":
            return await self._whole(server.models)
        server.working += 1
        try:
            return await self._work()
        finally:
            server.working -= 1

    async def _work(self) -> None:
        server, seen = self._server, self._seen
        behaviour = server.next_behaviour(seen.body)
        if isinstance(behaviour, Fail):
            return await self._fail(behaviour)
        if isinstance(behaviour, Hang):
            await asyncio.Event().wait()
        if isinstance(behaviour, Says):
            return await self._say(behaviour)
        tokens, reason = server.tokens(seen.body)
        seen.cached_tokens = server.cached(seen.body)
        fresh = len(prompt_text(seen.body)) // 4 + 1 - seen.cached_tokens
        await asyncio.sleep(fresh * server.prefill_s_per_token)
        if seen.body.get("stream"):
            return await self._stream(tokens, reason, behaviour)
        text = "".join(tokens)
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        choice |= (
            {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        )
        kind = "chat.completion" if self._chat else "text_completion"
        usage = self._usage(len(tokens))
        return await self._whole(
            {**self._stamp, "object": kind, "choices": [choice], "usage": usage}
        )

    # --- bodies -------------------------------------------------------------------------------

    async def _fail(self, failure: Fail) -> None:
        error = {"message": failure.message, "type": failure.type, "param": None}
        body = failure.body
        if body is None:
            body = json.dumps({"error": {**error, "code": failure.code}}).encode()
        await self._bytes(failure.status, body, failure.headers)

    async def _whole(self, value: object) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self._bytes(200, body)

    async def _bytes(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await self._writer.drain()

    # --- streams ------------------------------------------------------------------------------

    async def _stream(self, tokens: list[str], reason: str, wrong: Stream | Hang | None) -> None:
        then = wrong.then if isinstance(wrong, Stream) else ""
        self._begin()
        if self._chat:
            await self._chunk({"role": "assistant", "content": ""}, None)
        for sent, token in enumerate(tokens):
            if isinstance(wrong, Stream) and sent == wrong.tokens and await self._break(then):
                return
            await asyncio.sleep(self._server.token_delay_s)
            self._seen.tokens_sent += 1
            await self._chunk({"content": token} if self._chat else token, None)
            self._server.changed()
        await self._chunk({} if self._chat else "", reason)
        if self._seen.body.get("stream_options", {}).get("include_usage") and then != "no_usage":
            await self._event({"choices": [], "usage": self._usage(len(tokens))})
        await self._end(then != "no_done")

    async def _say(self, said: Says) -> None:
        self._begin()
        for delta in said.deltas:
            await self._chunk(delta, None)
        await self._chunk({}, said.reason)
        await self._end(True)

    def _begin(self) -> None:
        self._writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    async def _end(self, done: bool) -> None:
        if done:
            await self._data(b"[DONE]")
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _break(self, then: str) -> bool:
        """Goes wrong; whether that is the end of the answer."""
        if then == "reset":
            linger = struct.pack("ii", 1, 0)  # close sends RST
            self._writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
        if then in ("reset", "cut"):
            self._writer.transport.abort()
            raise ConnectionResetError
        if then == "stall":
            await asyncio.Event().wait()
        if then == "end":
            self._writer.write(b"0\r\n\r\n")
            return True
        if then == "garbage":
            await self._data(b"<html>Bad Gateway</html>")
        if then == "binary":
            await self._data(b"\xff\xfe\x00")
        if then == "error":
            problem = {"message": "EngineCore died", "type": "InternalServerError", "code": 500}
            await self._data(json.dumps({"error": problem}).encode())
        return False

    async def _chunk(self, said: Mapping[str, Any] | str, reason: str | None) -> None:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        choice |= {"delta": said} if self._chat else {"text": said}
        await self._event({"choices": [choice], "usage": None})

    async def _event(self, fields: dict[str, Any]) -> None:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        event = {**self._stamp, "object": kind, **fields}
        await self._data(json.dumps(event, ensure_ascii=False).encode())

    async def _data(self, data: bytes) -> None:
        line = b"data: " + data + b"\n\n"
        self._writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        await self._writer.drain()

    def _usage(self, completion_tokens: int) -> dict[str, Any]:
        prompt = len(prompt_text(self._seen.body)) // 4 + 1
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self._seen.cached_tokens},
        }
