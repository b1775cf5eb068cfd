"""Which tools a server has refused, and for how long it is not asked again.

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

from ..openai.wire import NoTools

FORGET_S: Final = 600.0
"""After this long a server is asked again: it may have been started anew, or its model changed."""
MOST_KEPT: Final = 1024

log = logging.getLogger(__name__)


class RefusedTools:
    """Those of one server. `tools in refused`: they are not to be sent now."""

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._none_until = float("-inf")

    def add(self, tools: OfferedTools, refused: NoTools, server: str) -> None:
        """Note a refusal, which is logged."""
        until = time.monotonic() + FORGET_S
        if refused.any_tools:
            self._none_until = until
            told = "%s knows no tool calls (%s): calls are asked for in words for %d minutes"
        else:
            key = _digest(tools)
            self._until[key] = until
            self._until.move_to_end(key)
            while len(self._until) > MOST_KEPT:
                self._until.popitem(last=False)
            told = (
                "%s refuses the tools of a request (%s): calls of these tools are asked for in "
                "words for %d minutes"
            )
        log.warning(told, server, refused.instead, FORGET_S / 60)

    def __contains__(self, tools: object) -> bool:
        if time.monotonic() < self._none_until:
            return True
        if not self._until or not isinstance(tools, OfferedTools):
            return False
        return time.monotonic() < self._until.get(_digest(tools), float("-inf"))


def _digest(tools: OfferedTools) -> bytes:
    return blake2b(tools.functions.encode("utf-8", "surrogatepass"), digest_size=16).digest()
