"""What the page shows beside results: why a query has the graph that it has, where its time went,
and what the engines are doing. Any client may ask for it.

Everything is worked out when somebody looks, and nothing while queries run. On the event loop what
is there is only copied: it is a thread that makes an answer of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from teola.explain import Explanation
from teola.passes import Optimised, PassSequence
from teola.passes.origins import origins
from teola.policies.work import Work
from teola.profile import Profile
from teola.runtime.in_flight import Query
from teola.runtime.observe.parts import parts_json
from teola.runtime.observe.placements import FoundTokens, Hits, placements
from teola.runtime.observe.shares import shares, shares_json
from teola.runtime.observe.stretches import (
    NONE,
    Waited,
    chain,
    critical_path,
    waits,
    waits_on_path,
)
from teola.runtime.observe.trace import Batch, Span, Trace, span_json
from teola.runtime.observe.whole import whole
from teola.runtime.pools import presentable
from teola.runtime.runtime import Runtime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.instances import Instance
from teola.serve.api import Service, tenant
from teola.serve.board import Board
from teola.serve.long_json import LongJson
from teola.serve.problems import NotFound

RECENT_QUERIES: Final = 64
"""Out of so many queries that ended last come an engine's recent batches."""
RECENT_BATCHES: Final = 60
MOST_ERROR: Final = 500
"""Characters of what a try that failed says."""


def router(runtime: Runtime, service: Service) -> APIRouter:
    """All routes of this module."""
    routes = APIRouter(prefix="/v1")

    @routes.get("/queries/{id}/explanation", tags=["queries"], response_model=None)
    async def explanation(id: str, request: Request) -> Response:
        """Its p-graph and e-graph, what each pass did and why, and how long it was expected to take
        when it began."""
        job = service.entry(id, request).job
        plan = job.trace.plan if job.trace else None
        if plan is None or (optimised := plan.optimised) is None:
            raise NotFound(f"query {id!r} has no graph yet")
        profile = plan.profile

        def made() -> Response:
            return LongJson(explained(job.app.name, optimised, profile, job.passes))

        return await run_in_threadpool(made)

    @routes.get("/queries/{id}/timeline", tags=["queries"], response_model=None)
    async def timeline(id: str, request: Request) -> Response:
        """Its spans so far, what each one waited for, and the critical path."""
        entry = service.entry(id, request)
        if entry.job.trace is None:
            raise NotFound(f"query {id!r} has not been admitted yet")
        trace = entry.job.trace.copy()
        now, waiting = runtime.loop.time(), dict(_waiting(trace, runtime))
        hide = entry.job.secrets.hidden

        def made() -> Response:
            return LongJson(timed(trace, waiting, now - trace.admitted, hide))

        return await run_in_threadpool(made)

    @routes.get("/engines", tags=["engines"], response_model=None)
    async def engines(request: Request) -> Response:
        """What each engine is, what waits for it, what each of its instances runs and keeps; and of
        the tenant's own queries the batches that they went in, and what they found in caches."""
        now, queues = runtime.loop.time(), runtime.live.core.queues
        listed = [_engine(runtime, name, queue, now) for name, queue in queues.items()]
        traces = recent_traces(service.board, tenant(request))

        def made() -> Response:
            batches, hits = recent_batches(traces), FoundTokens(traces)
            for entry in listed:
                entry["recent_batches"] = _recent(batches, entry["name"], now)
                if entry["continuous"]:
                    _tell_hits(entry, hits)
            return LongJson({"engines": listed})

        return await run_in_threadpool(made)

    return routes


# --- a query --------------------------------------------------------------------------------


def explained(
    app: str, optimised: Optimised, profile: Profile, passes: PassSequence
) -> dict[str, Any]:
    """As `teola explain --format json`, with the passes in order and where each primitive of the
    e-graph comes from."""
    explanation = Explanation(app, optimised, profile).to_json()
    return {
        **explanation,
        "passes": [step.name for step in passes],
        "origins": origins(optimised.p_graph, optimised.e_graph),
    }


def timed(
    trace: Trace,
    waiting: Mapping[str, Sequence[Span]],
    now_s: float,
    hide: Callable[[str], str] = str,
) -> dict[str, Any]:
    """The timeline as JSON values. waiting, now_s: see `whole`. hide: takes the query's secrets out
    of errors."""
    running = trace.finished is None
    end = now_s if running else trace.latency_s
    measured = whole(trace, waiting, now_s)
    spans, before = measured.spans, measured.before
    answered = trace.state in ("running", "ok", "partial")
    path = critical_path(spans, before, end, answered=answered, within=measured.within)
    return {
        "query_id": trace.query_id,
        "app": trace.app,
        "state": trace.state,
        "end_s": end,
        "spans": [_told(*row, hide) for row in zip(spans, before, waits(spans), strict=True)],
        "critical_path": [
            {**asdict(s), "span": _index(s.span), "blocker": _index(s.blocker)} for s in path
        ],
        "critical_spans": chain(spans, before, answered=answered),
        "shares": shares_json(shares(spans, path)),
        "waits": waits_on_path(spans, path),
        "calls": [placement.to_json() for placement in placements(trace)],
        "parts": parts_json(trace, trace.admitted + now_s),
    }


def _told(
    span: Span, before: int, waited: Waited | None, hide: Callable[[str], str]
) -> dict[str, Any]:
    """One span; its error without secrets, as far as MOST_ERROR."""
    span = replace(span, error=hide(span.error)[:MOST_ERROR])
    fields = {**span_json(span, errors=True), "waited_for": _index(before)}
    if waited is not None:
        fields["waits"] = asdict(waited)
    return fields


def _index(i: int) -> int | None:
    return None if i == NONE else i


