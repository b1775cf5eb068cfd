"""A real HTTP server that answers as OpenAI and vLLM document it, and misbehaves on request.

    with FakeOpenAI(answer=lambda messages: "Paris.") as server:
        engine = OpenAIServer(url=server.url)

It runs in a thread of its own. `server.script(...)` sets how the next completion requests are
answered, one behaviour each; after that, and without one, requests are answered well. Instead,
`server.cursed` has the behaviour for all prompts that hold a word. What was asked and how each
request ended is in `server.requests`. A prefix cache of 16-"token" blocks (4 characters a token) is
kept for each `cache_salt` and reported in the usage, as vLLM does.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from experiments.common.http_requests import ClientLeft, read_request, unless_left
from tests.fake_openai_answer import (
    Answer,
    Fail,
    Hang,
    Says,
    Seen,
    Stream,
    prompt_text,
)

__all__ = ["Fail", "FakeOpenAI", "Hang", "Says", "Seen", "Stream"]

Messages = list[dict[str, str]]
BLOCK = 64
"""Characters of one block of the prefix cache: 16 tokens of 4 characters."""

CONTEXT_LENGTH = (
    "This model's maximum context length is {limit} tokens. However, you requested {asked} tokens "
    "({prompt} in the messages, {output} in the completion). Please reduce the length of the "
    "messages or completion."
)
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a "
    "chat template if the tokenizer does not define one."
)
METRICS = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="fake-model"} 3.0
vllm:num_requests_waiting{engine="0",model_name="fake-model"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="fake-model",reason="capacity"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="fake-model"} 0.25
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",num_gpu_blocks="100"} 1.0
"""
HEALTH = {
    "status": "healthy",
    "endpoints": ["dyn://dynamo.backend.generate"],
    "instances": [
        {
            "component": "backend",
            "endpoint": "generate",
            "namespace": "dynamo",
            "instance_id": 7587887474120386829,
            "transport": {"nats_tcp": "dynamo_backend.generate-694d8b5e1f4a2a0d"},
        }
    ],
}
"""What a Dynamo's frontend says of its workers."""


