"""/v1/embeddings and /v1/rerank, on the real engines."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest

from teola import Runtime
from tests.serve.conftest import Served, applications, serving


@pytest.fixture(scope="module")
def engines(runtime: Runtime) -> Iterator[Served]:
    with serving(runtime, applications()) as found:
        yield found


@pytest.fixture
def client(engines: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{engines.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def rerank(served: Served, **body: object) -> httpx.Response:
    return httpx.post(f"{served.url}/v1/rerank", json={"model": "rerank", **body}, timeout=60)


def test_vectors_are_the_same_in_both_encodings(client: openai.OpenAI) -> None:
    texts = ["a lamp", "a lighthouse lamp", "herring by the cran"]
    packed = client.embeddings.create(model="embedding", input=texts)  # base64 by default
    plain = client.embeddings.create(model="embedding", input=texts, encoding_format="float")
    found = np.array([one.embedding for one in packed.data])
    assert np.allclose(found, [one.embedding for one in plain.data], atol=1e-6)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    assert found[0] @ found[1] > found[0] @ found[2]
    assert [one.index for one in packed.data] == [0, 1, 2]
    assert packed.usage.prompt_tokens >= 9


def test_one_text_is_a_list_of_one(client: openai.OpenAI, engines: Served) -> None:
    (one,) = client.embeddings.create(model="embedding", input="a lamp").data
    assert len(one.embedding) == 384
    asked = len(engines.board.past)
    with pytest.raises(openai.BadRequestError, match="384"):
        client.embeddings.create(model="embedding", input="a lamp", dimensions=7)
    assert len(engines.board.past) == asked, "nothing was embedded for it"


def test_vectors_can_be_looked_at_as_the_numbers_that_they_are(
    client: openai.OpenAI, engines: Served
) -> None:
    texts = [f"lamp {i}" for i in range(200)]  # more than is written on the event loop
    asked = client.embeddings.with_raw_response.create(
        model="embedding", input=texts, encoding_format="float"
    )
    vectors = np.array([one.embedding for one in asked.parse().data])
    where = f"{engines.url}/v1/queries/{asked.headers['x-query-id']}"
    shown = httpx.get(where, timeout=60).json()["result"]["outputs"]["vectors"]
    assert np.allclose(vectors, shown, atol=1e-6)
    last = httpx.get(f"{where}/events", timeout=60).text.rpartition("data: ")[2]
    assert json.loads(last)["outputs"]["vectors"] == shown


@pytest.mark.parametrize("given", [[], [""], ["x"] * 2049])
def test_texts_are_bounded(client: openai.OpenAI, given: list[str]) -> None:
    with pytest.raises(openai.BadRequestError, match="1 to 2048"):
        client.embeddings.create(model="embedding", input=given)
    with pytest.raises(openai.NotFoundError, match="called 'embedding'"):
        client.embeddings.create(model="text-embedding-3", input="x")


def test_the_best_documents_come_first_with_their_places(engines: Served) -> None:
    documents = ["Herring is sold by the cran.", "Mara keeps the lamp.", "Fourteen boats."]
    response = rerank(engines, query="Who keeps the lamp?", documents=documents, top_n=2)
    found = response.json()["results"]
    assert len(found) == 2
    assert found[0]["index"] == 1
    assert found[0]["relevance_score"] > found[1]["relevance_score"]
    assert "document" not in found[0]
    whole = rerank(engines, query="lamp", documents=documents, return_documents=True).json()
    assert {one["index"] for one in whole["results"]} == {0, 1, 2}
    assert all(documents[one["index"]] == one["document"]["text"] for one in whole["results"])


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
def test_who_is_refused_anyway_is_not_listened_to(engines: Served, path: str) -> None:
    engines.board.draining = True
    try:
        assert httpx.post(engines.url + path, content="{").status_code == 503
    finally:
        engines.board.draining = False
    assert httpx.post(engines.url + path, content="{").status_code == 400


def test_plans_are_counted(engines: Served, client: openai.OpenAI) -> None:
    for _ in range(2):
        client.embeddings.create(model="embedding", input="a lamp")
    told = httpx.get(f"{engines.url}/metrics").text
    assert 'teola_plan_cache_hits_total{app="embedding"}' in told


def test_what_is_wrong_is_said_in_openais_form(engines: Served) -> None:
    response = rerank(engines, query="", documents=["x"])
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "query" in response.json()["error"]["message"]
    assert rerank(engines, query="x", documents=["x"], top_n=201).status_code == 400
