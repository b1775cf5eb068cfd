"""What goes to batch engines and comes back, besides the values: checks, fetching from afar, and
what the core is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from teola.engine import Request, Result
from teola.errors import EngineError, InputError, OutputError, QueryCancelled, TeolaError
from teola.graph import Primitive, ToolParams
from teola.graph.ops import ITEM_INPUTS
from teola.runtime.hosts.local import LocalHost
from teola.runtime.observe.noting import queries_of, working_for
from teola.runtime.returned import refusal_of
from teola.runtime.values import RemoteList

GONE: Final = QueryCancelled("the query ended before its batch ran")
NOTHING: Final[frozenset[str]] = frozenset()


def lies_elsewhere(request: Request | None) -> bool:
    """Whether some of its inputs are in another process."""
    return request is not None and RemoteList in map(type, request.inputs.values())


async def fetched(request: Request) -> Request:
    """With what other engines kept elsewhere, for an engine that cannot reach it."""
    inputs = {
        name: await value.fetch() if type(value) is RemoteList else value
        for name, value in request.inputs.items()
    }
    return request._replace(inputs=inputs)


def misshapen(
    p: Primitive, items: int, result: Any, shown: frozenset[str] = NOTHING
) -> OutputError | None:
    """What is wrong with the outputs that an engine gave for `items` items of `p`, if anything.
    shown: of a function, those that not only functions read."""
    mapping = type(result) is dict or isinstance(result, Mapping)  # the latter takes its time
    if not mapping or not all(map(result.__contains__, p.outputs)):
        given = ", ".join(result) if mapping else type(result).__name__
        return OutputError(f"the engine gave {given}, not {', '.join(p.outputs)}")
    for port in p.outputs if p.batchable or p.op in ITEM_INPUTS else ():
        value = result[port]
        listed = isinstance(value, (list, RemoteList))
        if not listed or (len(value) != items if p.batchable else not len(value)):
            count = len(value) if listed else type(value).__name__
            return OutputError(f"the engine gave {count} for {items} items of {port!r}")
    for port in p.outputs if shown else ():
        if port in shown and (refused := refusal_of(port, result)):
            return refused
    return None


def wrong_number(results: int, requests: int) -> OutputError:
    """Why a batch has failed whose engine gave too many results or too few."""
    return OutputError(f"the engine gave {results} results for {requests} requests")


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


def too_much(most: float) -> InputError:
    """Why a query ends whose store holds more than `most` bytes."""
    return InputError(
        f"what it computes for this query is more than the {most / 2**20:g} MiB that are held for "
        "one; send fewer documents at once"
    )


async def results_of(
    host: LocalHost, requests: Sequence[Request | None]
) -> Sequence[Result | Exception]:
    """What the engine makes of the requests whose queries are still there, with what lies
    elsewhere, if it cannot reach that itself."""
    if None not in requests and (host.keeps or not any(map(lies_elsewhere, requests))):
        here = cast("Sequence[Request]", requests)
        working_for.set(queries_of(here))
        return await host.execute(here)
    wanted = [r for r in requests if r is not None]
    if not host.keeps:
        wanted = [await fetched(r) if lies_elsewhere(r) else r for r in wanted]
    working_for.set(queries_of(wanted))
    found = await host.execute(wanted) if wanted else ()
    if len(found) != len(wanted):
        raise wrong_number(len(found), len(wanted))
    left = iter(found)
    return [GONE if r is None else next(left) for r in requests]
