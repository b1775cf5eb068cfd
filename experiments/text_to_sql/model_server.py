"""The scripted model behind OpenAI's API, in a process of its own: `... model_server SCRIPT`.

It takes 20 ms for a token of an answer and 0.1 ms for one of a prompt that it has not seen. It
answers text-to-sql, agents with tools, and prompts of LlamaIndex, each in its own form, with the
same SQL. The model's name says who asks; GET /counts?model=NAME tells and forgets what was asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from experiments.text_to_sql.script import ANSWER, CANNOT, TAG, TESTS, Play, next_of, reply
from teola_apps.asking_sql import prompts

TOKEN_S: Final = 0.020
PREFILL_S: Final = 0.0001
CHARACTERS: Final = 4
BLOCK: Final = 64
"""Characters of a block of the prefix cache: 16 tokens."""
PIECE: Final = 8
"""Tokens that are sent at once."""


class Model:
    """What is said, and what it costs. factor: of all times."""

    def __init__(self, plays: dict[str, Play], factor: float) -> None:
        self.plays, self.factor = plays, factor
        self._blocks: dict[str, set[int]] = defaultdict(set)
        self.counts: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)

    def prefill(self, model: str, prompt: str) -> tuple[int, int]:
        """Tokens of a prompt, and how many of them were seen before."""
        known, key, cached, fresh = self._blocks[model], 0, 0, False
        for at in range(0, len(prompt) - BLOCK + 1, BLOCK):
            key = hash((key, prompt[at : at + BLOCK]))
            fresh = fresh or key not in known
            cached += 0 if fresh else BLOCK
            known.add(key)
        return len(prompt) // CHARACTERS + 1, cached // CHARACTERS

    def count(self, model: str, tag: str, tokens: int, cached: int, repair: bool) -> None:
        of = self.counts[model].setdefault(
            tag, {"calls": 0, "rounds": 0, "prompt_tokens": 0, "cached_tokens": 0}
        )
        of["calls"] += 1
        of["rounds"] += repair
        of["prompt_tokens"] += tokens
        of["cached_tokens"] += cached

    def said(self, body: dict[str, Any]) -> tuple[str, str, dict[str, Any] | None, bool]:
        """Tag, text, a call of a tool, and whether a statement is repaired."""
        messages = body["messages"]
        prompt = "\n".join(_text(message) for message in messages)
        tags = TAG.findall(prompt)
        play = self.plays[tags[-1]]
        if body.get("tools"):
            return (play.tag, *_by_tools(play, messages))
        if "You write SQL that answers" in prompt:
            return (play.tag, *_candidate(play, prompt))
        if prompts.TESTS[:40] in prompt:
            return play.tag, TESTS, None, False
        if prompts.EVALUATE[:40] in prompt:
            passed = [str(n) for n in (1, 2) if f"Statement {n}:\n{play.gold}" in prompt]
            return play.tag, ", ".join(passed) or "none", None, False
        if prompts.ANSWER[:40] in prompt or "synthesize a response" in prompt:
            return play.tag, ANSWER, None, False
        if "SQLQuery" in prompt or "syntactically correct" in prompt:
            steps = play.one
            return play.tag, steps[0] if steps else "SELECT 'cannot' AS answer", None, False
        raise LookupError(prompt[:200])


def _candidate(play: Play, prompt: str) -> tuple[str, None, bool]:
    attempt = prompt[prompt.rindex(f"[{play.tag}]") :]
    repairs = "What is wrong:" in attempt
    if not play.first:
        return CANNOT, None, repairs
    steps = play.second if prompts.STYLES[1][:10] in attempt else play.first
    return reply(next_of(steps, attempt if repairs else "")), None, repairs


def _by_tools(
    play: Play, messages: list[dict[str, Any]]
) -> tuple[str, dict[str, Any] | None, bool]:
    """The way of an agent: tables, their schema, the statement, perhaps a better one, words."""
    results = [message for message in messages if message["role"] == "tool"]
    if not results:
        return "", {"name": "sql_db_list_tables", "arguments": {"tool_input": ""}}, False
    if len(results) == 1:
        return (
            "",
            {"name": "sql_db_schema", "arguments": {"table_names": ", ".join(play.tables)}},
            False,
        )
    if not play.first:
        return "I cannot tell from this data.", None, False
    tried = len(results) - 2
    last = _text(results[-1])
    wrong = tried > 0 and (last.startswith("Error") or last.strip() in ("", "[]"))
    if tried == 0 or (wrong and tried < len(play.one)):
        return "", {"name": "sql_db_query", "arguments": {"query": play.one[tried]}}, tried > 0
    return ANSWER, None, False


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


def app_of(model: Model) -> Starlette:
    """Its routes."""

    async def models(request: Request) -> Response:
        names = ["teola", "asyncio", "langchain", "llama_index"]
        about = {"object": "model", "created": 0, "owned_by": "script", "max_model_len": 131_072}
        return JSONResponse({"object": "list", "data": [{"id": n, **about} for n in names]})

    async def counts(request: Request) -> Response:
        return JSONResponse(model.counts.pop(request.query_params["model"], {}))

    async def chat(request: Request) -> Response:
        body = await request.json()
        began = time.monotonic()
        name = body["model"]
        prompt = json.dumps(body.get("tools") or "") + "\n".join(map(_text, body["messages"]))
        tag, text, call, repair = model.said(body)
        tokens, cached = model.prefill(name, prompt)
        model.count(name, tag, tokens, cached, repair)
        written = text or json.dumps(call)
        out = len(written) // CHARACTERS + 1
        first = began + model.factor * ((tokens - cached) * PREFILL_S + TOKEN_S)
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": out,
            "total_tokens": tokens + out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        head = {"id": f"c-{tag}-{began}", "created": 0, "model": name}
        if body.get("stream"):
            pieces = _stream(model, body, head, text, call, out, first, usage)
            return StreamingResponse(pieces, media_type="text/event-stream")
        await _until(first + model.factor * (out - 1) * TOKEN_S)
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if call is not None:
            message["tool_calls"] = [_called(call, tag, began)]
        reason = "tool_calls" if call else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return JSONResponse(
            {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )

    return Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/counts", counts),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ]
    )


def _called(call: dict[str, Any], tag: str, began: float) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"id": f"call-{tag}-{began}", "type": "function", "function": function}


async def _stream(
    model: Model,
    body: dict[str, Any],
    head: dict[str, Any],
    text: str,
    call: dict[str, Any] | None,
    out: int,
    first: float,
    usage: dict[str, Any],
) -> AsyncIterator[str]:
    def event(delta: dict[str, Any], reason: str | None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        return f"data: {json.dumps(chunk)}\n\n"

    await _until(first)
    yield event({"role": "assistant", "content": ""}, None)
    size = PIECE * CHARACTERS
    for at in range(0, len(text), size):
        done = min(out, (at + size) // CHARACTERS)
        await _until(first + model.factor * (done - 1) * TOKEN_S)
        yield event({"content": text[at : at + size]}, None)
    if call is not None:
        await _until(first + model.factor * (out - 1) * TOKEN_S)
        yield event({"tool_calls": [{"index": 0, **_called(call, "t", first)}]}, None)
    yield event({}, "tool_calls" if call else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        chunk = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


async def _until(when: float) -> None:
    if (left := when - time.monotonic()) > 0:
        await asyncio.sleep(left)


def main(script: Path, port: int, factor: float) -> None:
    """Serve until killed."""
    listed = json.loads(script.read_text(encoding="utf-8"))
    plays = {
        one["tag"]: Play(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in one.items()
            }
        )
        for one in listed
    }
    app = app_of(Model(plays, factor))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
