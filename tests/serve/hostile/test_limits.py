"""Limits of what one query may ask for: one more is refused, and no engine is called."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.serve.conftest import Served
from tests.serve.hostile.asking import BODIES, COUNT, LIGHTHOUSE, RAG, refused

pytestmark = pytest.mark.usefixtures("nothing_left")


def calls(hostile: Served) -> int:
    """Slices that engines were ever sent."""
    traces = [entry.job.trace for entry in hostile.board.past.values()]
    return sum(len(trace.spans) for trace in traces if trace and trace.plan)


FILE = {"name": "lighthouse.txt", "data": "TWFyYQ=="}
DOUBLE = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
MULTIPLYING = {"$defs": {**DOUBLE, "d40": {}}, "$ref": "#/$defs/d0"}
"""References that lead twice to the next, forty times over."""


def wanted(schema: dict[str, Any]) -> dict[str, Any]:
    """As a chat asks for it."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


CHATTING = {"model": "naive-rag", "documents": LIGHTHOUSE}
LIMITS: list[tuple[str, dict[str, Any], str]] = [
    (RAG, {"overrides": {"search.top_k": 0}}, "greater than or equal to 1"),
    (RAG, {"overrides": {"search.top_k": 201}}, "less than or equal to 200"),
    (RAG, {"overrides": {"search.top_k": 2**62}}, "less than or equal to 200"),
    (RAG, {"overrides": {"search.top_k": "many"}}, "integer"),
    (RAG, {"overrides": {"index.chunk_size": 15}}, "16"),
    (RAG, {"overrides": {"generate.json_schema": "[" * 100_000}}, "nests"),
    (RAG, {"overrides": {"generate.json_schema": "[" * 20_000}}, "nests"),
    (RAG, {"overrides": {"generate.json_schema": {"pattern": "(a+)+$"}}}, "no pattern"),
    (RAG, {"overrides": {"generate": {"json_schema": '{"patternProperties": {}}'}}}, "no pattern"),
    (RAG, {"overrides": {"generate.json_schema": {"type": "thing"}}}, "not a JSON schema"),
    (RAG, {"overrides": {"generate.json_schema": {"allOf": [True] * 1999}}}, "2000 values"),
    (RAG, {"overrides": {"generate": {"json_schema": MULTIPLYING}}}, "too involved"),
    ("/v1/chat/completions", {"response_format": wanted(MULTIPLYING)}, "too involved"),
    (RAG, {"overrides": {"generate.instruction": "x" * 70_000}}, "65536"),
    (RAG, {"overrides": {"generate.max_tokens": 65_537}}, "65536"),
    (RAG, {"overrides": {"generate": {"max_tokens": 10**12}}}, "65536"),
    ("/v1/chat/completions", {**CHATTING, "max_tokens": 10**12}, "65536"),
    ("/v1/chat/completions", {**CHATTING, "max_completion_tokens": 10**12}, "65536"),
    (RAG, {"overrides": {"generate.ignore_eos": True}}, "ignore_eos cannot be set"),
    (RAG, {"overrides": {"generate": {"ignore_eos": False}}}, "ignore_eos cannot be set"),
    (RAG, {"inputs": {"question": "lamp?", "collection": "documents"}}, "name another"),
    ("/v1/chat/completions", {"model": "naive-rag", "collection": "documents"}, "name another"),
    (RAG, {"inputs": {"question": "x" * 263_000, "documents": LIGHTHOUSE}}, "65536"),
    (RAG, {"inputs": {"question": "x", "documents": [LIGHTHOUSE] * 10_001}}, "10000"),
    (RAG, {"inputs": {"question": "x", "documents": [FILE] * 101}}, "100"),
    (COUNT, {"inputs": {"names": [""] * 10_001, "unit": "x"}}, "10000"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}] * 2049}, "2048"),
    (RAG, {"deadline_s": 3600.1}, "3600"),
    (RAG, {"deadline_s": 0}, "deadline_s"),
    (RAG, {"deadline_s": 2**63 - 1}, "3600"),
    (RAG, {"deadline_s": "5"}, "number"),
    ("/v1/rerank", {"top_n": 0}, "1"),
    ("/v1/rerank", {"top_n": 201}, "200"),
    ("/v1/rerank", {"documents": ["x"] * 2049}, "2048"),
    ("/v1/rerank", {"documents": []}, "1"),
    ("/v1/embeddings", {"input": ["x"] * 2049}, "2048"),
    ("/v1/embeddings", {"input": []}, "2048"),
    ("/v1/embeddings", {"input": [[1]]}, "input"),
]


