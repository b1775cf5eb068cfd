"""What SemBench publishes of other systems: `metrics_movie_sf1000_SYSTEM.json`.

A file has for each question all tokens in one figure, what they cost, and how right the result was.
It has no calls. The model is gemini-2.5-flash, whose tokens cost $0.30 (prompt) and $2.50 (answer)
a million, so that the cost tells the two apart:

    prompt + answer = token_usage        0.30 prompt + 2.50 answer = 10^6 money_cost

For all but ThalamusDB, whose costs are rounded to a millionth, the answers come out whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from experiments.sembench.questions import QUESTIONS, Question
from teola.errors import InputError

SYSTEMS: Final = ("lotus", "palimpzest", "thalamusdb", "bigquery")
PROMPT, ANSWER = 0.30, 2.50
"""Dollars for 10^6 tokens of gemini-2.5-flash."""
MODEL: Final = "gemini-2.5-flash"
ROUNDED: Final = 0.25
"""Tokens that a cost rounded to a millionth of a dollar may be off by, and a little."""


def read(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of all four systems, and what is missing. Raises InputError."""
    rows, missing = [], []
    for system in SYSTEMS:
        path = folder / f"metrics_movie_sf1000_{system}.json"
        if not path.is_file():
            missing.append(f"{system}: there is no {path.name}")
            continue
        told = json.loads(path.read_text(encoding="utf-8"))
        for name, question in QUESTIONS.items():
            if name not in told:
                missing.append(f"{system}, {name}: not in {path.name}")
            elif told[name]["status"] != "success":
                missing.append(f"{system}, {name}: {told[name]['error']}")
            else:
                rows.append(_row(system, question, told[name]))
    return rows, missing


def _row(system: str, question: Question, told: Mapping[str, Any]) -> dict[str, Any]:
    right, of = _right(question, told)
    prompt, answer = tokens(told)
    return {
        "question": question.name,
        "system": system,
        "calls": None,
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "right": right,
        "of": of,
    }


def tokens(told: Mapping[str, Any]) -> tuple[int, int]:
    """Of prompts and of answers. Raises InputError where the price is another one."""
    whole, cost = told["token_usage"], told["money_cost"]
    answer = (1e6 * cost - PROMPT * whole) / (ANSWER - PROMPT)
    if told["model_name"] != MODEL or abs(answer - round(answer)) > ROUNDED:
        raise InputError(f"tokens and cost do not agree with the price of {MODEL}: {dict(told)}")
    return round(whole) - round(answer), round(answer)


def _right(question: Question, told: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Rows that were right, where the figures tell: a recall of a few, or no error at all.

    Q8 gives one error for two counts; where it is not 0, it is that of two counts which are off by
    the same, since all reviews are counted. Recall of Q7 and rank correlations tell no rows.
    """
    if question.wanted is not None:
        return round(told["recall"] * question.wanted), question.wanted
    if "relative_error" in told:
        of = told["row_count"]
        return (0 if told["relative_error"] else of), of
    return None, None
