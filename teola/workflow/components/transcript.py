"""The transcript of an agent's calls, as its model reads it.

    Calls so far, each with what it gave in lines that begin with >:
    You wrote: I need the weather first.
    1. weather({"city": "Oslo"}):
    > 12 degrees
    > 2. send({"to": "all"}):

A result is somebody else's text. Every line of it begins with the mark, and no call is written in
such a line, so no result can look like a further call. The same result always gives the same lines:
an earlier turn's transcript is the beginning of the next one's, which is then in the prefix cache.
"""

from __future__ import annotations

import json
from typing import Final

from teola.tools.base import NAME
from teola.tools.decision import PlannedCall
from teola.tools.tool_result import ToolResult

HEADER: Final = "\n\nCalls so far, each with what it gave in lines that begin with >:"
LINE_MARK: Final = "> "
EDITED: Final = ", with arguments that a person has changed"


def entry(call: PlannedCall, result: ToolResult, *, edited: bool = False) -> str:
    """A call and what it gave. edited: a person has changed its arguments."""
    name = call.tool if NAME.fullmatch(call.tool) else json.dumps(call.tool, ensure_ascii=False)
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    mark = EDITED if edited else ""
    return (
        f"{call.number}. {in_one_line(f'{name}({arguments})')}{mark}:\n{marked_lines(result.text)}"
    )


def thought(text: str) -> str:
    """What the model wrote beside its calls."""
    return in_one_line(f"You wrote: {text}")


def marked_lines(text: str) -> str:
    """A text of which every line begins with the mark, whatever ends its lines."""
    return "\n".join(LINE_MARK + line for line in text.splitlines() or [""])


def in_one_line(text: str) -> str:
    """A text without any end of a line."""
    return " ".join(text.splitlines())
