"""The LLM server of the comparison: OpenAI's API over HTTP, in a process of its own.

    python -m experiments.agents.server --tasks FILE --step-ms 23.5      (prints its port)

It answers as vLLM documents /v1/models, /v1/completions (with a JSON schema as `response_format`)
and /v1/chat/completions (with `tools`), streamed or not. What it writes is `writer`'s, and when
`stepping`'s. Its models are the styles of writing. GET /steps tells how long steps have taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from experiments.agents import writer
from experiments.agents.stepping import TOKEN, Stepping
from experiments.agents.task import Demand
from experiments.common.http_requests import read_request

CREATED: Final = 1_760_000_000
VLLM: Final = "vllm"
HEAD: Final = "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n"


class Refusal(Exception):
    """A request that cannot be answered, with its status."""

    def __init__(self, status: str, told: str) -> None:
        super().__init__(told)
        self.status = status


class Server:
    """demands: by tag. owner: who the server says that it is."""

    def __init__(self, demands: Mapping[str, Demand], step_s: float, owner: str = VLLM) -> None:
        self.model, self._demands, self._owner = Stepping(step_s), demands, owner
        self._validators: dict[str, Draft202012Validator] = {}
        self._count = 0

    async def serve(self) -> None:
        """Accept connections until cancelled; the port is printed first."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=256)
        print(server.sockets[0].getsockname()[1], flush=True)
        await self.model.run()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (received := await read_request(b"", reader)) is not None:
                await self._answer(received.method, received.path, received.body, writer)
        writer.close()

    async def _answer(
        self, method: str, path: str, body: dict[str, Any], out: asyncio.StreamWriter
    ) -> None:
        try:
            if method == "GET":
                await _send(out, "200 OK", self._told(path))
            elif path == "/v1/completions":
                await self._complete(body, out)
            elif path == "/v1/chat/completions":
                await self._chat(body, out)
            else:
                raise Refusal("404 Not Found", "Not Found")
        except Refusal as refused:
            kind = "NotFoundError" if refused.status.startswith("404") else "BadRequestError"
            error = {"message": str(refused), "type": kind, "param": None}
            await _send(out, refused.status, {"error": {**error, "code": int(refused.status[:3])}})

    def _told(self, path: str) -> Any:
        if path == "/version" and self._owner == VLLM:
            return {"version": "0.32.0"}
        if path == "/steps":
            return {"steps": self.model.steps, "busy_s": self.model.busy_s}
        if path == "/v1/models":
            about = {"object": "model", "created": CREATED, "owned_by": self._owner, "root": ""}
            listed = [
                {"id": name, **about, "parent": None, "max_model_len": 131_072}
                for name in writer.STYLES
            ]
            return {"object": "list", "data": listed}
        raise Refusal("404 Not Found", "Not Found")

    # --- answers ------------------------------------------------------------------------------

    def _reply(self, body: Mapping[str, Any], tag: str, results: writer.Results) -> writer.Reply:
        style = body.get("model")
        if style not in writer.STYLES:
            raise Refusal("404 Not Found", f"The model `{style}` does not exist.")
        if tag not in self._demands:
            raise Refusal("400 Bad Request", f"there is no task {tag}")
        return writer.reply(str(style), self._demands[tag], results)

    async def _complete(self, body: dict[str, Any], out: asyncio.StreamWriter) -> None:
        prompt = str(body["prompt"])
        try:
            reply = self._reply(body, *writer.shown(prompt))
        except LookupError as unknown:
            raise Refusal("400 Bad Request", str(unknown)) from None
        tokens = writer.as_text(body["model"], reply)
        if (form := body.get("response_format")) is not None:
            self._check(form["json_schema"]["schema"], "".join(tokens))
        stamp = self._stamp("cmpl", "text_completion", body)
        blank = {"index": 0, "logprobs": None, "finish_reason": None, "stop_reason": None}
        chunks = [{**blank, "text": token} for token in tokens]
        whole = {**blank, "text": "".join(tokens)}
        await self._write(body, out, stamp, prompt, chunks, whole, "stop")

    async def _chat(self, body: dict[str, Any], out: asyncio.StreamWriter) -> None:
        try:
            reply = self._reply(body, *writer.shown_in_chat(body["messages"]))
        except LookupError as unknown:
            raise Refusal("400 Bad Request", str(unknown)) from None
        offered = {one["function"]["name"] for one in body.get("tools") or ()}
        if unknown_tools := {call.tool for call in reply.calls} - offered:
            raise Refusal("400 Bad Request", f"there are no tools {sorted(unknown_tools)}")
        deltas = writer.as_chat(body["model"], reply)
        blank = {"index": 0, "logprobs": None, "finish_reason": None}
        chunks = [{**blank, "delta": delta} if delta else None for delta in deltas]
        ends = "tool_calls" if reply.calls else "stop"
        prompt = json.dumps([body.get("tools"), body["messages"]], ensure_ascii=False)
        stamp = self._stamp("chatcmpl", "chat.completion.chunk", body)
        whole = {**blank, "message": _message(deltas)}
        await self._write(body, out, stamp, prompt, chunks, whole, ends)

    def _check(self, schema: Mapping[str, Any], text: str) -> None:
        """What constrained decoding would not have written is refused."""
        key = json.dumps(schema)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator(schema)
        for error in self._validators[key].iter_errors(json.loads(text)):
            raise Refusal("400 Bad Request", f"the schema forbids the plan: {error.message[:200]}")

    async def _write(
        self,
        body: Mapping[str, Any],
        out: asyncio.StreamWriter,
        stamp: dict[str, Any],
        prompt: str,
        chunks: list[Any],
        whole: dict[str, Any],
        ends: str,
    ) -> None:
        """The answer, token by token or at once. `max_tokens` ends it earlier."""
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(chunks)
        if limit < len(chunks):
            chunks, ends = chunks[:limit], "length"
        made = self._made(prompt, len(chunks))
        usage = {"prompt_tokens": len(prompt) // TOKEN + 1, "completion_tokens": len(chunks)}
        usage["total_tokens"] = sum(usage.values())
        cached = 0
        async with aclosing(made):  # type: ignore[type-var]
            if not body.get("stream"):
                async for number in made:
                    cached = -1 - number if number < 0 else cached
                stamp["object"] = stamp["object"].removesuffix(".chunk")
                told = {"usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}}}
                await _send(out, "200 OK", {**stamp, "choices": [_ended(whole, ends)], **told})
                return
            kind = "text/event-stream; charset=utf-8"
            head = HEAD.format(status="200 OK", kind=kind)
            out.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
            async for number in made:
                if number < 0:
                    cached = -1 - number
                    if stamp["object"] == "chat.completion.chunk":
                        _event(out, stamp, _chat_choice({"role": "assistant", "content": ""}))
                elif chunks[number] is not None:
                    _event(out, stamp, chunks[number])
                if out.transport.is_closing():
                    raise ConnectionResetError
            _event(out, stamp, _last(stamp, ends))
            if (body.get("stream_options") or {}).get("include_usage"):
                usage["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
                _data(out, json.dumps({**stamp, "choices": [], "usage": usage}))
            _data(out, "[DONE]")
            out.write(b"0\r\n\r\n")
            await out.drain()

    def _made(self, prompt: str, count: int) -> AsyncIterator[int]:
        return self.model.generate(prompt, count)

    def _stamp(self, prefix: str, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._count += 1
        return {
            "id": f"{prefix}-{self._count}",
            "object": kind,
            "created": CREATED,
            "model": body["model"],
        }


def _chat_choice(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}


def _last(stamp: Mapping[str, Any], ends: str) -> dict[str, Any]:
    """The choice of the last chunk, which says why the answer ends."""
    if stamp["object"] == "chat.completion.chunk":
        return _ended(_chat_choice({}), ends)
    return {"index": 0, "text": "", "logprobs": None, "finish_reason": ends, "stop_reason": None}


def _ended(choice: Mapping[str, Any], ends: str) -> dict[str, Any]:
    return {**choice, "finish_reason": ends}


def _message(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the deltas add up to."""
    content, calls = "", list[dict[str, Any]]()
    for delta in deltas:
        content += delta.get("content", "")
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                function = dict(piece["function"])
                calls.append({"id": piece["id"], "type": "function", "function": function})
            else:
                function = calls[piece["index"]]["function"]
                function["arguments"] += piece["function"]["arguments"]
    return {"role": "assistant", "content": content or None, "tool_calls": calls}


def _event(out: asyncio.StreamWriter, stamp: Mapping[str, Any], choice: Any) -> None:
    _data(out, json.dumps({**stamp, "choices": [choice], "usage": None}, ensure_ascii=False))


def _data(out: asyncio.StreamWriter, text: str) -> None:
    line = f"data: {text}\n\n".encode()
    out.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


async def _send(out: asyncio.StreamWriter, status: str, value: object) -> None:
    body = json.dumps(value).encode()
    head = HEAD.format(status=status, kind="application/json")
    out.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await out.drain()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.agents.server")
    parser.add_argument("--tasks", type=Path, required=True, metavar="FILE")
    parser.add_argument("--step-ms", type=float, required=True, metavar="MS")
    parser.add_argument("--owner", default=VLLM, metavar="NAME")
    given = parser.parse_args()
    demands = Demand.read(given.tasks.read_text(encoding="utf-8"))
    asyncio.run(Server(demands, given.step_ms / 1e3, given.owner).serve())


if __name__ == "__main__":
    main()
