"""Spans and metrics on their way to a collector; the only module that imports OpenTelemetry's SDK.

Sampling (OTEL_TRACES_SAMPLER) is decided before anything but the root span exists. Prompts and
answers are never among the attributes, whatever the variables say.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from time import monotonic
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from teola.runtime.observe.noting import note
from teola.runtime.runtime import Runtime
from teola.serve.observe.ended_query import EndedQuery
from teola.serve.observe.operations import GENAI, Maker, Operation, operations
from teola.serve.problems import problem_of

SECONDS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
FIRST_TOKEN_SECONDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
TOKENS: Final = tuple(4**n for n in range(14))
"""The boundaries that the conventions name."""
COMPLETING: Final = ("vllm", "vllm-inprocess", "transformers", "extractive")
"""Engine types that complete a prompt of their own making; others chat."""
_EXPORT_LOGS: Final = "opentelemetry"

log = logging.getLogger(__name__)
_propagator: Final = TraceContextTextMapPropagator()


class Silence:
    """Says once that the collector does not answer, and once that it does again."""

    def __init__(self, signal: str, where: str) -> None:
        self._signal, self._where, self._silent = signal, where, False

    def heard(self, answered: bool) -> None:
        """Something was sent."""
        if answered is not self._silent:
            return
        self._silent = not answered
        message = (
            "the collector at %(endpoint)s takes %(signal)s again"
            if answered
            else "the collector at %(endpoint)s takes no %(signal)s; they are dropped until it does"
        )
        level = logging.INFO if answered else logging.WARNING
        event = "telemetry_recovered" if answered else "telemetry_lost"
        note(log, level, event, message, endpoint=self._where, signal=self._signal)


class SpanExporter(OTLPSpanExporter):
    """Tells when nobody listens."""

    def __init__(self) -> None:
        super().__init__()
        self._silence = Silence("traces", self._endpoint)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send; False after the collector's time is up."""
        result = super().export(spans)
        self._silence.heard(result is SpanExportResult.SUCCESS)
        return result


class MetricExporter(OTLPMetricExporter):
    """Tells when nobody listens."""

    def __init__(self) -> None:
        super().__init__()
        self._silence = Silence("metrics", self._endpoint)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **more: Any
    ) -> MetricExportResult:
        """Send; FAILURE after the collector's time is up."""
        result = super().export(metrics_data, timeout_millis, **more)
        self._silence.heard(result is MetricExportResult.SUCCESS)
        return result


class Pipeline:
    """From ended queries to exporters. traces, metrics: `otlp`, `console` or `none`."""

    def __init__(self, runtime: Runtime, traces: str, metrics: str) -> None:
        logging.getLogger(_EXPORT_LOGS).setLevel(logging.CRITICAL)  # Silence says it
        resource = _resource()
        self._runtime = runtime
        self._makers: dict[str, Maker] = {}
        self._closers: list[Callable[[], object]] = []
        self._hurry: list[Callable[[], object]] = []
        self._tracer = self._tracing(traces, resource) if traces != "none" else None
        self._meters = self._metering(metrics, resource) if metrics != "none" else None

    def _tracing(self, kind: str, resource: Resource) -> Tracer:
        exporter = SpanExporter() if kind == "otlp" else ConsoleSpanExporter()
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        self._closers.append(provider.shutdown)
        self._hurry.append(exporter.shutdown)
        return provider.get_tracer("teola")

    def _metering(self, kind: str, resource: Resource) -> Meters:
        exporter = MetricExporter() if kind == "otlp" else ConsoleMetricExporter()
        reader = PeriodicExportingMetricReader(exporter)
        provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._closers.append(provider.shutdown)
        self._hurry.append(exporter.shutdown)
        return Meters(provider.get_meter("teola"))

    def close(self, limit_s: float) -> None:
        """Send what is left; after `limit_s` what is being tried is given up."""
        threads = [threading.Thread(target=close, daemon=True) for close in self._closers]
        until = monotonic() + limit_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))
        if any(thread.is_alive() for thread in threads):
            for stop in self._hurry:
                stop()

    # --- what has ended -------------------------------------------------------------------

    def tell(self, ended: list[EndedQuery]) -> None:
        """Spans and metrics of queries."""
        for ended_query in ended:
            try:
                self._tell(ended_query)
            except Exception as error:  # noqa: BLE001 - what is wrong with one must not end all
                message = "no spans of query %(query_id)s: %(error_type)s"
                kind = type(error).__name__
                query = ended_query.entry.id
                note(
                    log, logging.ERROR, "telemetry_failed", message, query_id=query, error_type=kind
                )

    def _tell(self, ended: EndedQuery) -> None:
        trace = ended.entry.job.trace
        listed = list(operations(trace, self._maker)) if trace and self._meters else None
        if self._meters is not None:
            self._meters.query(ended, listed or ())
        if self._tracer is None:
            return
        root = self._root(self._tracer, ended)
        if root.is_recording() and trace is not None:
            zero = int(trace.admitted * 1e9) + ended.offset_ns
            within = set_span_in_context(root)
            for operation in listed if listed is not None else operations(trace, self._maker):
                self._child(self._tracer, operation, zero, within)
        root.end(_end_ns(ended))

    def _root(self, tracer: Tracer, ended: EndedQuery) -> Span:
        job, result = ended.entry.job, ended.result
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": job.app.name,
            "gen_ai.provider.name": "teola",
            "teola.query_id": job.id,
            "teola.tenant": job.tenant,
            "teola.mode": ended.entry.mode,
            "teola.state": result.state,
        }
        if job.trace is not None and job.trace.prompt_tokens + job.trace.completion_tokens:
            attributes["gen_ai.usage.input_tokens"] = job.trace.prompt_tokens
            attributes["gen_ai.usage.output_tokens"] = job.trace.completion_tokens
        if ended.entry.first_token_s is not None:
            attributes["teola.first_token_s"] = round(ended.entry.first_token_s, 6)
        span = tracer.start_span(
            f"invoke_workflow {job.app.name}",
            context=_propagator.extract(dict(ended.parent)) if ended.parent else None,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=_start_ns(ended),
        )
        if error := _error(ended):
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        return span

    def _child(self, tracer: Tracer, operation: Operation, zero: int, within: Any) -> None:
        attributes: dict[str, Any] = dict(operation.attributes)
        if operation.usage is not None:
            attributes["gen_ai.usage.input_tokens"] = operation.usage.prompt_tokens
            attributes["gen_ai.usage.output_tokens"] = operation.usage.completion_tokens
            attributes["gen_ai.usage.cache_read.input_tokens"] = operation.usage.cached_tokens
        span = tracer.start_span(
            operation.name,
            context=within,
            kind=SpanKind.CLIENT if operation.kind in GENAI else SpanKind.INTERNAL,
            attributes=attributes,
            start_time=zero + int(operation.start * 1e9),
        )
        if operation.failed:
            span.set_attribute("error.type", "failed")
            span.set_status(Status(StatusCode.ERROR))
        span.end(zero + int(operation.end * 1e9))

    def _maker(self, engine: str) -> Maker:
        """The Maker of an engine that runs."""
        if engine not in self._makers:
            config = self._runtime.configs.get(engine)
            factory = config.factory if config else None
            kind = factory if isinstance(factory, str) else "custom"
            host = self._runtime.live.hosts.get((engine, 0))
            model = host.named.model if host and host.named else None
            completes = kind in COMPLETING or bool(
                config and config.options.get("api") == "completions"
            )
            call = "text_completion" if completes else "chat"
            self._makers[engine] = Maker(kind, model if isinstance(model, str) else None, call)
        return self._makers[engine]


