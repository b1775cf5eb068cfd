"""The answer: words from the rows, whose numbers have to stand there, or the rows themselves."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from .charts import chart_of
from .choosing import row_text, rows_within

FACT_ROWS: Final = 50
"""Rows that the answer is written from."""
FACT_CHARACTERS: Final = 24_000
SHOWN_ROWS: Final = 20
"""Rows of an answer that is the rows."""
NO_ROWS: Final = "No rows: the database has nothing that the question asks for."
_NUMBER: Final = re.compile(
    r"(?<![\w.])[-−]?(?:\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
)
_LISTED: Final = re.compile(r"^\s*\d{1,2}[.)]\s", re.MULTILINE)


def facts(outcome: Mapping[str, Any]) -> str:
    """The rows that the answer is written from."""
    result = outcome["result"]
    lines = _fact_rows(result)
    if result["truncated"] or len(result["rows"]) > len(lines):
        lines.append(f"(only the first {len(lines)} rows; there are more)")
    return "\n".join([row_text(result["columns"]), *lines])


def _fact_rows(result: Mapping[str, Any]) -> list[str]:
    return rows_within(result["rows"][:FACT_ROWS], FACT_CHARACTERS)


def wants_words(outcome: Mapping[str, Any], own_sql: str) -> bool:
    """Whether a model has to say what the rows mean."""
    rows = outcome["result"].get("rows")  # of a plan: how many are expected
    return not own_sql and bool(outcome["ran"]) and isinstance(rows, list) and bool(rows)


def finish(
    outcome: Mapping[str, Any],
    wanted: Mapping[str, Any],
    more_calls: int = 0,
    said: str | None = None,
) -> dict[str, Any]:
    """All that the application gives. said: what the model made of the rows."""
    result = outcome["result"]
    rows, note = result.get("rows"), result.get("note", "")
    # A plan has `rows`, too: how many the database expects.
    rows = rows if isinstance(rows, list) else []
    ran = outcome["ran"] and "columns" in result
    explanation = outcome["explanation"]
    if outcome["doubt"]:
        explanation = f"{explanation} (Another attempt doubts it: {outcome['doubt']})".strip()
    return {
        "answer": _answer(outcome, wanted, ran, rows, said, note),
        "sql": "" if outcome["cannot"] else outcome["sql"],
        "columns": result.get("columns", []) if ran else [],
        "rows": rows,
        "truncated": bool(result.get("truncated", False)),
        "explanation": explanation,
        "tables": list(result.get("tables", [])),
        "answerable": bool(outcome["ran"]),
        "attempts": outcome["attempts"],
        "calls": outcome["calls"] + more_calls + (said is not None),
        "chart": chart_of(result) if ran else None,
    }


def _answer(
    outcome: Mapping[str, Any],
    wanted: Mapping[str, Any],
    ran: bool,
    rows: Sequence[Sequence[Any]],
    said: str | None,
    note: str,
) -> str:
    if outcome["cannot"]:
        instead = f" What could be asked: {outcome['instead']}" if outcome["instead"] else ""
        return f"I cannot tell from this data: {outcome['missing']}.{instead}".replace("..", ".")
    if not outcome["ran"]:
        return f"No statement answered the question. The last error: {outcome['error']}"
    if outcome.get("stopped"):
        return str(outcome["stopped"])
    if not ran:
        return "The SQL was written and not run."
    if outcome.get("kept"):
        return f"{outcome['kept']}\n{as_rows(outcome['result'])}"
    if not rows:
        return NO_ROWS
    more = f" ({note})" if note else ""
    text = (said or "").strip()
    if not text:
        return as_rows(outcome["result"]) + more
    wrong = foreign_numbers(text, wanted["question"], outcome["result"])
    if wrong:
        listed = ", ".join(wrong)
        return (
            f"{as_rows(outcome['result'])}\n(These are the rows: the model's sentence had a number "
            f"that is not in them, {listed}.){more}"
        )
    return text + more


def as_rows(result: Mapping[str, Any]) -> str:
    """The rows as an answer."""
    rows, columns = result["rows"], result["columns"]
    if not rows:
        return NO_ROWS
    if len(rows) == 1 and len(columns) == 1:
        (value,) = rows[0]
        return f"{columns[0]}: {'no value' if value is None else value}"
    lines = [" | ".join(map(str, columns))]
    lines += [
        " | ".join("" if v is None else str(v)[:200] for v in row) for row in rows[:SHOWN_ROWS]
    ]
    if len(rows) > SHOWN_ROWS or result["truncated"]:
        lines.append(f"... ({len(rows)} rows{' and more' if result['truncated'] else ''})")
    return "\n".join(lines)


def foreign_numbers(text: str, question: str, result: Mapping[str, Any]) -> list[str]:
    """Numbers in a text that stand neither in the rows that it was written from nor in the
    question. One that is a number of the rows with fewer digits, the number of rows, or that counts
    a list, is none."""
    told = [question, row_text(result["columns"]), *_fact_rows(result)]
    known = {abs(number) for part in told for number in _numbers(part)}
    if not result["truncated"]:
        known.add(Decimal(len(result["rows"])))
    ordered = sorted(number for number in known if number.is_finite())
    wrong, read = [], _LISTED.sub(" ", text)
    for match in _NUMBER.finditer(read):
        number = _decimal(match[0])
        share = read[match.end() :].lstrip().startswith("%")
        if number is not None and not _is_among(abs(number), known, ordered, share):
            wrong.append(match[0].strip(" ,"))
    return wrong


def _numbers(text: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(text):
        if (number := _decimal(match[0])) is not None:
            yield number
    for piece in re.findall(r"\d+", text):  # of dates and names
        yield Decimal(piece[:40])


def _decimal(text: str) -> Decimal | None:
    plain = re.sub(r"[,\u00a0\u2009\u202f]", "", text).replace("−", "-")
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def _is_among(said: Decimal, known: Set[Decimal], ordered: Sequence[Decimal], share: bool) -> bool:
    """Whether a number is one of others, perhaps with fewer digits. share: it may be in percent."""
    if said in known:
        return True
    if not said.is_finite() or abs(said.adjusted()) > 30:
        return False
    unit = Decimal(1).scaleb(int(said.as_tuple().exponent)) / 2
    for scale in (1, 100) if share else (1,):
        at = bisect_left(ordered, (said - unit) / scale)
        if at < len(ordered) and ordered[at] <= (said + unit) / scale:
            return True
    return False
