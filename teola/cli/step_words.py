"""Steps of an agent in words, a line each: `search("tides") -> 3 results, 0.4 s`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

LINE: Final = 100
"""Characters of a step, where there is no terminal that has fewer; and at least"""
LEAST_LINE: Final = 40
"""Characters."""
_STEP: Final = {"tool", "args", "result", "failed", "seconds"}


def are_steps(value: Any) -> bool:
    """Whether an output is the list of what an agent did."""
    if not isinstance(value, Sequence) or not value:
        return False
    return all(isinstance(step, Mapping) and set(step) >= _STEP for step in value)


def called(tool: str, args: Mapping[str, Any], most: int = LINE) -> str:
    """A call as one would write it; of a single argument only the value. most: characters."""
    if len(args) == 1:
        inside = _json(*args.values())
    else:
        inside = ", ".join(f"{name}={_json(value)}" for name, value in args.items())
    return f"{tool}({_shortened(inside, max(8, most - len(tool) - 2))})"


def step_words(step: Mapping[str, Any], width: int | None = None) -> str:
    """One step that has ended, as `Agent` lists it. width: characters that the line may have."""
    most = max(LEAST_LINE, width or LINE)
    seconds = f", {_seconds(step['seconds'])}" if step["seconds"] else ""
    edited = ", as changed by a person" if step.get("edited") else ""
    left = most - len(seconds) - len(edited) - len(" -> ")
    call = called(step["tool"], step["args"], left // 2)
    failed = "failed: " if step["failed"] else ""
    gave = _shortened(_gave(step["result"], step["failed"]), left - len(call) - len(failed))
    return f"{call} -> {failed}{gave}{edited}{seconds}"


def steps_words(steps: Sequence[Mapping[str, Any]], width: int | None = None) -> Iterator[str]:
    """A line for each step, and before it the model's thought, if it wrote one."""
    most = max(LEAST_LINE, width or LINE)
    for step in steps:
        if thought := step.get("thought"):
            yield _shortened(f"thought: {thought}", most)
        yield step_words(step, width)


def _gave(result: Any, failed: bool) -> str:
    """A result in words: of a list its length, of anything else the text."""
    if failed:
        return str(result)
    try:
        value = json.loads(result) if isinstance(result, str) else result
    except ValueError:
        value = result
    if isinstance(value, list):
        return f"{len(value)} result{'' if len(value) == 1 else 's'}" if value else "no results"
    if isinstance(value, str):
        return value if value.strip() else "nothing"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _shortened(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: max(1, most - 1)]}\u2026"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.05 else f"{1000 * seconds:.0f} ms"
