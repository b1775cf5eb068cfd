"""Event: a message to the clients that follow a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teola.graph import ToolStep
from teola.plain_json import SPACED, written
from teola.result import Result
from teola.runtime.live.query import Progress, Token


class Event:
    """A message to the clients that follow a query.

    kind: primitive, token, step, waiting, done or error.
    told: JSON, or a value that is encoded once somebody reads it, which for most queries nobody
    does.
    """

    __slots__ = ("_told", "kind")

    def __init__(
        self, kind: str, told: str | Mapping[str, Any] | Token | Progress | ToolStep | Result
    ) -> None:
        self.kind, self._told = kind, told

    @property
    def data(self) -> str:
        """JSON of one line."""
        told = self._told
        if isinstance(told, str):
            return told
        if isinstance(told, Result):
            told = told.to_json()
        elif isinstance(told, (Token, Progress, ToolStep)):
            told = told._asdict()
        return written(told, SPACED)

    @property
    def text(self) -> str:
        """Text of a token; "" for any other event."""
        return self._told.text if isinstance(self._told, Token) else ""
