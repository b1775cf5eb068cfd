"""What the policies of one engine did wrong.

Policies may be anybody's. One that raises, or whose choice cannot be, has lost count of its queue:
what is queued then would wait for it in vain. So it fails at once, for a reason that names the
policy, and the policy goes on with what is queued later.
"""

from __future__ import annotations

from dataclasses import dataclass

from teola.errors import EngineError


@dataclass(slots=True)
class PolicyFailed:
    """What was queued at an engine has failed, because of a policy (for logs)."""

    engine: str
    error: EngineError


class Faults:
    """The first fault since what was queued has failed, if there is one. engine: for its text.
    batching, routing: the names of the policies."""

    __slots__ = ("batching", "engine", "error", "routing")

    def __init__(self, engine: str, batching: str, routing: str) -> None:
        self.engine, self.batching, self.routing = engine, batching, routing
        self.error: EngineError | None = None

    def of_batching(self, what: Exception | str) -> None:
        """The batching policy raised `what`, or did what it says."""
        self._note("batching", self.batching, what)

    def of_routing(self, what: Exception | str) -> None:
        """The routing policy raised `what`, or did what it says."""
        self._note("routing", self.routing, what)

    def _note(self, kind: str, name: str, what: Exception | str) -> None:
        if self.error is not None:
            return
        told = what if isinstance(what, str) else repr(what)
        self.error = EngineError(f"engine {self.engine!r}: {kind} policy {name!r} failed: {told}")
        if isinstance(what, Exception):
            self.error.__cause__ = what
