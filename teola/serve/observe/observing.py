"""Who is told of queries and refusals: metrics, spans and log lines, each once a query.

Nothing happens here while a query runs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import MutableMapping
from time import monotonic
from typing import Any, Final

from starlette.types import ASGIApp

from teola.errors import EngineError, TeolaError
from teola.runtime.observe.noting import note
from teola.serve.board import Board, Entry
from teola.serve.observe.metrics import Metrics
from teola.serve.observe.telemetry import Telemetry
from teola.serve.problems import Problem, problem_of

REFUSALS_EVERY_S: Final = 1.0
"""Refusals with one code are logged at most once in so long, with how many there were since."""
FINE: Final = ("ok", "partial", "cancelled")

log = logging.getLogger(__name__)


class Observers:
    """Tells everybody of what happens on `board`. telemetry: None while nobody wants spans."""

    def __init__(self, board: Board, metrics: Metrics, telemetry: Telemetry | None) -> None:
        self._metrics, self._telemetry = metrics, telemetry
        self._unlogged: Counter[str] = Counter()
        self._logged: dict[str, float] = {}
        self._board = board
        board.on_start, board.on_end = self.accepted, self.ended
        board.on_refused = lambda problem: self.refused(problem, {})

    def around(self, app: ASGIApp) -> ASGIApp:
        """`app`, with what must be read of each request for it."""
        return self._telemetry.around(app) if self._telemetry else app

    def accepted(self, entry: Entry) -> None:
        """A query was accepted, and begins."""
        if not log.isEnabledFor(logging.INFO):
            return
        message = "query %(query_id)s of %(app)s accepted"
        note(log, logging.INFO, "query_accepted", message, **_of(entry))

    def ended(self, entry: Entry) -> None:
        """A query has ended."""
        self._metrics.ended(entry)
        if self._telemetry is not None:
            self._telemetry.ended(entry)
        level = logging.INFO if entry.state in FINE else logging.WARNING
        if log.isEnabledFor(level):
            message = "query %(query_id)s of %(app)s ended %(state)s after %(latency_s).3f s"
            server_words = _said(entry) if self._board.logs_said else {}
            note(log, level, "query_ended", message, **_of(entry), **_ending(entry), **server_words)

    def refused(self, problem: Problem, scope: MutableMapping[str, Any]) -> None:
        """A request was refused."""
        self._metrics.refused(problem.code)
        self._unlogged[problem.code] += 1
        now = monotonic()
        if now - self._logged.get(problem.code, -REFUSALS_EVERY_S) < REFUSALS_EVERY_S:
            return
        self._logged[problem.code] = now
        note(
            log,
            logging.WARNING if problem.status >= 429 else logging.INFO,
            "refused",
            "refused: %(code)s (%(status)d) at %(route)s, %(count)d times",
            code=problem.code,
            status=problem.status,
            route=_route(scope),
            tenant=scope.get("tenant"),
            count=self._unlogged.pop(problem.code),
        )


def _route(scope: MutableMapping[str, Any]) -> str | None:
    """The pattern of a request's path, without what the client put into it."""
    if route := getattr(scope.get("route"), "path", None):
        return str(route)
    parameters = {str(value): f"{{{name}}}" for name, value in scope.get("path_params", {}).items()}
    return (
        "/".join(parameters.get(part, part) for part in scope["path"].split("/"))
        if parameters
        else None
    )


def _of(entry: Entry) -> dict[str, Any]:
    job = entry.job
    return {"query_id": job.id, "tenant": job.tenant, "app": job.app.name, "mode": entry.mode}


def _ending(entry: Entry) -> dict[str, Any]:
    """How it ended; of an error its code and types, never its text."""
    result, trace = entry.result, entry.job.trace
    assert result is not None
    fields: dict[str, Any] = {"state": result.state, "latency_s": round(result.latency_s, 6)}
    if entry.first_token_s is not None:
        fields["first_token_s"] = round(entry.first_token_s, 6)
    if trace is not None and trace.prompt_tokens + trace.completion_tokens:
        fields["prompt_tokens"] = trace.prompt_tokens
        fields["completion_tokens"] = trace.completion_tokens
    if result.missing:
        fields["missing"] = result.missing
    if result.error is not None:
        fields |= {"error": problem_of(result).code, **_cause(result.error)}
    return fields


def _said(entry: Entry) -> dict[str, Any]:
    """What a model's server said in words of what the query failed by."""
    error = entry.result.error if entry.result is not None else None
    root = error.__cause__ if error is not None else None
    return {"said": root.said} if isinstance(root, EngineError) and root.said else {}


def _cause(error: TeolaError) -> dict[str, Any]:
    root: BaseException = error.__cause__ or error
    fields: dict[str, Any] = {"error_type": type(root).__name__}
    if component := getattr(error, "component", None):
        fields["component"] = component
    if not isinstance(root, TeolaError) and (raised := root.__traceback__):
        while raised.tb_next:
            raised = raised.tb_next
        code = raised.tb_frame.f_code
        file = code.co_filename.rpartition("/")[2]
        fields["raised_at"] = f"{file}:{raised.tb_lineno} {code.co_name}"
    return fields
