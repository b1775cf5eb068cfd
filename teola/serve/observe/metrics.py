"""Prometheus metrics: counted once a query, when it has ended, out of its trace.

Nothing is counted while queries run; what is true now (queues, slots) is read when somebody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from teola.query.application import Application
from teola.runtime.observe.demand import timings
from teola.runtime.observe.placements import placements
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.runtime import Runtime
from teola.serve.board import Board, Entry

M = TypeVar("M", Counter, Histogram)

SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
RATIOS: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10)
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Everything at /metrics."""

    def __init__(self, runtime: Runtime, apps: Mapping[str, Application], board: Board) -> None:
        # a second series for each counter, which says nothing here
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        place, query = ("engine", "op"), ("app", "state")
        self._latency = _by_labels(
            Histogram,
            "teola_query_seconds",
            "From admission to the end.",
            query,
            buckets=SECONDS,
            registry=self.registry,
        )
        self._first_token = _by_labels(
            Histogram,
            "teola_query_first_token_seconds",
            "From the request to the first token of the answer.",
            query,
            buckets=SECONDS,
            registry=self.registry,
        )
        self._wait = _by_labels(
            Histogram,
            "teola_primitive_wait_seconds",
            "From being ready to being sent to an instance.",
            place,
            buckets=SECONDS,
            registry=self.registry,
        )
        self._execution = _by_labels(
            Histogram,
            "teola_primitive_execution_seconds",
            "From being sent to an instance to its output.",
            place,
            buckets=SECONDS,
            registry=self.registry,
        )
        self._batch = _by_labels(
            Histogram,
            "teola_primitive_batch_size",
            "Primitives in the batch that it ran in.",
            place,
            buckets=SIZES,
            registry=self.registry,
        )
        self._objective = _by_labels(
            Counter,
            "teola_objective",
            "Queries with an objective, by whether they kept it.",
            ("app", "met"),
            registry=self.registry,
        )
        self._of_objective = _by_labels(
            Histogram,
            "teola_objective_ratio",
            "Latency of queries with an objective, as a part of that.",
            ("app",),
            buckets=RATIOS,
            registry=self.registry,
        )
        self._tokens = _by_labels(
            Counter, "teola_tokens", "Of LLM calls.", ("app", "kind"), registry=self.registry
        )
        self._found = _by_labels(
            Counter,
            "teola_found_tokens",
            "Of prompts, as engines found them in their caches.",
            ("app",),
            registry=self.registry,
        )
        self._calls = _Calls(runtime, self.registry)
        self._refused = _by_labels(
            Counter,
            "teola_refused",
            "Requests that were refused.",
            ("code",),
            registry=self.registry,
        )
        self._asked = dict.fromkeys(apps.values())
        self.registry.register(_Now(runtime, self._asked, board))
        self.registry.register(_Instances(runtime))
        self.registry.register(_Backlog(runtime, board))
        ProcessCollector(registry=self.registry)

    def page(self) -> bytes:
        """All metrics, in the text format of Prometheus."""
        return generate_latest(self.registry)

    def watch_journal(self, opened: Callable[[], bool]) -> None:
        """Also tell whether the journal can be used."""
        about = "Whether the journal of background queries can be used."
        Gauge("teola_journal_up", about, registry=self.registry).set_function(opened)

    def refused(self, code: str) -> None:
        """A request was refused."""
        self._refused(code).inc()

    def ended(self, entry: Entry) -> None:
        """A query has ended."""
        assert entry.result is not None
        app, trace = entry.job.app.name, entry.job.trace
        self._asked[entry.job.app] = None
        self._latency(app, entry.state).observe(entry.result.latency_s)
        if entry.first_token_s is not None:
            self._first_token(app, entry.state).observe(entry.first_token_s)
        if trace is None:
            return
        if trace.objective is not None:
            latency_s = entry.result.latency_s
            met = entry.state in ("ok", "partial") and trace.objective.met(latency_s)
            self._objective(app, str(met).lower()).inc()
            self._of_objective(app).observe(latency_s / trace.objective.by_s)
        self._tokens(app, "prompt").inc(trace.prompt_tokens)
        self._tokens(app, "completion").inc(trace.completion_tokens)
        self._found(app).inc(trace.found_tokens)
        self._calls.ended(trace)
        for timing in timings(trace):
            self._wait(timing.engine, timing.op).observe(timing.wait_s)
            self._execution(timing.engine, timing.op).observe(timing.execution_s)
            self._batch(timing.engine, timing.op).observe(timing.batch_size)


