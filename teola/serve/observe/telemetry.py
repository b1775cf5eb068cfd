"""OpenTelemetry: a span for each query with one for each primitive, and the metrics of its calls.

Both are made once a query, when it has ended, out of its trace, by a thread of their own; exporters
send them in batches from threads of theirs. Where no OTEL_ variable asks for any of it, there is no
object of this class and nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from teola.errors import InputError
from teola.extras import needs
from teola.runtime.runtime import Runtime
from teola.serve.board import Entry
from teola.serve.observe.aside import Aside
from teola.serve.observe.ended_query import EndedQuery

if TYPE_CHECKING:
    from teola.serve.observe.otlp import Pipeline

WAITING: Final = 4096
"""Queries that may wait to be told; further ones are dropped."""
FLUSH_S: Final = 5.0
"""How long the end waits for the collector."""
SIGNALS: Final = ("traces", "metrics")
EXPORTERS: Final = ("otlp", "console", "none")
CARRIED: Final = (b"traceparent", b"tracestate")

_incoming: Final[ContextVar[dict[str, str] | None]] = ContextVar("teola_traceparent", default=None)
"""W3C trace context of the request that is being answered. The query's task inherits it."""


class Telemetry:
    """Tells OpenTelemetry of every query that ends."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._aside: Aside[EndedQuery] = Aside("teola-telemetry", pipeline.tell, WAITING)

    def around(self, app: ASGIApp) -> ASGIApp:
        """`app`, whose queries continue the traces that their requests name."""

        async def continued(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                carried = {
                    name.decode("latin-1"): value.decode("latin-1")
                    for name, value in scope["headers"]
                    if name in CARRIED
                }
                _incoming.set(carried or None)
            await app(scope, receive, send)

        return continued

    def ended(self, entry: Entry) -> None:
        """A query has ended; called in its own task."""
        assert entry.result is not None
        offset_ns = time.time_ns() - int(asyncio.get_running_loop().time() * 1e9)
        self._aside.put(EndedQuery(entry, entry.result, offset_ns, _incoming.get()))

    async def close(self) -> None:
        """Send what is left, as far as the collector takes it within `FLUSH_S`."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._aside.close(FLUSH_S)
        self._pipeline.close(FLUSH_S)


def from_environment(
    runtime: Runtime, environment: Mapping[str, str] = os.environ
) -> Telemetry | None:
    """As the OTEL_ variables say, None where they ask for nothing. Raises InputError."""
    exporters = {signal: _exporter(signal, environment) for signal in SIGNALS}
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if all(exporter == "none" for exporter in exporters.values()):
        return None
    with needs("server", "OpenTelemetry"):
        from teola.serve.observe.otlp import Pipeline
    return Telemetry(Pipeline(runtime, **exporters))


def _exporter(signal: str, environment: Mapping[str, str]) -> str:
    """What sends a signal; `otlp` if only an endpoint is named."""
    name = f"OTEL_{signal.upper()}_EXPORTER"
    chosen = environment.get(name, "").strip().lower()
    if chosen and chosen not in EXPORTERS:
        raise InputError(f"{name}={chosen}: there is {', '.join(EXPORTERS)}")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    named = any(environment.get(endpoint) for endpoint in endpoints)
    exporter = chosen or ("otlp" if named else "none")
    protocols = ("OTEL_EXPORTER_OTLP_PROTOCOL", f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    for protocol in protocols:
        spoken = environment.get(protocol) or "http/protobuf"
        if exporter == "otlp" and spoken != "http/protobuf":
            raise InputError(f"{protocol}={spoken}: only http/protobuf is spoken (port 4318)")
    return exporter
