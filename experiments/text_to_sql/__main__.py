"""Questions to databases: the application, LangChain, LlamaIndex, and the same steps by hand.

    python -m experiments.text_to_sql [--quick] [--json] [--at 1 4 16] [--out FILE]

See README.md here. Exit status 1: an accuracy is not what the script permits.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean
from typing import Any, Final

import httpx

from experiments.common.pages import terminal
from experiments.sql_safety.__main__ import servers
from experiments.sql_safety.queries import loaded
from experiments.text_to_sql import sides
from experiments.text_to_sql.questions import Question, questions, rows_of, unanswerable
from experiments.text_to_sql.script import Play, plays
from teola.engine import QueryContext, Request
from teola.errors import InputError, ToolError
from teola.graph.ops import Op, SqlParams, SqlWork
from teola.sql.dialects import dialect_named
from teola.sql.linking import Linker
from teola.sql.lookup import SqlAddress
from teola.sql.sql_tables import schema_of, tables_from_json
from teola_engines.sql import SqlDatabase

SYSTEMS: Final = ("teola", "asyncio", "langchain", "llama_index")
QUICK: Final = 6
"""Questions of a database."""
HEAD: Final = (
    "database", "system", "questions", "accuracy", "allowed", "latency, s", "p95, s", "calls",
    "rounds", "prompt", "cached",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser("experiments.text_to_sql", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{QUICK} questions of each database")
    add("--each", type=int, help="so many questions of each database")
    add("--json", action="store_true", help="print the rows as JSON")
    add("--at", type=int, nargs="+", default=[1, 4, 16], help="questions at a time")
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    add("--dialects", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    add("--factor", type=float, default=1.0, help="of the model's times")
    add("--data", type=Path, help="folder with text_to_sql (else TEOLA_DATA)")
    python = os.environ.get("TEOLA_FRAMEWORKS", sys.executable)
    add("--frameworks", default=python, help="a Python with LangChain (else TEOLA_FRAMEWORKS)")
    add("--out", type=Path, help="write the report there, too")
    options = parser.parse_args(argv)
    data = options.data or os.environ.get("TEOLA_DATA")
    if not data:
        raise SystemExit("error: give --data FOLDER or TEOLA_DATA, a folder with text_to_sql")
    options.each = options.each or (QUICK if options.quick else None)
    rows: list[dict[str, Any]] = []
    try:
        for dialect in options.dialects:
            for row in measure(dialect, Path(data), options):
                rows.append(row)
                if options.out:  # what was measured is kept, whatever becomes of the rest
                    _save(rows, options.out)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    report = {"rows": rows}
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        from rich.console import Console

        Console().print(terminal("Questions to databases", HEAD, list(map(_line, rows)), left=2))
    return 0 if all(row["accuracy"] == row["allowed"] for row in rows) else 1


def _save(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    file.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def _line(row: Mapping[str, Any]) -> list[str]:
    figures = [f"{row[key]:.3g}" for key in list(row)[3:]]
    return [f"{row['database']} ({row['dialect']})", row["system"], *figures]


def measure(dialect: str, data: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of a dialect."""
    with servers() as made, tempfile.TemporaryDirectory(prefix="teola-t2s-") as name:
        folder = Path(name)
        where: dict[str, str] = {}

        def address(database: str) -> str:
            if database not in where:
                file = data / "text_to_sql" / f"{database}.{dialect}"
                if dialect == "postgres":
                    file = file.with_suffix(".postgres.sql")
                    where[database] = loaded(file, made.superuser(), database).where
                else:
                    where[database] = str(file)
            return where[database]

        asked = questions(data, dialect, address)
        full = sum(bool(one.gold[0][1]) for one in asked)
        print(f"{dialect}: {full} of {len(asked)} gold results are not empty", file=sys.stderr)
        if dialect == "sqlite":
            asked += unanswerable(data)
        if options.each:
            asked = _some(asked, options.each)
        places = {name: _place(name, dialect, address(name), folder) for name in _names(asked)}
        schemas = {name: place.linker.tables for name, place in places.items()}
        script = plays(asked, {name: p.address for name, p in places.items()}, schemas)
        for at in options.at:
            for system in options.systems:
                # A new model for each: nothing is cached of the one before.
                with model_server(script, folder, options.factor) as url:
                    yield from _measured(system, at, asked, script, places, url, folder, options)


def _some(asked: Sequence[Question], each: int) -> list[Question]:
    counts: dict[tuple[str, bool], int] = {}
    kept = []
    for one in asked:
        key = (one.database, bool(one.gold))
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= each:
            kept.append(one)
    return kept


def _names(asked: Sequence[Question]) -> list[str]:
    return list(dict.fromkeys(one.database for one in asked))