def _waiting(trace: Trace, runtime: Runtime) -> Iterator[tuple[str, list[Span]]]:
    """What is ready and has not been sent yet, as spans with the state `queued`: by query or part
    that it is of."""
    query = runtime.live.queries.get(trace.query_id)
    if query is not None:
        now = runtime.loop.time()
        yield (
            trace.query_id,
            [span for work in runtime.live.waiting(query) for span in _queued(work, query, now)],
        )
    for part in trace.inner:
        if part.finished is None:
            yield from _waiting(part, runtime)


def _queued(work: Work, query: Query, now: float) -> Iterator[Span]:
    p, at = query.plan.primitives[work.primitive], work.arrival - query.trace.admitted
    why = work.reason.until(now).words(work.affinity) if work.reason is not None else ""
    for lo, hi in work.spans:
        yield Span(
            p.id, p.op.value, p.component, p.engine, at, at, at,
            instance=work.affinity, lo=lo, hi=hi, state="queued", why=why,
        )  # fmt: skip


# --- engines --------------------------------------------------------------------------------


def recent_traces(board: Board, tenant: str) -> list[Trace]:
    """Copies, of a tenant's running queries and its last that ended."""
    past, running = reversed(board.past.values()), board.running.values()
    ended = islice((entry for entry in past if entry.job.tenant == tenant), RECENT_QUERIES)
    mine = (*ended, *(entry for entry in running if entry.job.tenant == tenant))
    traces = (entry.job.trace for entry in mine)
    return [trace.copy() for trace in traces if trace and trace.plan]


def recent_batches(traces: Sequence[Trace]) -> list[Batch]:
    """What these queries were sent in, each batch once, oldest first."""
    batches: dict[tuple[str, int], Batch] = {}
    for trace in traces:
        for batch in trace.batches():
            batches[batch.engine, batch.batch] = batch
    return sorted(batches.values(), key=lambda batch: (batch.at, batch.batch))


def _recent(batches: Iterable[Batch], engine: str, now: float) -> list[dict[str, Any]]:
    mine = [batch for batch in batches if batch.engine == engine][-RECENT_BATCHES:]
    return [{"instance": b.instance, "size": b.size, "ago_s": round(now - b.at, 3)} for b in mine]


def _engine(runtime: Runtime, name: str, queue: EngineQueue, now: float) -> dict[str, Any]:
    config, spec = runtime.configs[name], runtime.spec(name)
    here = [_running(runtime, name, i) for i in range(len(queue.instances))]
    limits = [instance.limits for instance in queue.instances]
    factory = config.factory if isinstance(config.factory, str) else config.factory.__name__
    return {
        "name": name,
        "type": factory,
        "kind": spec.kind.value,
        "ops": sorted(op.value for op in spec.ops),
        "batching": config.batching,
        "routing": config.routing,
        "max_batch": max(limit.max_batch for limit in limits),
        "max_sequences": max(limit.max_sequences for limit in limits),
        "concurrency": max(limit.concurrency for limit in limits),
        "continuous": queue.continuous,
        "queued": queue.queued,
        "held": len(queue.line.held),
        "in_flight": sum(instance.entries for instance in queue.instances),
        "instances": [
            {"instance": i, "about": here[i], **_instance(instance, now), **_kept(queue, i)}
            for i, instance in enumerate(queue.instances)
        ],
    }


def _running(runtime: Runtime, name: str, i: int) -> str:
    """What an instance says of itself: a model, a server's URL without its secrets."""
    host = runtime.live.hosts.get((name, i))
    engine = host.engine if host else runtime.engines(name)[i]
    return presentable(engine.spec.description)


def _instance(instance: Instance, now: float) -> dict[str, Any]:
    """kv_free_tokens: None where the engine does not tell, or has not yet. opens_s: in how many
    seconds it is asked again, if its server has refused or its rate limit is used up."""
    health, quota = instance.health, instance.quota
    closed = quota is not None and quota.closed(now)
    if not instance.up:
        state = "gone" if instance.gone else "down"
    elif health is not None and health.ejected(now):
        state = "ejected"
    elif health is not None and not health.well(now):
        state = "recovering"
    elif closed:
        state = "closed"
    else:
        state = "up"
    return {
        "state": state,
        "in_flight": instance.entries,
        "batches": len(instance.batches),
        "weight": instance.weight,
        "kv_free_tokens": instance.free,
        "refusals": quota.refusals if quota is not None else 0,
        "opens_s": round(max(0.0, quota.opens_at(now) - now), 1) if quota and closed else None,
    }


def _kept(queue: EngineQueue, i: int) -> dict[str, Any]:
    """What instance `i` of an LLM keeps of prompts (kv_held_tokens; None: nobody wants to know),
    as it tells itself (kv_told) or as is assumed, how much it could keep, and calls bound to it."""
    if not queue.continuous:
        return {}
    kept = queue.placing.kept(i)
    return {
        "bound": queue.line.asking.for_instance(i)[0],
        "kv_held_tokens": kept.tokens if kept is not None else None,
        "kv_told": kept is not None and kept.told,
        "kv_capacity_tokens": queue.instances[i].limits.kv_tokens,
    }


def _tell_hits(engine: dict[str, Any], hits: FoundTokens) -> None:
    """Add what recent calls on an LLM found, by instance and by application."""
    name = engine["name"]
    for instance in engine["instances"]:
        instance["recent_hits"] = hits.by_instance.get(
            (name, instance["instance"]), Hits()
        )._asdict()
    engine["apps"] = [
        {"name": app, **app_hits._asdict()}
        for (at, app), app_hits in sorted(hits.by_app.items())
        if at == name
    ]
