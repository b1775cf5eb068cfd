"""What shares a pass of the model: no padding, long texts alone, equal ones once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from teola_engines.embedding import packaged
from teola_engines.embedding.model import SharedModel, borrowed
from teola_engines.embedding.packing import (
    CPU_BFLOAT16,
    CPU_FLOAT32,
    GPU,
    Room,
    by_length,
    packed,
)

LENGTHS = st.lists(st.integers(2, 256), max_size=60)
LAYERS = 6

CHUNKS = [f"{name} " * count for name, count in (("lamp", 250), ("tower", 190), ("yeast", 126))]
SHORT = ["Who keeps the lamp?", "", "a", "bread rises " * 30, "why", "When was the tower built?"]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest) -> Iterator[SharedModel]:
    with borrowed(dtype=request.param) as shared:
        yield shared


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of the widest layer, an entry a layer of a pass."""
    seen, gelu = [], packaged.gelu

    def counted(given: Tensor) -> Tensor:
        seen.append(given.shape[:-1].numel())
        return gelu(given)

    monkeypatch.setattr(packaged, "gelu", counted)
    return seen


def tokens(model: SharedModel, texts: list[str]) -> int:
    """Of all texts, the two special ones of each included."""
    return sum(min(len(ids) + 2, model.max_tokens) for ids in model.encode_all(texts))


@given(LENGTHS, st.integers(1, 40), st.sampled_from([CPU_FLOAT32, CPU_BFLOAT16, GPU]))
def test_every_text_is_in_one_pass_within_its_bounds(
    lengths: list[int], batch: int, room: Room
) -> None:
    passes = list(packed(lengths, batch, room))
    assert sorted(i for some in passes for i in some) == list(range(len(lengths)))
    for some in passes:
        assert 1 <= len(some) <= batch
        assert room.tokens is None or sum(lengths[i] for i in some) <= room.tokens
        assert room.alone is None or len(some) == 1 or max(lengths[i] for i in some) < room.alone
    flat = [lengths[i] for some in passes for i in some]
    assert flat == sorted(flat, reverse=True)


def test_passes_are_filled() -> None:
    lengths = [40, 254, 31, 250, 12, 249, 248]
    assert list(packed(lengths, 32, CPU_FLOAT32)) == [[1, 3, 5, 6], [0, 2, 4]]
    assert list(packed(lengths, 32, CPU_BFLOAT16)) == [[1], [3], [5], [6], [0, 2, 4]]
    assert list(packed(lengths, 32, GPU)) == [[1, 3, 5, 6, 0, 2, 4]]
    assert list(packed(lengths, 2, GPU)) == [[1, 3], [5, 6], [0, 2], [4]]


def test_a_model_that_pads_gets_neighbours_in_length() -> None:
    assert list(by_length(["a", "eeeee", "bb", "dddd", "ccc"], 2)) == [[1, 3], [4, 2], [0]]
    assert list(by_length([], 2)) == []


def test_no_padding_is_computed(model: SharedModel, rows: list[int]) -> None:
    model.embed([*CHUNKS, *SHORT])
    model.embed_tokens([*CHUNKS, *SHORT])
    assert sum(rows) == 2 * LAYERS * tokens(model, [*CHUNKS, *SHORT])


def test_equal_texts_are_computed_once(model: SharedModel, rows: list[int]) -> None:
    vectors = model.embed([CHUNKS[0], SHORT[0], CHUNKS[0], SHORT[0], SHORT[0]])
    found = model.embed_tokens([SHORT[0], CHUNKS[0], SHORT[0]])
    assert sum(rows) == 2 * LAYERS * tokens(model, [CHUNKS[0], SHORT[0]])
    assert vectors.shape == (5, model.dimensions)
    assert np.array_equal(vectors[0], vectors[2])
    assert np.array_equal(vectors[1], vectors[4])
    assert not np.allclose(vectors[0], vectors[1], atol=0.1)
    assert found[0].ids.tolist() == found[2].ids.tolist() == model.encode(SHORT[0])


def test_a_vector_does_not_depend_on_what_shares_its_batch(model: SharedModel) -> None:
    """Exactly in bfloat16 for a text that is a pass of its own, else to the rounding."""
    texts = [*CHUNKS, *SHORT]
    together, tokens_together = model.embed(texts), model.embed_tokens(texts)
    for i, text in enumerate(texts):
        (alone,), (own,) = model.embed([text]), model.embed_tokens([text])
        if model.dtype == "float32":
            assert np.abs(alone - together[i]).max() <= 1e-6
            assert np.abs(own.vectors - tokens_together[i].vectors).max(initial=0.0) <= 1e-5
        elif text in CHUNKS:
            assert np.array_equal(alone, together[i])
            assert np.array_equal(own.vectors, tokens_together[i].vectors)
        else:
            assert alone @ together[i] > 0.999


def test_vectors_are_in_the_order_of_the_texts(model: SharedModel) -> None:
    texts = [*SHORT, *CHUNKS]
    assert np.allclose(model.embed(texts[::-1])[::-1], model.embed(texts), atol=0.02)
    assert model.embed([]).shape == (0, model.dimensions)
    assert model.embed_tokens([]) == []
