"""An OTLP/HTTP collector: takes what OpenTelemetry's exporters send, and decodes it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """Ids are hexadecimal; times seconds since 1970; status 2 is an error."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: float
    end: float
    status: int
    attributes: dict[str, Any]


class Collector:
    """Listens on a port of its own while it is used as a context manager."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.resource: dict[str, Any] = {}
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = collector.take(self.path, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path: str, body: bytes) -> bytes:
        """Decode and keep a request; the answer."""
        self.bodies.append(body)
        if path == "/v1/traces":
            self._spans(ExportTraceServiceRequest.FromString(body))
            return bytes(ExportTraceServiceResponse().SerializeToString())
        assert path == "/v1/metrics", path
        self._metrics(ExportMetricsServiceRequest.FromString(body))
        return bytes(ExportMetricsServiceResponse().SerializeToString())

    def _spans(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            self.resource = _values(of_resource.resource.attributes)
            for scope in of_resource.scope_spans:
                self.spans += (_span(one) for one in scope.spans)

    def _metrics(self, request: Any) -> None:
        """Totals, as cumulative histograms have them: the last that came counts."""
        for of_resource in request.resource_metrics:
            for scope in of_resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = [
                        {**_values(point.attributes), "count": point.count, "sum": point.sum}
                        for point in metric.histogram.data_points
                    ]

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _span(one: Any) -> ReceivedSpan:
    return ReceivedSpan(
        one.name,
        one.kind,
        one.trace_id.hex(),
        one.span_id.hex(),
        one.parent_span_id.hex(),
        one.start_time_unix_nano / 1e9,
        one.end_time_unix_nano / 1e9,
        one.status.code,
        _values(one.attributes),
    )


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
