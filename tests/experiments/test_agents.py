"""Agents on the experiment's own server, in small."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments.agents import __main__ as agents
from experiments.agents import bfcl, parallelqa, running, sets, simulated, sums, writer
from experiments.agents.facts import FACTS
from experiments.agents.measure import chosen, means, ratios
from experiments.agents.task import Demand, Planned, Task
from experiments.agents.teola_side import MODES, TeolaAgent
from experiments.agents.tools import OBSERVATION, Tools, observation, tools_of
from experiments.common import pages
from teola import EngineConfig, Runtime
from teola.errors import InputError, UnknownName
from tests.planted import catches, edited

REPORT = Path(agents.__file__).with_name("report.json")
ROW = ["set", "task", "mode", "makespan_s", "calls", "correct"]
FAST_MS = 2.0


def task(name: str = "11") -> Task:
    return next(one for one in parallelqa.tasks(None) if one.name == name)


class Quick(Tools):
    """Tools that take hardly any time."""

    async def run(self, name: str, arguments: Any) -> str:
        self.does.seconds = lambda name: 0.01  # type: ignore[method-assign]
        return await super().run(name, arguments)


@contextmanager
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def tools(of: Task) -> Tools:
        made = tools_of(of)
        return Quick(made.functions, made.does)

    monkeypatch.setattr(running, "tools_of", tools)
    yield


# --- plans and what is written of them ----------------------------------------------------------


def test_every_plan_of_parallelqa_comes_to_its_answer() -> None:
    found = parallelqa.tasks(None)
    assert len(found) == 96
    for one in found:
        (demand,) = one.demands
        values = dict(enumerate(one.values, 1))
        assert demand.join is not None
        assert parallelqa.close(parallelqa.joined(demand.join, values), one.expected)
        assert len(values) == len(demand.calls)


def test_plans_fall_into_stages_and_lists() -> None:
    (demand,) = task().demands
    assert demand.plans() == [[1, 2, 3, 4, 5]]
    assert demand.stages() == [[1, 2], [3, 4], [5]]
    ordered = Demand("q", (Planned("a", {}), Planned("b", {}, after=True), Planned("c", {})))
    assert ordered.plans() == ordered.stages() == [[1], [2, 3]]


def test_replies_have_as_many_tokens_as_they_are_to_have() -> None:
    (demand,) = task().demands
    plan = writer.reply("plan", demand, {})
    tokens = writer.as_text("plan", plan)
    assert len(tokens) == len(writer.as_chat("plan", plan)) == 20 + 22 * 5
    assert all(tokens)
    calls = json.loads("".join(tokens))["calls"]
    assert calls[2] == {"tool": "calculator", "args": {"expression": "${1.value} * 1.15"}}
    step = writer.reply("react", demand, {1: 10.0, 2: 20.0})
    assert len(writer.as_text("react", step)) == len(writer.as_chat("react", step)) == 60
    assert step.calls[0].arguments == {"expression": "10.0 * 1.15"}
    known = {k: float(k) for k in range(1, 6)}
    answer = writer.reply("parallel", demand, known)
    assert len(writer.as_text("parallel", answer)) == len(writer.as_chat("x", answer)) == 60
    assert answer.answer.startswith("5 -- ")


def test_what_is_shown_is_read_behind_the_last_question() -> None:
    seen = observation(3.5)
    assert len(seen) == OBSERVATION
    old, new = "1. f({})", '7. f({"x": "): "})'
    prompt = f"[a 1 1] old?\n{old}:\n> {seen}\n[a 1 2] new?\n{new}:\n> {seen}\n"
    assert writer.shown(prompt) == ("[a 1 2]", {7: 3.5})
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "[a 1 1] old?"},
        {"role": "tool", "tool_call_id": "call_1_f", "content": seen},
        {"role": "user", "content": [{"type": "text", "text": "[a 1 2] new?"}]},
        {"role": "tool", "tool_call_id": "call_2_f", "content": "it failed"},
    ]
    assert writer.shown_in_chat(messages) == ("[a 1 2]", {2: None})
    with pytest.raises(LookupError):
        writer.shown("nothing")


@pytest.mark.parametrize("text", ["__import__('os')", "1 +", "x", "(1).real", "2 ** 9"])
def test_sums_are_sums_alone(text: str) -> None:
    assert sums.value("max(2, -3) * 1.5 - 1") == 2.0
    with pytest.raises(ValueError, match="not a sum"):
        sums.value(text)


# --- live, and simulated --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url(servers: None) -> Iterator[str]:
    """A server of two tasks, for all tests that ask one as vLLM."""
    with running.server([task("11"), task("1")], FAST_MS) as url:
        yield url


@pytest.fixture(scope="module")
def elsewhere(servers: None) -> Iterator[str]:
    """A server of one task that is no vLLM."""
    with running.server([task()], FAST_MS, "somebody") as url:
        yield url


@pytest.mark.slow
def test_every_mode_answers_right(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [task("11"), task("1")]
    with quick(monkeypatch):
        for mode in running.MODES:
            rows = running.run(url, mode, some)
            assert [list(row) for row in rows] == [ROW, ROW]
            assert all(row["correct"] for row in rows), mode
            assert [row["calls"] for row in rows] == [5, 4]


@pytest.mark.slow
@pytest.mark.parametrize("style", ["react", "parallel", "plan"])
def test_the_servers_own_tool_calls_do_as_well(elsewhere: str, style: str) -> None:
    """On a server that is no vLLM: its chat completions with tools."""
    one = task()
    mode = next(name for name, config in MODES.items() if config["mode"] == style)
    if style == "plan":
        mode = "teola_streamed"
    engine = EngineConfig("openai", {"url": elsewhere, "model": style, "api": "chat"})
    with Runtime({"llm": engine}) as runtime:
        tools = tools_of(one)
        tools.does.seconds = lambda name: 0.01  # type: ignore[method-assign]
        agent = TeolaAgent(runtime, mode, one, tools)
        answers = runtime.start(agent.run()).result()
    assert sets.right(one, answers, tools)
    assert answers[0].endswith(writer.BECAUSE[-20:])


@pytest.mark.slow
def test_an_answer_of_other_results_is_wrong(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(name: str) -> Any:
        return FACTS["Sunda Trench"]

    monkeypatch.setattr("experiments.agents.facts.found", wrong)
    with quick(monkeypatch):
        (row,) = running.run(url, "teola_streamed", [task()])
    assert not row["correct"]


def test_simulated_runs_are_as_long_as_they_must_be() -> None:
    some, step = [task("11")], 0.0235
    took = {m: simulated.simulated(m, some, 23.5)[0]["makespan_s"] for m in MODES}
    answer = 60 * step
    assert took["teola_react"] == pytest.approx(6 * 60 * step + 2 * 1.0 + 3 * 0.1, abs=0.2)
    plan = (20 + 22 * 5) * step
    assert took["teola_plan"] == pytest.approx(plan + 1.0 + 0.1 + 0.1 + answer, abs=0.1)
    assert took["teola_streamed"] == pytest.approx(plan + 0.1 + answer, abs=0.1)
    lists = (3 * 20 + 22 * 5) * step
    assert took["teola_parallel"] == pytest.approx(lists + 1.0 + 0.2 + answer, abs=0.2)


@catches(
    "one-after-another",
    "simulated calls wait for the whole plan",
    edited(simulated.Acted.told, "return self._due()", "return ()"),
)
def test_simulated_calls_begin_as_they_are_written() -> None:
    some = [task("11")]
    plan, streamed = (
        simulated.simulated(mode, some, 23.5)[0]["makespan_s"]
        for mode in ("teola_plan", "teola_streamed")
    )
    assert streamed < plan - 0.5


# --- BFCL -----------------------------------------------------------------------------------------


def test_without_its_package_bfcl_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bfcl, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(bfcl, "PACKAGE", "bfcl_eval_that_is_not_there")
    with pytest.raises(InputError, match=r"pip install --no-deps --target \S+ bfcl-eval=="):
        sets.chosen("bfcl_parallel", 1, None)


def test_any_of_the_accepted_calls_will_do() -> None:
    options = [{"f": {"a": [1, 2], "b": ["", "x"], "c": [{"d": [3.0]}]}}, {"g": {}}]
    one = Task("bfcl_parallel", "0", (), scenario={"options": options})
    right: list[tuple[str, Any]] = [("g", {}), ("f", {"a": 2, "c": {"d": 3}})]
    assert bfcl.answered(right, one)
    assert not bfcl.answered(right[:1], one)
    assert not bfcl.answered([*right, ("g", {})], one)
    assert not bfcl.answered([("g", {}), ("f", {"a": 3, "c": {"d": 3}})], one)
    assert not bfcl.answered([("g", {}), ("f", {"a": 2, "c": {"d": 3}, "e": 1})], one)


@pytest.mark.skipif(
    not bfcl.FOLDER.is_dir() and os.environ.get("CI") != "true", reason="make puts bfcl-eval there"
)
def test_conversations_are_right_only_in_order() -> None:
    one = next(bfcl.tasks("bfcl_multi_turn"))
    assert next(demand.plans() for demand in one.demands) == [[1], [2], [3]]
    for turned in (False, True):
        tools = tools_of(one)
        assert isinstance(tools.does, bfcl.Backend)
        for demand in one.demands:
            for call in reversed(demand.calls) if turned else demand.calls:
                value = tools.does.call(call.tool, call.arguments)
                tools.made.append(running_note(call, value))
        assert sets.right(one, ["Done"] * len(one.demands), tools) is not turned


def running_note(call: Planned, value: Any) -> Any:
    from experiments.agents.tools import Made

    return Made(call.tool, call.arguments, value)


# --- reports --------------------------------------------------------------------------------------


def test_means_and_ratios() -> None:
    def row(mode: str, took: float) -> dict[str, Any]:
        return dict(zip(ROW, ("parallelqa", "1", mode, took, 3, True), strict=True))

    rows = [row("teola_streamed", 2.0), row("teola_streamed", 4.0), row("langgraph", 6.0)]
    lines = means(rows, [{**row("teola_streamed", 2.9)}], 23.5, "parallelqa")
    assert [(one["mode"], one["makespan_s"], one["simulated_s"]) for one in lines] == [
        ("teola_streamed", 3.0, 2.9),
        ("langgraph", 6.0, None),
    ]
    assert ratios(lines) == {"langgraph": 2.0}
    with pytest.raises(UnknownName, match="langgraph"):
        chosen("langraph", running.MODES, "mode")


def test_the_page_says_what_the_report_says(tmp_path: Path) -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    assert {one["step_ms"] for one in report["sweep"]} == {7.0, 23.5, 40.0}
    assert all(list(row) == ROW for row in report["rows"])
    assert all(row["correct"] for row in report["rows"])
    section = agents.section(report, pages.picture("agents"))
    assert section in pages.PAGE.read_text(encoding="utf-8")
    told = ratios(agents.summed(report)["parallelqa"])
    assert told["teola_react"] >= 1.8
    assert told["teola_plan"] >= 1.15
    assert told["langgraph"] >= 1.15
    agents.plot(report, tmp_path / "agents.svg")
    assert "simulated" in (tmp_path / "agents.svg").read_text()
