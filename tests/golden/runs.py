"""Whole runs of which every event, decision and trace is known: each shipped application, agents,
`Loop` and `Each`, in the simulator and on the live driver (in virtual time), and runs under faults.

They are there for changes that are to change nothing. `runs.txt` has a digest of each run and of
its stretches, so that one sees where two begin to differ; `python -m tests.golden FOLDER` writes
the whole texts, to be compared by `diff`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from teola import Agent, App, Each, Generate, Loop, component
from teola.engine import Chunk, Engine, EngineKind, EngineResult, Hit, Request, Scope
from teola.graph import Op
from teola.learning import Learner
from teola.learning.at_work import AtWork
from teola.profile import default, paper
from teola.runtime.in_flight import Query
from teola.runtime.live.live import Live
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.values import Tokens
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceDown, InstanceUp
from teola.testing.bench import Bench
from teola.testing.hash_engines import CountsStarts, hash_number, spec
from teola.tools import tool
from tests.golden.noting import NotingCore, answered, shown, traced
from tests.properties.drawn import Drawn
from tests.under_faults.clock import THREAD_S, VirtualLoop
from tests.under_faults.engines import Database, Embedder, KeyedModel, Python, Reranker, Store
from tests.under_faults.world import World, scenario

KEPT: Final = Path(__file__).parent / "runs.txt"
STRETCH: Final = 100
"""Lines that have a digest of their own."""
EXCERPT: Final = 6
"""Lines that are kept as they are, of the beginning and of the end."""
CHUNKS: Final = 14
SEEDS: Final = range(40)
"""Of runs under faults."""

Told = list[str]


def texts() -> dict[str, list[str]]:
    """The lines of each run, by its name."""
    logging.getLogger("teola").setLevel(logging.CRITICAL)
    found = {}
    for name, app in APPS.items():
        found[f"sim {name} graph_aware"] = _simulated(app, "graph_aware", "critical_path")
        found[f"sim {name} prefix_affinity"] = _simulated(app, "prefix_affinity", "fair")
    for name, app in APPS.items():
        if name != "function_agent":  # its clock is a process
            found[f"live {name}"] = _lived(app, "graph_aware", passes="all")
            found[f"live {name} plain"] = _lived(app, "least_loaded", passes="none")
    for seed in SEEDS:
        found[f"faults {seed}"] = _under_faults(seed)
    return found


def digests(runs: Mapping[str, Sequence[str]]) -> str:
    """What is kept of them."""
    found: list[str] = []
    for name, lines in runs.items():
        stretches = [lines[at : at + STRETCH] for at in range(0, len(lines), STRETCH)]
        told = [_digest("\n".join(stretch)) for stretch in stretches]
        found.append(f"== {name}: {len(lines)} lines, {_digest(chr(10).join(lines))}")
        found += [f"   {' '.join(told[at : at + 10])}" for at in range(0, len(told), 10)]
        if not name.startswith("faults"):
            found += [line[:140] for line in (*lines[:EXCERPT], "...", *lines[-EXCERPT:])]
    return "\n".join(found) + "\n"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()


# --- what runs --------------------------------------------------------------------------------


@component(outputs="better", pure=True)
async def better(draft: str, answer: str) -> str:
    return f"{draft} {answer}"


@component(outputs="note", pure=True)
async def note(topic: str) -> str:
    await asyncio.sleep(0.01 * (hash_number(topic) % 5))
    return f"note on {topic}"


@tool(pure=True)
async def look(query: str) -> str:
    """Look something up.

    Args:
        query: what to look for
    """
    await asyncio.sleep(0.05)
    return f"found {query}"


@tool
async def send(text: str) -> str:
    """Send a message.

    Args:
        text: what it says
    """
    return f"sent {text}"


def _own() -> dict[str, App]:
    write = Generate(inputs={"context": "draft"})
    turn = Loop(
        write >> better,
        carry={"draft": "better"},
        until=lambda text: len(text) > 60,
        reads=["better"],
        gives=["better"],
        at_most=4,
    )
    body = note >> Generate(inputs={"context": "note"})
    each = Each(body, over="topics", item="topic", gives={"notes": "answer"}, at_once=3)
    return {
        "loop": App(
            "loop", turn, inputs={"question": "text", "draft": "text"}, outputs={"end": "better"}
        ),
        "each": App(
            "each", each, inputs={"question": "text", "topics": "texts"}, outputs={"all": "notes"}
        ),
        "agent": App(
            "agent",
            Agent([look, send], at_most=6),
            inputs={"question": "text"},
            outputs={"answer": "answer", "steps": "steps"},
        ),
    }


def _shipped() -> dict[str, App]:
    from teola_apps import (
        advanced_rag,
        chat_rag,
        function_agent,
        naive_rag,
        research_agent,
        search_agent,
    )

    apps = (naive_rag, advanced_rag, chat_rag, search_agent, function_agent, research_agent)
    return {module.__name__.rpartition(".")[2]: module.app for module in apps}


APPS: Final = {**_shipped(), **_own()}


# --- simulated --------------------------------------------------------------------------------


def _simulated(app: App, routing: str, batching: str) -> list[str]:
    """Eight queries of two tenants on two instances of each engine. One is cancelled, one reaches
    its deadline; instances die and come back. What is learned meanwhile is used."""
    lines: Told = []
    profile = paper("13b")
    learner = Learner(AtWork())
    optimiser = Optimiser(app.builder, profile, learner)

    def ended(query: Query, result: SimulatedQuery) -> None:
        lines.append(f"{result.finished:.9g} {traced(query.trace)} {shown(result.outputs)}")

    names = ("llm", "judge", "proxy", "embedding", "vectorstore", "rerank", "websearch", "python")
    fair = {"by": "tenant", "weights": {"t0": 2.0}, "inner": "critical_path"}
    sim = Sim(
        profile,
        batching=batching,
        routing={name: routing for name in names if name in ("llm", "judge", "proxy")},
        policy_options=dict.fromkeys(names, fair) if batching == "fair" else None,
        instances=dict.fromkeys(names, 2),
        outcomes=Drawn(7),
        learner=learner,
        explains=True,
        on_finish=ended,
    )
    sim._check_names = lambda: None  # type: ignore[method-assign]  # not each app has all engines
    sim.core = NotingCore({}, sim._measure)
    sim.core.lines = lines
    for k in range(8):
        given = {
            "question": Tokens(14 + k),
            "history": Tokens(60 + 40 * k),
            "findings": Tokens(9),
            "draft": Tokens(30),
            "topics": [Tokens(6 + n) for n in range(5)],
            "scope": Tokens(0),
            "chunks": [Tokens(200 + 8 * n) for n in range(20 + 11 * k)],
        }
        inputs = {
            name: given.get(name) for name in optimiser.plan({}, _sizes(app, given)).graph.inputs
        }
        sim.submit(
            partial(optimiser.plan, {}, _sizes(app, given)),
            inputs,
            at=0.06 * k,
            id=f"q{k}",
            app=app.name,
            tenant=f"t{k % 2}",
            program="session" if k in (2, 6) else "",
            cancel_after_s=0.5 if k == 3 else None,
            deadline_s=1.2 if k == 5 else None,
        )
    sim.kill("llm", 0, at=1.3, back_s=0.4)
    results = sim.run()
    lines += [f"{r.id} {shown(r.state)} {r.latency_s:.9g} {shown(r.error)}" for r in results]
    return lines


def _sizes(app: App, given: Mapping[str, Any]) -> dict[str, int]:
    names = ("chunks", "topics")
    takes = {"chunks" if kind.value == "documents" else name for name, kind in app.inputs.items()}
    return {name: len(given[name]) for name in names if name in takes}


# --- live -------------------------------------------------------------------------------------


class Web(CountsStarts):
    """Two hits for each query."""

    def __init__(self) -> None:
        self.spec = spec("websearch", EngineKind.WEBSEARCH, {Op.WEB_SEARCH}, max_batch=4)

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        await asyncio.sleep(0.08)
        return [{"hits": [self._hits(q) for q in r.inputs["queries"]]} for r in requests]

    def _hits(self, query: str) -> list[Hit]:
        return [
            Hit(f"{hash_number(query)}/{k}", "web", f"{query} is {k}", 1.0 - k) for k in range(2)
        ]


class Writer(KeyedModel):
    """Judges by a word, and calls tools where it is told of some."""

    def text(self, prompt: str, decode: Any) -> str:
        if "Reply with one word" in prompt:
            return "no" if hash_number(prompt) % 2 else "yes"
        if decode.schema is not None or ("look" in prompt and "send" in prompt):
            if "Calls so far" in prompt:
                return json.dumps({"answer": f"answer {hash_number(prompt) % 1000}"})
            made = [("look", {"query": "a b"}), ("look", {"query": "c"}), ("send", {"text": "$1"})]
            calls = [{"tool": name, "args": args} for name, args in made]
            return json.dumps({"thought": "as it is", "calls": calls})
        return super().text(prompt, decode)


class Aside(Python):
    """Its threads are here, a little later."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = _NoThreads()  # type: ignore[assignment]


