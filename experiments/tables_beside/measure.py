"""Each load, live and simulated: what interactive queries take, and how many rows get done."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import ceil
from statistics import median
from typing import Any, Final

from experiments.common.stub_model import StubModel
from teola import App, Each, Generate
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.engines import EngineConfig
from teola.runtime.optimiser import Optimiser
from teola.runtime.rows import Row, RowsCall
from teola.runtime.runtime import Runtime
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.sim.sim_rows import SimRow
from teola.runtime.values import Tokens

PLACES: Final = 32
CALL_S: Final = 0.02
SHARE: Final = 1 / 3
"""Interactive queries a second, of what the model can do."""
AHEAD: Final = 15
"""For as long as so many calls take, rows run before the first interactive query comes."""
EACH: Final = 5000
WEIGHTS: Final = {"a": 1.0, "b": 3.0}
STEPS: Final = 10
"""Of a simulated call: so many tokens, each in a tenth of its time."""

Line = dict[str, Any]
LIVE: Final = ("calls", "rows", "calls beside rows", "calls beside each", "two tenants")
SIMULATED: Final = ("calls", "rows", "calls beside rows")


def chat(runtime: Runtime | None = None) -> App:
    """One call."""
    inputs, outputs = {"question": "text"}, {"answer": "answer"}
    return App("chat", Generate(max_tokens=8), inputs=inputs, outputs=outputs, runtime=runtime)


def mapped(runtime: Runtime) -> App:
    """The same rows as parts of a query."""
    body = Generate(name="row", inputs={"question": "one"}, max_tokens=8)
    each = Each(body, over="rows", item="one", gives={"answers": "answer"}, at_once=256)
    inputs, outputs = {"rows": "texts"}, {"answers": "answers"}
    return App("each", each, inputs=inputs, outputs=outputs, runtime=runtime)


def rate(call_s: float) -> float:
    """Interactive queries a second where calls take so long."""
    return SHARE * PLACES / call_s


def percentile(seconds: Sequence[float], percent: float) -> float | None:
    """The smallest that so many percent do not exceed."""
    ordered = sorted(seconds)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def row(load: str, policy: str, seconds: Sequence[float], rows_per_s: float) -> Line:
    """One line of the report."""
    return {
        "load": load,
        "policy": policy,
        "interactive_p50_s": percentile(seconds, 50),
        "interactive_p99_s": percentile(seconds, 99),
        "rows_per_s": round(rows_per_s, 1),
    }


# --- live ----------------------------------------------------------------------------------------


def live(load: str, queries: int, seed: int, call_s: float) -> list[Line]:
    """One run of a load on a model that takes `call_s` for each of 32 calls."""
    if load == "two tenants":
        return _tenants(call_s)
    model = StubModel(call_s, call_s, PLACES)
    with Runtime({"llm": EngineConfig(lambda: model)}, learn=False, max_queries=10_000) as runtime:
        app = chat(runtime)
        app.run(question="warm")
        handle = None
        if "rows" in load:
            rows = (Row(k, f"row {k}") for k in count())
            handle = runtime.ask_rows(RowsCall("Is it?"), rows, lambda some: None)
        if "each" in load:
            texts = [f"row {k}" for k in range(EACH)]
            threading.Thread(target=_ignored, args=(mapped(runtime), texts), daemon=True).start()
        time.sleep(AHEAD * call_s)
        before, began = Counter(model.asked), time.monotonic()
        seconds: list[float] = []
        if "calls" in load:
            seconds = asyncio.run(_arrive(app, queries, seed, rate(call_s)))
        else:
            time.sleep(queries / rate(call_s))
        passed = time.monotonic() - began
        done = model.asked["tables"] + model.asked["each"] - before["tables"] - before["each"]
        if handle is not None:
            handle.cancel()
            handle.result(10)
    return [row(f"{load}, live", "critical_path", seconds, done / passed)]


def _ignored(app: App, texts: list[str]) -> None:
    try:
        app.run(rows=texts)
    except Exception:  # noqa: BLE001 - the runtime is closed before it is done
        return


async def _arrive(app: App, queries: int, seed: int, rate: float) -> list[float]:
    """Ask queries at random times; what each took."""
    draw, loop = random.Random(seed), asyncio.get_running_loop()
    began, at, tasks = loop.time(), 0.0, []

    async def one(k: int) -> float:
        asked = loop.time()
        await app.arun(question=f"call {k}")
        return loop.time() - asked

    for k in range(queries):
        at += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, began + at - loop.time()))
        tasks.append(asyncio.create_task(one(k)))
    return list(await asyncio.gather(*tasks))


def _tenants(call_s: float) -> list[Line]:
    """Two tenants' runs, of weights 1 and 3."""
    model = StubModel(call_s, call_s, PLACES)
    options = {"by": "tenant", "weights": WEIGHTS}
    config = EngineConfig(lambda: model, batching="fair", batching_options=options)
    done: Counter[str] = Counter()
    with Runtime({"llm": config}, learn=False) as runtime:
        handles = []
        for name in WEIGHTS:
            rows = (Row(k, f"row {k}") for k in count())
            heard = _counting(done, name)
            handles.append(runtime.ask_rows(RowsCall("Is it?"), rows, heard, tenant=name))
        time.sleep(AHEAD * call_s)
        before, began = Counter(done), time.monotonic()
        time.sleep(100 * call_s)
        rates = {name: (done[name] - before[name]) / (time.monotonic() - began) for name in WEIGHTS}
        for handle in handles:
            handle.cancel()
    return [
        row(f"tenant of weight {weight:g}, live", "fair", (), rates[name])
        for name, weight in WEIGHTS.items()
    ]


