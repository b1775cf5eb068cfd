"""What a server holds: compared before and after, nothing may be left behind."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg

from teola.query.query_files import PREFIX
from tests.serve.conftest import Served

ROWS = """
SELECT (SELECT count(*) FROM teola.documents), (SELECT count(*) FROM teola.chunks),
    (SELECT count(*) FROM teola.documents WHERE NOT ready),
    (SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%')
"""


@dataclass(frozen=True)
class Held:
    """files: what lies in the folder of temporary files, or is open there though nobody sees it.
    tasks: names of coroutines on the runtime's loop. rows: of the store, if there is one."""

    queries: tuple[str, ...]
    files: frozenset[str]
    tasks: tuple[str, ...]
    children: frozenset[int]
    rows: tuple[Any, ...] = ()

    def beside(self, before: Held) -> Held:
        """The same with the children that have ended since `before`: those of earlier tests, such
        as a browser's, end when they like."""
        return replace(self, children=self.children | before.children)


def held(served: Served, admin: str = "") -> Held:
    """What a server in this process holds now. admin: DSN of its store's superuser."""
    runtime, folder = served.runtime, Path(tempfile.gettempdir())
    process = psutil.Process()
    opened = [file.path for file in process.open_files() if file.path.startswith(str(folder))]
    uploads = [str(path) for depth in ("*", f"{PREFIX}*/*") for path in folder.glob(depth)]
    children = process.children(recursive=True)
    return Held(
        queries=(*served.board.running, *runtime.live.queries),
        files=frozenset([*opened, *uploads]),
        tasks=tuple(sorted(runtime.start(_tasks()).result())),
        children=frozenset(child.pid for child in children if "postgres" not in child.name()),
        rows=_rows(admin) if admin else (),
    )


async def _tasks() -> list[str]:
    mine = asyncio.current_task()
    every = [task.get_coro() for task in asyncio.all_tasks() if task is not mine]
    return [getattr(work, "__qualname__", str(work)) for work in every]


def _rows(admin: str) -> tuple[Any, ...]:
    with psycopg.connect(admin, autocommit=True) as connection:
        (row,) = connection.execute(ROWS).fetchall()
        return tuple(row)
