"""NVIDIA's Agent Performance Primitives (`nvidia-nat-app`, of the NeMo Agent Toolkit).

They schedule the nodes of a graph that is known before it runs; there is no agent among them. So
what is run is a plan: the model writes it whole, `quick_optimize` finds which of its calls can run
side by side, the stages run one after another as its own `benchmark` runs them, and the model
answers. Calls to the model are the OpenAI SDK's.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Mapping
from typing import Any, Final

from openai import AsyncOpenAI

from experiments.agents import writer
from experiments.agents.task import Task
from experiments.agents.tools import Tools

with warnings.catch_warnings():  # it says on import that it is experimental
    warnings.simplefilter("ignore")
    from nat_app import quick_optimize  # type: ignore[import-untyped]

STYLE: Final = "plan"


class NatAgent:
    """One task's."""

    def __init__(self, server: AsyncOpenAI, task: Task, tools: Tools) -> None:
        self._server, self._task, self._tools = server, task, tools
        self._offered = [{"type": "function", "function": one} for one in tools.functions]

    async def run(self) -> list[str]:
        """The answers to its demands, one after another."""
        answers, messages = list[str](), list[Any]()
        for k in range(len(self._task.demands)):
            messages.append({"role": "user", "content": self._task.question(k)})
            answers.append(await self._answer(messages))
        return answers

    async def _answer(self, messages: list[Any]) -> str:
        results: dict[int, Any] = {}
        while True:
            whole = await self._server.chat.completions.create(
                model=STYLE,
                messages=messages,
                tools=self._offered,  # type: ignore[arg-type]
                temperature=0,
            )
            said = whole.choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            if not said.tool_calls:
                return str(said.content)
            calls = {_number(call.id): call.function for call in said.tool_calls}  # type: ignore[union-attr]
            told: dict[int, str] = {}
            for stage in _stages(calls):
                texts = await asyncio.gather(*(self._call(calls[n], results) for n in stage))
                for number, text in zip(stage, texts, strict=True):
                    told[number], results[number] = text, writer.valued(text)
            for call in said.tool_calls:
                text = told[_number(call.id)]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    async def _call(self, function: Any, results: Mapping[int, Any]) -> str:
        arguments = writer.filled(json.loads(function.arguments), results)
        return await self._tools.run(function.name, arguments)


def _number(id: str) -> int:
    return int(id.split("_")[1])


def _stages(calls: Mapping[int, Any]) -> list[list[int]]:
    """Numbers of the calls that run side by side, one list after another."""
    nodes = {f"call_{number}": None for number in calls}
    edges = [
        (f"call_{n}", f"call_{number}")
        for number, function in calls.items()
        for n in writer.references(function.arguments)
        if n in calls
    ]
    free = [node for node in nodes if all(node != target for _, target in edges)]
    whole = [("plan", node) for node in free] + edges
    found = quick_optimize({"plan": None, **nodes}, whole, entry="plan")
    numbered = ([_number(node) for node in sorted(stage) if node != "plan"] for stage in found)
    return [stage for stage in numbered if stage]
