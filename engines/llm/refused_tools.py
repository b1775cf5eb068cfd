"""Which tools and schemas a server has refused, and for how long it is not asked again.

A server may know no tool calls at all, or dislike one tool of a request, such as a description that
is too long for it. In the first case nobody's tools are sent for a while; in the second only those
that were refused. Their calls are then asked for in words.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from teola.graph import OfferedTools

from ..openai.wire import NoSchema, NoTools

FORGET_S: Final = 600.0
"""After this long a server is asked again: it may have been started anew, or its model changed."""
MOST_KEPT: Final = 1024

log = logging.getLogger(__name__)


class RefusedTools:
    """Those of one server. `tools in refused`: they are not to be sent now."""

    def __init__(self) -> None:
        self._refused = _Refused()
        self._none_until = float("-inf")

    def add(self, tools: OfferedTools, refused: NoTools, server: str) -> None:
        """Note a refusal, which is logged."""
        if refused.any_tools:
            self._none_until = time.monotonic() + FORGET_S
            told = "%s knows no tool calls (%s): calls are asked for in words for %d minutes"
        else:
            self._refused.add(tools.functions)
            told = (
                "%s refuses the tools of a request (%s): calls of these tools are asked for in "
                "words for %d minutes"
            )
        log.warning(told, server, refused.instead, FORGET_S / 60)

    def __contains__(self, tools: object) -> bool:
        if time.monotonic() < self._none_until:
            return True
        return isinstance(tools, OfferedTools) and tools.functions in self._refused


class RefusedSchemas:
    """Those of one server. `schema in refused`: answers are not to be held to it by the server."""

    def __init__(self) -> None:
        self._refused = _Refused()

    def add(self, schema: str, refused: NoSchema, server: str) -> None:
        """Note a refusal, which is logged."""
        self._refused.add(schema)
        log.warning(
            "%s refuses the schema of an answer (%s): answers are checked when they are complete, "
            "for %d minutes",
            server,
            refused.instead,
            FORGET_S / 60,
        )

    def __contains__(self, schema: object) -> bool:
        return isinstance(schema, str) and schema in self._refused


class _Refused:
    """Texts that were refused, by their digests; of the last ones, and for a while."""

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def add(self, text: str) -> None:
        key = _digest(text)
        self._until[key] = time.monotonic() + FORGET_S
        self._until.move_to_end(key)
        while len(self._until) > MOST_KEPT:
            self._until.popitem(last=False)

    def __contains__(self, text: str) -> bool:
        if not self._until:
            return False
        return time.monotonic() < self._until.get(_digest(text), float("-inf"))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
