"""Kills instances with SIGKILL while queries run on them, and compares every answer.

An answer is right if it is the one that the same application gives in one process that nobody
disturbs. A query is lost if it does not end, or fails although fewer tries of a primitive failed
than the rules allow.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import psutil
from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.faults.engines import Embeddings, Passages, Scores, Writer
from experiments.faults.simulated import rows as rows_of_troubles
from teola import App, Embedding, Generate, QueryExpansion, Rerank, Runtime, Search
from teola.engine import Engine, Scope
from teola.errors import EngineError
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime import machine
from teola.runtime.engines import EngineConfig

ENGINES: Final[Mapping[str, Callable[..., Engine]]] = {
    "embedding": Embeddings,
    "vectorstore": Passages,
    "rerank": Scores,
    "llm": Writer,
}
INSTANCES: Final = 2
AT_ONCE: Final = 6
CALM: Final = 12
"""Queries before the first kill, to compare with."""
TRIES: Final = 3
"""Of a primitive that may be repeated; after so many failures its query may fail."""
DEADLINE_S: Final = 120.0
RETURN_S: Final = 60.0
"""Within this time after the last kill every instance is back."""
GONE_S: Final = 15.0
"""Within this time after the end no process is left."""


@dataclass(frozen=True, slots=True)
class Trial:
    """host: `process` or `ray`. Kills are spread evenly over the queries, at random moments."""

    host: str
    kills: int
    queries: int
    seed: int


@dataclass(slots=True)
class Log:
    """What happened. pids: of all instances that ever ran. hit: kills that found work in flight.

    ends: seconds since the first query, in order; kill_s: the same of the kills.
    """

    pids: set[int] = field(default_factory=set)
    hit: int = 0
    results: dict[str, Result | BaseException] = field(default_factory=dict)
    calm_s: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    kill_s: list[float] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def measure(options: Options, progress: Progress) -> Report:
    """A row for each host; the kills and queries are shared out among them."""
    logging.getLogger("teola").setLevel(logging.ERROR)  # each death would be a line
    hosts: Sequence[str] = options.given.hosts.split(",")
    kills = options.given.kills or max(1, options.queries // 5)
    rows = []
    for n, host in enumerate(hosts):
        trial = Trial(
            host, _share(kills, hosts, n), _share(options.queries, hosts, n), options.seed
        )
        task = progress.add_task(host, total=trial.queries)
        with redirect_stdout(sys.stderr):  # where Ray tells of each death
            rows.append(run(trial, lambda task=task: progress.advance(task)))
    totals = {key: sum(row[key] for row in rows) for key in ("kills", "queries", "lost", "wrong")}
    simulated = rows_of_troubles(max(50, options.queries // 5))
    about = {**options.about(), "machine": machine.describe(("teola", "ray"))}
    return {"rows": rows, **totals, "simulated": simulated, "about": about}


def _share(total: int, hosts: Sequence[str], n: int) -> int:
    return total // len(hosts) + (n < total % len(hosts))


def run(trial: Trial, ended: Any = lambda: None) -> dict[str, Any]:
    """One trial; its row. ended: called after each query."""
    questions = [f"question {k} of {trial.seed}?" for k in range(trial.queries)]
    right = undisturbed(questions)
    log, began = Log(), time.monotonic()
    with Runtime(engines(trial.host), ray=trial.host == "ray") as runtime:
        app = application(runtime)
        runtime.start(runtime.ensure(ENGINES)).result()
        runtime.start(_Disturbed(trial, app, runtime, log, ended).run(questions)).result()
    left = psutil.wait_procs(list(_processes(log.pids)), timeout=GONE_S)[1]
    given = {"host": trial.host, "kills": len(log.kill_s), "queries": trial.queries}
    return {**given, **_judged(log, right), **_times(log, began), "orphans": len(left)}


def engines(host: str, **options: Any) -> dict[str, EngineConfig]:
    """Every engine on that host, twice."""
    count = 1 if host == "local" else INSTANCES
    return {
        name: EngineConfig(factory, options.get(name, {}), instances=count, host=host)
        for name, factory in ENGINES.items()
    }


def application(runtime: Runtime) -> App:
    """Expansion, search, reranking and an answer refined over the best passages."""
    template = QueryExpansion(n=3, parser="lines") >> Embedding(inputs={"texts": "queries"})
    return App(
        "faults",
        template >> Search(top_k=4) >> Rerank(top_k=3) >> Generate(mode="refine"),
        inputs={"question": "text", "scope": "scope"},
        outputs={"answer": "answer"},
        runtime=runtime,
    )


def undisturbed(questions: Sequence[str]) -> dict[str, Any]:
    """The answers of a process that nobody disturbs."""
    quick = {name: {"seconds": 0.0} for name in ENGINES} | {"llm": {"pause_s": 0.0}}
    with Runtime(engines("local", **quick)) as runtime:
        app = application(runtime)
        return {question: app.run(_inputs(question)).answer for question in questions}


def _inputs(question: str) -> dict[str, Any]:
    return {"question": question, "scope": Scope("default", "corpus")}


class _Disturbed:
    """Queries, `AT_ONCE` at a time, and who kills. Runs on the runtime's loop."""

    def __init__(self, trial: Trial, app: App, runtime: Runtime, log: Log, ended: Any) -> None:
        self.trial, self.app, self.runtime, self.log = trial, app, runtime, log
        self.ended, self.rng = ended, Random(trial.seed)
        self.done = 0
        self.progressed = asyncio.Event()

    async def run(self, questions: Sequence[str]) -> None:
        """Run them all; log.results has one result for each."""
        log, loop = self.log, asyncio.get_running_loop()
        for question in questions[:CALM]:
            found = await self._result(question)
            log.calm_s.append(found.latency_s)
        self.zero = loop.time()
        killer = loop.create_task(self._kill())
        left = iter(questions)
        slots = [self._one_after_another(left) for _ in range(AT_ONCE)]
        await asyncio.gather(*slots)
        await killer
        await self._healed()
        log.held = [*self._held()]

    async def _one_after_another(self, left: Iterator[str]) -> None:
        for question in left:
            try:
                result: Result | BaseException = await self._result(question)
            except Exception as error:  # noqa: BLE001 - whatever it is, the query is lost
                result = error
            self.log.results[question] = result
            self.log.ends.append(asyncio.get_running_loop().time() - self.zero)
            self.done += 1
            self.ended()
            self.progressed.set()

    async def _result(self, question: str) -> Result:
        job = self.app.job(QuerySpec(_inputs(question), deadline_s=DEADLINE_S))
        return await job.run()

    # --- who kills --------------------------------------------------------------------------

    async def _kill(self) -> None:
        every = self.trial.queries / self.trial.kills
        for k in range(self.trial.kills):
            after = min(every * (k + self.rng.random()), self.trial.queries - AT_ONCE)
            while self.done < after:
                self.progressed.clear()
                await self.progressed.wait()
            await asyncio.sleep(self.rng.uniform(0.0, 0.2))
            while not await self._kill_one():
                await asyncio.sleep(0.1)  # all that could die are dead

    async def _kill_one(self) -> bool:
        """Kill an instance that works, if there is one; whether one was killed."""
        live = self.runtime.live
        queues = {name: live.core.queues[name] for name in ENGINES}
        up = [(n, i) for n, q in queues.items() for i, one in enumerate(q.instances) if one.up]
        busy = [(n, i) for n, i in up if queues[n].instances[i].entries]
        if not up:
            return False
        name, i = self.rng.choice(busy or up)
        with suppress(EngineError, TimeoutError, ProcessLookupError):
            async with asyncio.timeout(10):
                pid = await live.hosts[name, i].engine.call("pid")  # type: ignore[attr-defined]
            self.log.pids.add(pid)
            self.log.hit += queues[name].instances[i].entries > 0
            os.kill(pid, signal.SIGKILL)
            self.log.kill_s.append(asyncio.get_running_loop().time() - self.zero)
            return True
        return False

    # --- afterwards -------------------------------------------------------------------------

    async def _healed(self) -> None:
        """Until every instance is up again and has told its process."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETURN_S):
                while not await self._all_answer():
                    await asyncio.sleep(0.1)

    async def _all_answer(self) -> bool:
        live = self.runtime.live
        queues = [live.core.queues[name] for name in ENGINES]
        if not all(one.up for queue in queues for one in queue.instances):
            return False
        with suppress(EngineError):  # one was killed just now, and nobody has noticed yet
            for (name, _), host in live.hosts.items():
                if name in ENGINES:
                    self.log.pids.add(await host.engine.call("pid"))  # type: ignore[attr-defined]
            return True
        return False

    def _held(self) -> Iterator[str]:
        live = self.runtime.live
        if live.queries or live._tasks or live._batches:
            yield f"{len(live.queries)} queries, {len(live._tasks)} calls"
        for name in ENGINES:
            queue = live.core.queues[name]
            if not queue.idle or any(one.weight or one.entries for one in queue.instances):
                yield f"{name} holds {len(queue.works)} primitives"
            if not all(one.up for one in queue.instances):
                yield f"{name}: an instance did not come back"


def _processes(pids: set[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


# --- what it means ------------------------------------------------------------------------------


def _judged(log: Log, right: Mapping[str, Any]) -> dict[str, Any]:
    states: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    wrong = lost = retried = 0
    for question, answer in right.items():
        result = log.results.get(question)
        state = result.state if isinstance(result, Result) else type(result).__name__
        states[state] += 1
        failures = _failures(result)
        retried += sum(failures.values())
        if state == "ok" and isinstance(result, Result):
            wrong += result.answer != answer
            continue
        errors[str(result.error if isinstance(result, Result) else result)] += 1
        if max(failures.values(), default=0) < TRIES:
            lost += 1
    return {
        "states": dict(states),
        "errors": dict(errors.most_common(10)),
        "lost": lost,
        "wrong": wrong,
        "hit": log.hit,
        "failed_tries": retried,
        "held": log.held,
    }


def _failures(result: Result | BaseException | None) -> Counter[str]:
    """Tries that failed, by primitive."""
    if not isinstance(result, Result) or result.trace is None:
        return Counter()
    return Counter(span.primitive for span in result.trace.spans if span.state == "failed")


def _times(log: Log, began: float) -> dict[str, Any]:
    done = sorted(
        r.latency_s for r in log.results.values() if isinstance(r, Result) and r.state == "ok"
    )
    calm = sorted(log.calm_s)
    return {
        "calm_p50_s": round(calm[len(calm) // 2], 4),
        "p50_s": round(done[len(done) // 2], 4),
        "p99_s": round(done[int(len(done) * 0.99)], 4),
        "max_s": round(done[-1], 4),
        "wall_s": round(time.monotonic() - began, 1),
        "ends_s": [round(at, 2) for at in log.ends],
        "kills_s": [round(at, 2) for at in log.kill_s],
    }
