"""Probes: an engine of which nothing is remembered is measured when it starts, before its first
query, by a few sizes only. What is found is held for what was learned until there is more to go by.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from teola.errors import TeolaError
from teola.learning import EngineTimes, Lessons
from teola.profile import StepTime
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts.local import LocalHost
from teola.runtime.observe.noting import note
from teola.runtime.profiler import MEASURABLE, QUICK, Measured, Profiler
from teola.runtime.remembering import Memory

log = logging.getLogger(__name__)

PROBING_S: Final = 20.0
"""Longest time that an engine is probed: whoever waits for it waits so much longer, once."""


async def probe_engine(
    name: str, host: LocalHost, config: EngineConfig, memory: Memory | None
) -> None:
    """Teach a runtime's learner what is remembered of engine `name`, whose first instance `host`
    has been started; if that is nothing, what a few probes tell, where there is a memory to keep
    them. Probes that fail are told in the log."""
    if memory is None or memory.recall(name, config, asyncio.get_running_loop()):
        return
    if not _is_wanted(host, config):
        return
    try:
        async with asyncio.timeout(PROBING_S):
            measured = await Profiler(host, repeats=1, sizes=QUICK).measure()
    except Exception as error:  # noqa: BLE001 - an engine that works without is worth more
        message = "engine %(engine)s could not be measured: %(error)s"
        why = f"it takes more than {PROBING_S:.0f} s" if isinstance(error, TimeoutError) else error
        if not isinstance(error, TeolaError | TimeoutError):
            why = f"{type(error).__name__}: {error}"
        note(log, logging.WARNING, "probe_failed", message, engine=name, error=str(why))
        return
    memory.learner.recall(Lessons(engines={name: times_of(measured)}))
    message = "engine %(engine)s was measured by %(points)d probes"
    note(log, logging.INFO, "engine_probed", message, engine=name, points=len(measured.points))


def like(name: str, other: str, config: EngineConfig, memory: Memory | None) -> None:
    """`probe` for an engine that has the instances of another one, which has been started."""
    if memory is None or memory.recall(name, config, asyncio.get_running_loop()):
        return
    known = memory.learner.lessons.engines
    if other in known:
        memory.learner.recall(Lessons(engines={name: known[other]}))


def times_of(measured: Measured) -> EngineTimes:
    """What was measured, as what was learned."""
    profile, points = measured.profile, measured.points
    sizes = {op: {point.items for point in points if point.op == op.value} for op in profile.costs}
    return EngineTimes(
        costs=profile.costs,
        step=profile.step if profile.step != StepTime() else None,
        seen=len(points),
        varied=frozenset(op for op, tried in sizes.items() if len(tried) > 1),
    )


def _is_wanted(host: LocalHost, config: EngineConfig) -> bool:
    if host.engine.spec.ops.isdisjoint(MEASURABLE):
        return False
    return not config.elsewhere if config.probe is None else config.probe
