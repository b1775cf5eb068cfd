"""Long JSON is written in pieces, between each two of which another thread may run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.plain_json import SPACED, STRICT, TIGHT, Style, fits, json_pieces
from teola.query.event_log import Event
from teola.query.result import Result
from teola.serve.api import _shown
from teola.serve.chat.completions import answer_text
from teola.serve.engines_api import EmbeddingsRequest, _embedded
from teola.serve.long_json import LongJson

MOST = 64 * 2**10
VECTORS = np.random.default_rng(0).random((200, 384), np.float32)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(values, st.sampled_from((TIGHT, SPACED, STRICT)))
def test_the_pieces_are_the_whole(value: Any, style: Style) -> None:
    assert "".join(json_pieces(value, style)) == style.write(value)


@pytest.mark.parametrize(
    ("value", "values", "size"),
    [
        ("abcd", 1, 4),
        ([], 1, 0),
        ({"abc": "d"}, 3, 4),
        ({"abc": {"d": ["e", "f"]}}, 7, 6),
        ([["a"], {"b": 1.5}, None], 7, 18),
    ],
)
def test_what_just_fits_fits_and_one_less_does_not(value: Any, values: int, size: int) -> None:
    """A mapping counts its names, too, wherever it stands."""
    assert fits(value, values, size)
    assert not fits(value, values - 1, size)
    assert not size or not fits(value, values, size - 1)


def test_long_values_come_in_many_pieces() -> None:
    value = {"numbers": list(range(10_000)), "text": "\u00e9\n" * 2**20, "mixed": [1, "a"] * 2000}
    pieces = list(json_pieces(value))
    assert json.loads("".join(pieces)) == value
    assert max(map(len, pieces)) < 2**22


@contextmanager
def longest_write(patched: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Characters that one call of an encoder wrote: nobody else runs meanwhile."""
    written, encode = [0], json.JSONEncoder.iterencode

    def noted(self: json.JSONEncoder, value: Any, _one_shot: bool = False) -> Iterator[str]:
        found = list(encode(self, value, _one_shot))
        written[0] = max(written[0], sum(map(len, found)))
        return iter(found)

    with patched.context() as context:
        context.setattr(json.JSONEncoder, "iterencode", noted)
        yield written


def embedded(form: Any) -> Any:
    runtime: Any = SimpleNamespace(host=lambda name: SimpleNamespace(count_tokens=len))
    wanted = EmbeddingsRequest(model="embedding", input="", encoding_format=form)
    return _embedded(runtime, wanted, ["a"] * len(VECTORS), VECTORS, {})


RESULT = Result("app", "1", "ok", {"answer": VECTORS}, 0.0)
ENTRY: Any = SimpleNamespace(summary=dict, question=None, result=RESULT)
WRITERS: dict[str, Callable[[], Any]] = {
    "embeddings": lambda: embedded("float"),
    "embeddings, packed": lambda: embedded("base64"),
    "the last event": lambda: Event("done", RESULT).data,
    "a completion": lambda: answer_text(RESULT),
    "a query that is looked at": lambda: _shown(ENTRY),
    "a body": lambda: LongJson({"rows": [list(range(50))] * 2_000}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_nobody_waits_for_many_numbers(writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with longest_write(monkeypatch) as written:
        WRITERS[writer]()
    assert 0 < written[0] <= MOST