class _NoThreads:
    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(THREAD_S)
        return work()

    def close(self) -> None:
        """There are none."""


def _engines() -> dict[str, list[Engine]]:
    database = Database()
    return {
        "embedding": [Embedder()],
        "vectorstore": [Store(database=database), Store(database=database)],
        "rerank": [Reranker()],
        "llm": [Writer(), Writer()],
        "judge": [Writer("judge")],
        "proxy": [Writer("proxy")],
        "websearch": [Web()],
        "python": [Aside()],
    }


class _Noting(Bench):
    """A bench whose core notes what it does."""

    def make_core(self, queues: Mapping[str, EngineQueue], live: Live) -> NotingCore:
        core = NotingCore(queues, live._measure)
        core.lines = self.lines = []
        return core


def _lived(app: App, routing: str, *, passes: str) -> list[str]:
    """Four queries of two tenants. One is cancelled, one reaches its deadline; a model's instance
    goes away and comes back."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_living(app, routing, passes))


async def _living(app: App, routing: str, passes: str) -> list[str]:
    loop, engines = asyncio.get_running_loop(), _engines()
    optimiser = Optimiser(app.builder, default([one[0].spec for one in engines.values()]))
    async with _Noting(engines, batching="critical_path", routing=routing) as bench:
        lines, tasks = bench.lines, []
        for k in range(4):
            given: dict[str, Any] = {
                "question": f"t{k % 2}: why {k}?",
                "history": "I asked before." * k,
                "findings": "(nothing yet)",
                "draft": "a draft",
                "topics": [f"topic {k}.{n}" for n in range(5)],
                "scope": Scope(f"t{k % 2}", f"of q{k}"),
                "chunks": [Chunk("d", n, f"chunk {n} of {k}", "d") for n in range(CHUNKS)],
            }
            plan = optimiser.plan({}, _sizes(app, given), passes)
            tasks.append(
                bench.start(
                    plan,
                    {name: given.get(name) for name in plan.graph.inputs},
                    watcher=partial(_watch, lines, f"q{k}"),
                    tenant=f"t{k % 2}",
                    part_of="session" if k in (1, 3) else "",
                    id=f"q{k}",
                    deadline_s=0.9 if k == 2 else float("inf"),
                )
            )
            await asyncio.sleep(0.05)
        loop.call_later(0.2, tasks[3].cancel)
        loop.call_later(0.3, bench.live.post, InstanceDown("llm", 1))
        loop.call_later(0.6, bench.live.post, InstanceUp("llm", 1))
        for ending in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ending, BaseException):
                lines.append(shown(ending))
            else:
                lines.append(
                    f"{shown(ending.state)} {shown(ending.outputs)} {traced(ending.trace)}"
                )
        while bench.live._tasks or bench.live._batches:  # calls that were aborted
            await asyncio.sleep(0.01)
        await bench.live.stop()
        return lines


def _watch(lines: list[str], query: str, told: Any) -> None:
    lines.append(f"{query} is told {shown(told)}")


def _under_faults(seed: int) -> list[str]:
    world = World(scenario(seed)).run()
    lines: Told = []
    for what, given, now, commands in world.core.log.calls:
        if what in ("tell", "handle"):
            lines.append(f"{now:.9g} {what} {shown(given)}")
        lines += answered(commands, now)
    for asked in world.asked.values():
        lines.append(f"{asked.id} {asked.ended} {len(asked.tokens)} tokens")
        if asked.ending is not None:
            lines.append(f"{shown(asked.ending.outputs)} {traced(asked.ending.trace)}")
    return lines
