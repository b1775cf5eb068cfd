"""Which candidate stands.

results alike ─▶ the first one           results differ ─▶ tests ─▶ most passes, then the first
one has run ──▶ that one                 none has run ───▶ it cannot be told, or the last error
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .attempts import CANNOT, EMPTY, OK
from .replies import read_passed

SHOWN_ROWS: Final = 10
"""Rows of a result that a test is judged by."""
SHOWN_CHARACTERS: Final = 8_000
LONGEST_VALUE: Final = 200
MOST_COLUMNS: Final = 50
"""Columns of a row that a prompt has."""
Tried = Sequence[Mapping[str, Any]]


def compare(tried_1: Tried, tried_2: Tried, run: str) -> dict[str, Any]:
    """`compared`: each candidate's last turn, whether two that ran `differ`, and the `best` where
    no test has to decide. shown: both, for tests."""
    both = [tried_1, tried_2]
    last = [tried[-1] for tried in both]
    ran = [i for i, turn in enumerate(last) if turn["outcome"] in (OK, EMPTY)]
    differ = False
    if len(ran) == 2 and run == "auto":
        differ = rows_as_set(last[0]["result"]) != rows_as_set(last[1]["result"])
    best = ran[0] if ran else next((i for i in (0, 1) if last[i]["outcome"] == CANNOT), 0)
    if len(ran) == 1 and last[1 - best]["outcome"] == CANNOT and not last[best].get("rows", 1):
        best = 1 - best  # nothing was found, and the other says why
    compared = {"tried": both, "best": best, "differ": differ}
    return {"compared": compared, "shown": _shown(last) if differ else ""}


def differs(compared: Mapping[str, Any]) -> bool:
    """Whether tests have to decide."""
    return bool(compared["differ"])


def rows_as_set(result: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
    """Rows without their order, and without the order of columns."""
    return frozenset(tuple(sorted(map(_value, row))) for row in result.get("rows") or ())


def _value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return f"{value:.9g}"


def vote(compared: Mapping[str, Any], verdicts: Sequence[str | None]) -> dict[str, Any]:
    """The candidate that passes most tests; of equal ones, the earlier."""
    passes = [0, 0]
    for verdict in verdicts:
        for number in read_passed(verdict or "", 2):
            passes[number - 1] += 1
    best = 1 if passes[1] > passes[0] else 0
    return outcome({**compared, "best": best, "passes": passes, "tests": len(verdicts)})


def outcome(compared: Mapping[str, Any]) -> dict[str, Any]:
    """What stands, in the form that all ways to an answer have."""
    best, both = compared["best"], compared["tried"]
    turn = both[best][-1]
    ran = turn["outcome"] in (OK, EMPTY)
    cannot = turn["outcome"] == CANNOT
    result = turn.get("result", {})
    attempts = [
        {"candidate": n, **{key: value for key, value in one.items() if key != "result"}}
        for n, tried in enumerate(both, 1)
        for one in tried
    ]
    for one in attempts:
        one["chosen"] = ran and one["candidate"] == best + 1 and one["turn"] == turn["turn"]
    other = both[1 - best][-1] if len(both) == 2 else {}
    doubt = other.get("missing", "") if ran else ""
    tests = compared.get("tests")
    return {
        "sql": result.get("sql") or turn["sql"],
        "result": result,
        "explanation": turn["explanation"],
        "ran": ran,
        "cannot": cannot,
        "missing": turn.get("missing", ""),
        "instead": turn.get("instead", ""),
        "error": "" if ran or cannot else turn.get("error", ""),
        "doubt": doubt,
        "attempts": attempts,
        "passes": compared.get("passes"),
        "calls": len(attempts) + (0 if tests is None else 1 + tests),
    }


def _shown(last: Sequence[Mapping[str, Any]]) -> str:
    """Both statements, with the beginnings of their results."""
    pieces = []
    for number, turn in enumerate(last, 1):
        result = turn["result"]
        listed = rows_within(result["rows"][:SHOWN_ROWS], SHOWN_CHARACTERS)
        rows = "\n".join(listed) or "(no rows)"
        more = "\n..." if len(result["rows"]) > len(listed) or result["truncated"] else ""
        pieces.append(
            f"Statement {number}:\n{turn['sql']}\nIts rows, {row_text(result['columns'])}:\n"
            f"{rows}{more}"
        )
    return "\n\n".join(pieces)


def rows_within(rows: Sequence[Sequence[Any]], most: int) -> list[str]:
    """Rows as a prompt has them, the first one and as many more as have `most` characters."""
    listed: list[str] = []
    for row in rows:
        most -= len(text := row_text(row))
        if listed and most < 0:
            break
        listed.append(text)
    return listed


def row_text(row: Sequence[Any]) -> str:
    """A row as a prompt has it: JSON, with long values cut, and "..." for further columns."""
    more = ["..."] if len(row) > MOST_COLUMNS else []
    return json.dumps(
        [
            f"{value[: LONGEST_VALUE - 1]}…"
            if isinstance(value, str) and len(value) > LONGEST_VALUE
            else value
            if isinstance(value, (str, int, float, bool, type(None)))
            else json.dumps(value, ensure_ascii=False, default=str)[:LONGEST_VALUE]
            for value in [*row[:MOST_COLUMNS], *more]
        ],
        ensure_ascii=False,
        default=str,
    )
