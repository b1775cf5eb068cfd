"""Result: how a query ended, with its answer, what it cost, and where the time went."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Final

from teola.engine import Hit
from teola.errors import Overloaded, QueryCancelled, QueryFailed, TeolaError
from teola.graph import Inquiry
from teola.runtime.objectives import Objective
from teola.runtime.observe.demand import done_in_all, ran_of, steps_of, usage_of
from teola.runtime.observe.trace import Trace
from teola.runtime.observe.usage import QueryUsage

LEVELS: Final = 100
"""Of lists and mappings inside each other in an output: what a parser takes, with room to spare."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What an error is, so that it can be told again elsewhere: names of its class and of its
    cause's, and when another try may help."""

    kind: str = "QueryFailed"
    cause: str = ""
    retryable: bool = False
    retry_after_s: float = 0.0

    @classmethod
    def of(cls, error: TeolaError) -> Failure:
        """Of an error that a query ended with."""
        cause = error.__cause__
        ours = isinstance(cause, TeolaError)
        retryable = error.retryable or (ours and bool(getattr(cause, "retryable", False)))
        after = error.retry_after_s if isinstance(error, Overloaded) else 0.0
        return cls(type(error).__name__, type(cause).__name__ if ours else "", retryable, after)

    def to_json(self) -> dict[str, Any]:
        """The failure as JSON values."""
        return asdict(self)

    def error(self, told: str) -> TeolaError:
        """The error again, which says `told`. One of a class that is not known here is a
        QueryFailed."""
        found = _error(self.kind, told)
        found.retryable = self.retryable
        if isinstance(found, Overloaded):
            found.retry_after_s = self.retry_after_s
        if self.cause:
            found.__cause__ = _error(self.cause, told)
        return found


def _error(kind: str, told: str) -> TeolaError:
    """Without its constructor, which would make its message anew."""
    left = [TeolaError]
    while left:
        if (found := left.pop()).__name__ == kind:
            error = found.__new__(found, told)
            error.args = (told,)
            return error
        left += found.__subclasses__()
    return QueryFailed(told)


@dataclass(frozen=True)
class Result:
    """state: ok, partial, failed, cancelled or deadline; or waiting, for answers to what it `asks`,
    with which `App.resume` goes on. outputs: by name, None if absent.

    latency_s: from admission to the end. missing: optional components that failed; reasons: why,
    by their names, and why items of an Each failed that went on without them. error: why there is
    no answer. trace: every span. notices: what to know of how the answer was made.
    """

    app: str
    query_id: str
    state: str
    outputs: Mapping[str, Any]
    latency_s: float
    missing: tuple[str, ...] = ()
    error: TeolaError | None = None
    trace: Trace | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    asks: tuple[Inquiry, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.outputs[name]

    @property
    def answer(self) -> Any:
        """The output called `answer`, or the only one."""
        if "answer" in self.outputs:
            return self.outputs["answer"]
        return next(iter(self.outputs.values())) if len(self.outputs) == 1 else None

    def checked(self) -> Result:
        """This result, or the error that kept it from being an answer, which then has it as its
        `result`."""
        if self.state in ("ok", "partial", "waiting"):
            return self
        error = self.error
        if error is None and self.state == "cancelled":
            error = QueryCancelled(f"query {self.query_id} was cancelled")
        elif error is None:
            error = QueryFailed(f"query {self.query_id} ended {self.state}")
        error.result = replace(self, error=None)
        raise error

    @property
    def objective(self) -> Objective | None:
        """When its answer was wanted; `met_objective` says whether it came by then."""
        return self.trace.objective if self.trace is not None else None

    @property
    def met_objective(self) -> bool | None:
        """Whether there is an answer, and came by its objective; None while the query waits, and
        where it has no objective."""
        if self.objective is None or self.state == "waiting":
            return None
        return self.state in ("ok", "partial") and self.objective.met(self.latency_s)

    @property
    def finish_reasons(self) -> Mapping[str, str]:
        """Why the text of each output ended that a language model wrote, by name, in the words of
        its engine: `stop`, `length`, `refusal`. Known of a query that ended in this process."""
        return self.trace.finish_reasons if self.trace is not None else {}

    @property
    def usage(self) -> QueryUsage:
        """What it took of its engines, with its parts and the queries inside it."""
        return usage_of(self.trace) if self.trace is not None else QueryUsage()

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        """What its agents did: the output `steps`, else, of a query that did not come to its end,
        what they had done by then."""
        told = self.outputs.get("steps")
        if isinstance(told, list):
            return told
        return [] if self.trace is None else steps_of(self.trace)

    @property
    def ran(self) -> list[str]:
        """What an engine has done of it, parts and queries inside included, by ids."""
        return [] if self.trace is None else ran_of(self.trace)

    @property
    def primitives(self) -> int:
        """Primitives that an engine has done, in the query and in its parts, as far as these are
        recorded."""
        return done_in_all(self.trace) if self.trace else 0

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        found: dict[str, Any] = {
            "app": self.app,
            "query_id": self.query_id,
            "state": self.state,
            "outputs": {name: jsonable(value) for name, value in self.outputs.items()},
            "latency_s": round(self.latency_s, 6),
            "primitives": self.primitives,
            "usage": self.usage.to_json(),
        }
        if self.objective is not None and (met := self.met_objective) is not None:
            found["objective"] = self.objective.to_json(met)
        if self.missing:
            found["missing"] = list(self.missing)
        if self.reasons:
            found["reasons"] = dict(self.reasons)
        if self.notices:
            found["notices"] = list(self.notices)
        if self.asks:
            found["asks"] = [ask.to_json() for ask in self.asks]
        if self.error is not None:
            found["error"] = str(self.error)
        return found

    def _repr_html_(self) -> str:
        answer = html.escape(str(self.answer))
        rows = "".join(
            f"<li><b>{html.escape(hit.citation)}</b> ({hit.score:.2f}) "
            f"{html.escape(hit.text[:200])}</li>"
            for value in self.outputs.values()
            if isinstance(value, list)
            for hit in value
            if isinstance(hit, Hit)
        )
        note = f"{self.app}, {self.state}, {self.latency_s:.2f} s, {self.primitives} primitives"
        notes = "<br>".join([*map(html.escape, self.notices), note])
        return f"<p>{answer}</p><ol>{rows}</ol><p><small>{notes}</small></p>"


def jsonable(value: Any, levels: int = LEVELS) -> Any:
    """A value as JSON; hits as {"document", "text", "score"}, metadata if there is any, and the
    citation if it tells more than the document's name.

    What JSON has no word for becomes null (NaN, infinity), a question mark (half a surrogate pair)
    or a text (values of other kinds); what nests deeper than `levels` becomes "...".
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, (int, bool)):
        return value
    if isinstance(value, Hit):
        found = {"document": value.document, "text": value.text, "score": round(value.score, 6)}
        if value.metadata:
            found["metadata"] = value.metadata
            if value.citation != value.document:
                found["citation"] = value.citation
        return jsonable(found, levels)
    if isinstance(value, (Mapping, list, tuple)) and not levels:
        return "..."
    if isinstance(value, Mapping):
        return {jsonable(str(key)): jsonable(item, levels - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, levels - 1) for item in value]
    if listed := getattr(value, "tolist", None):  # an array, or a number of its kind
        return jsonable(listed(), levels)
    return jsonable(str(value))
