"""A turn of a candidate: whether its statement is good, and if not, what the next turn is told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from teola import TeolaError

from .prompts import NO_SQL, REPAIR

MOST_TOLD: Final = 1_000
"""Characters of an error that a model is told."""
NEEDS_A_MODEL: Final = (
    "text-to-sql needs a language model that writes SQL, and none is configured: give --llm URL, "
    "or the engine llm"
)
OK, ERROR, EMPTY, NOTHING, CANNOT = "ok", "error", "empty", "no sql", "unanswerable"


def judge(
    statement: Mapping[str, Any],
    result: Mapping[str, Any],
    tried: Sequence[Mapping[str, Any]],
    wanted: Mapping[str, Any],
    started: float,
    style: str,
) -> dict[str, Any]:
    """`tried` with this turn, the `attempt` of the next one, and `verdict`: done or again. started:
    when the first turn began, in seconds since the question was asked. style: of the candidate,
    which a repair keeps, so that two candidates with the same error stay two."""
    if statement["quoted"]:
        raise TeolaError(NEEDS_A_MODEL)
    now = time.monotonic() - wanted["began"]
    sql = statement["sql"]
    turn: dict[str, Any] = {
        "turn": len(tried) + 1,
        "sql": sql,
        "explanation": statement["explanation"],
        "began_s": round(tried[-1]["ended_s"] if tried else started, 4),
        "ended_s": round(now, 4),
    }
    attempt = ""
    if statement["missing"]:
        turn |= {
            "outcome": CANNOT,
            "missing": statement["missing"],
            "instead": statement["instead"],
        }
    elif not sql:
        turn |= {"outcome": NOTHING, "error": "the model wrote no SQL"}
        attempt = f"{style}\n\n{NO_SQL}"
    elif why := result.get("error") or result.get("refused"):
        turn |= {"outcome": ERROR, "error": str(why)[:MOST_TOLD]}
        attempt = f"{style}\n\n{REPAIR.format(sql=sql, error=turn['error'])}"
    elif result.get("near"):
        turn |= {"outcome": EMPTY, "rows": 0, "error": _near(result["near"]), "result": result}
        attempt = f"{style}\n\n{REPAIR.format(sql=sql, error=turn['error'])}"
    else:
        turn |= {"outcome": OK, "result": result}
        if "rows" in result and isinstance(result["rows"], list):
            turn["rows"] = len(result["rows"])
    again = bool(attempt) and not _seen(turn, tried)
    return {
        "tried": [*tried, turn],
        "attempt": attempt,
        "verdict": "again" if again else "done",
    }


def done(verdict: str) -> bool:
    """Whether a candidate's loop may end."""
    return verdict == "done"


def _seen(turn: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the same statement was wrong before: to ask once more would change nothing."""
    mine = " ".join(turn["sql"].split())
    return any(" ".join(one["sql"].split()) == mine for one in tried)


def _near(values: Sequence[Mapping[str, Any]]) -> str:
    """What a statement without rows looked for, and what there is."""
    found: dict[str, list[str]] = {}
    for value in values:
        place = f"{value['value'][:200]!r} in {value['table']}.{value['column']}"
        found.setdefault(str(value["text"])[:200], []).append(place)
    told = "; ".join(f"there is no {text!r}, but {', '.join(of)}" for text, of in found.items())
    return f"it finds no rows: {told}"
