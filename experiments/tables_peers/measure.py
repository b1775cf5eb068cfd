"""Runs each system on each data set, one after another on one server, and counts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.tables_peers.answers import answer_to
from experiments.tables_peers.data import DATA, TRIED, Table, table
from experiments.tables_peers.installed import SYSTEMS, Installed, find
from experiments.tables_peers.running import Client, Found, GivenServer, ScriptedServer, Server
from teola.errors import InputError, UnknownName
from teola.runtime import machine

ROWS: Final = (1000, 300)
"""Of each data set, and with --quick."""
MOST_TRIED: Final = 1000
"""Rows up to which systems are killed and get a bad row: that takes three runs more."""
AT_ONCE: Final = 64
"""Calls that each system has open."""
KEYS: Final = (
    *("system", "version", "data", "rows", "calls", "prompt_tokens", "hit_tokens", "seconds"),
    *("resident_mb", "wrong", "lost_after_kill", "failed_by_one_bad_row"),
)


def measure(options: Options, progress: Progress) -> Report:
    """A row for each system and data set. Raises InputError, UnknownName."""
    given = options.given
    if options.data is None:
        raise InputError("tables are needed: --data FOLDER, or TEOLA_DATA, with its folder tables")
    systems, names = _chosen(given.systems, SYSTEMS), _chosen(given.sets, tuple(DATA))
    count = given.rows or ROWS[options.quick]
    tables = [table(options.data, name, count) for name in names]
    task = progress.add_task("tables_peers", total=len(systems) * (len(tables) + 1))
    there: dict[str, Installed] = {}
    for system in systems:
        there[system] = find(system)
        progress.advance(task)
    rows: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    with ExitStack() as stack:
        server: Server
        if given.server:
            server = GivenServer(given.server)
        else:
            server = stack.enter_context(ScriptedServer())
        for one in tables:
            for system, where in there.items():
                if where.python is not None:
                    runs = Runs(system, where.python, one, server, scripted=not given.server)
                    row, more[f"{system}, {one.asked.name}"] = runs.row(where.version)
                    rows.append(row)
                progress.advance(task)
    rows += [
        dict.fromkeys(KEYS) | {"system": system, "version": where.version}
        for system, where in there.items()
        if where.python is None
    ]
    about = {
        "quick": options.quick,
        "rows": count,
        "at_once": AT_ONCE,
        "server": "given" if given.server else "scripted",
        "machine": machine.describe(("teola", "openai", "duckdb")),
    }
    return {"rows": rows, "more": more, "about": about}


def _chosen(text: str, known: Sequence[str]) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise UnknownName("system or data set", name, known)
    return names or list(known)


class Runs:
    """All runs of a system on a table. scripted: the server's, so that its answers are known."""

    def __init__(
        self, system: str, python: Path, table: Table, server: Server, *, scripted: bool
    ) -> None:
        self._system, self._python, self._table = system, python, table
        self._server, self._scripted = server, scripted

    def row(self, version: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its row, and what else is known. A system that fails has its error as its version."""
        table, server = self._table, self._server
        row: dict[str, Any] = dict.fromkeys(KEYS)
        row |= {"system": self._system, "version": version, "data": table.asked.name}
        row["rows"] = len(table.rows)
        with _Folder() as folder:
            server.begin(table)
            found = self._client(table, folder).wait()
            counted: dict[str, Any] = dict(server.counters())
        if found.error:
            return row | {"version": f"{version}, not run: {found.error}"}, counted
        row |= {name: round(counted[name]) for name in ("calls", "prompt_tokens", "hit_tokens")}
        row["seconds"] = round(found.seconds, 3)
        row["resident_mb"] = round(found.resident_mb, 1)
        if self._scripted:
            row["wrong"] = _wrong(table, found)
            if table.asked.name == TRIED and len(table.rows) <= MOST_TRIED:
                kill = counted["kill"] = self._kill(counted["answered"])
                row["lost_after_kill"] = kill["lost"]
                row["failed_by_one_bad_row"] = self._failed()
        return row, counted

    def _kill(self, needed: float) -> dict[str, int | None]:
        """Kill it when half of the answers were given, and run it again. needed: answers of a whole
        run. kept: those that the second run did not need any more. lost: what it had taken and not
        kept; None where the second run failed."""
        with _Folder() as folder:
            self._server.begin(self._table)
            at = self._client(self._table, folder).kill_after(self._server, needed / 2)
            self._server.begin(self._table)
            again = self._client(self._table, folder).wait()
            kept = round(needed - self._server.counters()["answered"])
        answered, taken = round(at["answered"]), round(at["taken"])
        found: dict[str, int | None] = {"open": round(at["calls"]) - answered}
        found |= {"answered": answered, "taken": taken, "kept": kept}
        return found | {"lost": None if again.error else max(0, taken - kept)}

    def _failed(self) -> int:
        """Rows without their answer, but for the one that the server refuses."""
        table = self._table.poisoned()
        with _Folder() as folder:
            self._server.begin(table)
            found = self._client(table, folder).wait()
            return _wrong(table, found) - 1

    def _client(self, table: Table, folder: Path) -> Client:
        return Client(self._python, self._system, table, self._server, folder, AT_ONCE)


class _Folder:
    """A folder for what a system keeps between two runs; gone afterwards."""

    def __enter__(self) -> Path:
        self._place = Path(tempfile.mkdtemp(prefix="teola-peers-"))
        return self._place / "kept"

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._place, ignore_errors=True)


def _wrong(table: Table, found: Found) -> int:
    """Rows whose answer is another one, or is not there."""
    return sum(found.answers.get(id) != answer_to(fields) for id, fields in enumerate(table.rows))
