"""All systems in all styles, made ready, and the check that the matched ones do the same work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Final

from experiments.real_engines.calls import Engines
from experiments.real_engines.recording import Log, differences
from experiments.real_engines.steps import System
from experiments.real_engines.workload import Workload

NAMES: Final = ("teola", "asyncio", "llamaindex", "langgraph", "haystack")
SAME: Final = ("matched", "expert")
"""Styles that must make the calls that ours make."""


def label(system: System) -> str:
    """Such as "langgraph expert"."""
    return f"{system.name} {system.style}".strip()


@asynccontextmanager
async def ready(engines: Engines, names: Sequence[str]) -> AsyncIterator[list[System]]:
    """The systems `names` in all their styles, with a table for each; closed at the end."""
    async with AsyncExitStack() as stack:
        found: list[System] = []
        for name in names:
            module = import_module(f"experiments.real_engines.{name}.system")
            for style in module.STYLES:
                system = module.build(engines, style)
                if hasattr(system, "close"):
                    stack.push_async_callback(system.close)
                if hasattr(system, "table"):
                    await engines.create_table(system.table)
                found.append(system)
        yield found


async def check_same(systems: Sequence[System], workload: Workload, app: str, chunks: int) -> Log:
    """Ask all the same query and compare their calls with ours; our log.

    Raises AssertionError, which names the system, if one that should do the same does not.
    """
    ours: Log | None = None
    for system in systems:
        query, log = workload.query(app, chunks, "check", 0), Log()
        answer = await system.answer(query, log)
        if not answer.strip():
            raise AssertionError(f"{label(system)} answered {app} with nothing")
        if log.first_token_at is None:
            raise AssertionError(f"{label(system)} did not tell its first token in {app}")
        if system.name == "teola":
            ours = log
        elif system.style in SAME and ours and (found := differences(ours, log)):
            raise AssertionError(f"{label(system)} differs in {app}: {'; '.join(found)}")
    return ours or Log()
