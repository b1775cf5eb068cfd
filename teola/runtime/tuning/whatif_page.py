"""A comparison of policies as a page: its table, and a plot of attainment by objective.

    part of the queries in time
    100 % |          ____-----    a line for each row of the comparison
          |     __---
      0 % |__---______________
           1    10   20   40      objective, times what a query takes alone

The page is one file that loads nothing, so that it can be sent to somebody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

COLOURS: Final = ("#1b6e5a", "#c98524", "#3a78b4", "#b3312c")
WIDTH, HEIGHT = 640, 320
LEFT, TOP = 44, 12
"""Room for what stands at the axes, in pixels."""
TICKS: Final = (0, 25, 50, 75, 100)

PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 720px; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .2rem .8rem .2rem 0; text-align: left; }}
svg {{ max-width: 100%; height: auto; }}
svg text {{ font-size: 11px; fill: currentColor; }}
:root {{ color-scheme: light dark; }}
</style>
<h1>{title}</h1>
<table>
{table}
</table>
<h2>Queries in time, by objective</h2>
{plot}
"""


def to_html(head: Sequence[str], lines: Sequence[Sequence[str]], found: Mapping[str, Any]) -> str:
    """head, lines: of the table. found: the comparison, whose rows have curves."""
    title = f"{found['queries']:,} queries on {found['instances']} instances"
    table = [_row("th", ("", *head))]
    for k, line in enumerate(lines):
        table.append(_row("td", line, f'<span style="color:{_colour(k)}">&#9632;</span>'))
    curves = [row["curve"] for row in found["rows"]]
    return PAGE.format(
        title=escape(title), table="\n".join(table), plot=_plot(found["scales"], curves)
    )


def _row(cell: str, texts: Sequence[str], mark: str = "") -> str:
    cells = [*([mark] if mark else []), *map(escape, texts)]
    return f"<tr>{''.join(f'<{cell}>{text}</{cell}>' for text in cells)}</tr>"


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _plot(scales: Sequence[int], curves: Sequence[Sequence[float]]) -> str:
    first, last = scales[0], scales[-1]

    def x(scale: float) -> float:
        return LEFT + (scale - first) / (last - first) * (WIDTH - LEFT - 10)

    def y(part: float) -> float:
        return TOP + (1 - part) * (HEIGHT - TOP - 44)

    parts = []
    for percent in TICKS:
        at = y(percent / 100)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}" '
            'stroke="currentColor" stroke-opacity=".15"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{percent} %</text>'
        )
    for scale in (scale for scale in scales if scale == first or scale % 5 == 0):
        parts.append(
            f'<text x="{x(scale):.1f}" y="{HEIGHT - 26}" text-anchor="middle">{scale}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        "objective, times what a query takes alone</text>"
    )
    for k, curve in enumerate(curves):
        points = " ".join(
            f"{x(scale):.1f},{y(part):.1f}" for scale, part in zip(scales, curve, strict=True)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_colour(k)}" stroke-width="2"/>'
        )
    body = "\n".join(parts)
    label = "Part of the queries in time, by objective; a line for each row of the table"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">\n{body}\n</svg>'
