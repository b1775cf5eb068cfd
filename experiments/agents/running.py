"""Runs the tasks of a set side by side under one mode, on a server of its own process."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Protocol

import httpx
from openai import AsyncOpenAI

from experiments.agents import sets, teola_side
from experiments.agents.server import VLLM
from experiments.agents.task import Task
from experiments.agents.tools import Tools, tools_of
from teola import Runtime
from teola.errors import EngineUnavailable

OTHERS: Final = ("langgraph", "nat_app")
TIMEOUT_S: Final = 600.0
MODES: Final = (*teola_side.MODES, *OTHERS)


class Runs(Protocol):
    """An agent that is ready for its task."""

    async def run(self) -> list[str]:
        """Its answers."""
        ...


@contextmanager
def server(tasks: Sequence[Task], step_ms: float, owner: str = VLLM) -> Iterator[str]:
    """The URL of a server that knows these tasks. Raises EngineUnavailable."""
    demands = {task.tag(k): one for task in tasks for k, one in enumerate(task.demands)}
    with tempfile.TemporaryDirectory(prefix="teola-agents-") as folder:
        path = Path(folder) / "tasks"
        path.write_text(json.dumps(demands, default=asdict), encoding="utf-8")
        program = [sys.executable, "-m", "experiments.agents.server"]
        given = ["--tasks", str(path), "--step-ms", str(step_ms), "--owner", owner]
        with subprocess.Popen([*program, *given], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = process.stdout.readline().strip()
                if not port:
                    raise EngineUnavailable("the server of the experiment did not start")
                yield f"http://127.0.0.1:{port}/v1"
            finally:
                process.terminate()


def step_ms(url: str) -> float:
    """What its steps have taken in the mean."""
    told = httpx.get(f"{url.removesuffix('/v1')}/steps").json()
    return float(1e3 * told["busy_s"] / max(1, told["steps"]))


def run(url: str, mode: str, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """A row a task. All begin at the same time; clocks start when every agent is ready."""
    if mode in teola_side.MODES:
        with Runtime({"llm": teola_side.engine(url, mode)}) as runtime:
            runtime.start(runtime.ensure(["llm"])).result()
            agents = _agents(tasks, lambda *one: teola_side.TeolaAgent(runtime, mode, *one))
            return runtime.start(_all(mode, agents)).result()
    return asyncio.run(_other(url, mode, tasks))


async def _other(url: str, mode: str, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    async with openai_client(url) as client:
        if mode == "langgraph":
            from experiments.agents import langgraph_side

            chat = langgraph_side.model(client, url)
            agents = _agents(tasks, lambda *one: langgraph_side.LangGraphAgent(chat, *one))
        else:
            from experiments.agents import nat_side

            agents = _agents(tasks, lambda *one: nat_side.NatAgent(client, *one))
        return await _all(mode, agents)


def openai_client(url: str) -> AsyncOpenAI:
    """OpenAI's own, for whoever calls the server through it."""
    return AsyncOpenAI(base_url=url, api_key="none", timeout=TIMEOUT_S, max_retries=0)


Ready = tuple[Task, Tools, Runs]


def _agents(tasks: Sequence[Task], make: Callable[[Task, Tools], Runs]) -> list[Ready]:
    found = []
    for task in tasks:
        tools = tools_of(task)
        found.append((task, tools, make(task, tools)))
    return found


async def _all(mode: str, agents: Sequence[Ready]) -> list[dict[str, Any]]:
    gc.collect()
    gc.freeze()  # what was imported is not looked through again while clocks run
    return await asyncio.gather(*(_row(mode, *one) for one in agents))


async def _row(mode: str, task: Task, tools: Tools, agent: Runs) -> dict[str, Any]:
    began = perf_counter()
    answers = await agent.run()
    return {
        "set": task.set,
        "task": task.name,
        "mode": mode,
        "makespan_s": round(perf_counter() - began, 4),
        "calls": len(tools.made),
        "correct": sets.right(task, answers, tools),
    }