def _place(name: str, dialect: str, where: str, folder: Path) -> sides.Place:
    options: dict[str, Any] = {"seconds": sides.SECONDS}
    if dialect == "postgres":
        secret = f"TEOLA_T2S_{name.upper()}"
        os.environ[secret] = where
        options["secret"] = secret
    else:
        options["path"] = where
    engine = SqlDatabase(name, data_dir=folder / "values", **options)
    engine.start()

    def execute(work: SqlWork, rows: int = 100, **inputs: str) -> dict[str, Any]:
        request = Request(Op.SQL, SqlParams(rows, work), inputs, QueryContext("t2s"), "t2s")
        (answer,) = engine.execute([request])
        if isinstance(answer, Exception):
            raise answer
        return answer["result"]

    execute(SqlWork.LINK, text="anything")  # waits until values are indexed
    tables = tables_from_json(execute(SqlWork.SCHEMA)["tables"])
    schema = schema_of(tables, (), "public" if dialect == "postgres" else "")
    linker = Linker(tables, dialect=dialect_named(dialect))
    return sides.Place(options, SqlAddress(dialect, where), schema, linker, engine._find)


@contextmanager
def model_server(script: Sequence[Play], folder: Path, factor: float) -> Iterator[str]:
    """The scripted model in a process of its own, by its URL."""
    file = folder / "script.json"
    file.write_text(json.dumps([play.to_json() for play in script]), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "experiments.text_to_sql.model_server"]
    process = subprocess.Popen([*command, str(file), str(port), str(factor)])
    try:
        url, until = f"http://127.0.0.1:{port}/v1", time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(httpx.HTTPError):
                httpx.get(f"{url}/models")
                break
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def _measured(
    system: str,
    at: int,
    asked: Sequence[Question],
    script: Sequence[Play],
    places: Mapping[str, sides.Place],
    url: str,
    folder: Path,
    options: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    mine = [one for one in asked if one.gold or system in ("teola", "asyncio")]
    if system == "teola":
        answers = sides.by_teola(mine, at, url, places, str(folder / "values"))
    elif system == "asyncio":
        answers = sides.by_asyncio(mine, at, url, places)
    else:
        answers = _by_framework(system, mine, at, url, places, folder, options.frameworks)
    counts = httpx.get(url.removesuffix("/v1") + "/counts", params={"model": system}).json()
    by_tag = {play.tag: play for play in script}
    groups: dict[str, list[tuple[Question, sides.Answered]]] = {}
    for question, answer in zip(mine, answers, strict=True):
        groups.setdefault(question.database if question.gold else "unanswerable", []).append(
            (question, answer)
        )
    for name, of in groups.items():
        right = [_right(question, answer, places) for question, answer in of]
        allowed = [_allowed(system, by_tag[question.tag]) for question, _ in of]
        for (question, answer), is_right, may in zip(of, right, allowed, strict=True):
            if is_right is not may:
                kind = by_tag[question.tag].kind
                told = f"{system}: {question.tag} ({kind}): {answer}: right {is_right}, not {may}"
                print(told[:600], file=sys.stderr)
        seconds = sorted(answer.seconds for _, answer in of)
        told = [counts.get(question.tag, {}) for question, _ in of]
        # A first question of each database is asked beforehand, and counted twice.
        yield {
            "database": name,
            "dialect": of[0][0].dialect,
            "system": system if at == 1 else f"{system} x{at}",
            "questions": len(of),
            "accuracy": mean(right),
            "allowed": mean(allowed),
            "latency_s": round(mean(seconds), 3),
            "p95_s": round(seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))], 3),
            **{
                key: round(sum(one.get(key, 0) for one in told) / len(of), 2)
                for key in ("calls", "rounds", "prompt_tokens", "cached_tokens")
            },
        }


def _right(question: Question, answer: sides.Answered, places: Mapping[str, sides.Place]) -> bool:
    if not question.gold:
        return answer.cannot
    try:
        return bool(answer.sql) and question.right(
            rows_of(places[question.database].address, answer.sql)
        )
    except ToolError:
        return False


def _allowed(system: str, play: Play) -> bool:
    """Whether the script lets a system come to the right answer."""
    if play.kind == "cannot":
        return True
    if system == "llama_index":  # it asks once
        return play.one[0] == play.gold
    return play.gold in (play.first[-1], play.second[-1])


def _by_framework(
    system: str,
    asked: Sequence[Question],
    at: int,
    url: str,
    places: Mapping[str, sides.Place],
    folder: Path,
    python: str,
) -> list[sides.Answered]:
    job = {
        "url": url,
        "at": at,
        "seconds": sides.SECONDS,
        "databases": {
            name: {"dialect": place.address.dialect, "where": place.address.where}
            for name, place in places.items()
        },
        "questions": [
            {"tag": one.tag, "database": one.database, "text": one.text} for one in asked
        ],
    }
    given, out = folder / f"{system}.json", folder / f"{system}-out.json"
    given.write_text(json.dumps(job), encoding="utf-8")
    file = Path(__file__).with_name("frameworks_side.py")
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [python, str(file), system, str(given), str(out)]
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode:
        raise InputError(
            f"{system} did not run: give --frameworks a Python that has langchain, "
            "langchain-community, langchain-openai, llama-index-core, llama-index-llms-openai-like"
        )
    told = json.loads(out.read_text(encoding="utf-8"))
    return [sides.Answered(one["sql"], False, one["seconds"]) for one in told]


if __name__ == "__main__":
    sys.exit(main())
