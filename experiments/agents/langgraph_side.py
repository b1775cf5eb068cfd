"""LangGraph's prebuilt agent, on the chat completions of the server with its tools."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from openai import AsyncOpenAI
from pydantic import SecretStr

from experiments.agents.task import Task
from experiments.agents.tools import Tools

STYLE: Final = "parallel"
INSTRUCTION: Final = (
    "You answer questions with the help of tools. Call the tools that you need; when you know "
    "enough, answer briefly and exactly, from what the tools said."
)


def model(client: AsyncOpenAI, url: str) -> ChatOpenAI:
    """The server, which writes as it does for `teola_parallel`."""
    return ChatOpenAI(
        base_url=url,
        api_key=SecretStr("none"),
        model=STYLE,
        temperature=0,
        root_async_client=client,
        async_client=client.chat.completions,
    )


class LangGraphAgent:
    """One task's. The conversation is the graph's own state."""

    def __init__(self, chat: ChatOpenAI, task: Task, tools: Tools) -> None:
        self._task = task
        with warnings.catch_warnings():  # it has moved to `langchain`, where it is the same
            warnings.simplefilter("ignore")
            self._graph = create_react_agent(
                chat, [_tool(one, tools) for one in tools.functions], prompt=INSTRUCTION
            )

    async def run(self) -> list[str]:
        """The answers to its demands, one after another."""
        answers, messages = list[str](), list[Any]()
        for k in range(len(self._task.demands)):
            messages = [*messages, ("user", self._task.question(k))]
            state = await self._graph.ainvoke({"messages": messages}, {"recursion_limit": 200})
            messages = state["messages"]
            answers.append(str(messages[-1].content))
        return answers


def _tool(function: Mapping[str, Any], tools: Tools) -> StructuredTool:
    name = function["name"]

    async def run(**arguments: Any) -> str:
        return await tools.run(name, arguments)

    return StructuredTool(
        name=name,
        description=function["description"],
        args_schema=dict(function["parameters"]),
        coroutine=run,
    )
