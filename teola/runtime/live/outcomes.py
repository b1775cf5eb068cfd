"""What has become of a slice that an engine worked on: its values for the store, or a cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from teola.engine import EngineResult, Request
from teola.errors import EngineError, reason_of
from teola.graph import ToolParams
from teola.graph.ops import ITEM_INPUTS
from teola.policies.work import Work
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.batch import may_try_again, refusal_of, results_of, too_much
from teola.runtime.live.query import LiveQuery
from teola.runtime.live.steps import SLICE, Steps
from teola.runtime.outputs import NO_PORTS, misshapen
from teola.schedule.events import Cause, Outcome


def outcome_of(
    query: LiveQuery | None,
    i: int,
    total: int,
    lo: int,
    hi: int,
    result: EngineResult | Exception,
    told: bool,
    now: float,
    state: str = "done",
) -> Outcome:
    """What has become of a slice of primitive `i` of `query` (None: it has ended), which has
    `total` items. told: some of its text has left for the client. state: see Span."""
    if query is None:
        return Cause(result, refused=refusal_of(result)) if isinstance(result, Exception) else {}
    p = query.plan.primitives[i]
    counts: Mapping[str, int] = {}
    try:
        if not isinstance(result, Exception):
            shown = query.plan.shown[i] if type(p.params) is ToolParams else NO_PORTS
            takes_all_items = not p.batchable and p.op in ITEM_INPUTS
            items = query.store.given(i) if takes_all_items else hi - lo
            result = misshapen(p, items, result, shown) or result
        if not isinstance(result, Exception):
            counts = query.store.put_slice(i, lo, hi, total, result)
    except Exception as error:  # noqa: BLE001 - the values are an engine's: anything may be in them
        result = error
    if isinstance(result, Exception):
        return query.failed(i, lo, result, now, again=not told and may_try_again(p, result))
    if query.tally.held_bytes > query.tally.bytes:
        return query.failed(i, lo, too_much(query.tally.bytes), now)
    query.trace.ended(i, lo, now, state)
    if query.watcher:
        query.watch(i, hi - lo, "finished")
    return counts


async def results_kept(
    host: LocalHost, request: Request | None, query: LiveQuery, work: Work, lo: int, hi: int
) -> Sequence[EngineResult | Exception]:
    """What the engine makes of a request, which is a step that is kept: before it begins if it may
    change the world, and when it has ended, before anybody reads what it gave."""
    steps, params = query.terms.steps, query.plan.primitives[work.primitive].params
    assert steps is not None
    assert isinstance(params, ToolParams)
    key = steps.key(query.run, work.primitive)
    if hi - lo < work.total:
        key = f"{key}{SLICE}{lo}:{hi}"
    if not params.pure:
        await steps.begin(key)
    try:
        results = await results_of(host, [request])
    except Exception as error:
        await _keep(steps, key, error, pure=params.pure)
        raise
    if len(results) == 1:
        await _keep(steps, key, results[0], pure=params.pure)
    return results


async def _keep(steps: Steps, key: str, result: EngineResult | Exception, *, pure: bool) -> None:
    if not isinstance(result, Exception):
        await steps.keep(key, {"gives": result})
    elif not pure:
        await steps.keep(key, {"error": reason_of(result)})


def keeps_steps(query: LiveQuery, i: int) -> bool:
    """Whether primitive `i` is a function whose results are steps that are kept."""
    params = query.plan.primitives[i].params
    kept = type(params) is ToolParams and (params.asks or not params.pure)
    return kept and query.terms.steps is not None


def cut_off(component: str) -> EngineError:
    """Why a function that was cut off is not done again."""
    return EngineError(
        f"the server ended while {component!r} was at work: what it does may have happened, so it "
        "is not done again"
    )
