"""Windows of the models of a query: known once their engines have started."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as NotInTime

from teola.errors import TeolaError
from teola.runtime.runtime import Runtime
from teola.tables.llm_call import LlmCall
from teola.tables.run_limits import Spent
from teola.tables.value_cutting import ModelWindow


class ModelWindows:
    """Windows by call. They are looked for when one is needed first, before anything was asked,
    and then the instructions of all calls are checked."""

    def __init__(self, runtime: Runtime, calls: Sequence[LlmCall], spent: Spent) -> None:
        self._runtime, self._calls, self._spent = runtime, calls, spent
        self._known: dict[str, ModelWindow | None] | None = None

    def of(self, call: LlmCall, *, look: bool = True) -> ModelWindow | None:
        """The window of a call's model; None where nobody tells it. look: start the engines if
        that has not been done. Raises InputError where an instruction is over it."""
        if self._known is None:
            if not look:
                return None
            self._known = {}
            for name in dict.fromkeys(call.model or "llm" for call in self._calls):
                self._known[name] = self._found(name)
            for asked_call in self._calls:
                window = self._known[asked_call.model or "llm"]
                if window is not None:
                    window.check(asked_call)
        return self._known[call.model or "llm"]

    def _found(self, name: str) -> ModelWindow | None:
        runtime = self._runtime
        try:
            runtime.start(runtime.ensure([name])).result(self._spent.left_s())
        except (
            TeolaError,
            NotInTime,
        ):  # what is asked will wait for it, and tell why it is not there
            return None
        window = runtime.spec(name).window
        return ModelWindow(window, runtime.host(name).count_tokens) if window else None
