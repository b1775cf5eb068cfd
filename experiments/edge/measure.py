"""Runs the cases: for each system and policy a process with servers and one that asks them, all at
the same time.

    servers of teola      <- asked by teola
    servers of the SDK    <- asked by the SDK        all are told "go" at the same moment
    servers of litellm    <- asked by litellm
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.common.environments import NotMade
from experiments.edge import counting, environment
from experiments.edge.counting import Run
from experiments.edge.plans import CASES, QUICK, Case
from teola.errors import UnknownName
from teola.runtime import machine

ROOT: Final = Path(__file__).resolve().parents[2]
SYSTEMS: Final = ("teola", "asyncio_openai", "litellm")
DEFAULT: Final = "least_loaded"
STRAGGLER: Final = ("least_loaded", "marginal_cost", "graph_aware", "prefix_affinity", "hedged")
LIMIT_S: Final = 240.0
"""That a client may take for one run, its start included."""


class Lane(NamedTuple):
    """One system with one policy in one place of several that run side by side."""

    system: str
    policy: str
    place: int = 0


def measure(options: Options, progress: Progress) -> Report:
    """A row for each case, system and policy. Raises UnknownName."""
    cases = [CASES[name] for name in _chosen(options.given.cases, tuple(CASES), options.quick)]
    systems = _chosen(options.given.systems, SYSTEMS, quick=False)
    versions, missing = _versions(systems)
    seeds = range(options.seed, options.seed + options.seeds)
    task = progress.add_task("edge", total=sum(1 if c.side_by_side else len(seeds) for c in cases))
    rows: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    with Processes(options.given.queries) as processes:
        for case in cases:
            lanes = [lane for name in systems if name not in missing for lane in _lanes(case, name)]
            runs = _case(processes, case, lanes, seeds, progress, task)
            rows += _rows(case, systems, lanes, runs, missing)
            more[case.name] = _more(case, lanes, runs)
    about = {
        "quick": options.quick,
        "seeds": options.seeds,
        "machine": machine.describe(("teola", "openai")),
    }
    return {"rows": rows, "versions": versions, "more": more, "about": about}


def _chosen(text: str, known: Sequence[str], quick: bool) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise UnknownName("case or system", name, known)
    return names or [name for name in known if not quick or name in QUICK]


def _lanes(case: Case, system: str) -> list[Lane]:
    if system == "asyncio_openai":
        return [Lane(system, "in turn")]
    if system == "litellm":
        return [Lane(system, "simple-shuffle")]
    if case.name == "one_20x_slow":
        return [Lane(system, policy) for policy in STRAGGLER]
    if case.kind == "map":
        return [Lane(system, DEFAULT), Lane(system, "one_app")]
    if case.kind == "mix":
        return [Lane(system, DEFAULT), Lane(system, "fifo")]
    return [Lane(system, DEFAULT)]


def _versions(systems: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """What was measured; and of each system that cannot be, why."""
    from importlib.metadata import version

    versions = {"teola": version("teola"), "openai": version("openai")}
    missing = {}
    if "litellm" in systems:
        try:
            versions["litellm"] = environment.installed()
        except NotMade as error:
            missing["litellm"] = versions["litellm"] = str(error)
    return versions, missing


# --- runs -----------------------------------------------------------------------------------------

Runs = dict[tuple[Lane, int], Run | str]
"""A run, or why there is none."""


def _case(
    processes: Processes,
    case: Case,
    lanes: Sequence[Lane],
    seeds: Sequence[int],
    progress: Progress,
    task: Any,
) -> Runs:
    """All seeds of a case: one after the other, or side by side where they mostly wait."""
    found: Runs = {}
    if case.side_by_side:
        places = {
            (lane, seed): lane._replace(place=k) for lane in lanes for k, seed in enumerate(seeds)
        }
        told = _at_once(processes, case, [(place, seed) for (_, seed), place in places.items()])
        found = {key: told[place, key[1]] for key, place in places.items()}
        progress.advance(task)
        return found
    for seed in seeds:
        for together in [lanes] if case.kind == "mix" else _rounds(lanes):
            found |= _at_once(processes, case, [(lane, seed) for lane in together])
        progress.advance(task)
    return found


def _rounds(lanes: Sequence[Lane]) -> list[list[Lane]]:
    """Who runs at the same time: each system once, and then what else there is of ours."""
    first = [lane for lane in lanes if lane.system != SYSTEMS[0] or lane.policy == DEFAULT]
    return [part for part in (first, [lane for lane in lanes if lane not in first]) if part]


def _at_once(processes: Processes, case: Case, jobs: Sequence[tuple[Lane, int]]) -> Runs:
    """Runs that begin at the same moment."""
    found: Runs = {}
    ready = []
    for lane, seed in jobs:
        servers, client = processes.servers(lane), processes.client(lane)
        servers.tell({"case": case.name, "seed": seed})
        places = servers.hear()
        told = {"case": case.name, "seed": seed, "policy": lane.policy, "servers": places}
        client.tell(told | {"count": processes.count})
        ready.append((lane, seed, servers, client))
    begun = []
    for lane, seed, servers, client in ready:
        told = client.hear()
        if told is None or "failed" in told:
            found[lane, seed] = told["failed"] if told else client.last_words
        begun.append((lane, seed, servers, client))
    for lane, seed, servers, client in begun:
        servers.tell("go")
        if (lane, seed) not in found:
            client.tell("go")
    for lane, seed, servers, client in begun:
        told = None if (lane, seed) in found else client.hear()
        servers.tell("end")
        log = servers.hear()
        if (lane, seed) in found:
            continue
        if told is None or "failed" in told:
            found[lane, seed] = told["failed"] if told else client.last_words
            continue
        found[lane, seed] = Run.of(case.name, seed, told, log)
    return found


def _rows(
    case: Case,
    systems: Sequence[str],
    lanes: Sequence[Lane],
    runs: Runs,
    missing: dict[str, str],
) -> list[dict[str, Any]]:
    rows = []
    for system in systems:
        if system in missing:
            rows.append(counting.not_run(case.name, system, missing[system]))
        for lane in lanes:
            if lane.system != system:
                continue
            mine = [run for (at, _), run in runs.items() if at == lane]
            whole = [run for run in mine if isinstance(run, Run)]
            if len(whole) == len(mine):
                rows.append(counting.row(system, lane.policy, whole))
            else:
                reason = next(run for run in mine if isinstance(run, str))
                rows.append(counting.not_run(case.name, system, f"{lane.policy}: {reason}"))
    return rows


def _more(case: Case, lanes: Sequence[Lane], runs: Runs) -> dict[str, Any]:
    """What the goals need besides the rows, by system and policy."""
    found = {}
    for lane in lanes:
        mine = [run for (at, _), run in runs.items() if at == lane and isinstance(run, Run)]
        if not mine:
            continue
        told: dict[str, Any] = {}
        if case.name == "one_20x_slow":
            told = counting.straggler(mine)
        elif case.prices:
            told = {"cheapest": counting.rounded(counting.cheapest_share(mine))}
        elif case.kind == "map":
            told = counting.map_and_chat(mine)
        elif case.kind == "urgent":
            told = counting.urgent(mine)
        elif case.kind == "mix":
            told = counting.mix(mine)
        elif case.requests or case.tokens:
            told = {"refused": counting.rounded(counting.refused_share(mine))}
        failed: dict[str, int] = {}
        for run in mine:
            for one in run.ended:
                if not one.ok:
                    failed[one.how] = failed.get(one.how, 0) + 1
        found[f"{lane.system}/{lane.policy}"] = told | ({"ended": failed} if failed else {})
    return found


# --- processes ------------------------------------------------------------------------------------


class Spoken:
    """A process that is told lines and says lines of JSON."""

    def __init__(self, command: Sequence[str | Path], env: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- it lives as long as this
        self._process = subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def tell(self, what: Any) -> None:
        """Write a line; one that has ended hears nothing."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{what if isinstance(what, str) else json.dumps(what)}\n")
            self._process.stdin.flush()

    def hear(self, limit_s: float = LIMIT_S) -> Any:
        """The next line of JSON; None if it ends before, or says nothing for so long."""
        assert self._process.stdout is not None
        killer = threading.Timer(limit_s, self._process.kill)
        killer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(("{", "[")):
                    return json.loads(line)
        finally:
            killer.cancel()
        return None

    @property
    def last_words(self) -> str:
        """The last line that it wrote about what went wrong."""
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1][:200] if lines else "it ended, or was silent"

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes its pipes
        self._errors.close()


class Processes:
    """The processes of all lanes, started when they are first needed and again when they ended."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        """Questions of a case, other than its own number."""
        self._servers: dict[Lane, Spoken] = {}
        self._clients: dict[Lane, Spoken] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._servers.values(), *self._clients.values()):
            process.stop()

    def servers(self, lane: Lane) -> Spoken:
        command = [sys.executable, "-m", "experiments.edge.serve"]
        return self._of(self._servers, lane, command)

    def client(self, lane: Lane) -> Spoken:
        if lane.system == "teola":
            return self._of(self._clients, lane, [sys.executable, "-m", "experiments.edge.ours"])
        python = environment.python() if lane.system == "litellm" else Path(sys.executable)
        command = [python, "-m", "experiments.edge.peers", lane.system]
        return self._of(self._clients, lane, command)

    def _of(self, known: dict[Lane, Spoken], lane: Lane, command: Sequence[str | Path]) -> Spoken:
        if lane not in known or not known[lane].running:
            known[lane] = Spoken(command, environment.variables(ROOT))
        return known[lane]
