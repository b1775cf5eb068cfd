"""What the page shows beside results: why a query has the graph that it has, where its time went,
and what the engines are doing. Any client may ask for it.

Everything is worked out when somebody looks, and nothing while queries run. On the event loop what
is there is only copied: it is a thread that makes an answer of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from teola.explain import Explanation
from teola.passes import Optimised, Steps
from teola.profile import Profile
from teola.runtime.observe.parts import parts_json
from teola.runtime.observe.placements import FoundTokens, Hits, placements
from teola.runtime.observe.stretches import NONE, chain, critical_path, waited_for
from teola.runtime.observe.trace import Batch, Span, Trace, span_json
from teola.runtime.pools import presentable
from teola.runtime.runtime import Runtime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.instances import Instance
from teola.serve.api import Service, tenant
from teola.serve.board import Board, Entry
from teola.serve.long_json import LongJson
from teola.serve.problems import NotFound

RECENT_QUERIES: Final = 64
"""Out of so many queries that ended last come an engine's recent batches."""
RECENT_BATCHES: Final = 60


def router(runtime: Runtime, service: Service) -> APIRouter:
    """All routes of this module."""
    routes = APIRouter(prefix="/v1")

    @routes.get("/queries/{id}/explanation", tags=["queries"], response_model=None)
    async def explanation(id: str, request: Request) -> Response:
        """Its p-graph and e-graph, and what each pass did and why."""
        job = service.entry(id, request).job
        plan = job.trace.plan if job.trace else None
        optimised = plan.optimised if plan else None
        if optimised is None:
            raise NotFound(f"query {id!r} has no graph yet")
        profile = job.app.optimiser(runtime, job.profile).profile

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
        at = runtime.loop.time()
        now, waiting = at - trace.admitted, list(_waiting(entry, trace, runtime, at))

        def made() -> Response:
            spans = trace.spans
            spans += [*_decoding(trace, spans), *waiting]
            return LongJson(timed(trace, spans, now))

        return await run_in_threadpool(made)

    @routes.get("/engines", tags=["engines"], response_model=None)
    async def engines(request: Request) -> Response:
        """What each engine is, what waits for it, what each of its instances runs and keeps; and of
        the tenant's own queries the batches that they went in, and what they found in caches."""
        now, queues = runtime.loop.time(), runtime.live.core.queues
        known = [_engine(runtime, name, queue, now) for name, queue in queues.items()]
        traces = recent_traces(service.board, tenant(request))

        def made() -> Response:
            batches, hits = recent_batches(traces), FoundTokens(traces)
            for one in known:
                one["recent_batches"] = _recent(batches, one["name"], now)
                if one["continuous"]:
                    _tell_hits(one, hits)
            return LongJson({"engines": known})

        return await run_in_threadpool(made)

    return routes


# --- a query --------------------------------------------------------------------------------


def explained(app: str, optimised: Optimised, profile: Profile, passes: Steps) -> dict[str, Any]:
    """As `teola explain --format json`, with the passes in order and where each primitive of the
    e-graph comes from."""
    found = Explanation(app, optimised, profile).to_json()
    return {**found, "passes": [step.name for step in passes], "origins": origins(optimised)}


def origins(optimised: Optimised) -> dict[str, str]:
    """Primitive of the e-graph -> the one of the p-graph that it was made from, if there is one.

    What joins the pieces of a primitive comes from that primitive.
    """
    before, after = optimised.p_graph, optimised.e_graph
    found: dict[str, str] = {}
    for id in after.order:
        p = after[id]
        joined = [found[ref.producer] for ref in p.refs() if ref.producer in found]
        origin = id if id in before else p.origin or next(iter(joined), "")
        if origin in before:
            found[id] = origin
    return found


