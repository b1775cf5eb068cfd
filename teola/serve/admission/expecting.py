"""What admission asks of the runtime: how much an engine does side by side, what a plan expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola.app import App
from teola.engine import Hit, Source
from teola.passes import estimate
from teola.passes.timetable import timetable
from teola.runtime.observe.demand import Demand
from teola.runtime.runtime import Runtime
from teola.serve.admission.admission import NO_SHARES, Admission, Lanes, Shares
from teola.serve.admission.learning import SMALLEST, QueryClass
from teola.workflow.kinds import Kind

FRESH_S: Final = 0.05
CHUNK_CHARACTERS: Final = 1000
"""Assumed length of a chunk, for the number of a document's chunks before it has been split."""


def admission_for(
    runtime: Runtime,
    apps: Mapping[str, App],
    max_wait_s: float | None = None,
    shares: Shares = NO_SHARES,
) -> Admission:
    """Who is let in to `runtime`; see Admission."""
    return Admission(lanes_of(runtime), planned_of(runtime, apps), max_wait_s, shares)


def lanes_of(runtime: Runtime) -> Callable[[str], Lanes]:
    """By an engine's name: batches that its instances run at once, or the calls on an LLM. Looked
    up anew after `FRESH_S`, because an engine may have a thousand instances."""
    seen: dict[str, tuple[float, Lanes]] = {}

    def lanes(engine: str) -> Lanes:
        now = runtime.loop.time()
        entry = seen.get(engine)
        if entry is None or now - entry[0] > FRESH_S:
            entry = seen[engine] = (now, _lanes(runtime, engine, now))
        return entry[1]

    return lanes


def _lanes(runtime: Runtime, engine: str, now: float) -> Lanes:
    queue = runtime.live.core.queues.get(engine)
    if queue is None:
        return Lanes(1.0)
    usable = [instance for instance in queue.instances if instance.usable(now)]
    if queue.continuous:
        inside = sum(instance.entries for instance in queue.instances)
        return Lanes(len(usable), inside, queue.instances.fits(usable))
    return Lanes(sum(instance.limits.concurrency for instance in usable))


def planned_of(runtime: Runtime, apps: Mapping[str, App]) -> Callable[[QueryClass], Demand]:
    """By kind: seconds of each engine by the runtime's profile, all zero if it knows no times."""
    named = {app.name: app for app in apps.values()}

    def planned(kind: QueryClass) -> Demand:
        app = named.get(kind.app)
        if app is None:
            return Demand(0.0, {})
        work = dict.fromkeys(app.engine_names, 0.0)
        profile = runtime.profile_for(work)
        characters = SMALLEST * 4**kind.size // 2
        sizes = {"chunks": max(1, characters // CHUNK_CHARACTERS)}
        chosen = sizes if Kind.DOCUMENTS in app.inputs.values() else {}
        graph = app.builder.build(app.builder.configure({}), chosen)
        for primitive in graph.primitives:
            if primitive.engine:
                work[primitive.engine] += estimate.seconds(graph, primitive, profile)
        return Demand(timetable(graph, profile).length_s, work)

    return planned


def characters_of(inputs: Mapping[str, Any]) -> int:
    """How much the inputs of a query are, about; a file counts with its bytes."""
    return sum(map(_characters, inputs.values()))


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Hit):
        return len(value.text)
    if isinstance(value, Source):
        if value.path is not None:
            return value.path.stat().st_size  # it was written a moment ago: no disk is waited for
        return len(value.text or "")
    if isinstance(value, Mapping):
        return sum(map(_characters, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(_characters, value))
    return 0
