"""Whether an embedder is the one that a collection was indexed with, and what is embedded at once;
without a database."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any

import pytest

from teola.engine import EmbedderIdentity
from teola_engines.vectorstore.embedders import (
    ALIKE,
    EmbedderRecord,
    _identity,
    _judged,
    _Verdict,
    embedded_by,
    notice,
    refusal,
)
from teola_engines.vectorstore.reindexing import BATCH, ReindexBatch, Twin, _batches

MINE, OTHER, THIRD = "mine@1", "other@2", "third@3"


def expected(record: EmbedderRecord, embedder: EmbedderIdentity) -> _Verdict:
    """Vectors tell, where both have been seen; else names, and digests of weights at once."""
    same = [name for name in record.identities if name == embedder.identity]
    if record.dimensions != embedder.dimensions:
        return _Verdict.OTHER
    if len(record.identities) > 1:
        return _Verdict.ONE_OF_SEVERAL if same else _Verdict.OTHER
    if same and (embedder.digests or not record.has_sentence):
        return _Verdict.SAME
    if not record.has_sentence:
        return _Verdict.OTHER
    if embedder.sentence is None:
        return _Verdict.UNSURE
    return _Verdict.SAME if (record.cosine or 0.0) >= ALIKE else _Verdict.OTHER


def test_who_is_the_same_embedder() -> None:
    for identities, dimensions, has_sentence, cosine, digests, sentence in product(
        ((MINE,), (OTHER,), (MINE, OTHER), (OTHER, MINE), (OTHER, THIRD)),
        (2, 3),
        (True, False),
        (None, 0.0, ALIKE - 1e-6, ALIKE, 1.0),
        (True, False),
        (None, [1.0, 0.0]),
    ):
        record = EmbedderRecord(1, identities, dimensions, has_sentence, cosine)
        embedder = EmbedderIdentity(MINE, 2, digests=digests, sentence=sentence)
        assert _judged(record, embedder) is expected(record, embedder), (record, embedder)


@pytest.mark.parametrize(
    ("pipeline", "identity", "anew"),
    [
        ("files-4 pypdf-6/256/32/other@2", OTHER, "files-4 pypdf-6/256/32/mine@1"),
        ("files-4 pypdf-6/256/32/mine@1", MINE, "files-4 pypdf-6/256/32/mine@1"),
        ("files/256/32/m@http://h/v1:3", "m@http://h/v1:3", "files/256/32/mine@1"),
        ("files/256/32/their/1/2/model", "their/1/2/model", "files/256/32/mine@1"),
        ("own way/mine@1", MINE, "own way/mine@1/mine@1"),
        ("own way", "own way", "own way/mine@1"),
        ("own waymine@1", "own waymine@1", "own waymine@1/mine@1"),
    ],
)
def test_how_a_document_was_indexed_names_its_embedder(
    pipeline: str, identity: str, anew: str
) -> None:
    embedder = EmbedderIdentity(MINE, 2)
    assert _identity(pipeline, embedder) == identity
    assert embedded_by(pipeline, embedder) == anew


def test_what_is_told_names_the_embedders_and_what_to_do() -> None:
    def record(*identities: str) -> EmbedderRecord:
        return EmbedderRecord(1, identities, 2, True, 0.0)

    embedder = EmbedderIdentity(MINE, 2)
    assert refusal("c", record(OTHER), embedder).startswith(
        "the collection 'c' was indexed with 'other@2', not with 'mine@1': use the embedder it has"
    )
    assert refusal("c", record(MINE), embedder).startswith(
        "the collection 'c' was indexed with 'mine@1', which gives other vectors under that name "
        "now: "
    )
    two = record(OTHER, THIRD)
    assert "was indexed with 'other@2' and 'third@3', not with" in refusal("c", two, embedder)
    assert "several embedders ('other@2' and 'third@3')" in notice("c", two)
    for told in (refusal("c", two, embedder), notice("c", two)):
        assert told.endswith("`teola collections reindex c`")


def chunks_of(batches: list[ReindexBatch]) -> list[tuple[str, int]]:
    spans = [span for batch in batches for span in batch.slices]
    return [(span.twin.document, i) for span in spans for i in range(span.low, span.high)]


@pytest.mark.parametrize("seed", range(10))
def test_all_chunks_are_embedded_in_order_and_as_many_at_once_as_may_be(seed: int) -> None:
    draw: Any = Random(seed)
    sizes = [draw.choice((1, 2, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH)) for _ in range(9)]
    twins = [Twin(str(k), size, "key", "pipeline") for k, size in enumerate(sizes)]
    batches = list(_batches(twins))
    assert chunks_of(batches) == [(str(k), i) for k, size in enumerate(sizes) for i in range(size)]
    *full, last = [batch.size for batch in batches]
    assert set(full) <= {BATCH}
    assert 0 < last <= BATCH
    for batch in batches:
        assert all(a.twin != b.twin for a, b in pairwise(batch.slices))
    assert list(_batches([])) == []
