"""Steps of an agent, as a terminal shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola.cli.step_words import are_steps, called, step_words, steps_words


def step(result: Any = "12 degrees", failed: bool = False, **more: Any) -> dict[str, Any]:
    base = {"tool": "weather", "args": {"city": "Oslo"}, "failed": failed, "seconds": 0.4}
    return {**base, "result": result, **more}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (step(), 'weather("Oslo") -> 12 degrees, 0.4 s'),
        (step(json.dumps([{"a": 1}] * 3)), 'weather("Oslo") -> 3 results, 0.4 s'),
        (step("[1, 2]", seconds=0.05), 'weather("Oslo") -> 2 results, 0.1 s'),
        (step({"a": 1}, seconds=0.049), 'weather("Oslo") -> {"a": 1}, 49 ms'),
        (step("[1]", True, seconds=0), 'weather("Oslo") -> failed: [1]'),
        (step(" \n", seconds=0), 'weather("Oslo") -> nothing'),
        (step("[1]", seconds=0.012), 'weather("Oslo") -> 1 result, 12 ms'),
        (step("[]", seconds=0), 'weather("Oslo") -> no results'),
        (step("", args={}), "weather() -> nothing, 0.4 s"),
        (step("two\nlines", args={"a": 1, "b": [2]}), "weather(a=1, b=[2]) -> two lines, 0.4 s"),
        (step("no such city", True), 'weather("Oslo") -> failed: no such city, 0.4 s'),
        (step(edited=True), 'weather("Oslo") -> 12 degrees, as changed by a person, 0.4 s'),
    ],
)
def test_a_step_is_one_line_of_words(given: dict[str, Any], line: str) -> None:
    assert step_words(given) == line


@pytest.mark.parametrize("width", [40, 60, 76])
def test_a_long_step_fits_and_keeps_its_seconds(width: int) -> None:
    given = step("a very long result " * 40, args={"query": "why " * 90})
    line = step_words(given, width)
    assert len(line) <= width
    assert line.endswith(", 0.4 s")
    assert line.startswith("weather(")
    assert len(called("weather", {"query": "why " * 90}, width)) <= width


def test_a_thought_stands_before_its_call() -> None:
    lines = [*steps_words([step(thought="I need\nthe weather"), step()])]
    assert lines == ["thought: I need the weather", step_words(step()), step_words(step())]


def test_a_line_has_room_for_a_little_on_any_terminal() -> None:
    given = step("12 degrees and much rain " * 9)
    assert step_words(given, 20) == step_words(given, 40)
    assert len(step_words(given, 40)) == 40
    assert len(step_words(given)) == 100
    for width, room in ((None, 100), (60, 60), (20, 40)):
        fits = "x" * (room - len("thought: "))
        assert next(steps_words([step(thought=fits)], width)) == f"thought: {fits}"
        cut = next(steps_words([step(thought=f"{fits}x")], width))
        assert cut == f"thought: {fits[:-1]}…"


def test_only_lists_of_steps_are_steps() -> None:
    assert are_steps([step(), step(thought="x")])
    for other in ([], "tool", [{"tool": "x"}], {"tool": "x"}, [1], None):
        assert not are_steps(other)
