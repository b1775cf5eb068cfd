"""What an engine's routing still counts on: nothing may be left when all calls have ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from teola.policies.routing.e2 import E2
from teola.policies.routing.graph_aware import GraphAware
from teola.schedule.engine_queue import EngineQueue


def remembered(queue: EngineQueue) -> Iterator[str]:
    """Calls that are held, on their way, or of programs; programs themselves may be remembered."""
    placing, policy = queue.placing, queue.placing.routing
    left: dict[str, Collection[object]] = {
        "coming": placing._coming,
        "expected": placing._expected,
        "held": queue.line.held,
    }
    if isinstance(policy, GraphAware):
        names = ("_held", "_line", "_oldest", "_following", "_early", "_again")
        left |= {name: getattr(policy, name) for name in names}
        left["programs"] = [one for one in policy.programs._all.values() if one.works]
    elif isinstance(policy, E2):
        left["calls"] = policy._calls
    if placing.prefixes is not None:
        placing.prefixes.validate()
        left["chains"] = placing.prefixes._coming._chains
    for what, found in left.items():
        if found:
            yield f"the routing of {queue.engine} still has {len(found)} in {what}"
