"""Ours: the applications of `apps`, unchanged, on a runtime with the default passes and policies.

Lengths and numbers that differ from the applications' own are given with the query, as any user
would. The engines are ours too, with a record of their calls.
"""

from __future__ import annotations

import asyncio
from copy import copy
from importlib import import_module
from typing import Any

from experiments.real_engines.calls import DTYPE, Engines
from experiments.real_engines.prompts import ANSWER_TOKENS, EXPANSION_TOKENS
from experiments.real_engines.recording import Log
from experiments.real_engines.teola import recorded
from experiments.real_engines.workload import APPS, RERANK_TOP_K, SEARCH_TOP_K, Query
from teola import App, EngineConfig, Runtime, Token
from teola.explain import Explanation
from teola.query.spec import QuerySpec
from teola.runtime.observe.trace import Trace

STYLES = ("",)
DEADLINE_S = 600.0

_STORE: dict[str, Any] = {"exact_below": 1_000_000}
"""Every search exact, as that of all others; by default a large collection gets an index."""
_REFINED = {
    "expand.max_tokens": EXPANSION_TOKENS,
    "search.mode": "vector",  # as all others search
    "search.top_k": SEARCH_TOP_K,
    "rerank.top_k": RERANK_TOP_K,
}
_ANSWER = {"generate.max_tokens": ANSWER_TOKENS, "generate.ignore_eos": True}


class TeolaSystem:
    """See the module. last_trace: of the query that ended last."""

    name = "teola"
    style = ""

    def __init__(self, engines: Engines) -> None:
        minilm = {"dtype": DTYPE, "threads": 1}
        server = {"url": engines.url, "model": engines.model, "api": "completions"}
        self._runtime = Runtime(
            {
                "embedding": EngineConfig(recorded.RecordedMiniLM, minilm),
                "rerank": EngineConfig(recorded.RecordedMaxSim, minilm),
                "vectorstore": EngineConfig(
                    recorded.RecordedPgVector, _STORE | {"dsn": engines.dsn}
                ),
                "llm": EngineConfig(recorded.RecordedVLLM, server),
            }
        )
        self._apps = {name: copy(_loaded(name)) for name in APPS}
        self.last_trace: Trace | None = None

    def explained(self, query: Query) -> Explanation:
        """What is said of a query before it runs; not on the event loop."""
        ask = _ask(query)
        return self._app(query).explain(ask.inputs, overrides=ask.overrides)

    async def answer(self, query: Query, log: Log) -> str:
        def watch(event: object) -> None:
            if isinstance(event, Token):
                log.first_token()

        job = self._app(query).job(_ask(query))
        recorded.logs[job.id] = log
        try:
            result = await asyncio.wrap_future(self._runtime.start(job.run(watch)))
        finally:
            del recorded.logs[job.id]
        self.last_trace = result.trace
        return str(result.checked().answer)

    def _app(self, query: Query) -> App:
        app = self._apps[query.app]
        app.runtime = self._runtime
        return app

    async def close(self) -> None:
        """Close the runtime and its engines."""
        await asyncio.to_thread(self._runtime.close)


def _ask(query: Query) -> QuerySpec:
    given: dict[str, Any] = {
        "question": query.question,
        "documents": {"name": query.edition, "text": query.document},
    }
    if query.history is not None:
        given["history"] = query.history
    overrides = _ANSWER if query.tree else _ANSWER | _REFINED
    return QuerySpec(given, overrides, deadline_s=DEADLINE_S)


def _loaded(name: str) -> App:
    app: App = import_module(f"teola_apps.{name.replace('-', '_')}").app
    return app


def build(engines: Engines, style: str) -> TeolaSystem:
    return TeolaSystem(engines)
