"""A language model behind a vLLM, with prompts as token ids; behind anything else, as text.

At its start the engine finds out what the server can do (`vllm_probe`). Where prompts may be sent
as ids and the model's tokenizer is within reach, every part of a prompt is tokenised on its own,
and what a partial prefilling sends is exactly the beginning of what the full one will:

    prefill(instruction)             POST ids[:40], max_tokens 1; the answer is dropped
    prefill(context)   after it      POST ids[:900], max_tokens 1
    generate(question) after it      POST ids, stream; first event = prefilled, then it decodes

The server keeps the blocks in between because it caches prefixes; nothing of it is changed. Where
it publishes what becomes of them, that is passed on (`vllm_feed`, `vllm_events`). Any
other server, and a chat template that cannot be cut, is spoken to as `OpenAIServer` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Final

from teola.engine import (
    Call,
    Delta,
    EngineSpec,
    Keys,
    PrefixChange,
    Reading,
    SequenceHandle,
    TextPart,
)
from teola.errors import EngineError
from teola.kv import follow, root

from ..openai import wire
from ..openai.probe import Listed
from . import block_keys, server_tokens, vllm_feed, vllm_metrics, vllm_probe
from .openai_server import OpenAIServer, estimated_usage
from .server_tokens import ServerTokens
from .vllm_events import REPORT_ALL, StoredBlocks
from .vllm_feed import EventFeed
from .vllm_probe import Capabilities

METRICS_LIMIT_S: Final = 2.0


class VLLMServer:
    """`LanguageModel` over HTTP that makes the most of the server it finds.

    url, model, api_key, max_sequences, timeout_s, connect_timeout_s, agent_hints, salt_key: as for
    `OpenAIServer`. api: "auto" (chat, if the model has a template), "chat" or "completions".
    max_batch: prompt tokens in flight, at most what the server's KV cache holds.
    prefix_reuse, send_priority: None finds out. tokenizer: the model's folder, if it is not where
    the server says. token_ids: False sends text. kv_events: where the server publishes what its
    prefix cache keeps, such as tcp://host:5557; empty: nowhere. Raises InputError (url, kv_events),
    UnknownName (api).
    """

    def __init__(
        self,
        name: str = "llm",
        *,
        url: str,
        model: str | None = None,
        api_key: str | None = None,
        api: str = "auto",
        max_batch: int = 8192,
        max_sequences: int = 32,
        timeout_s: float | None = None,
        connect_timeout_s: float = 5.0,
        prefix_reuse: bool | None = None,
        send_priority: bool | None = None,
        agent_hints: bool | None = None,
        salt_key: str = "",
        tokenizer: str | None = None,
        token_ids: bool = True,
        kv_events: str = "",
    ) -> None:
        self._plain = OpenAIServer(
            name,
            url=url,
            model=model,
            api_key=api_key,
            api=api,
            max_batch=max_batch,
            max_sequences=max_sequences,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            prefix_reuse=prefix_reuse,
            agent_hints=agent_hints,
            salt_key=salt_key,
        )
        self._connection = self._plain.connection
        self._name, self._api = name, api
        self._prefix_reuse = prefix_reuse
        self._send_priority = send_priority
        self._tokenizer, self._wants_ids = tokenizer, token_ids
        self._kv_events = vllm_feed.check(kv_events, name) if kv_events else ""
        self._feed: EventFeed | None = None
        self._kept: StoredBlocks | None = None
        self._tokens: ServerTokens | None = None
        self.capabilities = Capabilities()
        """What the server can do, once started."""

    @property
    def spec(self) -> EngineSpec:
        """Complete only after `start`."""
        found, spec = self.capabilities, self._plain.spec
        reuse = self._prefix_reuse
        if reuse is None:
            reuse = spec.prefix_reuse if found.prefix_caching is None else found.prefix_caching
        return replace(
            spec,
            max_batch=min(spec.max_batch, found.kv_tokens or spec.max_batch),
            block_tokens=self.block_tokens,
            kv_blocks=found.kv_tokens // self.block_tokens if found.kv_tokens else None,
            keeps_prefixes=reuse,
            prefix_reuse=reuse and (self._tokens is None or self._tokens.splittable),
        )

    @property
    def block_tokens(self) -> int:
        """Of one block of the server's cache; a guess before `start`, or if it does not tell."""
        return self.capabilities.block_tokens or self._plain.block_tokens

    @property
    def model(self) -> str | None:
        """The model's name on the server; before `start` perhaps not yet known."""
        return self._plain.model

    @property
    def reading(self) -> Reading | None:
        """How prompts become ids; None where they are sent as text."""
        return self._tokens.reading if self._tokens else None

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find out who the server is and what it can do. Raises EngineUnavailable, or EngineError
        (it fails at a first token)."""
        await self._plain.start()
        served, model = self._plain.served, str(self.model)
        self.capabilities = await vllm_probe.ask(self._connection, served, model)
        if self._wants_ids and served.caches_prefixes:
            await self._connect_tokenizer(model)
        found = self.capabilities.priority
        self._plain.send_priority = found if self._send_priority is None else self._send_priority
        if self._kv_events:
            self._feed = EventFeed(self._kv_events)

    def _listed(self) -> Listed | None:
        return next((one for one in self._plain.served.models if one.name == self.model), None)

    async def _connect_tokenizer(self, model: str) -> None:
        served, listed = self._plain.served, self._listed()
        root = self._tokenizer or (listed.root if listed else "")
        try:
            tokens = await server_tokens.connect(self._connection, model, root, self._api)
        except server_tokens.NoTokenizer:
            return
        self.capabilities = await vllm_probe.attempt(self._connection, self.capabilities, served)
        if self.capabilities.token_ids:
            self._tokens = tokens

    async def close(self) -> None:
        """Close all connections."""
        self._tokens = None
        if self._feed is not None:
            self._feed.close()
        await self._plain.close()

    # --- calls --------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """Exact where the tokenizer is here or has seen the text; else four characters a token."""
        known = self._tokens.count(text) if self._tokens else None
        return self._plain.count_tokens(text) if known is None else known

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """By the ids that would be sent; by the text where text would be sent.

        Not on the event loop: it may ask the server, which keeps the loop in motion.
        """
        salt, tokens = self._plain.salt(call.context), self._tokens
        if tokens is not None:
            known, parts, before = _unknown(call)
            with suppress(EngineError, TypeError), self._connection.translated():
                ids = [*known, *tokens.compute(parts, complete=complete, after=before)]
                return block_keys.of_ids(ids, self.block_tokens, salt)
        return block_keys.of_text(call.all_parts, self.block_tokens, salt)

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        """What the server's cache keeps, if it publishes that and is sent ids."""
        feed, listed = self._feed, self._listed()
        if feed is None or self._tokens is None:
            return
        size, held = self.block_tokens, self.capabilities.kv_tokens
        blocks = self._kept = StoredBlocks(
            size,
            salted=self._plain.served.is_vllm,
            lora=listed.name if listed and listed.parent else None,
            limit=held // size if held else None,
        )
        async with aclosing(feed.changes(blocks)) as changes:
            async for change in changes:
                yield change

    async def prefill(self, call: Call) -> SequenceHandle:
        """Warm the server's prefix cache with the ids so far. Raises EngineError."""
        if self._tokens is None:
            return await self._plain.prefill(call)
        ids = await self._ids(self._tokens, call, complete=False)
        if ids and self.spec.prefix_reuse:
            self._check(ids, 1)
            await self._connection.send(call.context, self._body(call, ids, complete=False))
        instance = call.prefix.instance if call.prefix else 0
        return SequenceHandle(self._name, instance, call.all_parts, tuple(ids))

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer, the first Delta with the first token. Closing the generator closes the
        connection, on which the server stops. Raises EngineError, EngineUnavailable."""
        if not any(part.text.strip() for part in call.all_parts):
            raise EngineError(f"the prompt for {self._connection.server} is empty: give it a text")
        if self._tokens is None:
            stream = self._plain.generate(call)
        else:
            ids = await self._ids(self._tokens, call, complete=True)
            self._check(ids, call.decode.max_tokens)
            body = self._body(call, ids, complete=True)
            stream = self._connection.stream(
                call.context, body, lambda n: estimated_usage(call, n), empty=True
            )
        async with aclosing(stream):  # type: ignore[type-var]
            async for delta in stream:
                yield delta

    async def capacity(self) -> int | None:
        """Tokens of KV that are free on the server now; None if it does not tell.

        One small request, whatever the server is doing. Raises EngineError, EngineUnavailable.
        """
        if not self.capabilities.metrics:
            return None
        page = await self._connection.get("/metrics", METRICS_LIMIT_S)
        try:
            return vllm_metrics.read(page).free_tokens
        except ValueError:
            return None

    # --- requests -----------------------------------------------------------------------------

    async def _ids(self, tokens: ServerTokens, call: Call, *, complete: bool) -> list[int]:
        """The prompt's ids: those of the prefix, which were sent, and those of what follows."""
        known, parts, before = _unknown(call)
        with self._connection.translated():
            return [*known, *await tokens.ids(parts, complete=complete, after=before)]

    def _body(self, call: Call, ids: list[int], *, complete: bool) -> dict[str, Any]:
        body = self._plain.body(call, {"prompt": ""}, complete=complete)
        # The SDK looks at every item of what it knows: 15 ms for 1,700 ids. Not at what is extra.
        body["extra_body"]["prompt"] = ids
        if self._kept is not None and self._plain.served.is_vllm:
            size, salt = self.block_tokens, self._plain.salt(call.context)
            first = follow(root(salt), ids[:size], size)
            if first and self._kept.missed(first[0]):
                body["extra_body"]["vllm_xargs"] = REPORT_ALL
        return body

    def _check(self, ids: list[int], output: int) -> None:
        """Raises EngineError for a prompt that is longer than the model's window."""
        server, model, limit = self._connection.server, str(self.model), self.capabilities.window
        if limit is not None and len(ids) + output > limit:
            raise wire.too_long(server, model, limit, len(ids), output)


def _unknown(call: Call) -> tuple[Sequence[int], Sequence[TextPart], Sequence[TextPart]]:
    """The ids that the call's prefix has already, the parts that have none, what precedes them."""
    prefix = call.prefix
    if prefix is None or not prefix.token_ids:
        return (), call.all_parts, ()
    return prefix.token_ids, call.parts, prefix.parts