@pytest.mark.parametrize(("path", "more", "told"), LIMITS, ids=range(len(LIMITS)))
def test_one_more_than_the_most_is_refused_before_any_engine_is_called(
    client: httpx.Client, hostile: Served, path: str, more: dict[str, Any], told: str
) -> None:
    rag = {"inputs": {"question": "lamp?", "documents": LIGHTHOUSE}}
    usual = {**BODIES, RAG: rag, COUNT: {}}[path]
    before = calls(hostile)
    refused(client.post(path, json={**usual, **more}), 422, told)
    assert calls(hostile) == before


def test_the_most_is_allowed(client: httpx.Client) -> None:
    given = {"question": "lamp? " * 43_690, "documents": LIGHTHOUSE}  # 65,536 tokens and a half
    overrides = {"search.top_k": 200, "generate.instruction": "x" * 65_000}
    overrides["generate.max_tokens"] = 65_536
    response = client.post(RAG, json={"inputs": given, "overrides": overrides})
    assert response.status_code == 200, response.text
    documents = [f"text {i}" for i in range(250)]
    given = {"model": "rerank", "query": "text 7", "documents": documents, "top_n": 200}
    assert len(client.post("/v1/rerank", json=given).json()["results"]) == 200


def test_a_graph_has_so_many_primitives_and_no_more(client: httpx.Client, hostile: Served) -> None:
    """Tree mode makes two for each hit, and some."""
    given = {"question": "lamp?", "documents": LIGHTHOUSE}
    before, limits = calls(hostile), hostile.board.limits
    hostile.board.limits = type(limits)(primitives=100)
    try:
        body = {"inputs": given, "overrides": {"search.top_k": 60}}
        refused(client.post(RAG, json=body), 422, "primitives")
        assert calls(hostile) == before
        assert client.post(RAG, json={**body, "overrides": {}}).status_code == 200
    finally:
        hostile.board.limits = limits


def test_what_is_computed_for_a_query_is_bounded(client: httpx.Client, hostile: Served) -> None:
    text = " ".join(f"The keeper of lamp {n} lives in house {n * 7}." for n in range(60))
    given = {"question": "lamp?", "documents": {"name": "lamps.md", "text": text}}
    limits = hostile.board.limits
    hostile.board.limits = type(limits)(intermediate_bytes=2 * 1024)
    try:
        refused(client.post(RAG, json={"inputs": given}), 422, "0.00195312 MiB")
    finally:
        hostile.board.limits = limits
    assert client.post(RAG, json={"inputs": {**given, "documents": LIGHTHOUSE}}).status_code == 200


def test_no_parameter_is_told_that_a_query_may_not_set(client: httpx.Client) -> None:
    told = client.get("/v1/apps/naive-rag").json()["parameters"]["properties"]
    assert "generate.max_tokens" in told
    assert "generate.ignore_eos" not in told


def test_a_property_may_be_called_pattern(client: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}}}
    given = {"question": "lamp?", "documents": LIGHTHOUSE}
    body = {"inputs": given, "overrides": {"generate.json_schema": schema}}
    response = client.post(RAG, json=body)
    refused(response, 502, "cannot fill a JSON schema")  # it got as far as the small engine
