"""EventLog: what the clients of a query are told, numbered from 1, in bounded memory.

Texts of tokens stand behind one another in one buffer, with where each ends and its number; a long
one, such as a whole answer, is held as it is, which copies nothing. Of all
other events `most` are held; of those beyond, the oldest become one event that says how many they
were. So whoever comes late, or again, hears all that was said, and numbers stay as they were.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter
from sys import getsizeof
from typing import Any, Final

from teola.graph import ToolStep
from teola.plain_json import SPACED, json_of
from teola.query.result import Result
from teola.runtime.live.query import Progress, Token

MOST_EVENTS: Final = 4_096
"""Events of a query that are held, but for its tokens."""
LEFT_OUT: Final = "left_out"
"""Kind of the event that stands for those that are held no more."""
LONG_TEXT: Final = 4_096
"""Characters of a token from which on it is held as it is."""
PLACE: Final = 96
"""Bytes of an event's place and number."""
PASSING: Final = ("progress", "primitive", "step")
"""Kinds of events that may be left out, in this order: the others say how a query stands."""


class Event:
    """A message to the clients that follow a query.

    kind: primitive, token, step, waiting, restarted, left_out, done or error; of a query over
        tables also plan, progress and rows.
    told: JSON, or a value that is encoded once somebody reads it, which for most queries nobody
    does.
    """

    __slots__ = ("kind", "told")

    def __init__(
        self, kind: str, told: str | Mapping[str, Any] | Token | Progress | ToolStep | Result
    ) -> None:
        self.kind, self.told = kind, told

    @property
    def data(self) -> str:
        """JSON of one line."""
        told = self.told
        if isinstance(told, str):
            return told
        if isinstance(told, Result):
            told = told.to_json()
        elif isinstance(told, (Token, Progress, ToolStep)):
            told = told._asdict()
        return json_of(told, SPACED)

    @property
    def text(self) -> str:
        """Text of a token; "" for any other event."""
        return self.told.text if isinstance(self.told, Token) else ""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, about; a result is not its own."""
        told = self.told
        size = BARE + getsizeof(told)
        if isinstance(told, (ToolStep, Token)):
            size += sum(getsizeof(part) for part in told)
        return size


BARE: Final = getsizeof(Event("", ""))
"""Bytes of an event without what it tells."""


class EventLog:
    """See the module. most: events that are held, but for tokens."""

    __slots__ = ("_ends", "_left_out", "_numbers", "_others", "_size", "_text", "_tokens", "most")

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self.most = most
        self._text = bytearray()
        self._ends = array("I")
        """Where in the text each token ends."""
        self._tokens = array("I")
        """The number of each."""
        self._others: list[tuple[int, Event]] = []
        self._numbers = self._left_out = self._size = 0

    def __len__(self) -> int:
        """The number of the last event, which is how many there were."""
        return self._numbers

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, about."""
        arrays = self._ends.itemsize * len(self._ends) * 2
        return len(self._text) + arrays + self._size

    def add(self, event: Event, *, shared: bool = False) -> None:
        """Add the next event. shared: what it holds is a part of the answer, and not counted."""
        self._numbers += 1
        told = event.told
        if type(told) is Token and len(told.text) < LONG_TEXT:
            self._text += told.text.encode("utf-8", "surrogatepass")
            self._ends.append(len(self._text))
            self._tokens.append(self._numbers)
            return
        self._others.append((self._numbers, event))
        self._size += PLACE if shared else event.nbytes + PLACE
        if len(self._others) - bool(self._left_out) > self.most:
            self._leave_out()

    def after(self, number: int, until: int | None = None) -> Iterator[tuple[int, Event]]:
        """The events behind this number (up to `until`), each with its own, in their order."""
        until = self._numbers if until is None else until
        tokens, others = self._tokens_after(number, until), self._others_after(number, until)
        token, other = next(tokens, None), next(others, None)
        while token is not None or other is not None:
            if other is None or (token is not None and token[0] < other[0]):
                assert token is not None
                yield token
                token = next(tokens, None)
            else:
                yield other
                other = next(others, None)

    def _tokens_after(self, number: int, until: int) -> Iterator[tuple[int, Event]]:
        first = bisect_right(self._tokens, number)
        start = self._ends[first - 1] if first else 0
        for k in range(first, bisect_right(self._tokens, until)):
            end = self._ends[k]
            text = self._text[start:end].decode("utf-8", "surrogatepass")
            yield self._tokens[k], Event("token", Token(text))
            start = end

    def _others_after(self, number: int, until: int) -> Iterator[tuple[int, Event]]:
        others = self._others  # as it is now: it is read beside the loop, too (serve/streaming.py)
        first = bisect_right(others, number, key=itemgetter(0))
        for k in range(first, len(others)):
            known, event = others[k]
            if known > until:
                return
            yield known, event

    def _leave_out(self) -> None:
        """Make one event of an eighth of those that may be left out, so that this is rare: none of
        the newer half, which somebody may be about to read, and no step where a primitive will do.
        It has the number of the last of them."""
        kept: list[tuple[int, Event]] = []
        old = [*islice(self._others, self.most // 2)]
        passing = [n for kind in PASSING for n, event in old if event.kind == kind]
        gone = set(passing[: self.most // 8 + 1])
        last = 0
        for number, event in self._others:
            if number in gone or event.kind == LEFT_OUT:
                self._size -= event.nbytes + PLACE
                last = max(last, number)
            else:
                kept.append((number, event))
        self._left_out += len(gone)
        stands_for = Event(LEFT_OUT, {"events": self._left_out})
        self._size += stands_for.nbytes + PLACE
        behind = next((k for k, (number, _) in enumerate(kept) if number > last), len(kept))
        kept.insert(behind, (last, stands_for))
        self._others = kept


NOT_TOLD: Final = EventLog(0)
"""That of all queries whose clients are told nothing."""
