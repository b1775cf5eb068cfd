"""Our engines with a record of when they worked: the same engines, one line in a file more.

The file works from wherever an engine runs: this process, another one, a Ray actor on this machine.
Times are those of the system's monotonic clock, which all processes share, and the event loop's.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from teola.engine import Call, Delta, EngineResult, Request
from teola_engines.embedding import MiniLM
from teola_engines.llm import ExtractiveReader
from teola_engines.rerank import MaxSim
from teola_engines.vectorstore import PgVector

Worked = dict[tuple[str, str], list[tuple[float, float]]]
"""(query, engine) -> when the engine worked for it."""


class _Log:
    """Appends to a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def working(self, engine: str, queries: Sequence[str]) -> Any:
        began = time.monotonic()
        try:
            yield
        finally:
            line = json.dumps([engine, sorted(set(queries)), began, time.monotonic()])
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + "\n")


def read(path: Path) -> Worked:
    """What the engines wrote."""
    found: Worked = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        engine, queries, began, ended = json.loads(line)
        for query in queries:
            found[query, engine].append((began, ended))
    return found


def _queries(requests: Sequence[Request]) -> list[str]:
    return [request.context.query_id for request in requests]


class TimedMiniLM(MiniLM):
    """log: the file."""

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self._log = _Log(log)

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        with self._log.working(self.spec.name, _queries(requests)):
            return super().execute(requests)


class TimedMaxSim(MaxSim):
    """log: the file."""

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self._log = _Log(log)

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        with self._log.working(self.spec.name, _queries(requests)):
            return super().execute(requests)


class TimedPgVector(PgVector):
    """log: the file."""

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self._log = _Log(log)

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        with self._log.working(self.spec.name, _queries(requests)):
            return await super().execute(requests)


class TimedReader(ExtractiveReader):
    """log: the file."""

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self._log = _Log(log)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        with self._log.working(self.spec.name, [call.context.query_id]):
            async with aclosing(super().generate(call)) as stream:  # type: ignore[type-var]
                async for delta in stream:
                    yield delta