class Meters:
    """The conventions' metrics. Labels come from the configuration, never from clients."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, about: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                name, unit, about, explicit_bucket_boundaries_advisory=list(bounds)
            )

        self._duration = histogram(
            "gen_ai.client.operation.duration", "s", "Of an operation of an engine.", SECONDS
        )
        self._tokens = histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of an LLM call.", TOKENS
        )
        self._first_token = histogram(
            "gen_ai.server.time_to_first_token",
            "s",
            "From a request to the first token of its answer.",
            FIRST_TOKEN_SECONDS,
        )
        self._workflow = histogram("gen_ai.workflow.duration", "s", "Of a query.", SECONDS)

    def query(self, ended: EndedQuery, performed: Sequence[Operation]) -> None:
        """Everything of one query."""
        app, error = ended.entry.job.app.name, _error(ended)
        failure = {"error.type": error} if error else {}
        self._workflow.record(ended.result.latency_s, {"gen_ai.workflow.name": app, **failure})
        if ended.entry.first_token_s is not None and not error:
            labels = {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.provider.name": "teola",
                "gen_ai.request.model": app,
            }
            self._first_token.record(ended.entry.first_token_s, labels)
        for operation in performed:
            if operation.kind in GENAI:
                self._operation(operation)

    def _operation(self, operation: Operation) -> None:
        labels = {
            "gen_ai.operation.name": operation.kind,
            "gen_ai.provider.name": operation.maker.provider,
        }
        if operation.maker.model:
            labels["gen_ai.request.model"] = operation.maker.model
        failure = {"error.type": "failed"} if operation.failed else {}
        self._duration.record(max(0.0, operation.end - operation.start), {**labels, **failure})
        if operation.usage is None:
            return
        counts = {
            "input": operation.usage.prompt_tokens,
            "output": operation.usage.completion_tokens,
        }
        for kind, count in counts.items():
            self._tokens.record(count, {**labels, "gen_ai.token.type": kind})


def _error(ended: EndedQuery) -> str | None:
    """The code of a query's error, as clients see it."""
    return problem_of(ended.result).code if ended.result.state not in ("ok", "partial") else None


def _start_ns(ended: EndedQuery) -> int:
    trace = ended.entry.job.trace
    if trace is None:
        return int(ended.entry.created * 1e9)
    return int(trace.admitted * 1e9) + ended.offset_ns


def _end_ns(ended: EndedQuery) -> int:
    trace = ended.entry.job.trace
    if trace is None or trace.finished is None:
        return _start_ns(ended) + int(ended.result.latency_s * 1e9)
    return int(trace.finished * 1e9) + ended.offset_ns


def _resource() -> Resource:
    """This service, as the OTEL_ variables name it; else `teola`."""
    resource = Resource.create({"service.version": version("teola")})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        return resource.merge(Resource({"service.name": "teola"}))
    return resource
