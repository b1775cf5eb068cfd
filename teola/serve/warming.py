"""Warming, before a server is ready: what a first query would wait for, and a second one would not.

Each engine on this machine runs one batch, as small as it can be. Where an application takes
documents, one of a few words is read and split, which starts the parser's process and imports the
splitter, and the store is asked what it has. Each application gets its first plan. Nothing is
stored, nobody elsewhere is asked, and what fails here fails again, with more to say, in a query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

from teola.app import App
from teola.errors import TeolaError
from teola.passes import select
from teola.runtime.observe.noting import note
from teola.runtime.profiler import MEASURABLE, Profiler
from teola.runtime.runtime import Runtime
from teola.workflow.inputs import absent
from teola.workflow.kinds import LISTS, Kind

WARMING_S: Final = 60.0
"""A server that is not warm by then is ready, and its first queries take longer."""
PLANNED: Final = (0, 1)
"""Chunks of the queries that are planned: those of a collection, and those of a short document."""

log = logging.getLogger(__name__)

WarmUp = Callable[[], Awaitable[None]]


async def warm(runtime: Runtime, apps: Mapping[str, App]) -> None:
    """Warm what the applications use and what runs by now, and tell it in the log."""
    began = runtime.loop.time()
    done: list[str] = []
    try:
        async with asyncio.timeout(WARMING_S):
            for name, step in _steps(runtime, apps):
                if await _warmed(name, step):
                    done.append(name)
    except TimeoutError:
        message = "warming takes more than %(limit_s)d s: first queries take longer"
        note(log, logging.WARNING, "warming_ended", message, limit_s=int(WARMING_S))
    if done:
        message = "warm after %(warm_s).1f s: %(what)s"
        took = round(runtime.loop.time() - began, 3)
        note(log, logging.INFO, "warmed", message, warm_s=took, what=", ".join(done))


async def _warmed(name: str, step: WarmUp) -> bool:
    try:
        await step()
        return True
    except Exception as error:  # noqa: BLE001 - an engine that works without is worth more
        why = str(error) if isinstance(error, TeolaError) else f"{type(error).__name__}: {error}"
        message = "%(what)s cannot be warmed: %(error)s"
        note(log, logging.WARNING, "warming_failed", message, what=name, error=why)
        return False


def _steps(runtime: Runtime, apps: Mapping[str, App]) -> Iterator[tuple[str, WarmUp]]:
    """The steps of warming, each with the name of what it warms."""
    names = {name for app in apps.values() for name in app.engine_names}
    seen = set()
    for (name, _), host in list(runtime.live.hosts.items()):
        measurable = not host.engine.spec.ops.isdisjoint(MEASURABLE)
        if name not in names or runtime.configs[name].elsewhere or not measurable:
            continue
        if id(host.engine) not in seen:  # engines that are like `llm` share its instances
            seen.add(id(host.engine))
            yield name, Profiler(host).once
    readers: dict[tuple[str, str], App] = {}
    for app in apps.values():
        if Kind.DOCUMENTS in app.inputs.values():
            embedding, store, indexing = app.indexing()
            if indexing is not None and runtime.runs(["documents", embedding, store]):
                readers.setdefault((embedding, store), app)
    for (embedding, store), app in readers.items():
        preparer = runtime.preparer(embedding, store)
        yield "documents", partial(preparer.warm, app.splitting({}))
    for app in apps.values():
        yield f"the plan of {app.name}", partial(_plan, runtime, app)


async def _plan(runtime: Runtime, app: App) -> None:
    """The plans that its first queries need, one in a turn of the loop."""
    documents = Kind.DOCUMENTS in app.inputs.values()
    for chunks in PLANNED if documents else PLANNED[:1]:
        sizes = {name: 1 for name, kind in app.inputs.items() if kind in LISTS}
        if documents:
            sizes["chunks"] = chunks
        lacks = absent(app.declared)
        app.optimiser(runtime, None).plan({}, sizes, select(app.passes), absent=lacks)
        await asyncio.sleep(0)