def _by_labels(kind: Callable[..., M], *args: Any, **options: Any) -> Callable[..., M]:
    """A metric by its labels, each looked up once: that takes longer than to count."""
    return cache(kind(*args, **options).labels)


class _Calls:
    """LLM calls: where they went and why, and what they found there."""

    def __init__(self, runtime: Runtime, registry: CollectorRegistry) -> None:
        self._configs, where = runtime.configs, ("engine", "engine_instance")
        self._placed = _by_labels(
            Counter,
            "teola_calls_placed",
            "LLM calls that were sent to an instance.",
            ("engine", "policy", "reason"),
            registry=registry,
        )
        self._held = _by_labels(
            Histogram,
            "teola_call_held_seconds",
            "For which its routing policy held an LLM call.",
            ("engine", "policy", "reason"),
            buckets=SECONDS,
            registry=registry,
        )
        self._prompts = _by_labels(
            Counter, "teola_instance_prompt_tokens", "Of LLM calls on it.", where, registry=registry
        )
        self._found = _by_labels(
            Counter,
            "teola_instance_found_tokens",
            "Of these prompts, those that it found in its cache.",
            where,
            registry=registry,
        )

    def ended(self, trace: Trace) -> None:
        """A query has ended."""
        for placement in placements(trace):
            policy = self._configs[placement.engine].routing
            self._placed(placement.engine, policy, placement.reason.because.value).inc()
            for hold in placement.reason.holds:
                label = self._held(placement.engine, policy, hold.because.value)
                label.observe(hold.seconds)
            if placement.usage is not None:
                where = placement.engine, str(placement.instance)
                self._prompts(*where).inc(placement.usage.prompt_tokens)
                self._found(*where).inc(placement.usage.cached_tokens)


class _Now(Collector):
    """What holds at the moment of asking. apps: those that are served, and what else was asked:
    forms of them with a history, and what embeds and reranks by itself."""

    def __init__(self, runtime: Runtime, apps: Iterable[Application], board: Board) -> None:
        self._runtime, self._apps, self._board = runtime, apps, board
        self._version = version("teola")

    def collect(self) -> Iterable[Metric]:
        waiting = self._board.waiting
        running = GaugeMetricFamily("teola_queries_running", "Queries that run.")
        running.add_metric((), len(self._board.running) - waiting)
        yield running
        people = GaugeMetricFamily("teola_queries_waiting", "Queries here that wait for people.")
        people.add_metric((), waiting)
        yield people
        draining = GaugeMetricFamily("teola_draining", "Whether it is about to stop.")
        draining.add_metric((), float(self._board.draining))
        yield draining
        build = GaugeMetricFamily("teola_build_info", "Always 1.", labels=["version"])
        build.add_metric((self._version,), 1.0)
        yield build
        tasks = GaugeMetricFamily("teola_tasks", "Tasks on the event loop.")
        tasks.add_metric((), len(asyncio.all_tasks(self._runtime.loop)))
        yield tasks
        queued = GaugeMetricFamily(
            "teola_queue_depth", "Primitives that wait for an instance.", labels=["engine"]
        )
        retries = CounterMetricFamily(
            "teola_retries", "Slices that were tried again.", labels=["engine"]
        )
        for name, queue in self._runtime.live.core.queues.items():
            queued.add_metric((name,), queue.queued)
            retries.add_metric((name,), queue.retries)
        yield from (queued, retries)
        hits = CounterMetricFamily(
            "teola_plan_cache_hits", "Queries whose graph was there already.", labels=["app"]
        )
        misses = CounterMetricFamily(
            "teola_plan_cache_misses", "Queries whose graph had to be optimised.", labels=["app"]
        )
        by_app: dict[str, list[Optimiser]] = {}
        for app in self._apps:
            by_app.setdefault(app.name, []).extend(app.optimisers.get(self._runtime, {}).values())
        for name, optimisers in by_app.items():
            hits.add_metric((name,), sum(optimiser.hits for optimiser in optimisers))
            misses.add_metric((name,), sum(optimiser.misses for optimiser in optimisers))
        yield from (hits, misses)


