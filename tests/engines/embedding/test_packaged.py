"""The packaged model in plain PyTorch computes what sentence-transformers does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola_engines.embedding.encoder import EncodedText, Encoder, Vector, unit
from teola_engines.embedding.packaged import PackagedEncoder
from teola_engines.embedding.weights import locate

pytestmark = pytest.mark.slow

ODD = [
    "",
    " ",
    "Who keeps the lamp?",
    "word " * 600,
    "[SEP] and [MASK] and [PAD] and [UNK] are written out",
    "Straße, naïve, Ελληνικά, 漢字かな, עברית, 👩‍🚀 and a \u200b nothing",
    "x" * 500,
    "\x00\x07 control",
]


@pytest.fixture(scope="module")
def ours() -> PackagedEncoder:
    return PackagedEncoder(locate(None), "float32", "cpu")


@pytest.fixture(scope="module")
def theirs() -> Encoder:
    from teola_engines.embedding.any_encoder import AnyEncoder  # imports for seconds

    return AnyEncoder(locate(None), "float32", "cpu")


def embedded(encoder: Encoder, texts: list[str]) -> Vector:
    found = np.zeros((len(texts), 384), np.float32)
    for some, vectors in encoder.embed(texts, "document", 32):
        found[some] = vectors
    return unit(found)


def tokens_of(encoder: Encoder, texts: list[str]) -> list[EncodedText]:
    passes = list(encoder.embed_tokens(texts, 32))
    found = {i: one for some, tokens in passes for i, one in zip(some, tokens, strict=True)}
    assert sorted(found) == sorted(i for some, _ in passes for i in some)
    return [found[i] for i in range(len(texts))]


def compare(ours: PackagedEncoder, theirs: Encoder, texts: list[str]) -> None:
    one, other = embedded(ours, texts), embedded(theirs, texts)
    assert one.shape == other.shape == (len(texts), 384)
    assert np.allclose(one, other, atol=2e-6)
    for a, b in zip(tokens_of(ours, texts), tokens_of(theirs, texts), strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert np.allclose(a.vectors, b.vectors, atol=2e-6)
    for text in texts:
        there = theirs.tokenizer.encode(text, add_special_tokens=False).ids
        assert ours.tokenizer.encode(text, add_special_tokens=False).ids == there


def test_they_agree_on_odd_texts(ours: PackagedEncoder, theirs: Encoder) -> None:
    compare(ours, theirs, ODD)
    for text in ODD:
        compare(ours, theirs, [text])


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_they_agree(ours: PackagedEncoder, theirs: Encoder, texts: list[str]) -> None:
    compare(ours, theirs, texts)


def test_they_say_the_same_of_themselves(ours: PackagedEncoder, theirs: Encoder) -> None:
    names = ("dimensions", "max_tokens", "asymmetric")
    assert [getattr(ours, n) for n in names] == [getattr(theirs, n) for n in names]


def test_half_precision_is_near(ours: PackagedEncoder) -> None:
    half = PackagedEncoder(locate(None), "bfloat16", "cpu")
    one, other = embedded(ours, ODD), embedded(half, ODD)
    assert ((one * other).sum(axis=1) > 0.99).all()
