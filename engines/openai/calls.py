"""A server's own tool calls, written as what our own lists of calls look like.

    content "I need both."
    tool_calls 0 weather {"ci | ty": "Oslo"}   {"calls": [{"tool": "weather", "args": {...}}
    tool_calls 1 ...                           , {"tool": ...}
    end                                        ], "thought": "I need both."}

So whoever reads a list of calls as it is written reads these, too, each when its last argument is
there. A reply without calls is an answer, {"answer": "..."}: whether it is one shows only at its
end, since servers tell what a model thinks and what it answers in the same field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from teola.engine import LONGEST_ANSWER, LONGEST_ITEM, check_length
from teola.errors import EngineError

_FENCED: Final = re.compile(r"\s*```[^\n]*\n(.*?)\s*```\s*", re.DOTALL)
_MARKS: Final = re.compile(r'\\.|["{}\[\]\\]', re.DOTALL)


class CallPiece(NamedTuple):
    """A piece of a call.

    index: the call's place in the reply, where the server gives one. id: the call's id, where the
    piece has one. name: the tool's, when the call begins. arguments: more of them.
    """

    index: int | None
    id: str
    name: str
    arguments: str


def pieces_of(delta: Any) -> tuple[CallPiece, ...]:
    """What a stream event's delta adds to calls. Raises ValueError for what is none."""
    listed = delta.get("tool_calls") if isinstance(delta, Mapping) else None
    if not listed:
        return ()
    if isinstance(listed, Mapping):  # as TGI sends them
        listed = [listed]
    if not isinstance(listed, list):
        raise ValueError("tool_calls is no list")
    return tuple(_piece(one) for one in listed)


def _piece(call: Any) -> CallPiece:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError("a tool call without a function")
    index, id, name = call.get("index"), call.get("id"), function.get("name")
    arguments = function.get("arguments")
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):  # some servers send them parsed
        arguments = json.dumps(arguments)
    return CallPiece(
        index if isinstance(index, int) else None,
        id if isinstance(id, str) else "",
        name if isinstance(name, str) else "",
        arguments,
    )


@dataclass(slots=True)
class _Call:
    """A call of the reply. unwritten: the arguments that nobody has read yet. complete: the
    arguments are one JSON value. depth: open brackets; quoted: within a text; rest: a backslash
    whose character has not come."""

    index: int | None
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)
    unwritten: str = ""
    complete: bool = False
    depth: int = 0
    quoted: bool = False
    rest: str = ""

    def add(self, piece: str) -> None:
        """Raises ValueError for more than one value."""
        if not self.complete:
            self.arguments.append(piece)
            self.unwritten += piece
            self.complete = self._ends(piece) and _is_json("".join(self.arguments))
        elif (more := piece.strip()) and more != "".join(self.arguments).strip():
            raise ValueError("more arguments")  # some servers repeat them whole at the end

    def _ends(self, piece: str) -> bool:
        """Whether the value may be complete with this piece. Each character is looked at once."""
        text, self.rest, closed = self.rest + piece, "", False
        for mark in _MARKS.findall(text):
            if mark == "\\":
                self.rest = mark
            elif mark == '"':
                self.quoted = not self.quoted
            elif not self.quoted and mark in ("{", "["):
                self.depth += 1
            elif not self.quoted and mark in ("}", "]"):
                self.depth -= 1
                closed = closed or self.depth == 0
        return closed or (not self.depth and piece.rstrip().endswith("null"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class CallsText:
    """Writes one reply. typed: its answer is a JSON value, else a text.

    What the model says beside its calls is their thought. Calls are written in the order in which
    they begin. Pieces of a later one may come before the earlier one is complete; they wait.
    """

    def __init__(self, server: str, typed: bool) -> None:
        self._server, self._typed = server, typed
        self._content = ""
        self._calls: list[_Call] = []
        self._arguments = 0
        self._done, self._opened = 0, False
        """Calls that are written, and whether the beginning of the next one is, too."""

    def feed(self, content: str, pieces: Sequence[CallPiece]) -> str:
        """What more there is to read. Raises EngineError for calls that are mixed up, and for a
        reply without end."""
        self._content += content
        check_length(self._server, "an answer", len(self._content), LONGEST_ANSWER)
        self._arguments += sum(len(piece.arguments) for piece in pieces)
        check_length(self._server, "calls", self._arguments, LONGEST_ITEM)
        in_event: list[_Call] = []
        for piece in pieces:
            try:
                call = self._call_of(piece, in_event)
                call.add(piece.arguments)
                in_event.append(call)
            except ValueError:
                raise EngineError(
                    f"{self._server} adds arguments to a call whose arguments were complete"
                ) from None
        return self._written()

    def end(self) -> str:
        """What is left to read."""
        if not self._calls:
            return self._answer(self._content)
        thought = self._content.strip()
        said = f', "thought": {json.dumps(thought)}' if thought else ""
        return f"{self._written(ended=True)}]{said}}}"

    def _call_of(self, piece: CallPiece, in_event: Sequence[_Call]) -> _Call:
        """The call that a piece is of: a new one, unless it goes on with one that has begun.
        in_event: calls of the pieces before it in the same event."""
        found = self._begun(piece)
        if found is None or (piece.name and found in in_event):
            found = _Call(piece.index, piece.id, piece.name)
            self._calls.append(found)
        found.id, found.name = found.id or piece.id, found.name or piece.name
        return found

    def _begun(self, piece: CallPiece) -> _Call | None:
        """The call that a piece goes on with, if any. Servers number calls (`index`), name them
        (`id`), do both, or neither; and some give all calls the same index."""
        if piece.index is None and piece.id:
            calls = [one for one in self._calls if one.id == piece.id]
        elif piece.index is None:
            calls = self._calls
        else:
            calls = [one for one in self._calls if one.index == piece.index]
        if not calls:
            return None
        if piece.id:
            same = (one for one in reversed(calls) if one.id == piece.id)
            return next(same, None if calls[-1].id else calls[-1])
        last = calls[-1]
        other = piece.name not in ("", last.name) or (last.complete and piece.arguments.strip())
        return None if piece.name and other else last

    def _written(self, *, ended: bool = False) -> str:
        """What can be written now. ended: nothing more will come."""
        text = []
        while self._done < len(self._calls):
            call = self._calls[self._done]
            if not self._opened:
                if not call.name and not ended:
                    break
                text.append(self._opening(call))
                self._opened = True
            text.append(call.unwritten)
            call.unwritten = ""
            if not call.complete and not ended:
                break
            text.append("}" if any(map(str.strip, call.arguments)) else "{}}")
            self._done, self._opened = self._done + 1, False
        return "".join(text)

    def _opening(self, call: _Call) -> str:
        before = ", " if self._done else '{"calls": ['
        return f'{before}{{"tool": {json.dumps(call.name)}, "args": '

    def _answer(self, content: str) -> str:
        """A reply without calls. One that is written as it is asked for in words stays as it is."""
        fenced = _FENCED.fullmatch(content)
        bare = fenced[1] if fenced else content
        try:
            value = json.loads(bare)
        except (ValueError, RecursionError):
            return json.dumps({"answer": content.strip()})
        if isinstance(value, dict) and set(value) in ({"answer"}, {"calls"}, {"thought", "calls"}):
            return bare
        return json.dumps({"answer": value if self._typed else content.strip()})
