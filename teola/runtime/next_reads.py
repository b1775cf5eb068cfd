"""When a query reads again what a call of it leaves in a cache, as far as its graph tells now."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from sys import maxsize
from typing import Final

from teola.engine import NextRead
from teola.graph import Part, Ref
from teola.schedule.graph_run import GraphRun

END: Final = maxsize
"""Behind the last part."""


def next_reads(run: GraphRun, i: int, sent: Callable[[int], bool]) -> tuple[NextRead, ...]:
    """When the prompt of call `i`, which is about to begin, is read again. sent: whether a call was
    sent, and thus reads by itself what it shares with this one. Counted in parts of the whole
    prompt that are there."""
    beginning = run.plan.beginnings.get(i)
    if beginning is None or not beginning.parts:
        return ()
    soonest: list[NextRead] = []  # from the longest beginning to the shortest
    for reader, parts, seconds in beginning.later:
        if run.ended(reader) or sent(reader):
            continue
        last = soonest[-1] if soonest else None
        if last is None or (parts < last.until and _sooner(seconds, last.seconds)):
            soonest.append(NextRead(parts, seconds))
    reads = soonest[::-1]
    if beginning.common > (reads[-1].until if reads else 0):
        reads.append(NextRead(beginning.common, None))
    there = [_there(run, part) for part in beginning.parts]
    reads = [NextRead(sum(there[:until]), seconds) for until, seconds in reads]
    if run.asker.program == run.id:  # of a longer one nobody knows what its next query begins with
        reads.append(NextRead(END, inf))
    return tuple(reads)


def _sooner(seconds: float | None, than: float | None) -> bool:
    return seconds is not None and than is not None and seconds < than


def _there(run: GraphRun, part: Part) -> bool:
    """Whether a part has something to say, even if that is released by now."""
    ref = part.content
    return isinstance(ref, str) or run.delivered(Ref(ref.producer, ref.port))
