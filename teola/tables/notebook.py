"""What a notebook shows of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any


def table_html(
    names: Sequence[str], rows: Sequence[Sequence[Any]], count: int, report: Mapping[str, Any]
) -> str:
    """A table of the first rows, and a line on what they took. Values are escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_shown(one))}</td>' for one in row)}</tr>" for row in rows
    )
    line = (
        f"{count:,} rows, {report['state']}: {report['asked']:,} asked, "
        f"{report['answered_before']:,} answered before, {report['failed']:,} failed, "
        f"{report['prompt_tokens']:,} prompt tokens ({report['cached_tokens']:,} cached)"
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{line}</p>"


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
