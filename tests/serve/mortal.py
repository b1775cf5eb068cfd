"""`teola serve` as a process that is ended in all ways, and what it leaves in the database."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.serve.databases import place_of_servers, rows
from tests.serve.process import ROOT, ready

APPS = ROOT / "tests" / "serve" / "restartable.py"
Document = dict[str, str]


@dataclass
class Mortal:
    """A server that runs. url: without a slash at its end."""

    url: str
    process: subprocess.Popen[str]

    def ask(
        self, app: str, inputs: dict[str, Any], key: str | None = None, deadline_s: float = 300
    ) -> httpx.Response:
        """Accepted in the background."""
        body = {"inputs": inputs, "mode": "background", "deadline_s": deadline_s}
        headers = {"Idempotency-Key": key} if key else {}
        response = httpx.post(
            f"{self.url}/v1/apps/{app}/queries", json=body, headers=headers, timeout=60
        )
        assert response.status_code == 202, response.text
        return response

    def get(self, id: str) -> dict[str, Any]:
        """What is told of a query."""
        found: dict[str, Any] = httpx.get(f"{self.url}/v1/queries/{id}", timeout=60).json()
        return found

    def ended(self, id: str, limit_s: float = 120) -> dict[str, Any]:
        """What is told of it once it has ended: its events say when."""
        last = ""
        with httpx.stream("GET", f"{self.url}/v1/queries/{id}/events", timeout=limit_s) as events:
            for line in events.iter_lines():
                last = line.removeprefix("event: ") if line.startswith("event: ") else last
        assert last in ("done", "error"), last
        return self.get(id)

    def end(self, number: signal.Signals) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def mortal(
    data_dir: Path,
    apps: Sequence[str] = ("ingesting", "working"),
    *,
    drain_s: float = 0.3,
    pause_s: float = 0.05,
    effects: Path | None = None,
) -> Iterator[Mortal]:
    """Serve some of the applications in restartable.py, ready."""
    configuration = data_dir / "teola.toml"
    configuration.write_text(f"[server]\ndrain_s = {drain_s}\n")
    words = [f"{APPS}:{app}" for app in apps]
    words += ["--config", str(configuration), "--data-dir", str(data_dir / "data")]
    known = {"TEOLA_PAUSE_S": str(pause_s), "TEOLA_EFFECTS": str(effects or os.devnull)}
    with ready(words, data_dir / "stderr.log", environment={**os.environ, **known}) as found:
        yield Mortal(found[1], found[0])


def document(name: str, lines: int) -> Document:
    """One whose every line is a chunk, unlike those of others."""
    text = "\n".join(f"line {i} of {name}" for i in range(lines))
    return {"name": name, "text": text}


STORED = """
SELECT d.name, d.ready, k.index, k.body
FROM teola.documents d JOIN teola.collections c ON c.id = d.collection
    LEFT JOIN teola.chunks k ON k.document = d.id
WHERE c.name = %s ORDER BY d.name, d.id, k.index
"""


@dataclass(frozen=True, slots=True)
class Database:
    """Looked into as the superuser, who sees everything."""

    admin: str

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a statement gives."""
        return rows(self.admin, statement, *values)

    def stored(self, collection: str) -> list[tuple[Any, ...]]:
        """Document, whether it is visible, number and text of every chunk of a collection."""
        return self.rows(STORED, collection)

    def pending(self) -> int:
        """Documents that are not visible (yet)."""
        return int(self.rows("SELECT count(*) FROM teola.documents WHERE NOT ready")[0][0])


@contextmanager
def place() -> Iterator[tuple[Path, Database]]:
    """A folder and a database that outlive servers."""
    with place_of_servers() as (folder, admin):
        yield folder, Database(admin)


def wanted(documents: Sequence[Document]) -> list[tuple[Any, ...]]:
    """What `stored` must give once these are in a collection: each chunk once."""
    return [
        (one["name"], True, i, line)
        for one in sorted(documents, key=lambda one: one["name"])
        for i, line in enumerate(one["text"].splitlines())
    ]
