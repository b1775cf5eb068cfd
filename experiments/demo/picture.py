"""A graph that ran, in a line for each engine: when it worked, and on what.

embedding    ██████░░████                     index ×2, embed ×3
llm          ██          ░░░███████           expand ×4, generate ×6
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.trace import Span

COLOURS: Final = {"embedding": "blue", "vectorstore": "green", "rerank": "magenta", "llm": "yellow"}
WORKS, WAITS, IDLE = "█", "░", " "


def lines(trace: Recorded, width: int) -> list[Text]:
    """Engines in the order in which they began; what needs none is left out. No line is wider than
    `width` columns."""
    spans: dict[str, list[Span]] = {}
    for span in trace.spans:
        if span.engine:
            spans.setdefault(span.engine, []).append(span)
    told = {engine: _work(of) for engine, of in spans.items()}
    name = max(map(len, spans), default=0) + 2
    bar = max(10, width - name - 2 - max(map(cell_len, told.values()), default=0))
    return [
        Text.assemble(
            f"{engine:{name}}",
            (_bar(of, trace.end_s, bar), COLOURS.get(engine, "cyan")),
            (f"  {told[engine]}", "dim"),
        )
        for engine, of in spans.items()
    ]


def _work(spans: list[Span]) -> str:
    """How many primitives of which component."""
    components = {span.primitive: span.component for span in spans}
    counts = Counter(components.values())
    return ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.items())


def _bar(spans: list[Span], end_s: float, size: int) -> str:
    """What worked wins over what waited."""
    cells = [IDLE] * size
    scale = size / end_s if end_s > 0 else 0.0

    def mark(start: float, end: float, sign: str) -> None:
        first = min(size - 1, int(start * scale))
        for k in range(first, min(size, max(first + 1, int(end * scale)))):
            cells[k] = sign

    for span in spans:
        if span.start > span.queued:
            mark(span.queued, span.start, WAITS)
    for span in spans:
        mark(span.start, span.end, WORKS)
    return "".join(cells)
