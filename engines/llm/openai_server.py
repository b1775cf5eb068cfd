"""A language model behind any OpenAI-compatible server: vLLM, SGLang, llama.cpp, a gateway, OpenAI.

Prefilling a prefix is *prefix warming*: the prefix is sent with a limit of one output token, the
result is dropped, and the server's prefix cache keeps the blocks for the full prompt that follows.
That pays on servers with such a cache, which a vLLM is known to be, and costs money elsewhere; so
it is declared (`EngineSpec.prefix_reuse`) only for a vLLM, or where the option says so.

Nothing is retried here: whether a failed call may be repeated is the scheduler's business.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    SequenceHandle,
    Usage,
)
from teola.errors import EngineError, EngineUnavailable, InputError, UnknownName
from teola.graph.ops import DECODES, PREFILLS

from . import chat_prompt, openai_probe, openai_wire

if TYPE_CHECKING:
    from openai import AsyncOpenAI

APIS: Final = ("auto", "chat", "completions")
DRAIN_LIMIT_S: Final = 0.2

_T = TypeVar("_T")


class OpenAIServer:
    """`LanguageModel` over HTTP.

    url: where the API begins, usually ending in /v1 (added to a bare host). model: None is the
    first that the server lists. timeout_s: longest silence of the server; the query's deadline
    holds besides. max_batch: prompt tokens in flight. api: "chat", "completions" (base models),
    or "auto" (chat, unless the server says that the model has no chat template). prefix_reuse:
    None finds out. send_priority: for a vLLM started with --scheduling-policy priority.
    salt_key: secret that keeps tenants' prefix caches apart on a vLLM.
    Raises InputError (url), UnknownName (api).
    """

    def __init__(
        self,
        name: str = "llm",
        *,
        url: str,
        model: str | None = None,
        api_key: str | None = None,
        api: str = "chat",
        max_batch: int = 8192,
        max_sequences: int = 32,
        block_tokens: int = 16,
        timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
        prefix_reuse: bool | None = None,
        send_priority: bool = False,
        salt_key: str = "",
    ) -> None:
        if api not in APIS:
            raise UnknownName("api", api, APIS, f"engine {name!r}")
        self._name, self._url = name, openai_probe.api_url(url)
        self._server = f"{name} at {openai_probe.shown(self._url)}"
        self._model, self._api_key, self._api = model, api_key, api
        self._max_batch, self._max_sequences = max_batch, max_sequences
        self._block_tokens = block_tokens
        self._timeout_s, self._connect_timeout_s = timeout_s, connect_timeout_s
        self._prefix_reuse = prefix_reuse
        self._send_priority, self._salt_key = send_priority, salt_key
        self._chats = api != "completions"
        self._is_vllm = False
        self._client: AsyncOpenAI | None = None

    @property
    def spec(self) -> EngineSpec:
        """`prefix_reuse` is known after `start`, unless the option says it."""
        known = self._prefix_reuse
        return EngineSpec(
            name=self._name,
            kind=EngineKind.LLM,
            ops=PREFILLS | DECODES,
            max_batch=self._max_batch,
            max_sequences=self._max_sequences,
            prefix_reuse=self._is_vllm if known is None else known,
            block_tokens=self._block_tokens,
            description=f"{self._model or 'first model'} at {openai_probe.shown(self._url)}",
        )

    @property
    def model(self) -> str | None:
        """The model's name on the server; before `start` perhaps not yet known."""
        return self._model

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Ask the server who it is. Raises EngineUnavailable, within 10 s."""
        self._client = await asyncio.to_thread(self._new_client)
        served = await openai_probe.probe(self._client, self._server)
        if self._model is None and not served.models:
            raise EngineUnavailable(f"{self._server} lists no model: name one", retryable=False)
        self._model = self._model or served.models[0]
        self._is_vllm = served.is_vllm

    def _new_client(self) -> AsyncOpenAI:
        """Imports the SDK, which takes a second, with what it would import at the first call."""
        import httpx
        import openai.resources.chat.completions
        import openai.resources.completions

        return openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._api_key or "none",
            max_retries=0,
            timeout=httpx.Timeout(None, connect=self._connect_timeout_s),
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    # --- calls --------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """An estimate: the tokenizer is the server's."""
        return len(text) // 4 + 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """Warm the server's prefix cache; nothing is sent where that gains nothing."""

        async def send() -> None:
            await self._endpoint().with_raw_response.create(**self._body(call, complete=False))

        parts = call.all_parts
        if parts and self.spec.prefix_reuse:
            await self._send(call, send)
        instance = call.prefix.instance if call.prefix else 0
        return SequenceHandle(engine=self._name, instance=instance, parts=parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer. Closing the generator closes the connection, on which the server
        stops. Raises EngineError, EngineUnavailable."""
        reason, usage, written = None, None, 0
        async with AsyncExitStack() as stack:
            events = await self._open(call, stack)
            while (data := await self._within(call, lambda: anext(events, None))) is not None:
                if data == openai_wire.DONE:
                    await _drain(events)
                    break
                with self._translated():
                    piece = openai_wire.read_piece(data, self._server, str(self._model))
                reason, usage = piece.finish_reason or reason, piece.usage or usage
                if piece.text:
                    written += len(piece.text)
                    yield Delta(piece.text)
        reason = openai_wire.finish_reason(reason, self._server)
        yield Delta("", reason, usage or self._estimate(call, written))

    async def _open(self, call: Call, stack: AsyncExitStack) -> AsyncGenerator[str, None]:
        """The events of the call's stream, which `stack` will close."""

        async def send() -> AsyncIterator[bytes]:
            body = self._body(call, complete=True)
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            stream = self._endpoint().with_streaming_response.create(**body)
            response = await stack.enter_async_context(stream)
            return cast("AsyncIterator[bytes]", response.iter_bytes())

        events = openai_wire.events(await self._send(call, send))
        return await stack.enter_async_context(aclosing(events))

    async def _send(self, call: Call, send: Callable[[], Awaitable[_T]]) -> _T:
        if call.context.deadline <= time.monotonic():
            raise EngineError(f"not sent to {self._server}: the query's deadline has passed")
        try:
            return await self._within(call, send)
        except openai_wire.NoChatTemplate:
            if self._api != "auto":
                raise
            self._chats = False
            return await self._within(call, send)

    async def _within(self, call: Call, wait: Callable[[], Awaitable[_T]]) -> _T:
        """Awaits the server's next sign of life, and says so if it does not come in time."""
        left = call.context.deadline - time.monotonic()
        try:
            with self._translated():
                async with asyncio.timeout(min(left, self._timeout_s)):
                    return await wait()
        except TimeoutError:
            pass
        if left < self._timeout_s:
            raise EngineError(f"{self._server} did not answer before the query's deadline")
        raise EngineError(f"{self._server} was silent for {self._timeout_s:g} s", retryable=True)

    def _translated(self) -> AbstractContextManager[None]:
        return openai_wire.as_engine_errors(self._server, str(self._model))

    # --- requests -----------------------------------------------------------------------------

    def _endpoint(self) -> Any:
        """The SDK's resource; untyped, because request bodies are made for any server."""
        if self._client is None:
            raise EngineError(f"{self._server} is not started")
        return self._client.chat.completions if self._chats else self._client.completions

    def _body(self, call: Call, *, complete: bool) -> dict[str, Any]:
        """The request. Not `complete`: only to be prefilled, one token being the least."""
        decode, parts = call.decode, call.all_parts
        extra = self._vllm_fields(call) if self._is_vllm else {}
        body: dict[str, Any] = {
            "model": self._model,
            "temperature": decode.temperature,
            self._limit_field: decode.max_tokens if complete else 1,
        }
        if self._chats:
            body["messages"] = chat_prompt.messages(parts, complete=complete)
        else:
            body["prompt"] = chat_prompt.text(parts)
        if complete and decode.stop:
            body["stop"] = list(decode.stop)
        if complete and decode.schema and (self._chats or self._is_vllm):
            extra["response_format"] = _response_format(decode.schema)
        return body | {"extra_body": extra}

    @property
    def _limit_field(self) -> str:
        """OpenAI's own newer models know only the second name, most other servers the first."""
        openai_itself = urlsplit(self._url).hostname == "api.openai.com" and self._chats
        return "max_completion_tokens" if openai_itself else "max_tokens"

    def _vllm_fields(self, call: Call) -> dict[str, Any]:
        """What only a vLLM understands. Its smaller priorities go first, our larger ones do."""
        tenant = call.context.tenant.encode()
        salt = hmac.new(self._salt_key.encode(), tenant, hashlib.sha256).hexdigest()
        fields: dict[str, Any] = {"cache_salt": salt}
        if call.decode.ignore_eos:
            fields["ignore_eos"] = True
        if self._send_priority:
            fields["priority"] = -call.priority
        return fields

    def _estimate(self, call: Call, written: int) -> Usage:
        """For servers that send no counts."""
        prompt = sum(len(part.text) for part in call.all_parts)
        return Usage(prompt_tokens=prompt // 4 + 1, completion_tokens=written // 4 + 1)


def _response_format(schema: str) -> dict[str, Any]:
    try:
        parsed = json.loads(schema)
    except ValueError:
        raise InputError("the JSON schema of the answer is not JSON") from None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": parsed}}


async def _drain(events: AsyncGenerator[str, None]) -> None:
    """Reads to the end of the body, so that the connection can be used again; the answer is
    complete, so this neither waits long nor fails."""
    import httpx

    with suppress(TimeoutError, ValueError, httpx.TransportError):
        async with asyncio.timeout(DRAIN_LIMIT_S):
            async for _ in events:
                pass
