"""AppUse: an application as another framework calls it: with one value, or with several by name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from typing import Any, TypedDict

from teola.app import App
from teola.engine import Hit
from teola.errors import InputError, OutputError, QueryError, UnknownName
from teola.graph import ToolStep
from teola.query.result import Result
from teola.query.spec import DEADLINE_S, Overrides
from teola.runtime.live.query import Progress, Token
from teola.workflow.inputs import Input
from teola.workflow.kinds import Kind


class UseOptions(TypedDict, total=False):
    """What may be said of any use of an application; see AppUse."""

    given: Mapping[str, Any]
    overrides: Overrides
    deadline_s: float
    tenant: str | None


@dataclass(frozen=True, slots=True)
class AppUse:
    """An application, with what is the same for all of its queries.

    given: inputs that the caller does not choose, such as a collection. overrides: parameters of
    components. deadline_s: seconds until a query is given up. tenant: whose documents queries see;
    None: those of the query around, else "default".
    """

    app: App
    given: Mapping[str, Any] = field(default_factory=dict)
    overrides: Overrides = field(default_factory=dict)
    deadline_s: float = DEADLINE_S
    tenant: str | None = None

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs that the caller chooses."""
        return {
            name: declared for name, declared in self.app.declared.items() if name not in self.given
        }

    def asked(self, value: Any) -> dict[str, Any]:
        """Inputs by name from what a caller gives: a mapping, or the value of the only input that
        is needed. Its documents have become hits before. Raises InputError."""
        if not isinstance(value, Mapping):
            value = {self._only(value): value}
        for name in value:
            if name in self.given:
                raise InputError(f"application {self.app.name!r} is given its {name!r} already")
        fitted = {name: self._fitted(name, argument) for name, argument in value.items()}
        return {**fitted, **self.given}

    def _only(self, value: Any) -> str:
        needed = [name for name, declared in self.inputs.items() if not declared.optional]
        if len(needed) == 1:
            return needed[0]
        listed = ", ".join(map(repr, self.inputs)) or "none"
        raise InputError(
            f"application {self.app.name!r} has the inputs {listed}: give a dict of them, "
            f"not {type(value).__name__}"
        )

    def _fitted(self, name: str, value: Any) -> Any:
        """`value` as the input takes it: hits become texts, or documents, where the application
        takes these."""
        kind = self.app.inputs.get(name)
        if not isinstance(value, list) or not any(isinstance(item, Hit) for item in value):
            return value
        if kind is Kind.TEXTS:
            return [item.text if isinstance(item, Hit) else item for item in value]
        if kind is Kind.DOCUMENTS:
            return [_document(item) if isinstance(item, Hit) else item for item in value]
        return value

    # --- asking -------------------------------------------------------------------------------

    def run(self, value: Any) -> Result:
        """Blocks. Raises as `App.run`."""
        return self.app.run(self.asked(value), **self._terms())

    async def arun(self, value: Any) -> Result:
        """Cancelling it cancels the query. Raises as `App.arun`."""
        return await self.app.arun(self.asked(value), **self._terms())

    def batch(self, values: list[Any]) -> list[Result]:
        """Run queries side by side, in one call; those that failed say so. Raises InputError before
        any starts."""
        return self.app.batch([self.asked(value) for value in values], **self._terms())

    def stream(self, value: Any, *, texts: bool = True) -> Generator[str | Result, None, None]:
        """The answer's text as it comes, or the result where no text came. texts: whether text is
        to come so. Leaving early cancels the query."""
        pieces = _Pieces(texts)
        with closing(self.app.stream(self.asked(value), **self._terms())) as events:  # type: ignore[type-var]
            for event in events:
                if (piece := pieces.of(event)) is not None:
                    yield piece

    async def astream(
        self, value: Any, *, texts: bool = True
    ) -> AsyncGenerator[str | Result, None]:
        """`stream` for async code."""
        pieces = _Pieces(texts)
        async with aclosing(self.app.astream(self.asked(value), **self._terms())) as events:  # type: ignore[type-var]
            async for event in events:
                if (piece := pieces.of(event)) is not None:
                    yield piece

    def _terms(self) -> dict[str, Any]:
        return {
            "overrides": self.overrides,
            "deadline_s": self.deadline_s,
            "tenant": self.tenant,
        }

    # --- answers ------------------------------------------------------------------------------

    def text(self, result: Result) -> str:
        """The answer, which must be a text. Raises OutputError, and QueryError for a query that
        waits for a person."""
        check_ended(result)
        if not isinstance(result.answer, str):
            kind = type(result.answer).__name__
            raise OutputError(
                f"application {self.app.name!r} must answer with a text to stand for a model, and "
                f"its answer is {kind}: name the output that is one 'answer'"
            )
        return result.answer


def use_of(app: App, options: UseOptions) -> AppUse:
    """Raises InputError, UnknownName for options that no use has."""
    for option in options:
        if option not in UseOptions.__annotations__:
            where = f"application {app.name!r}"
            raise UnknownName("option", option, UseOptions.__annotations__, where)
    for name in options.get("given", ()):
        if name not in app.declared and name not in ("collection", "filters"):
            raise UnknownName("input", name, app.declared, f"application {app.name!r}")
    return AppUse(app, **options)


class _Pieces:
    """What a caller sees of a query's events."""

    def __init__(self, texts: bool) -> None:
        self._texts, self._told = texts, False

    def of(self, event: Token | Progress | ToolStep | Result) -> str | Result | None:
        if isinstance(event, Result):
            check_ended(event)
            return None if self._told else event
        if not isinstance(event, Token) or not event.text or not self._texts:
            return None
        self._told = True
        return event.text


def _document(hit: Hit) -> dict[str, Any]:
    return {"name": hit.document, "text": hit.text, "metadata": hit.metadata}


def check_ended(result: Result) -> None:
    """Raise QueryError for a query that waits for a person: whoever called has no way to answer."""
    if (error := waiting_error(result)) is not None:
        raise error


def waiting_error(result: Result) -> QueryError | None:
    """Why a query that waits for a person has given no answer yet, with its result."""
    if result.state != "waiting":
        return None
    questions = ", ".join(repr(ask.question) for ask in result.asks)
    error = QueryError(
        f"query {result.query_id} of application {result.app!r} waits for a person, who is asked "
        f"{questions}: answer with app.resume({result.query_id!r}, ...), or ask the application "
        "itself, with on_ask="
    )
    error.result = result
    return error


def value_of(result: Result) -> Any:
    """Its only output, or all by name. Raises QueryError for a query that waits for a person."""
    check_ended(result)
    outputs = result.outputs
    return next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)
