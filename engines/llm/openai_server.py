"""A language model behind any OpenAI-compatible server: vLLM, SGLang, llama.cpp, a gateway, OpenAI.

Prefilling a prefix is *prefix warming*: the prefix is sent with a limit of one output token, the
result is dropped, and the server's prefix cache keeps the blocks for the full prompt that follows.
That pays on servers with such a cache, which some are known to be, and costs money elsewhere; so
it is declared (`EngineSpec.prefix_reuse`) only for those, or where the option says so.

Nothing is retried here: whether a failed call may be repeated is the scheduler's business.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    Keys,
    LeftOfMinute,
    QueryContext,
    SequenceHandle,
    Usage,
)
from teola.errors import EngineUnavailable, InputError, UnknownName
from teola.graph.ops import DECODES, PREFILLS

from ..openai import probe
from ..openai.calls import CallsText
from ..openai.connection import Connection
from ..openai.wire import NoChatTemplate, NoSchema, NoTools, UnknownField
from . import block_keys, chat_prompt
from .dynamo_hints import Hints
from .refused_tools import RefusedSchemas, RefusedTools

APIS: Final = ("auto", "chat", "completions")
EMPTY: Final = ("keep", "retry")
LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""What servers call the longest answer: most know the first, OpenAI's newer models only the
second."""
NEEDED: Final = frozenset({"model", "messages", "prompt", "stream"})
OURS: Final = frozenset({"messages", "prompt", "stream", "stream_options", "tools"})


