"""What a model's reply says: a statement, that the question cannot be told, or neither."""

from __future__ import annotations

import re
from typing import Any, Final

LONGEST: Final = 400
"""Characters of a sentence that is shown."""
_BLOCK: Final = re.compile(
    r"```[ \t]*(?:\w+[ \t]*\n|(?:sql\w*|postgres\w*|duckdb)\b)?(.*?)(?:```|\Z)",
    re.DOTALL | re.IGNORECASE,
)
"""A word after the fence is a language if it stands alone or is one of SQL's."""
_STATEMENT: Final = re.compile(
    r"(?>\s+|--[^\n]*\n|/\*.*?\*/)*+(?:\(|(?:SELECT|WITH|VALUES|FROM|PIVOT)\b)",
    re.DOTALL | re.IGNORECASE,
)
"""Atomic: of many comments each is read in one way only."""
_BARE: Final = re.compile(
    r"^[^\S\n]*((?:SELECT|WITH|VALUES)\b.*)\Z", re.DOTALL | re.IGNORECASE | re.MULTILINE
)
_EXPLAINED: Final = re.compile(
    r"^[^\w\n]*explanation[^\w\n]*:\s*(.+)$", re.IGNORECASE | re.MULTILINE
)
_UNANSWERABLE: Final = re.compile(
    r"^[^\w\n]*unanswerable[^\w\n]*:\s*(.*)$", re.IGNORECASE | re.MULTILINE
)
_INSTEAD: Final = re.compile(r"^[^\w\n]*instead[^\w\n]*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_THOUGHTS: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTES_ONLY: Final = re.compile(r"\s*(?:“[^“”]*”\s*)+|Nothing in the documents answers .*")


def read_reply(written: str) -> dict[str, Any]:
    """`statement`: `sql` ("": none), `explanation`, and of a question that cannot be told `missing`
    and `instead`. sql_text: the statement alone."""
    text = _THOUGHTS.sub("", written or "")
    explained = _EXPLAINED.search(text)
    blocks = [found[1].strip() for found in _BLOCK.finditer(text) if found[1].strip()]
    statements = [block for block in blocks if _STATEMENT.match(block)]
    cannot = _UNANSWERABLE.search(text)
    bare = _BARE.search(text) if not blocks and not cannot else None
    sql = (statements or blocks or [""])[-1] if not bare else bare[1].strip()
    sql = sql.rstrip(";").strip()
    missing = instead = ""
    if cannot and not sql:
        missing = _line(cannot[1]) or "the tables do not say it"
        nearest = _INSTEAD.search(text)
        instead = _line(nearest[1]) if nearest else ""
    statement = {
        "sql": sql,
        "explanation": _line(explained[1]) if explained else "",
        "missing": missing,
        "instead": instead,
        "quoted": bool(_QUOTES_ONLY.fullmatch(text)),
    }
    return {"statement": statement, "sql_text": sql}


def read_doubt(written: str) -> str:
    """What has to be asked back ("": nothing)."""
    text = _line(_THOUGHTS.sub("", written or ""))
    return "" if text.strip(" .!*").lower() in ("clear", "") else text


def read_names(written: str) -> list[str]:
    """Names of tables, one a line."""
    lines = _THOUGHTS.sub("", written or "").splitlines()
    lines = [re.sub(r"^\s*(?:[-*]|\d{1,3}[.)])\s*", "", line) for line in lines]
    names = (line.partition(":")[0].strip(" \t*`'\".)") for line in lines)
    return [name for name in dict.fromkeys(names) if name][:12]


def read_passed(written: str, count: int) -> list[int]:
    """Which of so many statements pass a test, by their numbers from 1."""
    text = _THOUGHTS.sub("", written or "")
    found = (int(number) for number in re.findall(r"\d+", text[:LONGEST]))
    return sorted({number for number in found if 1 <= number <= count})


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST]
