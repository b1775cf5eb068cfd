"""Every error that Teola raises, as one tree.

    TeolaError
    ├── InputError (ValueError)         what the caller gave is wrong; nothing was started
    │   ├── UnknownName (LookupError)   no such app, engine, component, ...
    │   ├── MissingExtra                something needs an extra that is not installed
    │   ├── TemplateError               a template that cannot run, found when it is declared
    │   └── DocumentError               a document that cannot be read
    ├── GraphError                      a graph that breaks a rule (a bug in a pass or a component)
    ├── EngineError (RuntimeError)      an engine failed; `retryable`: another try may help
    │   ├── EngineUnavailable           it could not be reached or started
    │   │   ├── EngineAway              its server, which others run, is not there now
    │   │   └── ToolLost                a tool's server was lost while it worked on a call
    │   ├── EngineBusy                  its server takes no more calls now
    │   ├── BudgetSpent                 not asked: what the query may take is spent
    │   └── OutputError                 it answered, but not in the form that was asked for
    ├── ToolError                       a tool refuses, for a reason that its model is to read
    ├── QueryError                      how a query ended, when not with an answer
    │   ├── QueryCancelled
    │   ├── DeadlineExceeded (TimeoutError)
    │   ├── CodeChanged                 its application is another one by now
    │   └── QueryFailed                 carries the component and the cause
    └── Overloaded                      refused at admission, before any work

Messages name what is wrong and say what to do, in one line. Where they repeat what somebody else's
code says, its further lines follow, indented.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

LONGEST_NAME: Final = 80
"""Characters of a name that is wrong which an error repeats: names may come from anywhere."""

LONGEST_REASON: Final = 65_536
"""Characters of what an error says: it may repeat what a tool or a server gave."""


def error_text(error: BaseException) -> str:
    """An error's text, its lines after the first indented; its type if it says nothing, or
    cannot."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - errors may be anybody's
        text = ""
    if len(text) > LONGEST_REASON:
        text = f"{text[:LONGEST_REASON]}..."
    first, *rest = text.strip().splitlines() or [type(error).__name__]
    return "\n".join([first, *(f"    {line}" for line in rest)])


class TeolaError(Exception):
    """Root of all errors raised by Teola. result: of the query that ended with it, where it comes
    from one: its trace with the tokens that were used, and in its outputs what was done until then,
    such as the steps of an agent."""

    retryable: bool = False
    result: Any = None


def reason_of(error: Exception) -> str:
    """Why something failed, for whoever asked; errors that are not ours are named by their type.
    What a server said in words is part of it, and not of `str(error)`: logs have no use for it."""
    reason, name = error_text(error), type(error).__name__
    if isinstance(error, EngineError) and error.said:
        return f"{reason}; it says: {error.said}"
    return reason if isinstance(error, TeolaError) or reason == name else f"{name}: {reason}"


class InputError(TeolaError, ValueError):
    """The caller's input is wrong; nothing was started."""


class UnknownName(InputError, LookupError):
    """A name that is not registered or declared; the message lists the valid ones."""

    def __init__(self, kind: str, name: str, valid: Iterable[str], where: str = "") -> None:
        options = sorted(valid)
        cut = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        near = get_close_matches(cut, options, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(options) or "none"
        place = f" in {where}" if where else ""
        super().__init__(f"unknown {kind} {cut!r}{place}{hint} (valid: {listed})")
        self.kind, self.name, self.valid = kind, name, options

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, str, list[str]]]:
        return type(self), (self.kind, self.name, self.valid)


class MissingExtra(InputError):
    """`who` needs a module that comes with an extra of the package, which is not installed.

    otherwise: what would help, too.
    """

    def __init__(self, who: str, extra: str, module: str, otherwise: str = "") -> None:
        way = f", or {otherwise}" if otherwise else ""
        super().__init__(
            f"{who} needs the extra {extra!r} ({module} is missing): "
            f"pip install 'teola[{extra}]'{way}"
        )
        self.who, self.extra, self.module, self.otherwise = who, extra, module, otherwise

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str, str]]:
        return type(self), (self.who, self.extra, self.module, self.otherwise)


class TemplateError(InputError):
    """A template that cannot run; raised while it is declared."""


class DocumentError(InputError):
    """A document that cannot be read."""


class GraphError(TeolaError):
    """A graph that breaks one of its rules."""


class EngineError(TeolaError, RuntimeError):
    """An engine failed. `retryable`: another instance or a later try may succeed. said: what its
    server says of that in words, for whoever asked."""

    said: str = ""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class EngineUnavailable(EngineError):
    """An engine could not be reached or started."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, retryable=retryable)


class EngineAway(EngineUnavailable):
    """An engine's server, which others run, is not there now: it took no call, or lost one before
    anything came back."""


class EngineBusy(EngineError):
    """An engine's server takes no more calls now. after_s: in how many seconds it may take some, if
    it says so."""

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message, retryable=True)
        self.after_s = after_s


class BudgetSpent(EngineError):
    """An engine was not asked, because what the query may take is spent or reserved."""


class ToolLost(EngineUnavailable):
    """A tool's server was lost while it worked on a call: what it did of it is not known."""


class OutputError(EngineError):
    """An engine answered, but not in the form that was asked for."""


class ToolError(TeolaError):
    """A tool refuses, or cannot: its model reads the message, and the call is not repeated."""


class QueryError(TeolaError):
    """How a query ended, when not with an answer."""


class QueryCancelled(QueryError):
    """The query was cancelled by its caller."""


class DeadlineExceeded(QueryError, TimeoutError):
    """The query's deadline passed before its answer."""


class QueryFailed(QueryError):
    """A primitive failed and the retries that the rules allow were used up; `component`: whose."""

    component: str | None = None

    @property
    def usage(self) -> Any:
        """What the query took until then (see Result.usage); None where no query came of it."""
        return None if self.result is None else self.result.usage

    @property
    def steps(self) -> list[Any]:
        """What its agents did until then."""
        return [] if self.result is None else self.result.steps

    @property
    def ran(self) -> list[str]:
        """Ids of what engines had done of it by then."""
        return [] if self.result is None else self.result.ran


class CodeChanged(QueryError):
    """The query was begun by another version of its application, which no server has any more."""


class Overloaded(TeolaError):
    """Refused at admission: too much is waiting. retry_after_s: when there should be room."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