def _counting(done: Counter[str], name: str) -> Any:
    def heard(some: Sequence[Any]) -> None:
        done[name] += len(some)

    return heard


# --- simulated -----------------------------------------------------------------------------------


def simulated(load: str, queries: int, seed: int) -> list[Line]:
    """The same in virtual time."""
    step, ahead_s = StepTime(base_s=CALL_S / STEPS), AHEAD * CALL_S
    llm = EngineProfile(step=step, max_batch=1 << 20, max_sequences=PLACES)
    profile = Profile("20 ms", {"llm": llm})
    sim = Sim(profile, outcomes=_Lengths())
    if "rows" in load:
        sim.ask_rows(_endless(), id="rows", cancel_after_s=ahead_s + queries / rate(CALL_S))
    if "calls" in load:
        plan = Optimiser(chat().builder, profile).plan({}, {})
        draw, at = random.Random(seed), ahead_s
        for k in range(queries):
            at += draw.expovariate(rate(CALL_S))
            inputs = {name: Tokens(16) for name in plan.graph.inputs}
            sim.submit(plan, inputs, at=at, id=f"{k}", app="chat")
    seconds = [query.latency_s for query in sim.run()]
    rows = sum(run.completion_tokens for run in sim.rows_results) / STEPS
    return [
        row(
            f"{load}, simulated",
            "critical_path",
            seconds,
            rows / (ahead_s + queries / rate(CALL_S)),
        )
    ]


class _Lengths(Planned):
    """Each call takes its twenty milliseconds."""

    def _length(self, query: Any, p: Any, so_far: int) -> int:
        return so_far + STEPS


def _endless() -> Iterator[SimRow]:
    for _ in count():
        yield SimRow(Tokens(20), STEPS)


# --- all -----------------------------------------------------------------------------------------


def measure(loads: Sequence[str], queries: int, runs: int, call_s: float = CALL_S) -> list[Line]:
    """Each load so many times, one after another and again; the medians. call_s: of live calls."""
    found: dict[tuple[str, str], list[Line]] = {}
    for seed in range(runs):
        for load in loads:
            some = live(load, queries, seed, call_s)
            some += simulated(load, queries, seed) if load in SIMULATED else []
            for one in some:
                found.setdefault((one["load"], one["policy"]), []).append(one)
    return [_median(same) for same in found.values()]


def _median(same: Sequence[Mapping[str, Any]]) -> Line:
    first = dict(same[0])
    for name in ("interactive_p50_s", "interactive_p99_s", "rows_per_s"):
        values = [one[name] for one in same if one[name] is not None]
        first[name] = round(median(values), 4) if values else None
    return first
