"""What goes to batch engines and comes back, besides the values: fetching from afar, and what the
core is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from teola.engine import EngineResult, Request
from teola.errors import (
    EngineAway,
    EngineBusy,
    EngineError,
    InputError,
    QueryCancelled,
    TeolaError,
)
from teola.graph import Primitive, ToolParams
from teola.runtime.hosts.local import LocalHost
from teola.runtime.observe.noting import queries_of, working_for
from teola.runtime.outputs import misnumbered
from teola.runtime.values import RemoteList
from teola.schedule.quota import Refusal

GONE: Final = QueryCancelled("the query ended before its batch ran")


def lies_elsewhere(request: Request | None) -> bool:
    """Whether some of its inputs are in another process."""
    return request is not None and RemoteList in map(type, request.inputs.values())


async def fetched(request: Request) -> Request:
    """The request with what other engines kept elsewhere, for an engine that cannot reach it."""
    inputs = {
        name: await value.fetch() if type(value) is RemoteList else value
        for name, value in request.inputs.items()
    }
    return request._replace(inputs=inputs)


def as_retryable(error: Exception, batch: int) -> Exception:
    """An unknown error of a batch of several may be one request's fault: the others may retry."""
    if isinstance(error, TeolaError) or batch == 1:
        return error
    failure = EngineError(f"{type(error).__name__}: {error}", retryable=True)
    failure.__cause__ = error
    return failure


def may_try_again(p: Primitive, error: Exception) -> bool:
    """Whether another try of `p` may help: its errors say so, or its developer does of them all."""
    if isinstance(p.params, ToolParams) and p.params.retries is not None:
        return True
    return isinstance(error, TeolaError) and error.retryable


def refusal_of(error: Exception) -> Refusal | None:
    """What a server says that did not take a call; None: it took it."""
    if isinstance(error, EngineBusy):
        return Refusal("busy", error.after_s)
    return Refusal("away") if isinstance(error, EngineAway) else None


def too_much(most: float) -> InputError:
    """Why a query ends whose store holds more than `most` bytes."""
    return InputError(
        f"what it computes for this query is more than the {most / 2**20:g} MiB that are held for "
        "one (max_intermediate_bytes); send fewer documents at once"
    )


async def results_of(
    host: LocalHost, requests: Sequence[Request | None]
) -> Sequence[EngineResult | Exception]:
    """What the engine makes of the requests whose queries are still there, with what lies
    elsewhere, if it cannot reach that itself."""
    if None not in requests and (host.keeps or not any(map(lies_elsewhere, requests))):
        all_requests = cast("Sequence[Request]", requests)
        working_for.set(queries_of(all_requests))
        return await host.execute(all_requests)
    wanted = [r for r in requests if r is not None]
    if not host.keeps:
        wanted = [await fetched(r) if lies_elsewhere(r) else r for r in wanted]
    working_for.set(queries_of(wanted))
    results = await host.execute(wanted) if wanted else ()
    if wrong := misnumbered(host.engine.spec.name, results, len(wanted)):
        raise wrong
    remaining = iter(results)
    return [GONE if r is None else next(remaining) for r in requests]
