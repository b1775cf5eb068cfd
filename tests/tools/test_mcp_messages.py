"""Messages of a tool server, however they come: put together, counted and cut, exactly."""

from __future__ import annotations

import asyncio
import json
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.tools import mcp_messages
from teola.tools.mcp_messages import (
    EVENT,
    LINE,
    MOST_ITEMS,
    VALUE_BYTES,
    WHOLE,
    Ear,
    Frames,
    MessageRefused,
    bounded,
    check_values,
)


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_those_of_the_whole_stream_wherever_it_is_cut(seed: int) -> None:
    chance = Random(seed)
    pieces = chance.choices([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\n\n"], k=30)
    whole = b"".join(pieces)
    for end in (LINE, EVENT, WHOLE):
        expected = end.split(whole)
        for size in (1, 2, 3, 7, len(whole)):
            frames, found = Frames(end, 1000), list[bytes]()
            for at in range(0, len(whole), size):
                found += frames.feed(whole[at : at + size])
            assert [*found, frames.rest()] == expected
            assert frames.rest() == b""


@pytest.mark.parametrize("end", [LINE, EVENT])
def test_a_message_may_have_exactly_so_many_bytes(end: Any) -> None:
    for size in (1, 4, 9):
        for length in (9, 10):
            stream = b"x" * length + b"\n\n" + b"y" * 9
            frames = Frames(end, 9)

            def read(frames: Frames = frames, stream: bytes = stream, size: int = size) -> int:
                cut = [stream[at : at + size] for at in range(0, len(stream), size)]
                return sum(len(list(frames.feed(piece))) for piece in cut)

            if length > 9:
                with pytest.raises(MessageRefused, match="more than 9 bytes"):
                    read()
            else:
                assert read() == (2 if end is LINE else 1)
                assert frames.rest() == b"y" * 9


def values_in(value: Any) -> int:
    """How many JSON values it consists of."""
    if isinstance(value, dict):
        return 1 + sum(map(values_in, value.values()))
    return 1 + sum(map(values_in, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("seed", range(20))
def test_values_are_counted_without_what_stands_in_texts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least those that are there, and at most twice as many; whatever the texts hold."""
    chance = Random(seed)
    monkeypatch.setattr(mcp_messages, "_SLICE", chance.choice([1, 2, 3, 16, 2**16]))

    def value(depth: int) -> Any:
        if depth and chance.random() < 0.6:
            items = [value(depth - 1) for _ in range(chance.randint(0, 4))]
            keys = [f"{n}{chance.choice(['[,', chr(34), chr(92)])}" for n in range(len(items))]
            return items if chance.random() < 0.5 else dict(zip(keys, items, strict=True))
        return chance.choice([1, None, "a,[{", '"', "\\", '\\",', "é"])

    made = value(4)
    count, line = values_in(made), json.dumps(made).encode()
    assert count <= mcp_messages._values(line) <= 2 * count
    check_values(line, 2 * count * VALUE_BYTES)
    if count > 2:
        with pytest.raises(MessageRefused, match=f"more than {count - 1} values"):
            check_values(line, (count - 1) * VALUE_BYTES)


def test_lines_are_counted_together() -> None:
    for lines in (3, 4):
        message = b"\n".join([b"[1, 2]"] * lines)
        if lines * 3 > 9:
            with pytest.raises(MessageRefused):
                check_values(message, 9 * VALUE_BYTES)
        else:
            check_values(message, 9 * VALUE_BYTES)


def item_of(**message: Any) -> Any:
    return SimpleNamespace(message=SimpleNamespace(**message))


def test_what_is_checked_item_by_item_is_cut_and_says_so() -> None:
    result = {
        "resources": [{}] * (MOST_ITEMS + 5),
        "content": [{"type": "text"}] * (MOST_ITEMS + 2),
        "whole": [{}] * MOST_ITEMS,
        "tools": [{"name": "a", "outputSchema": {}}, 3],
    }
    item, left_out = bounded(item_of(result=result))
    cut = item.message.result
    assert left_out == 7
    assert [len(cut[key]) for key in ("resources", "whole")] == [MOST_ITEMS, MOST_ITEMS]
    assert len(cut["content"]) == MOST_ITEMS + 1
    assert cut["content"][-1]["text"] == "[2 more parts are left out]"
    assert cut["tools"] == [{"name": "a"}, 3]
    for count in (MOST_ITEMS, MOST_ITEMS + 1):
        asked = item_of(params={"a": [1] * count, "b": "x" * (MOST_ITEMS + 1)})
        found, left_out = bounded(asked)
        assert left_out == 0
        assert (found is asked) is (count == MOST_ITEMS)
        assert isinstance(found, ValueError) is (count > MOST_ITEMS)
    item = item_of(result=None)
    assert bounded(item) == (item, 0)
    assert bounded("anything") == ("anything", 0)


async def test_an_ear_hears_each_message_and_the_end_once() -> None:
    async def stream() -> Any:
        for n in range(4):
            yield n

    for most, heard in ((9, [0, 1, 2, 3]), (2, [0, 1, 2])):
        told, ends = list[object](), list[int]()

        def hears(item: object, told: list[object] = told, most: int = most) -> bool:
            told.append(item)
            return len(told) <= most

        ear = Ear(stream(), hears, lambda ends=ends: ends.append(1))  # type: ignore[misc]
        passed = [item async for item in ear]
        assert told == heard
        assert passed == heard[:most]
        assert ends == [1]


async def test_an_ear_tells_that_a_stream_broke_and_how() -> None:
    async def stream(error: BaseException) -> Any:
        yield 1
        raise error

    for error in (ConnectionError("gone"), ValueError("no JSON"), asyncio.CancelledError()):
        told, ends = list[object](), list[int]()

        def hears(item: object, told: list[object] = told) -> bool:
            told.append(item)
            return True

        ear = Ear(stream(error), hears, lambda ends=ends: ends.append(1))  # type: ignore[misc]
        assert await anext(ear) == 1
        assert ends == []
        with pytest.raises(type(error)):
            await anext(ear)
        assert (told, ends) == ([1], [1])
