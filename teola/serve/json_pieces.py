"""Long values as JSON, a piece at a time.

`json.dumps` is one call, and nothing else in the process runs before it has returned, whatever
thread it is in: with a million numbers that takes half a second. Here numbers are written a
thousand at a time, and texts in pieces of a megabyte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import JSONResponse

ITEMS: Final = 1024
CHARACTERS: Final = 2**20
"""Of lists and texts, that are written at once."""


class Style(NamedTuple):
    """write: makes JSON of a small value. comma, colon: as it writes them."""

    write: Callable[[Any], str]
    comma: str
    colon: str


_tight: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
TIGHT: Final = Style(_tight.encode, ",", ":")
"""As bodies of answers are written."""
SPACED: Final = Style(json.JSONEncoder(ensure_ascii=False, default=str).encode, ", ", ": ")
"""As everything else is."""


def json_pieces(value: Any, style: Style = TIGHT) -> Iterator[str]:
    """The JSON of a value, whose names are texts."""
    write, comma, colon = style
    if isinstance(value, Mapping) and value:
        before = "{"
        for name, item in value.items():
            yield f"{before}{write(name)}{colon}"
            yield from json_pieces(item, style)
            before = comma
        yield "}"
    elif isinstance(value, (list, tuple)) and value:
        before = "["
        for at in range(0, len(value), ITEMS):
            part = value[at : at + ITEMS]
            if any(isinstance(one, (str, Mapping, list, tuple)) for one in part):
                for one in part:
                    yield before
                    yield from json_pieces(one, style)
                    before = comma
            else:
                yield f"{before}{write(part)[1:-1]}"
                before = comma
        yield "]"
    elif isinstance(value, str) and len(value) > CHARACTERS:
        yield '"'
        for at in range(0, len(value), CHARACTERS):
            yield write(value[at : at + CHARACTERS])[1:-1]
        yield '"'
    else:
        yield write(value)


class LongJson(JSONResponse):
    """A body that may be long. Make it off the event loop."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return "".join(json_pieces(content)).encode()
