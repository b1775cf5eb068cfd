"""The scripted model server: `python -m experiments.tables_peers.server`.

An OpenAI-compatible server on a real socket. Its times are those of the profile `llama2-7b-l4`,
twenty times as fast, on a StepServer: continuous batching, a cache of prefixes in as much memory as
the machine of the profile has (evicted by last use), and counters of what it found. What it says is
computed from the row in the prompt (`answers`). It tells its address on a line, and then does what
it is told on lines of JSON: {"instruction", "fields"} begins anew, {} tells what was asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from experiments.common.http_requests import ClientLeft, Received, read_request, unless_left
from experiments.tables_peers.answers import POISON, TOKENS, NoRow, answer_to, fields_in
from teola.instance import StepServer, TokenSequence
from teola.kv import BlockCache
from teola.kv.policies import make_policy
from teola.profile import EngineProfile, load_profile

PROFILE: Final = "llama2-7b-l4"
FASTER: Final = 20
CHARACTERS: Final = 4
"""Of a token."""
MODEL: Final = "scripted"
STEP_TOKENS: Final = 2048
SEQUENCES: Final = 256
EVICTION: Final = "lru"
_CREATED: Final = 1_760_000_000


class Model:
    """Sequences on a StepServer, step by step in real time."""

    def __init__(self) -> None:
        self.profile: EngineProfile = load_profile(PROFILE).engines["llm"]
        self.begin("", ())
        self._arrived = asyncio.Event()
        self._ids = count()

    def begin(self, instruction: str, fields: Sequence[str]) -> None:
        """Forget everything. fields: of a row, whose prompt begins with the instruction."""
        profile = self.profile
        policy = make_policy(EVICTION)
        cache = BlockCache(profile.kv_blocks, profile.block_tokens, policy)
        self._server = StepServer(STEP_TOKENS, SEQUENCES, cache)
        self._waiting: dict[Hashable, asyncio.Future[int]] = {}
        self.instruction, self.fields = instruction, tuple(fields)
        self.calls = self.answered = self.refused = self.unreadable = self.strange = 0
        self.untaken: set[object] = set()
        """Connections with an answer after which the client has neither asked again nor closed
        them: it may not have read the answer yet."""
        self.prompt_tokens = self.hit_tokens = 0
        self.work_s = 0.0
        """What the model itself took for its steps."""

    def counters(self) -> dict[str, float]:
        """What was asked since it began."""
        return {
            "calls": self.calls,
            "answered": self.answered,
            "taken": self.answered - len(self.untaken),
            "refused": self.refused,
            "unreadable": self.unreadable,
            "strange": self.strange,
            "prompt_tokens": self.prompt_tokens,
            "hit_tokens": self.hit_tokens,
            "work_s": self.work_s,
        }

    async def generate(self, prompt: str) -> int:
        """Compute a prompt and an answer; how many tokens of the prompt were found."""
        id, server = next(self._ids), self._server
        length = len(prompt) // CHARACTERS + 1
        sequence = TokenSequence(id, length, TOKENS, keys=keys(prompt, self.profile.block_tokens))
        waiting = self._waiting[id] = asyncio.get_running_loop().create_future()
        server.add(sequence)
        self._arrived.set()
        try:
            cached: int = await waiting
        finally:
            self._waiting.pop(id, None)
            server.abort(id, time.monotonic())
        self.prompt_tokens += length
        self.hit_tokens += cached
        return cached

    async def run(self) -> None:
        """Take steps, for ever."""
        due = time.monotonic()
        sequences: dict[Hashable, TokenSequence] = {}
        while True:
            server = self._server
            step = server.plan(time.monotonic())
            if step is None:
                self._arrived.clear()
                await self._arrived.wait()
                due = time.monotonic()
                continue
            sequences |= {one.sequence.id: one.sequence for one in step.prefills}
            seconds = self.profile.step.seconds(
                step.decodes, step.context, step.tokens, step.pairs, 1
            )
            self.work_s += seconds / FASTER
            due += seconds / FASTER  # a timer that is late is made up for
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if server is not self._server:
                continue
            for event in server.finish(step, time.monotonic()):
                waiting = self._waiting.get(event.id) if event.kind == "end" else None
                if event.kind == "end":
                    sequence = sequences.pop(event.id, None)
                    if waiting is not None and not waiting.done() and sequence is not None:
                        waiting.set_result(sequence.cached)


def keys(prompt: str, block_tokens: int) -> tuple[int, ...]:
    """Of the prompt's full blocks, each by all that stands before its end."""
    size, found, before = block_tokens * CHARACTERS, list[int](), 0
    for at in range(0, len(prompt) - size + 1, size):
        before = hash((before, prompt[at : at + size]))
        found.append(before)
    return tuple(found)


def prompt_of(body: Mapping[str, Any]) -> str:
    """All that a model reads: tools first, as chat templates have them, then messages by role."""
    if "messages" not in body:
        return str(body.get("prompt", ""))
    shown = [json.dumps(body[name]) for name in ("tools", "response_format") if body.get(name)]
    return "\n".join([*shown, *(f"{one['role']}: {_text(one)}" for one in body["messages"])])


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def reply_to(body: Mapping[str, Any], answer: str) -> tuple[str | None, list[dict[str, Any]]]:
    """The text of an answer, or its call of a tool: each text that a schema asks for is it."""
    if tools := body.get("tools"):
        function = tools[0]["function"]
        arguments = json.dumps(_filled(function["parameters"], answer))
        called = {"name": function["name"], "arguments": arguments}
        return None, [{"index": 0, "id": "call_0", "type": "function", "function": called}]
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return json.dumps(_filled(wanted["json_schema"]["schema"], answer)), []
    if wanted.get("type") == "json_object":
        return json.dumps({"answer": answer}), []
    if names := names_in_words(prompt_of(body)):
        return json.dumps(dict.fromkeys(names, answer)), []
    return answer, []


