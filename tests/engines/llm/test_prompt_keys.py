"""Which keys engines make of calls, and that a server's events come in the same ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from teola.engine import MakesKeys, PrefixChange, TellsPrefixes, TextPart
from teola.errors import InputError
from teola.graph.prompt import Role
from teola_engines.llm import OpenAIServer, VLLMInProcess, VLLMServer, block_keys
from teola_engines.llm.vllm_events import CLEARED
from tests.engines.llm.kv_publisher import publishing
from tests.engines.llm.openai_calls import PROMPT, a_call, answer
from tests.fake_openai import FakeOpenAI
from tests.planted import catches, edited

BLOCK = 32


@asynccontextmanager
async def started(
    kind: Callable[..., Any], server: FakeOpenAI, **options: Any
) -> AsyncIterator[Any]:
    engine = kind(url=server.url, **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


async def keys(engine: MakesKeys, call: Any, **more: Any) -> Any:
    return await asyncio.to_thread(engine.keys, call, **more)


@catches(
    "keys-tenant",
    "keys are not salted as the request is",
    edited(
        VLLMServer.keys,
        "of_ids(ids, self.block_tokens, salt)",
        "of_ids(ids, self.block_tokens, '')",
    ),
)
@catches(
    "keys-template",
    "the template is left out",
    edited(VLLMServer.keys, "after=before)]", "after=before)][9:]"),
)
async def test_keys_are_of_the_ids_that_are_sent() -> None:
    with FakeOpenAI(tokenizes=True) as server:
        async with started(VLLMServer, server) as engine:
            server.requests.clear()
            handle = await engine.prefill(a_call(PROMPT[:2]))
            call = a_call(PROMPT[2:], prefix=handle)
            await answer(engine, call)
            found, begun = await keys(engine, call), a_call(PROMPT[:2])
            prefix = await keys(engine, begun, complete=False)
            others = await keys(engine, a_call(tenant="other"))
            assert await keys(engine, a_call()) == found, "in one piece or in two"
    sent, salt = server.calls[-1].body["prompt"], server.calls[-1].body["cache_salt"]
    assert engine.block_tokens == BLOCK
    assert found == block_keys.of_ids(sent, BLOCK, salt)
    assert (found.tokens, len(found.blocks)) == (len(sent), len(sent) // BLOCK)
    assert prefix == block_keys.of_ids(server.calls[0].body["prompt"], BLOCK, salt)
    assert prefix.blocks == found.blocks[: len(prefix.blocks)]
    assert prefix.blocks
    assert others.tokens == found.tokens
    assert not set(others.blocks) & set(found.blocks)


async def test_a_text_is_asked_for_once() -> None:
    with FakeOpenAI(tokenizes=True) as server:
        async with started(VLLMServer, server) as engine:
            server.requests.clear()
            calls = [a_call(PROMPT) for _ in range(8)]
            found = await asyncio.gather(*(keys(engine, call) for call in calls))
            assert len(set(found)) == 1
            server.requests.clear()
            await answer(engine, a_call())
            assert [seen.path for seen in server.requests] == ["/v1/completions"]


async def test_without_a_tokenizer_keys_are_of_the_text() -> None:
    parts = [*PROMPT, TextPart(Role.QUESTION, "\udc00")]
    text = "".join(part.text for part in PROMPT)
    with FakeOpenAI() as server:
        async with started(VLLMServer, server) as engine:
            found = await keys(engine, a_call())
            assert len(found.blocks) == len(text) // 64
            assert found.tokens == len(text) // 4 + 1
            assert (await keys(engine, a_call(tenant="b"))).blocks[0] != found.blocks[0]
            changes = engine.prefix_changes()
            assert [change async for change in changes] == []
        async with started(OpenAIServer, server) as engine:
            assert await keys(engine, a_call()) == found
            assert (await keys(engine, a_call(parts))).blocks == found.blocks
    with FakeOpenAI(vllm=False) as server:
        async with started(OpenAIServer, server) as engine:
            first, second = [await keys(engine, a_call(tenant=one)) for one in ("a", "b")]
            assert first == second, "the server does not keep tenants apart"
            assert first.blocks


async def test_what_the_server_cannot_tokenise_has_keys_of_its_text() -> None:
    parts = [*PROMPT, TextPart(Role.QUESTION, "\udc00")]
    with FakeOpenAI(tokenizes=True) as server:
        async with started(VLLMServer, server) as engine:
            found = await keys(engine, a_call(parts))
            text = "".join(part.text for part in parts)
            assert len(found.blocks) == len(text.encode("utf-8", "replace")) // (4 * BLOCK)
        assert (await keys(engine, a_call())).blocks, "closed"


async def test_an_engine_that_was_not_started_has_keys_of_texts() -> None:
    engine = VLLMInProcess(model="/nowhere")
    assert isinstance(engine, TellsPrefixes)
    found = engine.keys(a_call())
    assert len(found.blocks) == len("".join(part.text for part in PROMPT)) // 128
    assert found != engine.keys(a_call(tenant="b"))
    assert [change async for change in engine.prefix_changes()] == []


async def reports(engine: VLLMServer, server: FakeOpenAI, tenant: str) -> str | None:
    await answer(engine, a_call(tenant=tenant))
    asked = server.calls[-1].body.get("vllm_xargs", {}).get("kv_cache_report_mode")
    return None if asked is None else str(asked)


@catches(
    "events-unheard",
    "the engine closes, and who listens waits for ever",
    edited(VLLMServer.close, "self._feed.close()", "pass"),
)
async def test_events_come_in_the_keys_of_calls(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/events"
    with FakeOpenAI(tokenizes=True) as server:
        async with started(VLLMServer, server, kv_events=endpoint) as engine:
            await answer(engine, a_call(tenant="t"))
            sent = server.calls[-1].body
            assert "vllm_xargs" not in sent, "nobody listens"
            expected = await keys(engine, a_call(tenant="t"))
            with publishing(endpoint, sent["prompt"], BLOCK, sent["cache_salt"]) as publisher:
                async with asyncio.timeout(20), aclosing(engine.prefix_changes()) as changes:
                    assert await anext(changes) == CLEARED
                    await publisher.heard()
                    asked = [await reports(engine, server, tenant) for tenant in "tut"]
                    assert asked == ["full", "full", None], "once for each beginning"
                    for block in range(3):
                        publisher.store(block)
                    told = [await anext(changes) for _ in range(3)]
                    assert told == [PrefixChange(stored=(key,)) for key in expected.blocks[:3]]
                    waiting = asyncio.create_task(anext(changes, None))
                    await asyncio.sleep(0.05)
                    await engine.close()
                    async with asyncio.timeout(2):
                        assert await waiting is None


def test_where_events_are_must_be_said_rightly() -> None:
    with pytest.raises(InputError, match=re.escape("kv_events must look like tcp://host:5557")):
        VLLMServer(url="http://h/v1", kv_events="tcp://*:5557")
