"""What engines keep of sequences for the queries of a driver, and when they are told to release it.

    prefill ... its query's store holds the handle   until the last reader, a skip, the query's end
                each call that reads it holds it     until it has ended, however it did
                held by nobody                       host.release(handle)

A handle that nobody wants any more when it comes is released at once. Prefillings without a text of
their own pass on the handle before them, so what counts is how often its state is held.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from teola.engine import Call, SequenceHandle
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.query import LiveQuery
from teola.runtime.observe.noting import note
from teola.runtime.outputs import no_handle

log = logging.getLogger(__name__)


@dataclass(slots=True)
class KeptSequence:
    """What one instance keeps for a handle. holders: stores and calls."""

    host: LocalHost
    handle: SequenceHandle
    holders: int = 0


class KeptSequences:
    """All that is held, by the identity of the handles' state."""

    def __init__(self) -> None:
        self._kept: dict[int, KeptSequence] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def prefill(
        self, host: LocalHost, query: LiveQuery, i: int, call: Call
    ) -> Mapping[str, int]:
        """Compute a prefix, for the store of its query; counts of the outputs."""
        if call.parts:
            handle = await host.prefill(call)
            if wrong := no_handle(host.engine.spec.name, handle):
                raise wrong
        else:
            handle = call.prefix or SequenceHandle(host.engine.spec.name, host.instance, ())
        outputs = {"sequence": replace(handle, instance=host.instance)}
        self._hold(host, outputs["sequence"])
        if query.run.state is not None or query.run.ended(i):  # it comes too late
            self.let_go(outputs)
            return {}
        self.let_go(query.store.values.get(i))  # of another try
        return query.store.put(i, outputs)

    @contextmanager
    def reading(self, host: LocalHost, call: Call) -> Iterator[None]:
        """While a call may read the handle before it."""
        if call.prefix is None or call.prefix.state is None:
            yield
            return
        self._hold(host, call.prefix)
        try:
            yield
        finally:
            self._let_go(call.prefix)

    def let_go(self, outputs: Mapping[str, Any] | None) -> None:
        """A store holds these outputs of a primitive no longer."""
        handle = outputs and outputs.get("sequence")
        if type(handle) is SequenceHandle and handle.state is not None:
            self._let_go(handle)

    def _hold(self, host: LocalHost, handle: SequenceHandle) -> None:
        if handle.state is not None:
            kept = self._kept.setdefault(id(handle.state), KeptSequence(host, handle))
            kept.holders += 1

    def _let_go(self, handle: SequenceHandle) -> None:
        kept = self._kept[id(handle.state)]
        kept.holders -= 1
        if kept.holders:
            return
        del self._kept[id(handle.state)]
        try:
            kept.host.release(kept.handle)
        except Exception as error:  # noqa: BLE001 - the driver's edge: whose handle it was goes on
            note(
                log,
                logging.ERROR,
                "release_failed",
                "engine %(engine)s could not release a sequence: %(error_type)s: %(error)s",
                engine=handle.engine,
                error_type=type(error).__name__,
                error=str(error),
            )
