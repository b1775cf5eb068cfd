"""Large results in an agent's run: nothing of them is handled on the loop as a whole, from the tool
to the store, to the steps that are kept and to the next call."""

from __future__ import annotations

import json
from typing import Any

from teola import Runtime
from teola.plain_json import Weighed
from teola.runtime.live.steps import Steps
from teola.runtime.returned import refusal
from teola.runtime.values import bytes_of
from teola.tools import ToolContext, tool
from tests.longest_turn import MOST_S, longest_turn
from tests.workflow.test_agent import Writes, answer, app, calls

HARBOUR_KEY = "sesame-open-the-harbour"


@tool(pure=True)
def rows(count: int, context: ToolContext) -> list[list[Any]]:
    """Rows of a table."""
    return [[n, context.secret("HARBOUR_KEY")] for n in range(count)]


@tool
def first(row: list[Any]) -> str:
    """The first value of a row."""
    return f"first {row[0]}, {row[1]}"


@tool
def total(rows: list[list[Any]]) -> int:
    """Adds up rows."""
    return len(rows)


def test_many_rows_stop_nobody() -> None:
    listed = calls(
        ("rows", {"count": 400_000}), ("first", {"row": "$1[7]"}), ("total", {"rows": "$1"})
    )
    with Runtime({"llm": lambda: Writes(listed, answer("done"))}) as runtime:
        served = app([rows, first, total], runtime, mode="plan")
        with longest_turn(runtime.loop) as longest:
            secrets = {"HARBOUR_KEY": HARBOUR_KEY}
            result = served.run(question="why?", secrets=secrets)
        assert not runtime.live.queries
    assert longest.seconds < MOST_S
    assert result.answer == "done"
    told = {step["tool"]: step["result"] for step in result["steps"]}
    assert told["rows"].startswith('[[0, "[HARBOUR_KEY]"], [1, "[HARBOUR_KEY]"], ')
    assert "8,388,608 bytes are kept (most_bytes)" in told["rows"]
    assert told["first"] == "first 7, [HARBOUR_KEY]"
    assert told["total"].startswith("total was not called: its arguments would have more than")
    assert HARBOUR_KEY not in json.dumps(result.to_json())


class Log:
    """Keeps steps here."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    async def begun(self, key: str) -> None:
        """Nothing to note."""

    async def done(self, key: str, result: str) -> None:
        self.told[key] = result


async def test_a_large_step_is_written_off_the_loop() -> None:
    value = [[n, "é"] for n in range(300_000)]
    log = Log()
    with longest_turn() as longest:
        await Steps("q", None, log).keep(
            "call", {"gives": {"result": Weighed({"value": value}, 1)}}
        )
    assert longest.seconds < MOST_S
    assert json.loads(log.told["call"]) == {"gives": {"result": {"value": value}}}


def test_what_was_weighed_is_not_walked_through_again() -> None:
    inside: list[Any] = []
    inside.append(object())
    weighed = Weighed({"value": inside}, 7_000_000)
    assert bytes_of(weighed) == bytes_of([weighed]) == 7_000_000
    assert refusal("result", weighed) is None