class OpenAIServer:
    """`LanguageModel` over HTTP.

    url: where the API begins, usually ending in /v1 (added to a bare host). model: None is the
    first that the server lists. timeout_s: longest silence of the server; by default 120 s before
    an answer begins, and 30 s within it. The query's deadline holds besides. max_batch: prompt
    tokens in flight. api: "chat", "completions" (base models), or "auto" (chat, unless the server
    says that the model has no chat template). prefix_reuse: None finds out. send_priority: for a
    vLLM started with --scheduling-policy priority. agent_hints: the server is an NVIDIA Dynamo,
    which is told what is known of calls; None finds out. salt_key: secret that keeps tenants'
    prefix caches apart on a vLLM. independent: whether its calls do not hold one another up, as
    behind a provider's API; None takes that for so where the server is no vLLM, SGLang, Dynamo,
    llama.cpp, Ollama, LM Studio or TGI. body: fields that every request has besides, or in the
    place of ours; omit: those of ours that it does not take, such as temperature. limit_field: what
    requests call the longest answer; None finds out. empty: "retry" asks once more where an answer
    is empty, which costs a try. requests_per_minute, tokens_per_minute: what the API key may draw,
    prompts and answers together; None learns it from what the server says and refuses.
    Raises InputError (url, body, omit), UnknownName (api, empty, limit_field).
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
        timeout_s: float | None = None,
        connect_timeout_s: float = 5.0,
        prefix_reuse: bool | None = None,
        send_priority: bool = False,
        agent_hints: bool | None = None,
        independent: bool | None = None,
        salt_key: str = "",
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        body: Mapping[str, Any] | None = None,
        omit: Sequence[str] = (),
        limit_field: str | None = None,
        empty: str = "keep",
    ) -> None:
        where = f"engine {name!r}"
        if api not in APIS:
            raise UnknownName("api", api, APIS, where)
        if empty not in EMPTY:
            raise UnknownName("empty", empty, EMPTY, where)
        if limit_field not in (None, *LIMITS):
            raise UnknownName("limit_field", limit_field, LIMITS, where)
        if isinstance(omit, str) or not all(isinstance(field, str) for field in omit):
            raise InputError(f'{where}: omit must be a list of names, such as ["temperature"]')
        if set(omit) & NEEDED or set(body or {}) & OURS:
            raise InputError(
                f"{where}: what requests are made of cannot be left out or replaced: "
                f"{', '.join(sorted(NEEDED | OURS))}"
            )
        self.retries_empty = empty == "retry"
        """Whether an empty answer is asked for once more."""
        self._more, self._omit, self._limit_field = dict(body or {}), frozenset(omit), limit_field
        self.connection = Connection(name, url, api_key, timeout_s, connect_timeout_s)
        self.connection.omit = self._omit
        self.served = probe.Served(())
        """What the server told about itself, once started."""
        self.send_priority = send_priority
        self._name, self._model, self._api = name, model, api
        self._max_batch, self._max_sequences = max_batch, max_sequences
        self.block_tokens = block_tokens
        self._prefix_reuse, self._salt_key = prefix_reuse, salt_key
        self._agent_hints, self._hints = agent_hints, Hints()
        self._independent = independent
        self._chats = api != "completions"
        self._refused, self._schemas = RefusedTools(), RefusedSchemas()
        self.account_limits = self.connection.limits(requests_per_minute, tokens_per_minute)

    @property
    def spec(self) -> EngineSpec:
        """`prefix_reuse` and `independent` are known after `start`, unless an option says it; so is
        `window`, where the server tells it."""
        known, listed = self._prefix_reuse, self.served.models
        caches = self.served.caches_prefixes if known is None else known
        return EngineSpec(
            name=self._name,
            kind=EngineKind.LLM,
            ops=PREFILLS | DECODES,
            max_batch=self._max_batch,
            max_sequences=self._max_sequences,
            prefix_reuse=caches,
            keeps_prefixes=caches,
            block_tokens=self.block_tokens,
            window=next((one.max_tokens for one in listed if one.name == self._model), None),
            looks_ahead=self._is_dynamo,
            independent=self.served.independent if self._independent is None else self._independent,
            description=f"{self._model or 'first model'} at {probe.shown(self._url)}",
        )

    @property
    def model(self) -> str | None:
        """The model's name on the server; before `start` perhaps not yet known."""
        return self._model

    @property
    def _is_dynamo(self) -> bool:
        return self.served.is_dynamo if self._agent_hints is None else self._agent_hints

    @property
    def _url(self) -> str:
        return self.connection.url

    def on_left(self, told: Callable[[LeftOfMinute], None]) -> None:
        """See CallsServer."""
        self.connection.on_left = told

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Ask the server who it is. Raises EngineUnavailable, within 10 s."""
        await self.connection.open()
        server = self.connection.server
        self.served = await probe.probe(self.connection.client, server)
        if self._model is None and not self.served.models:
            raise EngineUnavailable(f"{server} lists no model: name one", retryable=False)
        self._model = self.connection.model = self._model or self.served.models[0].name

    async def close(self) -> None:
        """Close all connections."""
        await self.connection.close()

    # --- calls --------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """An estimate: the tokenizer is the server's."""
        return len(text) // 4 + 1

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """By the prompt's text: the tokenizer is the server's."""
        return block_keys.of_text(call.all_parts, self.block_tokens, self.salt(call.context))

    def salt(self, context: QueryContext) -> str:
        """What the server keeps tenants' prefixes apart by; empty if it does not."""
        return block_keys.tenant_salt(self._salt_key, context) if self.served.is_vllm else ""

    async def prefill(self, call: Call) -> SequenceHandle:
        """Warm the server's prefix cache; nothing is sent where that gains nothing."""
        parts = call.all_parts
        if parts and self.spec.prefix_reuse:
            body = self._body(call, complete=False)
            try:
                await self.connection.send(call.context, body)
            except NoChatTemplate as refused:
                self._give_up_chat(refused, body)
                await self.connection.send(call.context, self._body(call, complete=False))
        instance = call.prefix.instance if call.prefix else 0
        return SequenceHandle(engine=self._name, instance=instance, parts=parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer. Closing the generator closes the connection, on which the server
        stops. Raises EngineError, EngineUnavailable."""
        while True:
            tools = call.decode.tools if self._offers(call) else None
            body = self._body(call, complete=True)
            calls = CallsText(self.connection.server, tools.typed) if tools else None
            stream = self.connection.stream(
                call.context,
                body,
                lambda n: estimated_usage(call, n),
                empty=bool(calls),
                calls=calls,
            )
            try:
                async with aclosing(stream):
                    async for delta in stream:
                        yield delta
                return
            except NoChatTemplate as refused:
                self._give_up_chat(refused, body)
            except UnknownField as refused:
                if not self._renames(refused, body):
                    raise
            except NoTools as refused:
                if tools is None:
                    raise refused.instead from None
                self._refused.add(tools, refused, self.connection.server)
            except NoSchema as refused:
                schema = call.decode.schema
                held = "response_format" in body["extra_body"]
                if schema is None or not held or "response_format" in self._more:
                    raise refused.instead from None
                self._schemas.add(schema, refused, self.connection.server)

    def _renames(self, refused: UnknownField, body: Mapping[str, Any]) -> bool:
        """Whether the longest answer is called otherwise from now on than in this request."""
        if refused.field not in LIMITS or refused.field not in body:
            return False
        other = LIMITS[1 - LIMITS.index(refused.field)]
        if self._limit_field not in (None, other):
            return False
        self._limit_field = other
        return True

    def _offers(self, call: Call) -> bool:
        """Whether tools are the server's to know. A vLLM is held to a schema, which is surer than
        what reads calls there."""
        tools = call.decode.tools
        if tools is None or not self._chats or self.served.is_vllm:
            return False
        return tools not in self._refused

    def _give_up_chat(self, refused: NoChatTemplate, body: Mapping[str, Any]) -> None:
        """From now on complete texts; raises the refusal if that is not wanted, or if the request
        was one already."""
        if self._api != "auto" or "messages" not in body:
            raise refused
        self._chats = False

    # --- requests -----------------------------------------------------------------------------

    def _body(self, call: Call, *, complete: bool) -> dict[str, Any]:
        parts = call.all_parts
        if not self._chats:
            return self.body(call, {"prompt": chat_prompt.text(parts)}, complete=complete)
        tools = call.decode.tools if complete and self._offers(call) else None
        if tools is None:
            said = chat_prompt.messages(parts, complete=complete)
            return self.body(call, {"messages": said}, complete=complete)
        parts = tuple(replace(p, text=p.text.replace(tools.words, tools.brief)) for p in parts)
        given = {
            "messages": chat_prompt.messages(parts, complete=complete),
            "tools": json.loads(tools.functions),
            "tool_choice": _choice(tools.choice),
        }
        if not tools.parallel:
            given["parallel_tool_calls"] = False
        return self.body(call, given, complete=complete)

    def body(self, call: Call, prompt: Mapping[str, Any], *, complete: bool) -> dict[str, Any]:
        """The request for a prompt. Not `complete`: only to be prefilled, which takes one token.

        Raises InputError (a schema that is not JSON).
        """
        decode, is_vllm, chats = call.decode, self.served.is_vllm, "messages" in prompt
        extra = self._vllm_fields(call) if is_vllm else {}
        if complete and self._is_dynamo:
            extra |= self._hints.of(call)
        openai_itself = urlsplit(self._url).hostname == "api.openai.com" and chats
        limit = self._limit_field or LIMITS[openai_itself]
        body: dict[str, Any] = {
            "model": self._model,
            "temperature": decode.temperature,
            limit: decode.max_tokens if complete else 1,
            **prompt,
        }
        if complete and decode.stop:
            body["stop"] = list(decode.stop)
        if complete and decode.seed is not None:
            body["seed"] = decode.seed
        holds = decode.schema and (chats or is_vllm) and "tools" not in prompt
        if complete and decode.schema and holds and decode.schema not in self._schemas:
            extra["response_format"] = _response_format(decode.schema)
        elif complete and is_vllm and "tools" not in prompt:
            if decode.choices:
                extra["structured_outputs"] = {"choice": list(decode.choices)}
            elif decode.pattern:
                extra["structured_outputs"] = {"regex": decode.pattern}
        body = {key: value for key, value in body.items() if key not in self._omit}
        extra = {key: value for key, value in extra.items() if key not in self._omit}
        return body | {"extra_body": extra | self._more}

    def _vllm_fields(self, call: Call) -> dict[str, Any]:
        """What only a vLLM understands. Its smaller priorities go first, our larger ones do."""
        fields: dict[str, Any] = {"cache_salt": self.salt(call.context)}
        if call.decode.ignore_eos:
            fields["ignore_eos"] = True
        if self.send_priority:
            fields["priority"] = -call.priority
        return fields


def estimated_usage(call: Call, written: int) -> Usage:
    """Token counts for servers that send none. written: characters of the answer."""
    prompt = sum(len(part.text) for part in call.all_parts)
    return Usage(prompt_tokens=prompt // 4 + 1, completion_tokens=written // 4 + 1)


def _choice(choice: str) -> str | dict[str, Any]:
    """`tool_choice` as requests have it."""
    if choice in ("auto", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: str) -> dict[str, Any]:
    try:
        parsed = json.loads(schema)
    except ValueError:
        raise InputError("the JSON schema of the answer is not JSON") from None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": parsed}}
