"""Teola's modes: its Agent, on the completions of the server under a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from experiments.agents.stepping import BUDGET
from experiments.agents.task import Task
from experiments.agents.tools import Tools
from teola import Agent, App, EngineConfig, Input, Runtime
from teola.tools import Tool, ToolContext

MODES: Final[Mapping[str, dict[str, Any]]] = {
    "teola_react": {"mode": "react"},
    "teola_parallel": {"mode": "parallel"},
    "teola_plan": {"mode": "plan", "streamed": False},
    "teola_streamed": {"mode": "plan"},
}
TURNS: Final = 64
DEADLINE_S: Final = 600.0


def engine(url: str, mode: str) -> EngineConfig:
    """The server, writing as the mode asks it to."""
    options = {
        "url": url,
        "model": MODES[mode]["mode"],
        "api": "completions",
        "max_sequences": 256,
        "max_batch": 16 * BUDGET,
    }
    return EngineConfig("openai", options)


def app_of(mode: str, task: Task, tools: Tools, runtime: Runtime | None = None) -> App:
    """The application that a task is asked of."""
    agent = Agent(
        [_tool(one, tools) for one in tools.functions],
        at_most=TURNS,
        results_tokens=64_000,
        **MODES[mode],
    )
    return App(
        "agent",
        agent,
        inputs={"question": "text", "history": Input("text", default=None)},
        outputs={"answer": "answer", "steps": "steps"},
        runtime=runtime,
    )


class TeolaAgent:
    """One task's, on a runtime of the mode."""

    def __init__(self, runtime: Runtime, mode: str, task: Task, tools: Tools) -> None:
        self._task, self._app = task, app_of(mode, task, tools, runtime)

    async def run(self) -> list[str]:
        """The answers to its demands, one after another."""
        answers, history = list[str](), ""
        for k in range(len(self._task.demands)):
            given = {"question": self._task.question(k), "history": history}
            result = await self._app.arun(given, deadline_s=DEADLINE_S)
            answers.append(str(result.outputs["answer"]))
            history += f"User: {given['question']}\nAssistant: {answers[-1]}\n"
        return answers


def _tool(function: Mapping[str, Any], tools: Tools) -> Tool:
    name = function["name"]

    async def carry_out(arguments: Mapping[str, Any], context: ToolContext) -> str:
        return await tools.run(name, arguments)

    pure = tools.does.pure
    return Tool(name, function["description"], function["parameters"], carry_out, pure=pure)
