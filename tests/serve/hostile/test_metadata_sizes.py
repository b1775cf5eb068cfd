"""Metadata of documents from clients: refused where it is long, and counted where it is kept."""

from __future__ import annotations

import httpx
import pytest

from teola.engine import METADATA_BYTES
from teola.runtime.values import bytes_of
from tests.serve.conftest import Served
from tests.serve.hostile.asking import RAG, refused

NOTE = "x" * (METADATA_BYTES - 20)


def asked(metadata: object, **document: str) -> dict[str, object]:
    given = {"name": "lamp.md", "metadata": metadata, **document}
    return {"inputs": {"question": "What burns?", "documents": given}}


@pytest.mark.parametrize("form", [{"text": "The lamp burns oil."}, {"data": "VGhlIGxhbXA="}])
@pytest.mark.parametrize("note", ["x" * METADATA_BYTES, "\u00e9" * METADATA_BYTES, ["x"] * 5000])
def test_long_metadata_is_refused(client: httpx.Client, form: dict[str, str], note: object) -> None:
    response = client.post(RAG, json=asked({"note": note}, **form))
    refused(response, 422, f"more than the {METADATA_BYTES}")


def test_kept_answers_count_the_metadata(hostile: Served, client: httpx.Client) -> None:
    text = "".join(f"The lamp number {i} burns oil of many kinds. " for i in range(400))
    response = client.post(RAG, json=asked({"note": NOTE}, text=text))
    response.raise_for_status()
    entry = hostile.board.past[response.json()["query_id"]]
    assert entry.result is not None
    hits = entry.result["sources"]
    assert len({hit.id for hit in hits}) > 1
    assert {len(hit.metadata["note"]) for hit in hits} == {len(NOTE)}
    assert len(NOTE) < bytes_of(hits) < 2 * len(NOTE)
    assert entry.bytes >= bytes_of(hits)


@pytest.mark.parametrize("path", [RAG, "/v1/chat/completions"])
def test_long_names_of_collections_are_refused(client: httpx.Client, path: str) -> None:
    for length in (256, 3000, 100_000):
        name = "x" * length
        body = (
            {"inputs": {"question": "What burns?", "collection": name}}
            if path == RAG
            else {
                "model": "naive-rag",
                "messages": [{"role": "user", "content": "What burns?"}],
                "collection": name,
            }
        )
        refused(client.post(path, json=body), 422, "more than the 255")
