"""What a notebook shows of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from teola.tables.report import summary_of


def table_html(
    names: Sequence[str], rows: Sequence[Sequence[Any]], report: Mapping[str, Any]
) -> str:
    """HTML of the first rows, and a line about calls, tokens and seconds. Values are escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_shown(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<p>{escape(summary_of(report))}</p>"


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
