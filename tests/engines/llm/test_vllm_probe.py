"""What a server can do besides answering: what is asked for, what is tried, and what it costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from teola.errors import EngineError, EngineUnavailable
from teola_engines.llm import vllm_probe
from teola_engines.llm.vllm_probe import Capabilities
from teola_engines.openai.connection import Connection
from teola_engines.openai.probe import Listed, Served
from tests import fake_openai
from tests.fake_openai import Fail, FakeOpenAI

VLLM = Served((Listed("other", max_tokens=1), Listed("fake-model", max_tokens=4096)), is_vllm=True)
OTHER = replace(VLLM, is_vllm=False)


@asynccontextmanager
async def connected(server: FakeOpenAI) -> AsyncIterator[Connection]:
    connection = Connection("llm", server.url, None, None, 30.0)
    connection.model = "fake-model"
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('block_size="32",num_gpu_blocks="100"', (None, 32, 3200)),
        ('block_size="32",enable_prefix_caching="True",num_gpu_blocks="9"', (True, 32, 288)),
        ('block_size="32",enable_prefix_caching="False",num_gpu_blocks="9"', (False, 32, 288)),
        ('block_size="16"', (None, 16, None)),
        ('num_gpu_blocks="9"', (None, None, None)),
        ("", (None, None, None)),
    ],
)
async def test_of_its_cache_is_known_what_a_vllm_tells_and_nothing_is_made_up(
    config: str,
    expected: tuple[bool | None, int | None, int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = f"vllm:num_requests_running 0.0\nvllm:cache_config_info{{{config}}} 1.0\n"
    monkeypatch.setattr(fake_openai, "METRICS", page.encode())
    with FakeOpenAI(tokenizes=True) as server:
        async with connected(server) as connection:
            known = await vllm_probe.ask(connection, VLLM, "fake-model")
        asked = [(seen.method, seen.path) for seen in server.requests]
    caching, block, tokens = expected
    assert known == Capabilities(
        metrics=True,
        prefix_caching=caching,
        block_tokens=block,
        kv_tokens=tokens,
        window=4096,
    )
    assert asked == [("GET", "/metrics")]


@pytest.mark.parametrize("page", [None, b"", b"python_info 1.0\n"])
@pytest.mark.parametrize(
    ("served", "model", "window"),
    [
        (VLLM, "fake-model", 4096),
        (VLLM, "other", 1),
        (VLLM, "third", None),
        (OTHER, "fake-model", 4096),
        (Served((), is_vllm=True), "fake-model", None),
    ],
)
async def test_of_a_server_without_metrics_its_window_is_known(
    served: Served,
    model: str,
    window: int | None,
    page: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other server than a vLLM is asked for them."""
    if page is not None:
        monkeypatch.setattr(fake_openai, "METRICS", page)
    with FakeOpenAI(tokenizes=page is not None) as server:
        async with connected(server) as connection:
            known = await vllm_probe.ask(connection, served, model)
        asked = [seen.path for seen in server.requests]
    assert known == Capabilities(window=window)
    assert asked == ["/metrics"] * served.is_vllm


async def test_a_server_that_is_gone_is_not_one_without_metrics() -> None:
    with FakeOpenAI() as server:
        pass
    async with connected(server) as connection:
        with pytest.raises(EngineUnavailable):
            await vllm_probe.ask(connection, VLLM, "fake-model")


KNOWN = Capabilities(metrics=True, prefix_caching=True, kv_tokens=7, window=9)
NO, BROKE = Fail(400, "no"), Fail(500, "broke")


@pytest.mark.parametrize(
    ("served", "script", "takes", "priorities"),
    [
        (VLLM, (), (True, True), [-1]),
        (VLLM, (NO,), (True, False), [-1, None]),
        (VLLM, (NO, NO), (False, False), [-1, None]),
        (OTHER, (), (True, False), [None]),
        (OTHER, (NO,), (False, False), [None]),
        (VLLM, (BROKE,), None, [-1]),
        (VLLM, (NO, BROKE), None, [-1, None]),
        (OTHER, (BROKE,), None, [None]),
    ],
)
async def test_what_only_a_request_tells_is_tried_with_as_few_as_can_be(
    served: Served,
    script: tuple[Fail, ...],
    takes: tuple[bool, bool] | None,
    priorities: list[int | None],
) -> None:
    """One token for one token. A server that breaks did not say no."""
    with FakeOpenAI(vllm=served.is_vllm) as server:
        server.script(*script)
        async with connected(server) as connection:
            if takes is None:
                with pytest.raises(EngineError) as raised:
                    await vllm_probe.attempt(connection, KNOWN, served)
                assert raised.value.retryable
            else:
                known = await vllm_probe.attempt(connection, KNOWN, served)
                assert known == replace(KNOWN, token_ids=takes[0], priority=takes[1])
        calls = [(seen.path, seen.body) for seen in server.calls]
    assert [body.pop("priority", None) for _, body in calls] == priorities
    one = {"model": "fake-model", "prompt": [1], "max_tokens": 1, "temperature": 0.0}
    assert [(path, {k: body[k] for k in one}) for path, body in calls] == [
        ("/v1/completions", one)
    ] * len(priorities)
