"""Finding out what a server can do besides answering.

What can be asked for is asked for: the listed window, the metrics, which tell of the prefix cache
and its size. Whether prompts may be token ids and requests carry a priority is tried, with one or
two requests of one token each, and only on a server that tokenises: elsewhere requests cost money.
A vLLM that does not schedule by priority ignores the field today (older ones refuse it), so it is
sent wherever it is not refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from teola.engine import QueryContext
from teola.errors import EngineError, EngineUnavailable

from ..openai.connection import Connection
from ..openai.probe import Served
from . import vllm_metrics

PROBE_LIMIT_S: Final = 20.0
METRICS_LIMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server can do. window: tokens of prompt and answer together. kv_tokens: size of its KV
    cache; block_tokens: of one block of it. prefix_caching: None if it does not tell."""

    token_ids: bool = False
    priority: bool = False
    metrics: bool = False
    prefix_caching: bool | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    window: int | None = None


async def ask(connection: Connection, served: Served, model: str) -> Capabilities:
    """What can be known without a request for tokens. Raises EngineUnavailable."""
    listed = next((one for one in served.models if one.name == model), None)
    window = listed.max_tokens if listed else None
    found = await _metrics(connection) if served.is_vllm else None
    if found is None:
        return Capabilities(window=window)
    return Capabilities(
        metrics=True,
        prefix_caching=found.prefix_caching,
        block_tokens=found.block_tokens,
        kv_tokens=found.kv_tokens,
        window=window,
    )


async def attempt(connection: Connection, known: Capabilities, served: Served) -> Capabilities:
    """Adds what only a request can tell. Raises EngineError if the server fails at it."""
    priority = served.is_vllm and await _takes(connection, {"priority": -1})
    token_ids = priority or await _takes(connection, {})
    return replace(known, token_ids=token_ids, priority=priority)


async def _metrics(connection: Connection) -> vllm_metrics.VLLMMetrics | None:
    try:
        return vllm_metrics.read(await connection.get("/metrics", METRICS_LIMIT_S))
    except EngineUnavailable:
        raise
    except (EngineError, ValueError):
        return None


async def _takes(connection: Connection, extra: Mapping[str, Any]) -> bool:
    """Whether the server completes a prompt of one token id."""
    body = {"model": connection.model, "prompt": [1], "max_tokens": 1, "temperature": 0.0}
    context = QueryContext("start", deadline=time.monotonic() + PROBE_LIMIT_S)
    try:
        await connection.send(context, body | {"extra_body": dict(extra)})
    except EngineError as error:
        if error.retryable:  # it did not say no: it failed, or nobody is there
            raise
        return False
    return True
