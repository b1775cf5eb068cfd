"""Decoding steps of fixed shapes compute what steps of their own shapes do. On a GPU they are
recorded as graphs, too."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest

from teola_engines.llm.decode_graphs import DecodeGraphs, PaddedStep, rows_bucket, tokens_bucket
from teola_engines.llm.paged_model import BatchRow, PagedModel, load
from tests.planted import catches, edited

BLOCK = 16


@pytest.fixture(scope="module")
def paged(model_folder: Path) -> PagedModel:
    """With room for 40 blocks, the last of which no sequence has."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(str(model_folder), "float32", device)
    return PagedModel(model, BLOCK, 2**30, 40 * BLOCK, graphs=False)


def rows_of(chance: random.Random, lengths: list[int]) -> list[BatchRow]:
    """Prompts of these lengths, each with room for more, in blocks that lie anywhere; the first of
    the first one is block 0."""
    free = [*range(1, 39)]
    chance.shuffle(free)
    free.append(0)
    rows = []
    for length in lengths:
        blocks = [free.pop() for _ in range((length + 3) // BLOCK + 1)]
        rows.append(BatchRow([chance.randrange(5, 1000) for _ in range(length)], 0, blocks))
    return rows


@catches(
    "padded-row-writes",
    "a row that only pads writes to the first block",
    edited(PaddedStep.__init__, "*[spare] *", "*[0] *"),
)
@catches(
    "padding-attended",
    "a token attends to what lies behind it in its last block",
    edited(PaddedStep.compute, "keys > past", "keys > past + 1"),
)
def test_a_padded_step_gives_the_logits_of_the_step(paged: PagedModel) -> None:
    import torch

    chance = random.Random(1)
    rows = rows_of(chance, [70, 16, 15, 1, 33])
    paged.forward(rows)
    step = PaddedStep(paged.model, paged.pool, BLOCK, 8, 96, spare=39)
    for turn in range(3):
        nexts = [chance.randrange(5, 1000) for _ in rows]
        fed = [(token, r.length + turn, r.blocks) for token, r in zip(nexts, rows, strict=True)]
        with torch.inference_mode():
            padded = step.replay(fed).clone()
        whole = paged.forward([BatchRow([token], past, blocks) for token, past, blocks in fed])
        assert padded.shape == whole.shape
        assert torch.allclose(padded, whole, atol=1e-4)


def test_buckets_waste_at_most_a_third() -> None:
    assert [rows_bucket(n) for n in (1, 2, 3, 5, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 16, 16, 24]
    assert [tokens_bucket(n, 16) for n in (1, 257, 385, 513, 769)] == [256, 384, 512, 768, 1024]
    assert tokens_bucket(1025, 48) == 1536
    assert tokens_bucket(257, 48) == 384
    for tokens in range(300, 5000, 7):
        assert tokens <= tokens_bucket(tokens, 16) <= 1.5 * tokens


def test_what_cannot_be_recorded_is_computed_as_other_steps_are(
    paged: PagedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(PaddedStep, "record", refuse)
    graphs = DecodeGraphs(paged.model, paged.pool, BLOCK, spare=39)
    with caplog.at_level(logging.WARNING):
        assert graphs.logits([(7, 20, [1, 2])]) is None
        assert graphs.logits([(7, 20, [1, 2])]) is None
    assert len(caplog.records) == 1
    assert "not permitted" in caplog.text


def test_steps_that_would_copy_much_are_not_recorded(
    paged: PagedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = DecodeGraphs(paged.model, paged.pool, BLOCK, spare=39)
    monkeypatch.setattr(graphs, "_recorded", lambda *_: pytest.fail("it was recorded"))
    assert graphs.logits([(7, 2**23, [1])] * 8) is None
