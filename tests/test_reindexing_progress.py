"""Embedding a collection anew, against a store that notes what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from teola import Runtime, reindexing
from teola.engine import UNNAMED, Chunk, EmbedderIdentity
from teola.errors import EngineUnavailable, InputError
from teola.reindexing import reindex
from teola.testing.hash_engines import HashEmbedder, MemoryStore, vector


@dataclass(frozen=True)
class Batch:
    """Chunks by number. done: those of them that have a vector already."""

    numbers: tuple[int, ...]
    done: int = 0

    @property
    def size(self) -> int:
        return len(self.numbers)


class Work:
    """A collection that is embedded anew in these rounds."""

    documents, chunks = 2, 6

    def __init__(self, *rounds: Sequence[Batch]) -> None:
        self.rounds = [*rounds]
        self.stored: dict[str, Any] = {}
        self.closed = 0

    async def batches(self) -> Sequence[Batch]:
        return self.rounds[0]

    async def texts(self, batch: Batch) -> Sequence[Chunk]:
        return [Chunk("d", k, f"text {k}", "d.txt") for k in batch.numbers[batch.done :]]

    async def store(self, batch: Batch, texts: Sequence[Chunk], vectors: Sequence[Any]) -> None:
        pairs = zip(texts, vectors, strict=True)
        self.stored |= {chunk.text: list(values) for chunk, values in pairs}

    async def finish(self) -> bool:
        if len(self.rounds) == 1:
            return True
        self.rounds.pop(0)
        return False

    async def close(self) -> None:
        self.closed += 1


class Named(HashEmbedder):
    identity, dimensions, max_tokens = "hash@1", 4, 512

    def encode(self, text: str) -> list[int]:
        return [len(text)]


def done(work: Work, *, needed: bool = True, **more: Any) -> dict[str, Any]:
    class Store(MemoryStore):
        async def reindexing(
            self, tenant: str, collection: str, embedder: EmbedderIdentity
        ) -> tuple[Work, bool]:
            assert (tenant, collection, embedder.identity) == ("shop", "papers", "hash@1")
            return work, needed

    with Runtime({"embedding": Named, "vectorstore": Store}, learn=False) as runtime:
        return reindex("papers", runtime=runtime, tenant="shop", **more)


def test_every_chunk_without_a_vector_gets_one_and_is_counted() -> None:
    work, told = Work([Batch((0, 1, 2), done=1), Batch((3, 4)), Batch((5,), done=1)]), []
    report = done(work, on_progress=lambda ready, of: told.append((ready, of)))
    assert report == {
        "collection": "papers",
        "documents": 2,
        "chunks": 6,
        "embedded": 4,
        "embedder": "hash@1",
    }
    assert work.stored == {f"text {k}": vector(f"text {k}") for k in (1, 2, 3, 4)}
    assert [of for _, of in told] == [6] * 3
    assert [ready for ready, _ in told] == sorted(ready for ready, _ in told)
    assert told[-1] == (6, 6)
    assert work.closed == 1


def test_what_changed_meanwhile_is_seen_to() -> None:
    """Also where there is more of it than there was before."""
    work, told = Work([Batch((0, 1))], [Batch(tuple(range(10)), done=9), Batch((10,))]), []
    report = done(work, on_progress=lambda ready, of: told.append(ready))
    assert report["embedded"] == 4
    assert set(work.stored) == {f"text {k}" for k in (0, 1, 9, 10)}
    assert min(told) >= 0
    assert told[-1] == 6


def test_what_is_the_embedders_already_is_left_alone() -> None:
    work = Work([Batch((0,))])
    assert done(work, needed=False)["embedded"] == 0
    assert (work.stored, work.closed) == ({}, 1)


def test_a_collection_that_changes_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindexing, "ATTEMPTS", 2)
    work = Work(*[[Batch((k,))] for k in range(3)])
    with pytest.raises(EngineUnavailable, match="changes faster than it is embedded anew"):
        done(work)
    assert (set(work.stored), work.closed) == ({"text 0", "text 1"}, 1)


def test_what_cannot_be_embedded_anew_is_refused() -> None:
    with pytest.raises(InputError, match="in 'documents' lie the documents that came without"):
        reindex(UNNAMED)
    with (
        Runtime({"embedding": Named, "vectorstore": MemoryStore}, learn=False) as runtime,
        pytest.raises(InputError, match="'vectorstore' cannot embed a collection anew"),
    ):
        reindex("papers", runtime=runtime)
