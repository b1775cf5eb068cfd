"""Engines on fake services, and short ways to ask them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from teola.engine import BatchEngine, Hit, QueryContext, Request
from teola.errors import EngineError
from teola.graph.ops import Op, WebSearchParams
from teola_engines.websearch import Google, SearXNG, Tavily
from tests.fake_search import ENGINE_ID, KEY, FakeSearch, Result

SERVICES = ("google", "searxng", "tavily")
each_service = pytest.mark.parametrize("name", SERVICES)
LAMP = Result("https://harbour.example/lamp", "The lamp", "Mara Quist keeps the lamp.", 0.98)
BOATS = Result("https://harbour.example/boats", "Boats", "Fourteen boats are moored here.", 0.5)


def request(
    *queries: str, top_k: int = 4, deadline_s: float = 30.0, query_id: str = "q1"
) -> Request:
    context = QueryContext(query_id, deadline=time.monotonic() + deadline_s)
    return Request(Op.WEB_SEARCH, WebSearchParams(top_k), {"queries": list(queries)}, context, "k")


async def ask(engine: BatchEngine, *queries: str, **options: Any) -> list[list[Hit]]:
    """The hits of each query. Raises what the engine answers instead."""
    (result,) = await execute(engine, request(*queries, **options))
    if isinstance(result, Exception):
        raise result
    return result["hits"]


async def execute(engine: BatchEngine, *requests: Request) -> list[Any]:
    found = engine.execute(requests)
    assert not isinstance(found, list)
    return list(await found)  # type: ignore[misc]


def engine_of(service: FakeSearch, **options: Any) -> Google | SearXNG | Tavily:
    """The engine for a service, with everything it needs."""
    if service.service == "google":
        return Google(url=service.url, **{"api_key": KEY, "engine_id": ENGINE_ID, **options})
    if service.service == "tavily":
        return Tavily(url=service.url, **{"api_key": KEY, **options})
    return SearXNG(url=service.url, **options)


@asynccontextmanager
async def _started(service: FakeSearch, **options: Any) -> AsyncIterator[Any]:
    engine = engine_of(service, **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


Started = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def started() -> Started:
    """A running engine on a fake service; closed at the end."""
    return _started


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own environment."""
    for name in ("GOOGLE_API_KEY", "GOOGLE_CSE_ID", "SEARXNG_URL", "TAVILY_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def failure(results: list[object]) -> EngineError:
    """The error of the only result: one line, without the key and without what was asked."""
    (error,) = results
    assert isinstance(error, EngineError)
    message = str(error)
    assert "\n" not in message
    assert KEY not in message
    assert "secret question" not in message
    return error
