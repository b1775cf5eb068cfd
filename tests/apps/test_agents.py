"""The applications function-agent and research-agent, with models that say what they are told."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from teola import EngineConfig, Runtime
from teola.engine import Call, Delta
from teola.profile import paper
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.testing.hash_engines import HashModel
from teola_apps import function_agent, research_agent
from tests.serve.conftest import lent


class Says(HashModel):
    """Answers with what a function makes of its prompt."""

    def __init__(self, say: Callable[[str], str]) -> None:
        super().__init__()
        self.say, self.prompts = say, list[str]()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        prompt = "".join(part.text for part in call.all_parts)
        self.prompts.append(prompt)
        yield Delta(self.say(prompt))
        yield Delta("", "stop")


@pytest.fixture
def harbour(tmp_path: Path) -> str:
    folder = tmp_path / "harbour"
    folder.mkdir()
    (folder / "lamp.txt").write_text("Mara looks after the lamp of Arrenholm. The lamp is green.")
    (folder / "tide.txt").write_text("The tide is high at noon in Arrenholm.")
    return str(folder)


# --- function-agent -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("(3 + 4) * 2", 14.0),
        ("sqrt(16) - -1", 5.0),
        ("2 ** 10", 1024.0),
        ("max(1, 7 // 2)", 3.0),
        ("7 - 9 / 2", 2.5),
        ("7 % 4 + +1", 4.0),
        ("round(2.345, 2)", 2.35),
        ("min(2, 1)", 1.0),
        (" 1 + 1 ", 2.0),
        ("9007199254740993", 2.0**53),
        ("1" * 300, float("1" * 300)),
        (f"{'1 +' * 166} 1".ljust(500), 167.0),
    ],
)
def test_it_can_calculate(formula: str, value: float) -> None:
    assert asyncio.run(function_agent.calculator.call({"expression": formula})).value == value


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "abs(x=1)",
        "True",
        "eval('1')",
        "~1",
        "1 / 0",
        "9 ** 9 ** 9",
        "a + 1",
        "(1).real",
        "[1]",
        "'a' * 9",
        "1" * 501,
    ],
)
def test_and_nothing_else(formula: str) -> None:
    assert asyncio.run(function_agent.calculator.call({"expression": formula})).failed


def test_what_is_wrong_with_a_formula_is_told() -> None:
    def told(formula: str) -> str:
        return str(asyncio.run(function_agent.calculator.call({"expression": formula})).text)

    assert "'max(1)' has no value: " in told("max(1)")
    assert "'1 / 0' has no value: " in told("1 / 0")
    assert "'1 +' is no formula that can be worked out" in told("1 +")
    assert "has up to 500 characters" in told("1" * 501)


@pytest.mark.server
def test_it_uses_all_of_its_tools(tmp_path: Path, harbour: str) -> None:
    database = tmp_path / "berths.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE berths (boat TEXT, depth REAL)")
        connection.execute("INSERT INTO berths VALUES ('Kittiwake', 4.5)")
    connection.close()
    made: list[tuple[str, dict[str, Any]]] = [
        ("calculator", {"expression": "6 * 7"}),
        ("sql_lookup", {"sql": "SELECT depth FROM berths"}),
        ("web_search", {"query": "Who looks after the lamp?"}),
        ("get_current_time", {"timezone": "UTC"}),
        ("calculator", {"expression": "${1} + 1"}),
    ]
    plan = json.dumps(
        {"thought": "all", "calls": [{"tool": name, "args": args} for name, args in made]}
    )
    model = Says(lambda text: '{"answer": "42"}' if "Calls so far" in text else plan)
    engines: dict[str, Any] = {
        "llm": lambda: model,
        "websearch": EngineConfig("corpus", {"folder": harbour}),
    }
    with Runtime(engines) as runtime, lent({"": function_agent.app}, runtime):
        result = function_agent.app.run(
            question="What is it?", secrets={"LOOKUP_DATABASE": str(database)}
        )
    assert result.answer == "42"
    steps = result["steps"]
    assert [step["tool"] for step in steps] == [name for name, _ in made]
    assert [step["failed"] for step in steps] == [False] * 5, steps
    assert steps[1]["result"] == '{"columns": ["depth"], "rows": [[4.5]], "truncated": false}'
    assert "Mara" in steps[2]["result"]
    assert "UTC" in steps[3]["result"]
    assert steps[4]["result"] == "43.0"
    assert str(database) not in "".join(model.prompts)


# --- research-agent -----------------------------------------------------------------------------


def researched(verdicts: list[str], harbour: str) -> tuple[Any, list[str]]:
    def say(prompt: str) -> str:
        if "Rewritings:" in prompt:
            return "Who looks after the lamp?\nWhat colour is the lamp?\nWhen is the tide high?"
        if "Answer the question from what was found" in prompt:
            return "Mara."
        return "Mara looks after it."

    model, judge = Says(say), Says(lambda prompt: verdicts.pop(0))
    engines: dict[str, Any] = {
        "llm": lambda: model,
        "judge": lambda: judge,
        "websearch": EngineConfig("corpus", {"folder": harbour}),
    }
    with Runtime(engines) as runtime, lent({"": research_agent.app}, runtime):
        return research_agent.app.run(question="Who?"), model.prompts


@pytest.mark.server
def test_it_goes_on_until_enough_is_found(harbour: str) -> None:
    result, prompts = researched(["yes", "no"], harbour)
    assert result.answer == "Mara."
    assert result["findings"] == "Mara looks after it."
    plans = [text for text in prompts if "Rewritings:" in text]
    assert len(plans) == 2
    assert "(nothing yet)" in plans[0]
    assert "Mara looks after it." in plans[1]
    read = [text for text in prompts if text.startswith("You read what")]
    assert len(read) == len(set(read)) == 2  # three searches twice, which found the same two pages


def test_what_was_found_is_kept_once_and_its_end_where_it_is_long() -> None:
    gather = research_agent.gather.config.function
    nothing, longest = research_agent.NOTHING, research_agent.LONGEST
    assert gather(nothing, []) == gather(nothing, [" Nothing ", "", " "]) == nothing
    assert gather(nothing, [" a ", "b", "a"]) == "a\n\nb"
    assert gather("a\n\nb", ["b", "c"]) == "a\n\nb\n\nc"
    long = gather("x" * longest, ["the last"])
    assert (len(long), long.endswith("x\n\nthe last")) == (longest, True)


@pytest.mark.server
def test_and_not_for_ever(harbour: str) -> None:
    result, prompts = researched(["yes"] * 3, harbour)
    assert result.answer == "Mara."
    plans = [text for text in prompts if "Rewritings:" in text]
    assert len(plans) == 2  # nothing new was found, so the third plan is the second one


# --- simulated ----------------------------------------------------------------------------------


@pytest.mark.parametrize("app", [function_agent.app, research_agent.app])
def test_they_can_be_simulated_and_explained(app: Any) -> None:
    plan = Optimiser(app.builder, paper("13b")).plan({}, {})
    sim = Sim(paper("13b"))
    given = {"question": Tokens(20), "findings": Tokens(20)}
    sim.submit(plan, {name: given.get(name) for name in plan.graph.inputs})
    (result,) = sim.run()
    assert result.state is State.OK
    assert result.latency_s > 1
