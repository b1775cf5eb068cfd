"""A server's own tool calls, written as what our own lists of calls look like.

    content "I need both."                       {"thought": "I need both.", "calls": [
    tool_calls 0 weather {"ci | ty": "Oslo"}      {"tool": "weather", "args": {"city": "Oslo"}}
    tool_calls 1 ...                              , {"tool": ...}
    end                                          ]}

So whoever reads a list of calls as it is written reads these, too, each when its last argument is
there. A reply without calls is an answer, {"answer": "..."}: whether it is one shows only at its
end, since servers tell what a model thinks and what it answers in the same field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from teola.errors import EngineError

_FENCED: Final = re.compile(r"\s*```[^\n]*\n(.*?)\s*```\s*", re.DOTALL)


class CallPiece(NamedTuple):
    """A piece of a call: which one of the reply's, its name when it begins, more of its
    arguments."""

    place: int
    name: str
    arguments: str


def pieces_of(delta: Any) -> tuple[CallPiece, ...]:
    """What a stream event's delta adds to calls. Raises ValueError for what is none."""
    listed = delta.get("tool_calls") if isinstance(delta, Mapping) else None
    if not listed:
        return ()
    if not isinstance(listed, list):
        raise ValueError("tool_calls is no list")
    return tuple(_piece(one, place) for place, one in enumerate(listed))


def _piece(call: Any, place: int) -> CallPiece:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError("a tool call without a function")
    index, arguments = call.get("index"), function.get("arguments")
    if isinstance(arguments, Mapping):  # some servers send them parsed
        arguments = json.dumps(arguments)
    return CallPiece(
        index if isinstance(index, int) else place, function.get("name") or "", arguments or ""
    )


class CallsText:
    """Writes one reply. typed: its answer is a JSON value, else a text."""

    def __init__(self, server: str, typed: bool) -> None:
        self._server, self._typed = server, typed
        self._content = ""
        self._index: int | None = None
        self._arguments = ""
        self._open = False
        """Whether arguments of the last call are still to come."""

    def feed(self, content: str, pieces: Sequence[CallPiece]) -> str:
        """What more there is to read. Raises EngineError for calls that are mixed up."""
        if self._index is None:
            self._content += content
        return "".join(self._add(piece) for piece in pieces)

    def end(self) -> str:
        """What is left to read."""
        if self._index is not None:
            return f"{self._closed()}]}}"
        return self._answer(self._content)

    def _add(self, piece: CallPiece) -> str:
        text = ""
        if piece.place != self._index:
            text = self._begun(piece)
        if not self._open:
            return text  # white space behind its arguments
        self._arguments += piece.arguments
        text += piece.arguments
        if self._complete():
            self._open = False
            text += "}"
        return text

    def _begun(self, piece: CallPiece) -> str:
        if self._index is None:
            text = f'{{"thought": {json.dumps(self._content)}, "calls": ['
        elif piece.place < self._index:
            raise EngineError(f"{self._server} goes back to a call that it had ended")
        else:
            text = f"{self._closed()}, "
        self._index, self._arguments, self._open = piece.place, "", True
        return f'{text}{{"tool": {json.dumps(piece.name)}, "args": '

    def _closed(self) -> str:
        """The end of the last call, if it has not come; a call without arguments has none."""
        if not self._open:
            return ""
        self._open = False
        return "}" if self._arguments.strip() else "{}}"

    def _complete(self) -> bool:
        if not self._arguments.rstrip().endswith("}"):
            return False
        try:
            json.loads(self._arguments)
        except ValueError:
            return False
        return True

    def _answer(self, content: str) -> str:
        """A reply without calls. One that is written as it is asked for in words stays as it is."""
        fenced = _FENCED.fullmatch(content)
        bare = fenced[1] if fenced else content
        try:
            value = json.loads(bare)
        except ValueError:
            return json.dumps({"answer": content.strip()})
        if isinstance(value, dict) and set(value) in ({"answer"}, {"calls"}, {"thought", "calls"}):
            return bare
        return json.dumps({"answer": value if self._typed else content.strip()})
