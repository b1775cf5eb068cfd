"""Rounds of agents at once, in turn by the one system and by the other, on the same server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from openai import DefaultAsyncHttpxClient

from experiments.agents_on_vllm.sides import Side, Went, langgraph, teola
from experiments.agents_on_vllm.tools_asked import question
from experiments.common.latencies import percentile
from experiments.common.tiny_model import make_model
from teola import EngineConfig, Runtime
from teola.runtime import machine
from teola.runtime.hosts.model_server import ModelServer, ServerOptions
from teola_engines.llm import VLLMServer

AGENTS: Final = 20
ROUNDS: Final = 3
NAME: Final = "tiny"
TOOL_CALLS: Final = (
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "hermes",
    "--structured-outputs-config",
    '{"backend": "xgrammar", "disable_any_whitespace": true}',
)
"""So that the server takes `tools` at all, and a random model does not fill its turn with spaces
where its schema allows any number of them."""


def model(folder: Path) -> Path:
    """A random one, made where there is none yet."""
    if not (folder / "config.json").exists():
        make_model(folder, hidden=128, layers=3, heads=4, vocabulary=2048, chat_template=True)
    return folder


def server(folder: Path) -> ModelServer:
    """A vLLM of it."""
    options = ServerOptions(
        str(model(folder)),
        port=0,
        name=NAME,
        dtype="float32",
        kv_gib=1,
        log=folder.with_suffix(".log"),
        extra=TOOL_CALLS,
    )
    return ModelServer(options)


def measure(url: str, agents: int = AGENTS, rounds: int = ROUNDS) -> dict[str, Any]:
    """The report. url: of a server of `model`."""
    config = EngineConfig(VLLMServer, {"url": url, "max_sequences": max(32, agents)})
    with Runtime({"llm": config}) as runtime:
        went = runtime.start(_both(runtime, url, agents, rounds)).result()
    return {
        "rows": [{"system": name, **_row(found)} for name, found in went.items()],
        "agents": agents,
        "rounds": rounds,
        "machine": machine.describe(("teola", "langgraph", "langchain-openai")),
    }


async def _both(runtime: Runtime, url: str, agents: int, rounds: int) -> dict[str, list[Went]]:
    async with DefaultAsyncHttpxClient() as http:
        sides = {"teola": teola(runtime), "langgraph": langgraph(url, NAME, http)}
        return await _rounds(sides, agents, rounds)


async def _rounds(sides: Mapping[str, Side], agents: int, rounds: int) -> dict[str, list[Went]]:
    """How the agents of each side went; a first round is left out."""
    found: dict[str, list[Went]] = {name: [] for name in sides}
    for number in range(-1, rounds):
        for name, ask in sides.items():
            seeds = range(agents * (number + 1), agents * (number + 2))
            went = await asyncio.gather(*(ask(question(seed)) for seed in seeds))
            if number >= 0:
                found[name] += went
    return found


def _row(went: Sequence[Went]) -> dict[str, Any]:
    ended = [one for one in went if not one.failure]
    seconds = [one.seconds for one in ended]
    tokens = sum(one.tokens for one in ended)
    return {
        "agents": len(went),
        "mean_s": round(fmean(seconds), 3) if ended else None,
        "p90_s": round(percentile(seconds, 90), 3) if ended else None,
        "ms_a_token": round(1000 * sum(seconds) / max(1, tokens), 3),
        "tokens": round(tokens / max(1, len(ended)), 1),
        "calls": sum(one.calls for one in went),
        "invalid": sum(one.invalid for one in went),
        "unfinished": len(went) - len(ended),
        "why": sorted({one.failure[:160] for one in went if one.failure}),
    }