def timed(trace: Trace, spans: list[Span], now_s: float) -> dict[str, Any]:
    """The timeline as JSON values. now_s: seconds since admission."""
    running = trace.finished is None
    end = now_s if running else trace.latency_s
    ended = [replace(span, end=end) if span.state in _OPEN else span for span in spans]
    ended = [replace(span, start=end) if span.state == "queued" else span for span in ended]
    parents = trace.plan.graph.parents if trace.plan else {}
    before = waited_for(ended, parents)
    answered = trace.state in ("running", "ok", "partial")
    path = critical_path(ended, parents, end, answered=answered)
    return {
        "query_id": trace.query_id,
        "app": trace.app,
        "state": trace.state,
        "end_s": end,
        "spans": [
            {**span_json(span, errors=False), "waited_for": _index(i)}
            for span, i in zip(ended, before, strict=True)
        ],
        "critical_path": [
            {**asdict(s), "span": _index(s.span), "blocker": _index(s.blocker)} for s in path
        ],
        "critical_spans": chain(ended, before, answered=answered),
        "calls": [one.to_json() for one in placements(trace)],
        "parts": parts_json(trace, trace.admitted + now_s),
    }


def _index(i: int) -> int | None:
    return None if i == NONE else i


_OPEN: Final = ("running", "queued")
"""States of spans that have not ended."""


def _waiting(entry: Entry, trace: Trace, runtime: Runtime, now: float) -> Iterator[Span]:
    """What is ready and has not been sent yet, as spans with the state `queued`."""
    run = runtime.live.core.runs.get(entry.id)
    if run is None:
        return
    queues = runtime.live.core.queues
    for i, p in enumerate(run.plan.primitives):
        work = queues[p.engine].works.get((entry.id, i)) if p.engine else None
        if work is not None and work.queued:
            at = work.arrival - trace.admitted
            why = work.reason.until(now).words(work.affinity) if work.reason is not None else ""
            for lo, hi in work.spans:
                yield Span(
                    p.id, p.op.value, p.component, p.engine, at, at, at,
                    instance=work.affinity, lo=lo, hi=hi, state="queued", why=why,
                )  # fmt: skip


def _decoding(trace: Trace, spans: Iterable[Span]) -> Iterator[Span]:
    """The decodings that are being generated: nothing is recorded of one until it has ended."""
    if trace.plan is None or trace.finished is not None:
        return
    ended = {span.primitive: span for span in spans if span.state == "done"}
    for head, members in enumerate(trace.plan.members):
        before = ended.get(trace.plan.ids[head])
        for i in members if before else ():
            p = trace.plan.primitives[i]
            if p.id not in ended:
                assert before is not None
                yield replace(
                    before,
                    primitive=p.id,
                    op=p.op.value,
                    component=p.component,
                    queued=before.end,
                    start=before.end,
                    state="running",
                    why="",
                )
                break
            before = ended[p.id]


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
    found: dict[tuple[str, int], Batch] = {}
    for trace in traces:
        for batch in trace.batches():
            found[batch.engine, batch.batch] = batch
    return sorted(found.values(), key=lambda batch: (batch.at, batch.batch))


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
        "max_batch": max(one.max_batch for one in limits),
        "max_sequences": max(one.max_sequences for one in limits),
        "concurrency": max(one.concurrency for one in limits),
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
    """kv_free_tokens: None where the engine does not tell, or has not yet."""
    health = instance.health
    if not instance.up:
        state = "gone" if instance.gone else "down"
    elif health is not None and health.ejected(now):
        state = "ejected"
    elif health is not None and not health.well(now):
        state = "recovering"
    else:
        state = "up"
    return {
        "state": state,
        "in_flight": instance.entries,
        "batches": len(instance.batches),
        "weight": instance.weight,
        "kv_free_tokens": instance.free,
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
    for one in engine["instances"]:
        one["recent_hits"] = hits.by_instance.get((name, one["instance"]), Hits())._asdict()
    engine["apps"] = [
        {"name": app, **found._asdict()}
        for (at, app), found in sorted(hits.by_app.items())
        if at == name
    ]
