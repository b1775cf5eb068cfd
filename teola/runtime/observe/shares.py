"""What the time of a query was spent on: its critical path by classes of operations.

    decoding 53 %, embedding 25 %, waiting for others at llm 12 %, reranking 9 %

Nothing is counted twice: of what happened at the same time only what the query waited for counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from teola.runtime.observe.stretches import Stretch, critical_path
from teola.runtime.observe.trace import Span, Trace
from teola.runtime.observe.whole import whole

CALL: Final = "call"
CLASSES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "embed": ("embedding", ("embedding",)),
    "store": ("store and search", ("ingestion", "searching")),
    "rank": ("reranking", ("reranking",)),
    "prefill": ("prefilling", ("prefilling", "partial_prefilling", "full_prefilling")),
    "decode": ("decoding", ("decoding", "partial_decoding")),
    CALL: ("calls and outside", ("tool_call", "web_search", "sql")),
    "control": ("in the server", ("condition", "aggregate", "grow")),
    "people": ("waiting for people", ("wait",)),
    "load": ("reading documents, planning", ("load", "optimise")),
}
"""Class -> in words, and its operations: those of the page's colours (ui/js/ops.js)."""
_OF: Final = {op: name for name, (_, ops) in CLASSES.items() for op in ops}
LEAST: Final = 0.005
"""A smaller part of the time is not worth a word."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """name: of the class of operations; or `queued` (for other queries), `between` (primitives).
    label: in words. s: seconds."""

    name: str
    label: str
    s: float


def shares(spans: Sequence[Span], path: Iterable[Stretch]) -> list[TimeShare]:
    """Shares of a critical path through these spans, the largest first. What waited behind other
    work of the same query counts as that work; what waited for other queries is apart, by
    engine."""
    by_label: dict[str, TimeShare] = {}
    begun = any(span.engine for span in spans)
    for stretch in path:
        op = spans[stretch.blocker].op if stretch.kind == "behind" else stretch.op
        name = (
            stretch.kind if stretch.kind in ("queued", "between", "people") else _OF.get(op, CALL)
        )
        if name == "queued":
            label = f"waiting for others at {stretch.engine}"
        elif name == "between":
            label = "between primitives" if begun else "before any primitive"
        else:
            label = CLASSES[name][0]
        before = by_label[label].s if label in by_label else 0.0
        by_label[label] = TimeShare(name, label, before + stretch.end - stretch.start)
    return sorted(by_label.values(), key=lambda share: -share.s)


def shares_of(trace: Trace) -> list[TimeShare]:
    """Shares of a query that has ended."""
    found = whole(trace)
    answered = trace.state in ("ok", "partial")
    path = critical_path(
        found.spans, found.before, trace.latency_s, answered=answered, within=found.within
    )
    return shares(found.spans, path)


def shares_json(found: Iterable[TimeShare]) -> list[dict[str, Any]]:
    """Shares as JSON values."""
    return [asdict(share) for share in found]


def shares_in_words(found: Sequence[TimeShare]) -> str:
    """Such as `decoding 53 %, embedding 25 %`; "" of what took no time."""
    return ", ".join(_words(found))


def in_lines(found: Sequence[TimeShare], width: int) -> list[str]:
    """The same in lines of `width` characters, which break between shares only."""
    lines: list[str] = []
    for piece in _words(found):
        if lines and len(lines[-1]) + len(piece) + len(", ,") <= width:
            lines[-1] += f", {piece}"
        else:
            lines = [*(f"{line.rstrip(',')}," for line in lines), piece]
    return lines


def _words(found: Sequence[TimeShare]) -> list[str]:
    total = sum(share.s for share in found)
    told = [share for share in found if total and share.s >= LEAST * total]
    return [f"{share.label} {100 * share.s / total:.0f} %" for share in told]