def names_in_words(prompt: str) -> list[str]:
    """The fields of the JSON object for which a prompt asks in words, as Palimpzest's does: lines
    `- name: what it is` below the last "OUTPUT FIELDS:"."""
    _, found, after = prompt.rpartition("\nOUTPUT FIELDS:\n")
    lines = after.split("\n\n", 1)[0].split("\n") if found else []
    return [line[2:].split(":", 1)[0] for line in lines if line.startswith("- ")]


def _filled(schema: Mapping[str, Any], answer: str) -> dict[str, str]:
    return dict.fromkeys(schema.get("properties", ()), answer)


class Server:
    """Answers connections."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        try:
            while (received := await read_request(ahead, reader)) is not None:
                self.model.untaken.discard(writer)
                ahead = await unless_left(self._answer(received, writer), reader)
        except (ConnectionError, ClientLeft, asyncio.IncompleteReadError):
            pass
        finally:
            self.model.untaken.discard(writer)
            writer.close()

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        path = received.path.removeprefix("/v1")
        if path == "/models":
            entry = {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "scripted"}
            await _send(writer, 200, {"object": "list", "data": [entry]})
        elif path in ("/chat/completions", "/completions"):
            await self._completes(received.body, writer)
        else:
            await _send(writer, 404, _error("there is no such page"))

    async def _completes(self, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        model, prompt = self.model, prompt_of(body)
        if model.instruction not in prompt:  # a client warms up, or writes the words anew
            model.strange += 1
            await _says(writer, body, "hello", _usage(1, 0))
            return
        model.calls += 1
        if POISON in prompt:
            model.refused += 1
            await _send(writer, 400, _error("the prompt is not allowed"))
            return
        try:
            answer = answer_to(fields_in(prompt, model.instruction, model.fields))
        except NoRow as error:
            model.unreadable += 1
            answer = f"unreadable: {error}"
        cached = await model.generate(prompt)
        model.answered += 1
        model.untaken.add(writer)
        await _says(writer, body, answer, _usage(len(prompt) // CHARACTERS + 1, cached))


async def _says(
    writer: asyncio.StreamWriter, body: Mapping[str, Any], answer: str, usage: Mapping[str, Any]
) -> None:
    if body.get("stream"):
        await _stream(writer, list(_events(body, answer, usage)))
    else:
        await _send(writer, 200, _whole(body, answer, usage))


def _usage(prompt: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": TOKENS,
        "total_tokens": prompt + TOKENS,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _whole(body: Mapping[str, Any], answer: str, usage: Mapping[str, Any]) -> dict[str, Any]:
    text, calls = reply_to(body, answer)
    stamp = {"id": "cmpl-1", "created": _CREATED, "model": MODEL, "usage": usage}
    if "messages" not in body:
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop"}
        return {**stamp, "object": "text_completion", "choices": [choice]}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if calls else "stop",
        "logprobs": None,
    }
    return {**stamp, "object": "chat.completion", "choices": [choice]}


def _events(
    body: Mapping[str, Any], answer: str, usage: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """An answer in one piece, its end, and what it took."""
    stamp = {"id": "cmpl-1", "created": _CREATED, "model": MODEL}
    chats = "messages" in body
    kind = "chat.completion.chunk" if chats else "text_completion"
    text, calls = reply_to(body, answer)
    delta: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        delta["tool_calls"] = calls
    said: dict[str, Any] = {"delta": delta} if chats else {"text": text}
    ends: dict[str, Any] = {"delta": {}} if chats else {"text": ""}
    reason = "tool_calls" if calls else "stop"
    for more, why in ((said, None), (ends, reason)):
        choice = {"index": 0, **more, "finish_reason": why}
        yield {**stamp, "object": kind, "choices": [choice]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**stamp, "object": kind, "choices": [], "usage": usage}


async def _stream(writer: asyncio.StreamWriter, events: Sequence[Mapping[str, Any]]) -> None:
    body = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in events)
    await _bytes(writer, 200, body + b"data: [DONE]\n\n", "text/event-stream")


async def _send(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    await _bytes(writer, status, json.dumps(value).encode(), "application/json")


async def _bytes(writer: asyncio.StreamWriter, status: int, body: bytes, kind: str) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def _error(text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "invalid_request_error", "code": 400}}


async def main() -> None:
    """Serve until the lines end."""
    model = Model()
    server = Server(model)
    listening = await asyncio.start_server(server.connection, "127.0.0.1", 0, backlog=1024)
    port = listening.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    steps = asyncio.create_task(model.run())
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        told = json.loads(line)
        if told:
            model.begin(told["instruction"], told["fields"])
        print(json.dumps(model.counters()), flush=True)
    steps.cancel()
    listening.close()


if __name__ == "__main__":
    asyncio.run(main())
