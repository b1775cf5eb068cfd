"""What adapters share: errors of somebody else's code in our words, and estimates of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol, runtime_checkable

from teola.errors import EngineError, InputError, TeolaError, reason_of

BUSY: Final = (408, 429)
"""Answers of HTTP servers after which another try may succeed, besides those from 500 on."""
_BYTES_PER_TOKEN: Final = 4


@runtime_checkable
class HasStatus(Protocol):
    """An error that carries the answer of an HTTP server, as those of most clients do."""

    status_code: int


@contextmanager
def as_engine_errors(label: str) -> Iterator[None]:
    """Turns whatever the code of `label` raises into an EngineError."""
    try:
        yield
    except TeolaError:
        raise
    except Exception as error:  # somebody else's code raises anything
        message = f"{label}: {reason_of(error)}"
        raise EngineError(message, retryable=_may_mend(error)) from error


def _may_mend(error: BaseException) -> bool:
    """Whether another try may succeed: a server was busy, or a connection broke."""
    if isinstance(error, HasStatus) and isinstance(error.status_code, int):
        return error.status_code in BUSY or error.status_code >= 500
    if isinstance(error, OSError):  # time-outs are among them
        return True
    return error.__cause__ is not None and _may_mend(error.__cause__)


def count_tokens(text: str) -> int:
    """An estimate: the tokenizer is somebody else's."""
    return len(text) // _BYTES_PER_TOKEN + 1


def encode(text: str) -> list[int]:
    """An estimate: a token for four bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return [
        int.from_bytes(data[at : at + _BYTES_PER_TOKEN])
        for at in range(0, len(data), _BYTES_PER_TOKEN)
    ]


def refuse(what: str, of: object, takes: str, hint: str = "") -> InputError:
    """The error for an object that no adapter of a framework knows. takes: what it knows."""
    if isinstance(of, type):
        name, hint = f"the class {of.__name__}", f"; make one of the class: {of.__name__}(...)"
    else:
        name = f"{type(of).__module__}.{type(of).__name__}"
    return InputError(f"{what} takes {takes}, not {name}{hint}")
