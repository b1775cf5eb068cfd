"""A trace on the terminal: a row for each primitive on each instance, time from left to right.

`░` waits for an instance, `█` runs, `*` is on the critical path: what the latency went along. In a
pipe it is 100 columns wide.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Final

from rich.console import Console
from rich.text import Text

from teola.policies.reason import ONLY_ONE
from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.shares import in_lines
from teola.runtime.observe.trace import Span

PIPED: Final = 100
NAME: Final = 30
"""Columns for names, at most."""
LEGEND: Final = "* critical path"
RIGHT: Final = 30
"""Columns for numbers."""
COLOURS: Final = {
    "embedding": "blue",
    "ingestion": "green",
    "searching": "green",
    "reranking": "magenta",
    "web_search": "cyan",
    "tool_call": "cyan",
    "sql": "cyan",
    "prefilling": "yellow",
    "partial_prefilling": "yellow",
    "full_prefilling": "yellow",
    "decoding": "dark_orange",
    "partial_decoding": "dark_orange",
}
_ENDED: Final = {"failed": "red", "cancelled": "dim", "running": "bold", "queued": "dim"}


def show_timeline(trace: Recorded, out: Console) -> None:
    """Print the trace as a timeline."""
    out.print(
        Text.assemble(
            (trace.app, "bold"),
            (f"  {trace.state} · {trace.latency_s:.3f} s · {trace.query_id}", "dim"),
        )
    )
    if not trace.spans:
        out.print(Text("nothing has run yet", style="dim"))
        return
    width = out.width if out.is_terminal else PIPED
    rows = {lane: _by_primitive(spans) for lane, spans in trace.lanes().items()}
    longest = max(len(name) for spans in rows.values() for name in spans)
    name = min(NAME, max(12, longest)) + 2
    bars = max(20, width - name - RIGHT - 2)
    out.print(
        Text.assemble(
            (LEGEND.ljust(name + 2), "dim"),
            _axis(trace.end_s, bars),
            (f" {'wait':>7} {'run':>7}", "dim"),
        )
    )
    path = trace.critical_path()
    for lane, spans in rows.items():
        out.print(Text(str(lane), style="bold"))
        for primitive, slices in spans.items():
            marked = not path.isdisjoint(slices)
            row = _row(primitive, slices, name, bars, trace.end_s, marked)
            out.print(row, no_wrap=True, overflow="crop")
    if shares := in_lines(trace.shares, width - 2):
        out.print(Text("where the time went", style="bold"))
        for line in shares:
            out.print(Text(f"  {line}"), no_wrap=True)
    _show_reasons(trace, out, width)


def _show_reasons(trace: Recorded, out: Console, width: int) -> None:
    """Why LLM calls went where they went, if any could have gone elsewhere."""
    placed = [span for span in trace.spans if span.why]
    if all(span.why == ONLY_ONE for span in placed):
        return
    out.print(Text("why there", style="bold"))
    for span in placed:
        for line in wrap(f"{span.primitive}: {span.why}", width - 4, subsequent_indent="  "):
            out.print(Text(f"  {line}", style="dim"), no_wrap=True)


def _by_primitive(spans: list[Span]) -> dict[str, list[Span]]:
    by_primitive: dict[str, list[Span]] = {}
    for span in spans:
        by_primitive.setdefault(span.primitive, []).append(span)
    return by_primitive


def _axis(end_s: float, bars: int) -> Text:
    """The scale: 0, the middle and the end."""
    middle, end = f"{end_s / 2:.2f}", f"{end_s:.2f} s"
    half = bars // 2
    line = "0".ljust(half) + middle
    return Text(line.ljust(bars - len(end)) + end, style="dim")


def _row(
    primitive: str, spans: list[Span], name: int, bars: int, end_s: float, marked: bool
) -> Text:
    shown = _shortened(primitive, name - 2)
    waited = max(0.0, spans[0].start - spans[0].queued)
    ran = sum(span.end - span.start for span in spans)
    states = [span.state for span in spans if span.state != "done"]
    batch = max(span.batch_size for span in spans)
    note = f" ×{len(spans)}" if len(spans) > 1 else ""
    note += f" batch {batch}" if batch > 1 else ""
    row = Text()
    row.append(f"{'*' if marked else ' '} {shown.ljust(name)}", style="bold" if marked else "")
    row.append_text(_bar(spans, bars, end_s))
    row.append(f" {_time(waited)} {_time(ran)}", style="dim")
    row.append(note, style="dim")
    if states:
        row.append(f" {states[-1]}", style=_ENDED.get(states[-1], ""))
    return row


def _shortened(primitive: str, width: int) -> str:
    """The name in `width` columns. A path keeps its end, which tells it from its neighbours; other
    names keep their beginning."""
    if len(primitive) <= width:
        return primitive
    return "…" + primitive[1 - width :] if "/" in primitive else primitive[: width - 1] + "…"


def _bar(spans: list[Span], bars: int, end_s: float) -> Text:
    """One character for each part of the time: what ran wins over what waited."""
    cells = [" "] * bars
    scale = bars / end_s if end_s > 0 else 0.0
    if spans[0].engine:
        for span in spans:
            for k in range(_cell(span.queued, scale, bars - 1), _cell(span.start, scale, bars)):
                cells[k] = "░"
    for span in spans:
        if span.end == span.start > span.queued:
            continue  # it was never sent
        first = _cell(span.start, scale, bars - 1)
        for k in range(first, max(first + 1, _cell(span.end, scale, bars))):
            cells[k] = "█"
    colour = COLOURS.get(spans[0].op, "white")
    bar = Text("".join(cells), style=colour)
    for k, cell in enumerate(cells):
        if cell == "░":
            bar.stylize("dim", k, k + 1)
    return bar


def _cell(at: float, scale: float, last: int) -> int:
    """The cell that begins at a time: at most `last`, which behind the end is their number."""
    return min(last, max(0, int(at * scale)))


def _time(seconds: float) -> str:
    return f"{seconds:6.2f}s" if seconds >= 1 else f"{1e3 * seconds:5.1f}ms"
