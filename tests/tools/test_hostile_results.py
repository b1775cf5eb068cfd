"""What tools give, however large, stops nobody else: the loop's turns stay short, what is too much
is left out at the end of an item, and the model is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from teola.tools import Toolbox, ToolResult, tool
from teola.tools.base import MOST_BYTES, MOST_CHARS
from teola.tools.bounded_json import bounded
from teola.tools.decision import PlannedCall
from tests.longest_turn import MOST_S, longest_turn

MIB = 2**20


@dataclass
class Berth:
    name: str


class Boat(BaseModel):
    name: str
    log: Any = None


def nested(levels: int) -> Any:
    value: Any = ["x" * 100_000] * 20
    for _ in range(levels):
        value = [value, value]
    return value


def endless() -> Iterator[list[int]]:
    return ([number] for number in count())


HOSTILE: dict[str, tuple[Callable[[], Any], Callable[[Any], bool]]] = {
    "a million rows": (
        lambda: [[n, f"row {n}"] for n in range(1_000_000)],
        lambda kept: kept == [[n, f"row {n}"] for n in range(len(kept))],
    ),
    "rows in a table": (
        lambda: {"columns": ["n"], "rows": [{"n": n} for n in range(500_000)], "note": ""},
        lambda kept: kept["rows"] == [{"n": n} for n in range(len(kept["rows"]))],
    ),
    "rows of 1 MB": (
        lambda: [["x" * 1_000_000]] * 200,
        lambda kept: kept == [["x" * 1_000_000]] * 8,
    ),
    "a text": (lambda: "y" * 200_000_000, lambda kept: set(kept) == {"y"}),
    "a text in a list": (
        lambda: ["a", "é" * 50_000_000],
        lambda kept: kept[0] == "a" and set(kept[1]) == {"é"} and len(kept) == 2,
    ),
    "control characters": (lambda: "\0" * 20_000_000, lambda kept: set(kept) == {"\0"}),
    "bytes": (lambda: b"z" * 200_000_000, lambda kept: set(kept) == {"z"}),
    "the same, often": (lambda: nested(100), lambda kept: True),
    "an array": (
        lambda: np.zeros(100_000_000, np.int8),
        lambda kept: set(kept) == {0} and len(kept) > 100_000,
    ),
    "rows of an array": (
        lambda: np.zeros((2, 50_000_000), np.int8),
        lambda kept: set(kept[0]) == {0} and len(kept) == 1,
    ),
    "an endless generator in a list": (
        lambda: [endless()],
        lambda kept: kept == [[[n] for n in range(len(kept[0]))]],
    ),
    "dataclasses": (
        lambda: [Berth("north")] * 500_000,
        lambda kept: all(one == {"name": "north"} for one in kept),
    ),
    "models": (
        lambda: [Boat(name="Kittiwake")] * 200_000,
        lambda kept: all(one == {"name": "Kittiwake", "log": None} for one in kept),
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_large_result_is_cut_off_the_loop(what: str) -> None:
    make, right = HOSTILE[what]
    returned = make()
    most = MOST_BYTES if what in ("a million rows", "rows of 1 MB", "a text") else 2 * MIB

    @tool(most_bytes=most)
    async def give() -> Any:
        """Gives."""
        return returned

    with longest_turn() as longest:
        result = await give.call({})
    assert longest.seconds < MOST_S
    assert not result.failed, result.text
    assert right(result.value)
    text = json.dumps(result.value, ensure_ascii=False, allow_nan=False)
    assert most // 2 < len(text.encode()) <= most
    assert len(result.text) == give.most_chars
    assert result.text.endswith(
        f"of the result {most:,} bytes are kept (most_bytes), and the rest is left out; ask for "
        "less]"
    )


@pytest.mark.parametrize("returned", [Boat(name="Tern", log=["x" * 9 * MIB])])
async def test_what_cannot_be_cut_is_refused_before_it_is_converted(returned: Any) -> None:
    @tool
    def give() -> Any:
        """Gives."""
        return returned

    with longest_turn() as longest:
        result = await give.call({})
    assert longest.seconds < MOST_S
    assert result.failed
    assert "it returned a Boat that may be larger than 8,388,608 bytes (most_bytes)" in result.text


def test_a_result_is_cut_at_the_end_of_an_item() -> None:
    rows = [[n, "é" * n] for n in range(30)]
    whole = len(json.dumps(rows, ensure_ascii=False).encode())
    for most in range(60, whole + 5):
        found = bounded(rows, most)
        assert found.value == rows[: len(found.value)]
        assert found.cut == (most < whole)
        text = json.dumps(found.value, ensure_ascii=False)
        assert (found.characters, found.bytes) == (len(text), len(text.encode()))
        assert found.bytes <= most


@pytest.mark.parametrize(
    ("value", "most", "kept"),
    [
        ("é" * 10, 12, "é" * 5),
        (["abc", "d" * 100, 3], 60, ["abc", "d" * 49]),
        ({"a": 1, "b": "d" * 100, "c": 2}, 60, {"a": 1, "b": "d" * 43}),
        ([["a"], [[1], [2], [30_000]]], 23, [["a"], [[1], [2]]]),
        ([[1, 2, 3], [4, 5, 6]], 20, [[1, 2, 3]]),
        ({"k" * 100: 1}, 60, {}),
        ([[[[12_345_678]]]], 10, [[[[]]]]),
    ],
)
def test_of_the_first_item_a_part_is_kept(value: Any, most: int, kept: Any) -> None:
    found = bounded(value, most)
    assert (found.value, found.cut) == (kept, True)
    assert found.bytes == len(json.dumps(kept, ensure_ascii=False).encode()) <= most


@pytest.mark.parametrize("repeated", ["${1}", "${1} ", "${1.x}", "${1[0].x} ", "${2[0]}"])
async def test_references_multiply_nothing(repeated: str) -> None:
    given: list[str] = []

    @tool
    def take(text: str) -> str:
        """Takes."""
        given.append(text)
        return "taken"

    @tool
    def asks(text: str) -> str:
        """Asks first."""
        return "asked"

    value: Any = [{"x": "y" * 7_000_000}] if "[" in repeated else {"x": "y" * 7_000_000}
    texts = json.dumps([["z" * 100] * 10_000])
    results = {1: ToolResult("", value), 2: ToolResult("", texts)}
    box = Toolbox([take, asks])
    with longest_turn() as longest:
        for name in box.names:
            call = PlannedCall(3, name, {"text": repeated * 1_000}, (1, 2), "")
            assert box.to_approve(call, results) is None
            ended = await box.run(call, results)
            assert ended.failed
            assert "more than 1,048,576 characters (most_argument_chars)" in ended.text
    assert longest.seconds < MOST_S
    assert not given


async def test_many_rows_are_given_to_a_tool_off_the_loop() -> None:
    """As long as there are not too many: they are checked there, too."""

    @tool(pure=True)
    def total(rows: list[list[int]]) -> int:
        """Adds up."""
        return sum(map(sum, rows))

    rows = [[n] for n in range(20_000)]
    results = {1: ToolResult("", rows)}
    call = PlannedCall(2, "total", {"rows": "$1"}, (1,), "")
    with longest_turn() as longest:
        ended = await Toolbox([total]).run(call, results)
    assert longest.seconds < MOST_S
    assert ended.value == sum(range(20_000))


async def test_an_error_of_many_lines_is_cut() -> None:
    @tool
    async def fails() -> str:
        """Fails."""
        raise ValueError("x\n" * 5_000_000)

    with longest_turn() as longest:
        result = await fails.call({})
    assert longest.seconds < MOST_S
    assert result.failed
    assert len(result.text) <= MOST_CHARS
