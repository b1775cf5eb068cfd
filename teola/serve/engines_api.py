"""Embedding and reranking by themselves, as OpenAI's and Cohere's clients ask for them.

Each is an application of one component: it shares the engines' queues and batches with all others,
counts for its tenant, and has a trace.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from teola.app import App
from teola.engine import Hit
from teola.errors import InputError
from teola.query.spec import QuerySpec
from teola.runtime.runtime import Runtime
from teola.serve.api import Service, announced, tenant
from teola.serve.board import Entry
from teola.serve.intake.bodies import parsed
from teola.serve.intake.query_request import checked
from teola.serve.long_json import LongJson
from teola.serve.problems import NotFound, answer, problem_of
from teola.serve.streaming import json_off_loop, result_for
from teola.workflow.components import Embedding, Rerank

EMBEDDING: Final = "embedding"
RERANK: Final = "rerank"
MOST_TEXTS: Final = 2048
MOST_RESULTS: Final = 200
QUICK_NUMBERS: Final = 8192
QUICK_CHARACTERS: Final = 10_000
"""More is counted and written off the event loop."""


class EmbeddingsRequest(BaseModel):
    """The body of `POST /v1/embeddings`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str
    input: str | list[str] = Field(description="A text, or up to 2,048 of them.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="Only the number that the model has.")


class RerankRequest(BaseModel):
    """The body of `POST /v1/rerank`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str
    query: str = Field(min_length=1)
    documents: list[str] = Field(min_length=1, max_length=MOST_TEXTS)
    top_n: int | None = Field(None, ge=1, le=MOST_RESULTS)
    return_documents: bool = False


def applications(runtime: Runtime) -> dict[str, App]:
    """The two applications, by the names of their engines."""
    embed = App(
        EMBEDDING,
        template=Embedding(inputs={"texts": "input"}, role="document"),
        inputs={"input": "texts"},
        outputs={"vectors": "vectors"},
        runtime=runtime,
    )
    rerank = App(
        RERANK,
        template=Rerank(inputs={"hits": "documents", "question": "query"}),
        inputs={"query": "text", "documents": "hits"},
        outputs={"best": "context"},
        runtime=runtime,
    )
    return {EMBEDDING: embed, RERANK: rerank}


def router(runtime: Runtime, service: Service) -> APIRouter:
    """All routes of this module."""
    routes, apps = APIRouter(prefix="/v1", tags=["OpenAI"]), applications(runtime)

    @routes.post("/embeddings", openapi_extra=_body(EmbeddingsRequest), response_model=None)
    async def embeddings(request: Request) -> Response:
        """A unit vector for each text."""
        service.board.check(apps[EMBEDDING], announced(request), tenant(request))
        embeddings_request = checked(EmbeddingsRequest, await parsed(await request.body()))
        _named(embeddings_request.model, EMBEDDING)
        _check_dimensions(embeddings_request, _told(runtime))
        texts = (
            [embeddings_request.input]
            if isinstance(embeddings_request.input, str)
            else embeddings_request.input
        )
        if not texts or len(texts) > MOST_TEXTS or not all(texts):
            raise InputError(f"input: 1 to {MOST_TEXTS} texts that are not empty")
        entry = _start(service, apps[EMBEDDING], {"input": texts}, {}, request)
        result = await result_for(entry, request.receive)
        if result is None or result.state != "ok":
            return _failed(entry, request)
        vectors = np.asarray(result["vectors"], np.float32)
        _check_dimensions(embeddings_request, vectors.shape[1])
        few = vectors.size <= QUICK_NUMBERS and sum(map(len, texts)) <= QUICK_CHARACTERS
        work = partial(
            _embedded, runtime, embeddings_request, texts, vectors, {"x-query-id": entry.id}
        )
        return work() if few else await run_in_threadpool(work)

    @routes.post("/rerank", openapi_extra=_body(RerankRequest), response_model=None)
    async def rerank(request: Request) -> Response:
        """The documents that fit a query best, best first."""
        service.board.check(apps[RERANK], announced(request), tenant(request))
        rerank_request = checked(RerankRequest, await parsed(await request.body()))
        _named(rerank_request.model, RERANK)
        hits = [Hit(str(i), str(i), text, 0.0) for i, text in enumerate(rerank_request.documents)]
        most = min(rerank_request.top_n or len(hits), len(hits), MOST_RESULTS)
        inputs = {"query": rerank_request.query, "documents": hits}
        entry = _start(service, apps[RERANK], inputs, {"rerank.top_k": most}, request)
        result = await result_for(entry, request.receive)
        if result is None or result.state != "ok":
            return _failed(entry, request)
        results: list[dict[str, Any]] = []
        for hit in result["best"]:
            scored = {"index": int(hit.id), "relevance_score": round(hit.score, 6)}
            results.append(
                {**scored, "document": {"text": hit.text}}
                if rerank_request.return_documents
                else scored
            )
        body = {"id": entry.id, "model": rerank_request.model, "results": results}
        return await json_off_loop(entry, lambda: body, {"x-query-id": entry.id})

    return routes


def _body(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"content": {"application/json": {"schema": model.model_json_schema()}}}
    return {"requestBody": {"required": True, **schema}}


def _named(model: str, engine: str) -> None:
    if model != engine:
        raise NotFound(f"no model {model!r} here; it is called {engine!r}")


def _told(runtime: Runtime) -> int:
    """Dimensions of a vector, as the engine says; 0 if it does not, or is not there yet."""
    host = runtime.live.hosts.get((EMBEDDING, 0))
    return host.vectors.dimensions if host and host.vectors else 0


def _check_dimensions(body: EmbeddingsRequest, dimensions: int) -> None:
    if dimensions and body.dimensions not in (None, dimensions):
        raise InputError(f"dimensions: this model has {dimensions}")


def _start(
    service: Service, app: App, inputs: dict[str, Any], overrides: dict[str, Any], request: Request
) -> Entry:
    ask = QuerySpec(inputs, overrides, tenant=tenant(request))
    return service.board.start(app, ask, mode="sync")


def _embedded(
    runtime: Runtime,
    asking: EmbeddingsRequest,
    texts: list[str],
    vectors: np.ndarray[Any, np.dtype[np.float32]],
    headers: dict[str, str],
) -> Response:
    data = [
        {"object": "embedding", "index": i, "embedding": _sent(vector, asking.encoding_format)}
        for i, vector in enumerate(vectors)
    ]
    tokens = sum(map(runtime.host(EMBEDDING).count_tokens, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    body = {"object": "list", "data": data, "model": asking.model, "usage": usage}
    return LongJson(body, headers=headers)


def _failed(entry: Entry, request: Request) -> Response:
    if entry.result is None:
        return Response(status_code=499)  # nobody reads it
    return answer(request.url.path, problem_of(entry.result), {"x-query-id": entry.id})


def _sent(vector: np.ndarray[Any, np.dtype[np.float32]], form: str) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