class _Instances(Collector):
    """How each instance of each engine is at the moment of asking. (A label called `instance` would
    be Prometheus's own, which is the server.)"""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterable[Metric]:
        labels = ["engine", "engine_instance"]
        busy = GaugeMetricFamily("teola_instance_in_flight", "Primitives on it.", labels=labels)
        up = GaugeMetricFamily("teola_instance_up", "Whether it takes work.", labels=labels)
        free = GaugeMetricFamily(
            "teola_instance_kv_free_tokens",
            "Tokens that its KV memory could take when it last told, less what was sent since.",
            labels=labels,
        )
        ejections = CounterMetricFamily(
            "teola_instance_ejections", "Times it was left alone for failing.", labels=labels
        )
        restarts = CounterMetricFamily(
            "teola_instance_restarts", "Times it was started anew.", labels=labels
        )
        refusals = CounterMetricFamily(
            "teola_instance_refusals", "Calls that its server did not take.", labels=labels
        )
        limited = CounterMetricFamily(
            "teola_limited_seconds",
            "For which work waited because no server of it took any.",
            labels=["engine"],
        )
        now = self._runtime.loop.time()
        for name, queue in self._runtime.live.core.queues.items():
            limited.add_metric((name,), queue.instances.limited_s(now))
            for i, instance in enumerate(queue.instances):
                where = (name, str(i))
                if instance.quota is not None:
                    refusals.add_metric(where, instance.quota.refusals)
                busy.add_metric(where, instance.entries)
                up.add_metric(where, float(instance.usable(now)))
                if instance.free is not None:
                    free.add_metric(where, max(0, instance.free))
                ejections.add_metric(where, instance.ejections)
                restarts.add_metric(where, instance.restarts)
        yield from (busy, up, free, ejections, restarts, refusals, limited)
        yield from self._kept()

    def _kept(self) -> Iterable[Metric]:
        """What LLMs keep."""
        labels = ["engine", "engine_instance"]
        held_tokens = GaugeMetricFamily(
            "teola_instance_kv_held_tokens",
            "Tokens of prompts that it keeps, as far as the scheduler knows.",
            labels=[*labels, "known"],
        )
        capacity = GaugeMetricFamily(
            "teola_instance_kv_capacity_tokens", "Tokens that its cache holds.", labels=labels
        )
        bound = GaugeMetricFamily(
            "teola_instance_bound", "LLM calls that wait for it and no other.", labels=labels
        )
        waiting = GaugeMetricFamily(
            "teola_calls_held", "LLM calls that its routing policy holds.", labels=["engine"]
        )
        for name, queue in self._runtime.live.core.queues.items():
            if not queue.continuous:
                continue
            waiting.add_metric((name,), len(queue.line.held))
            for i, instance in enumerate(queue.instances):
                where, kept = (name, str(i)), queue.placing.kept(i)
                bound.add_metric(where, queue.line.asking.for_instance(i)[0])
                if kept is not None:
                    held_tokens.add_metric(
                        (*where, "told" if kept.told else "assumed"), kept.tokens
                    )
                if instance.limits.kv_tokens is not None:
                    capacity.add_metric(where, instance.limits.kv_tokens)
        yield from (held_tokens, capacity, bound, waiting)


class _Backlog(Collector):
    """Seconds of work that wait, as admission counts them."""

    def __init__(self, runtime: Runtime, board: Board) -> None:
        self._runtime, self._board = runtime, board

    def collect(self) -> Iterable[Metric]:
        work = GaugeMetricFamily(
            "teola_backlog_seconds", "Work that running queries bring to it.", labels=["engine"]
        )
        wait = GaugeMetricFamily(
            "teola_expected_wait_seconds", "Wait that a query must expect.", labels=["engine"]
        )
        admission, now = self._board.admission, self._runtime.loop.time()
        for name, (work_s, wait_s) in (admission.backlog(now) if admission else {}).items():
            work.add_metric((name,), work_s)
            wait.add_metric((name,), wait_s)
        yield from (work, wait)
