"""Runs one query over many rows, from Parquet to Parquet, with a stub as the model.

    python -m experiments.tables_scale [--rows 1000000] [--distinct 500000] [--spread] --json
    python -m experiments.tables_scale --rows 200000 --kills 10 --json

Each run is a process of its own, so that its processor time (with all threads) and memory are its
own. --kills: it is killed (kill -9) so many times at random moments while rows are asked, and run
again; then every row is compared with what the stub says. Exit status 1: a row is missing or wrong.

    python -m experiments.tables_scale --rows 100000 --on ray [--worker-kills 1] --json

asks on workers of a local Ray cluster, of which so many are killed at random moments, and tells the
hits of their prefix caches; `--on here` tells those of one process.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import psutil

from experiments.tables_scale.stub import Stub, answer_to

INSTRUCTION: Final = "Is the tone of this review good?"
QUERY: Final = (
    f"SELECT id, LLM('{INSTRUCTION}', movie, text, choices := ['Yes', 'No'], fixed_order := true) "
    "AS tone FROM r"
)
KEPT: Final = 3000
"""Blocks of an engine's prefix cache, where hits are told."""
PADDING: Final = " lorem ipsum dolor sit amet" * 5
"""Of a review's text: some 150 characters, as the reviews of the paper's movies."""


def write_table(path: Path, rows: int, distinct: int) -> None:
    """A Parquet file: id, movie (one of 50), text (one of `distinct`)."""
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT i AS id, 'movie ' || (i % {distinct} % 50) AS movie, 'review ' || "
            f"(i % {distinct}) || '{PADDING}' AS text FROM range({rows}) r(i)) TO '{path}' "
            "(FORMAT parquet)"
        )


def run_once(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The query, in this process."""
    from teola import tables
    from teola.runtime.engines import EngineConfig

    told = str(folder / "told.txt")
    options = {"spread": given.spread, "told": told, "kept": KEPT if given.on else 0}
    config = EngineConfig(Stub, options)
    place = {"on": given.on, "workers": given.workers} if given.on else {}
    began, spent = time.monotonic(), time.process_time()
    done = tables.sql(QUERY, {"r": str(folder / "r.parquet")}, llm=config).run(
        answers=folder / "answers.duckdb", out=folder / "out.parquet", **place
    )
    return {
        "asked": done.report["asked"],
        "row_count": done.row_count,
        "hits": done.report["cached_tokens"] / max(1, done.report["prompt_tokens"]),
        "seconds": time.monotonic() - began,
        "cpu_s": time.process_time() - spent,
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The report of one case."""
    rows, kills = given.rows, given.kills
    distinct = given.distinct or max(1, rows // 2)
    folder = Path(tempfile.mkdtemp(prefix="teola-scale-"))
    try:
        write_table(folder / "r.parquet", rows, distinct)
        told = folder / "told.txt"
        words = [sys.executable, "-m", "experiments.tables_scale", "--child", str(folder)]
        words += ["--spread"] if given.spread else []
        words += ["--on", given.on, "--workers", str(given.workers)] if given.on else []
        chance, killed = Random(given.seed), 0
        while killed < kills:
            known = _lines(told)
            with subprocess.Popen(words, stdout=subprocess.DEVNULL) as child:
                while child.poll() is None and _lines(told) == known:
                    time.sleep(0.05)
                time.sleep(chance.random() * 1.5)
                if child.poll() is None:
                    child.kill()
                    killed += 1
                elif _lines(told) == known:
                    raise SystemExit(f"all rows were asked after {killed} kills: take more rows")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
            lost = _kill_workers(child, told, given.worker_kills, chance)
            printed, _ = child.communicate()
        if child.returncode:
            raise SystemExit(child.returncode)
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        missing, wrong = _compare(folder, rows)
        asked = Counter(told.read_text().split())
        on_ray = {"on": given.on, "workers_killed": lost, "hits": round(found["hits"], 4)}
        return {
            **(on_ray if given.on else {}),
            "rows": rows,
            "distinct": distinct,
            "asked": sum(asked.values()),
            "asked_twice": sum(count - 1 for count in asked.values()),
            "missing": missing,
            "wrong": wrong,
            "kills": kills,
            "seconds": round(found["seconds"], 3),
            "cpu_s": round(found["cpu_s"], 3),
            "rows_per_s": round(rows / found["seconds"], 1),
            "plan_s": round(_plan_s(folder), 3),
            "resident_mb": round(found["resident_mb"], 1),
            "answers_mb": round((folder / "answers.duckdb").stat().st_size / 1e6, 2),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kill_workers(child: subprocess.Popen[str], told: Path, kills: int, chance: Random) -> int:
    """Kill workers of a run on Ray while rows are asked. How many."""
    killed = 0
    while killed < kills and child.poll() is None:
        known = _lines(told)
        while child.poll() is None and _lines(told) == known:
            time.sleep(0.05)
        time.sleep(chance.random() * 1.5)
        if workers := _workers(child.pid):
            chance.choice(workers).kill()
            killed += 1
    return killed


def _workers(process: int) -> list[psutil.Process]:
    """Workers of shards, by the title that Ray gives them."""
    try:
        below = psutil.Process(process).children(recursive=True)
        return [one for one in below if "ShardWorker" in " ".join(one.cmdline())]
    except psutil.NoSuchProcess:  # one of them has just ended
        return []


def _lines(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _plan_s(folder: Path) -> float:
    """How long the plan takes."""
    from teola import tables
    from teola.tables.workspace import Workspace

    began = time.monotonic()
    source = {"r": str(folder / "r.parquet")}
    with Workspace(source) as workspace:
        tables.sql(QUERY, source).plan(workspace)
    return time.monotonic() - began


def _compare(folder: Path, rows: int) -> tuple[int, int]:
    """How many rows of the result are missing, and how many are wrong."""
    with duckdb.connect() as con:
        found = dict(con.execute(f"SELECT id, tone FROM '{folder / 'out.parquet'}'").fetchall())
        wrong = 0
        given = con.execute(f"SELECT id, movie, text FROM '{folder / 'r.parquet'}'")
        while batch := given.fetchmany(10_000):
            for id, movie, text in batch:
                wanted = answer_to(f"{INSTRUCTION}\nmovie: {movie}\ntext: {text}")
                wrong += id in found and found[id] != wanted
    return rows - len(found), wrong


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tables_scale")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--distinct", type=int)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=["here", "ray"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worker-kills", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.child:
        print(json.dumps(run_once(Path(given.child), given)))
        return 0
    if given.worker_kills and given.on != "ray":
        parser.error("--worker-kills needs --on ray")
    report = measure(given)
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        for name, value in report.items():
            print(f"{name:12} {value}")
    return 1 if report["missing"] or report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
