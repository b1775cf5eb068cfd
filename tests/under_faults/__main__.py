"""Replays simulated runs: `python -m tests.under_faults SEED...` shows what it drew."""

from __future__ import annotations

import hashlib
import sys

from tests.under_faults.invariants import violations
from tests.under_faults.world import World, scenario


def digest(world: World) -> str:
    """Of all that the core heard and said, with the times; equal for equal runs."""
    told = [
        (what, repr(given), now, repr(found)) for what, given, now, found in world.core.log.calls
    ]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def main() -> int:
    """The number of seeds that break an invariant."""
    broken = 0
    for seed in map(int, sys.argv[1:]):
        drawn = scenario(seed)
        print(f"seed {seed}: {drawn.batching}, {drawn.routing}, {drawn.instances} of each engine")
        for fault in drawn.faults:
            print(f"  {fault.at:6.3f} s  {fault.engine} {fault.instance}: {fault.kind.value}")
        world = World(drawn).run()
        for asked in world.asked.values():
            state = asked.ending.state.value if asked.ending else "cancelled"
            error = f": {asked.ending.error}" if asked.ending and asked.ending.error else ""
            print(f"  {asked.id} {asked.template} for {asked.tenant}: {state}{error}")
        found = violations(world)
        for line in found:
            print(f"  VIOLATED: {line}")
        print(f"  {len(world.core.log.calls)} events, digest {digest(world)}")
        broken += bool(found)
    return broken


if __name__ == "__main__":
    sys.exit(main())
