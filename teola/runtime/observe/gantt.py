"""A trace as a Mermaid Gantt chart: one section an instance, milliseconds since admission."""

from __future__ import annotations

import re
from typing import Final

from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.trace import Span

_MARKS: Final = {"failed": "crit, ", "cancelled": "done, ", "running": "active, "}


def to_mermaid(trace: Recorded) -> str:
    """The text; every bar lasts a millisecond at least."""
    head = f"{trace.app} {trace.query_id}: {trace.state}, {trace.latency_s:.3f} s"
    lines = ["gantt", f"  title {_plain(head)}", "  dateFormat x", "  axisFormat %S.%L"]
    for lane, spans in trace.lanes().items():
        lines.append(f"  section {_plain(str(lane))}")
        lines += map(_task, spans)
    return "\n".join(lines)


def _task(span: Span) -> str:
    return f"  {_plain(_name(span))} :{_MARKS.get(span.state, '')}{_ms(span)}"


def _name(span: Span) -> str:
    return f"{span.primitive} {span.lo}..{span.hi}" if span.hi - span.lo > 1 else span.primitive


def _ms(span: Span) -> str:
    start = round(span.start * 1e3)
    return f"{start}, {max(start + 1, round(span.end * 1e3))}"


def _plain(text: str) -> str:
    """Without the characters that Mermaid reads as its own."""
    return re.sub(r"[:;#,\n]", " ", text)
