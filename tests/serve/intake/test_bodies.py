"""Where bodies are parsed."""

from __future__ import annotations

import json
import threading

import pytest

from teola.errors import InputError
from teola.serve.intake import bodies


async def test_long_ones_are_parsed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of small values take seconds, in which nobody else would be answered."""
    where, parse = [], bodies.as_json

    def seen(text: str | bytes) -> object:
        where.append(threading.current_thread())
        return parse(text)

    monkeypatch.setattr(bodies, "as_json", seen)
    long = [{}] * bodies.LONG
    assert await bodies.parsed("[1]") == [1]
    assert await bodies.parsed(json.dumps(long).encode()) == long
    assert where[0] is threading.current_thread()
    assert where[1] is not threading.current_thread()
    with pytest.raises(InputError, match="stands twice"):
        await bodies.parsed('[{"a": 1, "a": 2}]' + " " * bodies.LONG)
