"""Results for people: on a terminal with colours, in a pipe as plain text of whole lines."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from teola.cli.replies import question_lines
from teola.cli.step_words import are_steps, steps_words
from teola.cli.visible import visible_json
from teola.cli.visible_console import visibly
from teola.engine import Hit
from teola.explain import HANGING, Explanation
from teola.query.result import Result, jsonable
from teola.runtime.observe.shares import in_lines, shares_in_words, shares_of

EXCERPT: Final = 240
"""Characters of a source that are shown."""
LEAST_ROOM: Final = 10
"""Columns for what is cut to fit a line."""
DECISIONS: Final = {" + ": "green", " - ": "bright_black"}
"""How lines on what passes did begin, and their colours."""
TABLE_HEADS: Final = ("depth ", "#  ", "primitive ")


def console() -> Console:
    """Standard output. In a pipe nothing is folded."""
    out = Console(highlight=False, markup=False, emoji=False)
    return visibly(
        out
        if out.is_terminal
        else Console(highlight=False, markup=False, emoji=False, width=10_000)
    )


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    print(visible_json(text), flush=True)


def show_result(result: Result, *, streamed: bool = False, told_steps: bool = False) -> None:
    """Print answer, steps, numbered sources, and how it went; of a query that waits, its questions.
    streamed, told_steps: answer or steps have been printed already."""
    out = console()
    for ask in result.asks:
        out.print(Text(question_lines(ask.to_json())))
    for name, value in result.outputs.items():
        if _is_hits(value) or (value is None and name != "answer"):
            continue
        if (streamed and value == result.answer) or (told_steps and are_steps(value)):
            continue
        if len(result.outputs) > 1 and name != "answer":
            out.print(Text(name, style="bold"))
        if are_steps(value):
            for line in steps_words(value, out.width - 2 if out.is_terminal else None):
                out.print(Text(f"  {line}"), no_wrap=True, overflow="ignore", crop=False)
            continue
        out.print(_text(value), soft_wrap=False)
    for name, value in result.outputs.items():
        if _is_hits(value) and value:
            out.print()
            out.print(Text(name.capitalize(), style="bold"))
            for number, hit in enumerate(value, 1):
                _show_hit(out, number, hit)
    out.print()
    for name in result.missing:
        out.print(Text(f"without {name}: {result.reasons[name]}", style="yellow"))
    for notice in result.notices:
        out.print(Text(notice, style="yellow"))
    _show_end(out, result)


def _show_end(out: Console, result: Result) -> None:
    """Print how it went, and where the time went: in the same line, if it fits."""
    summary = " · ".join(_how(result))
    shares = shares_of(result.trace) if result.trace is not None else []
    whole = " · ".join(filter(None, (summary, shares_in_words(shares))))
    lines = [whole] if len(whole) <= out.width else [summary, *in_lines(shares, out.width)]
    out.print(Text("\n".join(lines), style="dim"))


def _how(result: Result) -> Iterator[str]:
    """State, seconds, primitives, tokens."""
    yield result.state
    yield f"{result.latency_s:.2f} s"
    if (objective := result.objective) is not None and objective.stated:
        kept = {True: " kept", False: " missed", None: ""}[result.met_objective]
        yield f"objective of {objective.by_s:g} s{kept}"
    yield f"{result.primitives:,} primitive{'' if result.primitives == 1 else 's'}"
    trace = result.trace
    if trace is not None and (trace.prompt_tokens or trace.completion_tokens):
        yield f"{trace.prompt_tokens:,} tokens read, {trace.completion_tokens:,} written"
        if trace.counts.unpriced == 0 and (cost := trace.counts.cost):
            yield f"cost {cost:.6g}"


def _show_hit(out: Console, number: int, hit: Hit) -> None:
    head = Text.assemble(
        (f"{number:>3}  ", "dim"), (hit.citation, "cyan"), (f"  {hit.score:.2f}", "dim")
    )
    out.print(head)
    if url := hit.metadata.get("url"):
        out.print(Text(f"     {url}", style="dim"), soft_wrap=True)
    excerpt = textwrap.shorten(hit.text, EXCERPT, placeholder=" …")
    width = min(out.width, 100) if out.is_terminal else out.width
    indented = textwrap.indent(textwrap.fill(excerpt, max(20, width - 5)), " " * 5)
    out.print(Text(indented, style="italic" if out.is_terminal else ""))


def _is_hits(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Hit) for item in value)


def _text(value: Any) -> Text:
    if value is None:
        return Text("(no answer)", style="dim")
    if isinstance(value, str):
        return Text(value)
    return Text(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def show_explanation(explanation: Explanation, form: str) -> None:
    """Print an explanation in one of its forms. As text on a terminal, no line is longer than the
    terminal is wide, and headings and what the passes did stand out."""
    out, style = console(), ""
    if form != "text":
        out.print(Text(explanation.render(form)), soft_wrap=True)
        return
    for line in explanation.text(out.width if out.is_terminal else None).splitlines():
        if not (line.startswith(HANGING) and style in DECISIONS.values()):
            style = _line_style(line)
        out.print(Text(line, style=style), soft_wrap=True)


def _line_style(line: str) -> str:
    for mark, style in DECISIONS.items():
        if line.startswith(mark):
            return style
    if line.lstrip().startswith(TABLE_HEADS):
        return "dim"
    return "bold" if line[:1].isalpha() else ""


def show_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, whole_lines: bool = False
) -> None:
    """A table without a frame; the last column is folded if it must be. whole_lines: cut instead,
    so that each row is one line."""
    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for position, head in enumerate(heads):
        last = position == len(heads) - 1
        table.add_column(head, no_wrap=not last, style="" if position else "cyan")
    listed = [*rows]
    if whole_lines and out.is_terminal:
        others = zip(*(row[:-1] for row in (heads, *listed)), strict=True)
        room = out.width - sum(max(map(cell_len, column)) + 2 for column in others)
        listed = [(*row[:-1], cut_cell(row[-1], max(room, LEAST_ROOM))) for row in listed]
    for row in listed:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def shown_value(value: Any) -> str:
    """A value of a database: a NULL is no empty text."""
    return "NULL" if value is None else str(value)


def cut_cell(cell: str, room: int) -> str:
    """A text in so many columns of a terminal."""
    if cell_len(cell) <= room:
        return cell
    return f"{set_cell_size(cell, room - 1)}\u2026"
