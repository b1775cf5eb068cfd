"""Asks an application about one document after another, and has each query explained first.

The engines are those of `experiments.real_engines`: a vLLM with a random Llama on a core of its
own, MiniLM, the reranker on the same weights, and pgvector. They are warm; what is known of their
times before a query is what its runtime learned from those before it. Every document and every
question is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from experiments.real_engines import calls, servers
from experiments.real_engines.recording import Log
from experiments.real_engines.teola.system import TeolaSystem
from experiments.real_engines.workload import Workload
from teola.engine import Splitting
from teola_engines.documents.splitting import split

Told = Callable[[str], None]
WARMING: Final = ("advanced-rag", 12)
"""What is asked before everything: it uses all engines."""


def measure(
    apps: Iterable[str], sizes: Sequence[int], queries: int, python: Path, told: Told
) -> list[dict[str, Any]]:
    """A row a query. queries: of each application and size, by a runtime that knows nothing at
    first. python: of the vLLM environment. told: is called with what happens now."""
    told("starting vLLM")
    with servers.running(python, None, None) as where:
        return asyncio.run(_all(where, apps, sizes, queries, told))


async def _all(
    where: servers.Servers, apps: Iterable[str], sizes: Sequence[int], queries: int, told: Told
) -> list[dict[str, Any]]:
    rows = []
    async with calls.opened(where.url, where.model, where.dsn) as engines:
        workload = Workload(
            lambda text: split(text, Splitting(), engines.shared.encode), where.tokenizer
        )
        await asked_of(engines, workload, *WARMING, 1, told)
        for app in apps:
            for chunks in sizes:
                rows += await asked_of(engines, workload, app, chunks, queries, told)
    return rows


async def asked_of(
    engines: calls.Engines, workload: Workload, app: str, chunks: int, queries: int, told: Told
) -> list[dict[str, Any]]:
    """Rows of one application and size; see `measure`."""
    system, rows = TeolaSystem(engines), []
    try:
        for number in range(1, queries + 1):
            told(f"{app}, {chunks} chunks, query {number}")
            query = workload.query(app, chunks, "explained", number)
            explanation = await asyncio.to_thread(system.explained, query)
            said = explanation.to_json()["critical_path_s"]["e_graph"]
            await system.answer(query, Log())
            assert system.last_trace is not None
            rows.append(row(app, chunks, number, said, system.last_trace.latency_s))
    finally:
        await system.close()
    return rows


def row(app: str, chunks: int, query: int, said: float | None, took: float) -> dict[str, Any]:
    """One query of the report. said: None as long as an engine's times are not known."""
    return {
        "app": app,
        "chunks": chunks,
        "query": query,
        "explained_s": None if said is None else round(said, 3),
        "measured_s": round(took, 3),
        "error": None if said is None else round(said / took - 1, 3),
    }
