"""Event: a message to the clients that follow a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from teola.graph import ToolStep
from teola.result import Result
from teola.runtime.live.query import Progress, Token
from teola.serve.json_pieces import SPACED, json_pieces


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
            return "".join(json_pieces(told.to_json(), SPACED))
        if isinstance(told, (Token, Progress, ToolStep)):
            told = told._asdict()
        return _encode(told)

    @property
    def text(self) -> str:
        """Text of a token; "" for any other event."""
        return self._told.text if isinstance(self._told, Token) else ""


_encode: Final = json.JSONEncoder(ensure_ascii=False, default=str).encode
