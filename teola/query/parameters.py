"""What users say when they ask or answer a query: parameters that several methods of App have in
common, each declared once.

    def run_call_of(...) -> RunCall      the parameters, and what becomes of them
    @parameters_of(run_call_of)       a method that takes them, and is given their RunCall
    def run(self, asked: RunCall) -> Result
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar, cast

from teola.graph import Inquiry
from teola.query.spec import DEADLINE_S, Overrides, Passes, QuerySpec
from teola.workflow.inputs import by_name

OnAsk = Callable[[Inquiry], Any]
"""Answers what a query asks; may be async."""
NO_ANSWER: Final = object()
"""No answer."""
P = ParamSpec("P")
S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")


class RunCall(NamedTuple):
    """A query as it is asked, and who answers what it asks."""

    spec: QuerySpec
    on_ask: OnAsk | None


def run_call_of(
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    overrides: Overrides | None = None,
    passes: Passes = None,
    deadline_s: float = DEADLINE_S,
    finish_by_s: float | None = None,
    tenant: str | None = None,
    session: str | None = None,
    secrets: Mapping[str, str] | None = None,
    most_tokens: int | None = None,
    most_cost: float | None = None,
    on_ask: OnAsk | None = None,
    **more: Any,
) -> RunCall:
    """Parameters of `App.run`, where they are described."""
    what = by_name(inputs, more), overrides or {}, passes, deadline_s, tenant
    bounds: Any = {"most_tokens": most_tokens, "most_cost": most_cost, "finish_by_s": finish_by_s}
    return RunCall(QuerySpec(*what, session=session, secrets=secrets or {}, **bounds), on_ask)


class ResumeCall(NamedTuple):
    """An answer to what query `query_id` of a tenant's asks, in question `ask` (None: the only one
    that is open). secrets: for tools, where another process began the query."""

    query_id: str
    answer: Any
    ask: str | None
    tenant: str
    secrets: Mapping[str, str]


def resume_call(
    query_id: str,
    answer: Any = NO_ANSWER,
    *,
    ask: str | None = None,
    tenant: str = "default",
    secrets: Mapping[str, str] | None = None,
) -> ResumeCall:
    """Parameters of `App.resume`, where they are described."""
    return ResumeCall(query_id, answer, ask, tenant, secrets or {})


def parameters_of(
    source: Callable[P, A],
) -> Callable[[Callable[[S, A], T]], Callable[Concatenate[S, P], T]]:
    """Make a method that takes what `source` takes out of one that takes what `source` gives."""

    def decorate(method: Callable[[S, A], T]) -> Callable[Concatenate[S, P], T]:
        if inspect.iscoroutinefunction(method):

            @wraps(method)
            async def awaited(self: S, *args: P.args, **more: P.kwargs) -> Any:
                return await method(self, source(*args, **more))

            made: Any = awaited
        else:

            @wraps(method)
            def called(self: S, *args: P.args, **more: P.kwargs) -> T:
                return method(self, source(*args, **more))

            made = called
        mine, theirs = inspect.signature(method), inspect.signature(source)
        me = next(iter(mine.parameters.values()))
        if any(p.kind is p.POSITIONAL_ONLY for p in theirs.parameters.values()):
            me = me.replace(kind=me.POSITIONAL_ONLY)
        made.__signature__ = mine.replace(parameters=[me, *theirs.parameters.values()])
        return cast("Callable[Concatenate[S, P], T]", made)

    return decorate
