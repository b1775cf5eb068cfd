"""The process that reads files of databases: `python sql_child.py MEMORY`.

    parent ◀── length 0: it has started ─────────────── stdout
    parent ── length, JSON: file, statement, limits ──▶ stdin
    parent ◀── length, JSON: rows, or what is wrong ─── stdout

It limits its memory, and the time of each statement by a signal that ends it even in the middle of
a function of SQLite or DuckDB. A file is open while it is asked, and no longer. It ends when its
stdin does, and when it was not asked for a while.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from teola.confinement import confine
from teola.errors import ToolError, reason_of
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.sql_schema import Schema
from teola.sql.stopped import StatementStopped

IDLE_S: Final = 60.0
"""Seconds without a request after which the process ends."""
GRACE_S: Final = 0.4
"""Seconds that the database gets to stop by itself."""
FILE_BYTES: Final = 16 * 2**20
"""Bytes of a file that it writes: none but SQLite's index of a write-ahead log."""
OWN_SHARE: Final = 7 / 8
"""Share of its memory that may be its own; the rest is for code of libraries, which no limit
counts."""
HEADER_BYTES: Final = 4
"""Bytes that tell the length of a message."""


def main(memory_bytes: int) -> None:
    """Answer until stdin ends."""
    confine(data_bytes=int(memory_bytes * OWN_SHARE), file_bytes=FILE_BYTES)
    requests, answers = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    _write(answers, bytes(HEADER_BYTES))
    while select.select([requests], [], [], IDLE_S)[0]:
        header = _read(requests, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return
        request = json.loads(_read(requests, int.from_bytes(header)))
        limits = LookupLimits(**request["limits"])
        signal.setitimer(signal.ITIMER_REAL, limits.seconds + GRACE_S)  # by default it ends us
        answer = answered(request, limits)
        signal.setitimer(signal.ITIMER_REAL, 0)
        text = json.dumps({**answer, "peak_bytes": peak_bytes()}).encode()
        _write(answers, len(text).to_bytes(HEADER_BYTES) + text)
        if answer.get("limit") == "memory":
            return  # what it took may not all have been given back


def answered(request: dict[str, Any], limits: LookupLimits) -> dict[str, Any]:
    """The answer to a request, or an error."""
    from teola.sql import file_requests

    work: Callable[..., Any] = getattr(file_requests, request["work"])
    described = request.get("schema")
    schema = None if described is None else Schema.of(described["tables"], described["private"])
    try:
        result = work(request, limits, schema)
    except StatementStopped as error:
        return {"error": str(error), "limit": error.limit}
    except ToolError as error:
        return {"error": str(error)}
    except MemoryError:
        from teola.sql.duckdb_reader import too_much_memory

        return {"error": too_much_memory(limits), "limit": "memory"}
    except Exception as error:  # noqa: BLE001 - the parent tells it, and this process is the edge
        return {"error": reason_of(error)}
    if not isinstance(result, Rows):
        return {"result": result}
    return {
        "columns": result.columns,
        "rows": result.rows,
        "notes": result.notes,
        "truncated": result.truncated,
    }


def peak_bytes() -> int:
    """Most memory that this process has had, 0 where that is not known."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def request_of(work: str, limits: LookupLimits, schema: Schema | None, **more: Any) -> bytes:
    """A message to the process."""
    described = None
    if schema is not None:
        described = {"tables": schema.tables, "private": sorted(schema.private)}
    text = json.dumps(
        {"work": work, "limits": asdict(limits), "schema": described, **more}
    ).encode()
    return len(text).to_bytes(HEADER_BYTES) + text


def _read(descriptor: int, count: int) -> bytes:
    pieces = []
    while count and (piece := os.read(descriptor, min(count, 1 << 20))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main(int(sys.argv[1]))