class FakeOpenAI:
    """The server. `vllm=False` makes it any other one, with `dynamo` a Dynamo's frontend;
    `chat_template=False` a base model's.

    answer: a text, or a function of the messages. models: what GET /v1/models answers, an object
    or bytes, to be replaced at will. tokenizes: it has /tokenize and /detokenize, where a character
    is a token, and the metrics of a vLLM. at_once: completions that it works on; others are refused
    and told to come back `retry_after`. working: on how many it does.
    """

    def __init__(
        self,
        answer: str | Callable[[Messages], str] = "The answer is forty-two.",
        *,
        model: str = "fake-model",
        vllm: bool = True,
        api_key: str | None = None,
        chat_template: bool = True,
        context_tokens: int = 100_000,
        token_delay_s: float = 0.0,
        prefill_s_per_token: float = 0.0,
        tokenizes: bool = False,
        dynamo: bool = False,
        at_once: int | None = None,
        retry_after: str = "1",
    ) -> None:
        self._answer = answer if callable(answer) else lambda messages: answer
        self.model, self.vllm, self.api_key = model, vllm, api_key
        self.chat_template, self.context_tokens = chat_template, context_tokens
        self.token_delay_s, self.prefill_s_per_token = token_delay_s, prefill_s_per_token
        self.tokenizes, self.dynamo = tokenizes, dynamo
        owner, kind = ("nvidia", "object") if dynamo else ("vllm" if vllm else "fake", "model")
        entry = {"id": model, "object": kind, "created": 1_760_000_000, "owned_by": owner}
        self.models: object = {"object": "list", "data": [entry]}
        self.requests: list[Seen] = []
        self.connections = self.connected = 0
        self.in_flight = 0
        self.cursed: dict[str, Fail | Stream | Says | Hang] = {}
        self.at_once, self.retry_after, self.working = at_once, retry_after, 0
        self._script: list[Fail | Stream | Says | Hang] = []
        self._cache: dict[str, set[int]] = {}
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    # --- for tests ----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def calls(self) -> list[Seen]:
        """The completion requests only."""
        return [seen for seen in self.requests if seen.path.endswith("completions")]

    def script(self, *behaviours: Fail | Stream | Says | Hang) -> None:
        """How to answer the next completion requests, in order."""
        self._script.extend(behaviours)

    def wait(self, holds: Callable[[], bool], timeout_s: float = 5.0) -> bool:
        """Blocks until `holds()`, checked whenever a request begins, sends a token or ends."""
        with self._changed:
            return self._changed.wait_for(holds, timeout_s)

    def __enter__(self) -> FakeOpenAI:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # --- the server ---------------------------------------------------------------------------

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=256)
        )
        self._port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected += 1
        ahead = b""
        try:
            while (received := await read_request(ahead, reader)) is not None:
                self.requests.append(seen := Seen(*received))
                self._count(+1)
                try:
                    ahead = await self._serve(seen, reader, writer)
                finally:
                    seen.ended = time.monotonic()
                    self._count(-1)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connected -= 1
            writer.close()

    async def _serve(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Answers, while watching whether the client leaves; what it sent ahead, if anything."""
        try:
            return await unless_left(Answer(self, seen, writer).send(), reader)
        except ClientLeft:
            seen.disconnected = True
            raise

    def _count(self, change: int) -> None:
        self.in_flight += change
        self.changed()

    def changed(self) -> None:
        """Something happened that `wait` may be waiting for."""
        with self._changed:
            self._changed.notify_all()

    # --- what an answer depends on --------------------------------------------------------------

    def refusal(self, seen: Seen) -> Fail | None:
        """The error that the request deserves by itself."""
        body, wanted = seen.body, str(seen.body.get("model"))
        if self.api_key and seen.headers.get("authorization") != f"Bearer {self.api_key}":
            return Fail(401, "Incorrect API key provided.", code="invalid_api_key")
        if seen.path == "/tokenize" and self.tokenizes:
            return Fail(400, NO_TEMPLATE, "BadRequestError", 400)
        if not seen.path.startswith("/v1/"):
            return Fail(404, body=b'{"detail":"Not Found"}')
        if seen.method == "GET":
            return None
        if wanted != self.model:
            message = f"The model `{wanted}` does not exist."
            return Fail(404, message, "NotFoundError", 404 if self.vllm else "model_not_found")
        if seen.path.endswith("chat/completions") and not self.chat_template:
            return Fail(400, NO_TEMPLATE, "BadRequestError", 400)
        if self.at_once is not None and self.working >= self.at_once:
            message = "Rate limit reached for requests"
            headers = {"retry-after": self.retry_after}
            return Fail(429, message, "requests", "rate_limit_exceeded", headers=headers)
        prompt, output = len(prompt_text(body)) // 4 + 1, int(body.get("max_tokens", 16))
        if prompt + output > self.context_tokens:
            message = CONTEXT_LENGTH.format(
                limit=self.context_tokens, asked=prompt + output, prompt=prompt, output=output
            )
            return Fail(400, message, code=400 if self.vllm else "context_length_exceeded")
        return None

    def beside(self, seen: Seen) -> object | None:
        """What a server that tokenises answers outside its /v1."""
        body = seen.body
        if self.dynamo and seen.path == "/health":
            return HEALTH
        if not self.tokenizes or seen.path not in ("/tokenize", "/detokenize", "/metrics"):
            return None
        if seen.path == "/metrics":
            return METRICS
        if seen.path == "/detokenize":
            return {"prompt": "".join(map(chr, body["tokens"]))}
        if "messages" in body and not self.chat_template:
            return None
        text = prompt_text(body)
        ids = [1] if body.get("add_special_tokens") else []
        return {"tokens": ids + [ord(letter) for letter in text], "count": len(ids) + len(text)}

    def next_behaviour(self, body: dict[str, Any]) -> Fail | Stream | Says | Hang | None:
        if self.cursed:
            text = prompt_text(body)
            return next((self.cursed[word] for word in self.cursed if word in text), None)
        return self._script.pop(0) if self._script else None

    def tokens(self, body: dict[str, Any]) -> tuple[list[str], str]:
        """The answer's tokens, and why it ends."""
        default = [{"role": "user", "content": str(body.get("prompt"))}]
        text, reason = self._answer(body.get("messages", default)), "stop"
        for stop in body.get("stop") or ():
            text = text.split(stop)[0]
        tokens = re.findall(r"\s*\S+|\s+$", text)
        limit = int(body.get("max_tokens", 16))
        return tokens[:limit], "length" if len(tokens) > limit else reason

    def cached(self, body: dict[str, Any]) -> int:
        """Tokens of the prompt that an earlier prompt with the same salt has left in the cache."""
        text = prompt_text(body)
        cache = self._cache.setdefault(str(body.get("cache_salt")), set())
        blocks = [hash(text[:end]) for end in range(BLOCK, len(text), BLOCK)]
        known = next((i for i, block in enumerate(blocks) if block not in cache), len(blocks))
        cache.update(blocks)
        return known * BLOCK // 4
