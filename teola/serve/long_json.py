"""Bodies of answers as JSON: short ones, and those that may be long."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from teola.plain_json import TIGHT, json_of


class ShortJson(JSONResponse):
    """A body that is known to be short."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return TIGHT.write(content).encode()


class LongJson(JSONResponse):
    """A body that may be long. Make it off the event loop."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json_of(content, TIGHT).encode()
