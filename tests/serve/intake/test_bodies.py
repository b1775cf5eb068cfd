"""Where bodies are parsed."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.errors import InputError
from teola.serve.intake import bodies
from teola.serve.problems import TooLarge


async def test_long_ones_are_parsed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a while, in which nobody else would be answered."""
    where, parse = [], bodies.read_json

    def seen(text: str | bytes) -> object:
        where.append(threading.current_thread())
        return parse(text)

    monkeypatch.setattr(bodies, "read_json", seen)
    long = [{}] * bodies.LONG
    assert await bodies.parsed("[1]") == [1]
    assert await bodies.parsed(json.dumps(long).encode()) == long
    assert where[0] is threading.current_thread()
    assert where[1] is not threading.current_thread()
    with pytest.raises(InputError, match="stands twice"):
        await bodies.parsed('[{"a": 1, "a": 2}]' + " " * bodies.LONG)


async def test_more_than_four_mebibytes_are_not_parsed() -> None:
    most = b'"' + b"x" * (bodies.JSON_BYTES - 2) + b'"'
    assert await bodies.parsed(most) == most[1:-1].decode()
    with pytest.raises(TooLarge, match="4 MiB"):
        await bodies.parsed(most + b" ")


@pytest.mark.parametrize("item", ["[]", "{}", '{"":0}', "0", '""', '"[,"'])
def test_values_are_counted_before_they_are_made(item: str) -> None:
    few = "[" + ",".join([item] * (bodies.VALUES // 2 - 1)) + "]"
    assert len(bodies.read_json(few)) == bodies.VALUES // 2 - 1
    many = "[" + ",".join([item] * bodies.VALUES) + "]"
    with pytest.raises(InputError, match="more than 262144 values"):
        bodies.read_json(many)


JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='"\\[]{},:a\n\u00e9'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='"\\,{a'), inner),
)


@given(value=JSON, cut=st.integers(1, 7))
@settings(max_examples=150, deadline=None)
def test_what_stands_in_texts_is_not_counted(value: object, cut: int) -> None:
    """Wherever the pieces end that are counted at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "_SLICE", cut)
        found = bodies._values(json.dumps(value, ensure_ascii=False))
    assert _counted(value) <= found <= 2 * _counted(value)


def _counted(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_counted, value.values()))
    return 1 + sum(map(_counted, value)) if isinstance(value, list) else 1
