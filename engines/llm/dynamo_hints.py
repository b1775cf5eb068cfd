"""What an NVIDIA Dynamo is told of a call besides its prompt: `nvext.agent_hints`.

priority              its router and its engines take larger ones first, whatever engines they are
osl                   tokens that the call is expected to generate, for how it spreads load
speculative_prefill   a later call of the same query begins with all of this one's prompt
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from teola.engine import Call

LARGEST: Final = 2**31 - 1
"""Priorities have 32 bits there."""


class Hints:
    """Makes those of one engine's calls. Priorities are counted from that of its first call, since
    policies' own may be as large as a clock."""

    def __init__(self) -> None:
        self._origin: int | None = None

    def of(self, call: Call) -> dict[str, Any]:
        """The fields to add to a request."""
        found: dict[str, Any] = {"priority": self._priority(call.priority)}
        if call.expects:
            found["osl"] = min(call.expects, call.decode.max_tokens)
        whole = len(call.all_parts)
        if any(r.until == whole and r.seconds not in (None, inf) for r in call.reads):
            found["speculative_prefill"] = True
        return {"nvext": {"agent_hints": found}}

    def _priority(self, priority: int) -> int:
        if self._origin is None or abs(priority - self._origin) > LARGEST:
            self._origin = priority
        return priority - self._origin
