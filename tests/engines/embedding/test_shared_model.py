"""Texts on their way through a shared model: long ones, equal ones, and those nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from teola.errors import EngineError, QueryCancelled
from teola_engines.embedding import model as models
from teola_engines.embedding.encoder import EncodedText
from teola_engines.embedding.model import SharedModel, windows

WINDOW = 10
MOST = 4


class Letters:
    """A tokenizer to which each `a` is a token, and nothing else."""

    def encode_batch_fast(self, texts: Sequence[str], **_: Any) -> list[Any]:
        return [SimpleNamespace(ids=[0] * text.count("a")) for text in texts]


class Passes:
    """An encoder with one text in a pass, the last one first."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(
        self, texts: Sequence[str], role: str, batch: int
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        for i in reversed(range(len(texts))):
            self.seen.append(texts[i])
            yield [i], np.array([[3.0 * len(texts[i]), 4.0 * len(texts[i])]])

    def embed_tokens(
        self, texts: Sequence[str], batch: int
    ) -> Iterator[tuple[list[int], list[EncodedText]]]:
        for i in reversed(range(len(texts))):
            self.seen.append(texts[i])
            yield [i], [EncodedText(np.array([len(texts[i])]), np.ones((1, 2), np.float32))]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "WINDOW", WINDOW)


@pytest.fixture
def shared() -> Iterator[SharedModel]:
    shared = SharedModel("m", "d", "float32", "cpu", Passes(), Letters(), 2, MOST, False, "mean")  # type: ignore[arg-type]
    yield shared
    shared.close()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [""]),
        ("x" * WINDOW, ["x" * WINDOW]),
        ("x" * (WINDOW + 1), ["x" * WINDOW, "x"]),
        ("xxxxx xx xxxxxx", ["xxxxx xx", " xxxxxx"]),
        ("xxxxxxx\nx xxxxxx", ["xxxxxxx\nx", " xxxxxx"]),
        ("xxxxxxx x\nxxxxxx", ["xxxxxxx x", "\nxxxxxx"]),
        ("xxxx xxxxxxxxx", ["xxxx xxxxx", "xxxx"]),
        ("xxxxx xxxxxxxxx", ["xxxxx", " xxxxxxxxx"]),
        ("xxxxxxxxx x", ["xxxxxxxxx", " x"]),
        ("xxxxxxxxxx x", ["xxxxxxxxxx", " x"]),
    ],
)
def test_a_long_text_is_cut_before_white_space(text: str, pieces: list[str]) -> None:
    """In the second half of a window; without any, where the window ends."""
    assert list(windows(text)) == pieces


def test_windows_keep_every_character() -> None:
    draw = Random(3)
    for _ in range(200):
        text = "".join(draw.choices("xy \n", [5, 5, 1, 1], k=draw.randint(0, 60)))
        found = list(windows(text))
        assert "".join(found) == text
        assert all(len(piece) <= WINDOW for piece in found)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("-" * WINDOW, "-" * WINDOW),
        ("-" * WINDOW + "a", "a"),
        ("a" * 3 + "-" * 7 + "-" * WINDOW + "aa", "a" * 3 + "-" * 7 + "aa"),
        ("a" * 3 + "-" * 7 + "a" + "-" * 9 + "aa", "a" * 3 + "-" * 7 + "a" + "-" * 9),
        ("a" * MOST + "-" * 6 + "a", "a" * MOST + "-" * 6),
        ("a" * 9 + "\ud800" + "a", "a" * 9 + "?"),
    ],
)
def test_of_a_long_text_as_much_is_read_as_the_model_takes(
    text: str, read: str, shared: SharedModel
) -> None:
    """Without windows that say nothing to it, and none behind the one with its last token."""
    assert shared._readable(text) == read


def test_equal_texts_are_computed_once_and_each_gets_its_own(shared: SharedModel) -> None:
    texts = ["x", "xx", "x", "", "xx"]
    assert np.allclose(shared.embed(texts), [[0.6, 0.8]] * 3 + [[0.0, 0.0]] + [[0.6, 0.8]])
    assert shared.encoder is not None
    assert shared.encoder.seen == ["", "xx", "x"]  # type: ignore[attr-defined]
    assert [int(one.ids[0]) for one in shared.embed_tokens(texts)] == [1, 2, 1, 0, 2]
    assert (shared.embed([]).shape, shared.embed_tokens([])) == ((0, 2), [])


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_no_pass_is_begun_that_nobody_waits_for(passes: int, shared: SharedModel) -> None:
    for run in (shared.embed, shared.embed_tokens):
        wanted = partial(next, iter([True] * passes + [False]))
        with pytest.raises(QueryCancelled):
            run(["x", "xx"], wanted=wanted)
        assert shared.encoder is not None
        assert shared.encoder.seen == ["xx", "x"][:passes]  # type: ignore[attr-defined]
        shared.encoder.seen.clear()  # type: ignore[attr-defined]


def test_a_model_that_was_given_back_says_so() -> None:
    shared = SharedModel("m", "d", "float32", "cpu", None, Letters(), 2, MOST, False, "mean")
    with pytest.raises(EngineError, match="the embedding model 'm' was given back"):
        shared.embed(["x"])
    shared.close()
