"""What tests compute, in seconds of a processor: the same on a machine that does other things, too.

The clock says how long a test takes here and now. Beside other programs that is a multiple, which
would drop tests from a table and let those hang that only have to wait for their turn.
"""

from __future__ import annotations

import resource
from contextlib import suppress

import psutil


def spent_s() -> float:
    """Processor seconds of this process, and of those that it has started and waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(times.ru_utime + times.ru_stime for times in used)


def spent_below_s(process: int) -> float:
    """The same of another process, and of all that it has started and that still run."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process)
        for one in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                used = one.cpu_times()
                total += used.user + used.system + used.children_user + used.children_system
    return total
