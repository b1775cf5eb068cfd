"""Log lines for people and for programs, and whose work is being done when one is written.

A *note* is a sentence with named fields: `note(log, INFO, "engine_started", "engine %(engine)s
started", engine="llm")`. Nothing that a query brings or gets may be among them: no prompt, input,
answer or document name, and no error's text, which may quote one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

from teola.engine import Request

working_for: Final[ContextVar[tuple[str, ...]]] = ContextVar("teola_working_for", default=())
"""Ids of the queries (a batch belongs to several). Every task and thread that works for a query
sets it anew, because what a task inherits is the context of whoever happened to wake the loop."""


def queries_of(requests: Sequence[Request]) -> tuple[str, ...]:
    """Ids of the queries that a batch works for."""
    if len(requests) == 1:
        return (requests[0].context.query_id,)
    return tuple({request.context.query_id: None for request in requests})


def note(log: logging.Logger, level: int, event: str, sentence: str, **fields: Any) -> None:
    """Log an event. sentence: with `%(field)s` in it."""
    if log.isEnabledFor(level):
        more = {"event": event, "fields": fields}
        given = (fields,) if fields else ()
        record = log.makeRecord(log.name, level, event, 0, sentence, given, None, extra=more)
        log.handle(record)  # `log.log` would look for the line of code, which nobody asks for
