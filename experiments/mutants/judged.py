"""Survivors that no test can notice: judged once, and kept by function and change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from teola.errors import TeolaError

KEPT: Final = Path(__file__).with_name("equivalents.json")
KEYS: Final = {"function", "change", "reason"}


def equivalents(file: Path = KEPT) -> dict[tuple[str, str], str]:
    """Reasons by function and change. Raises TeolaError for an entry that is not whole."""
    reasons: dict[tuple[str, str], str] = {}
    for entry in json.loads(file.read_text(encoding="utf-8")):
        if set(entry) != KEYS or not all(entry.values()):
            raise TeolaError(f"{file.name}: an entry has function, change and reason: {entry}")
        key = (entry["function"], entry["change"])
        if key in reasons:
            raise TeolaError(f"{file.name}: {key[0]} has {key[1]!r} twice")
        reasons[key] = entry["reason"]
    return reasons


def judge(rows: Sequence[dict[str, Any]], reasons: dict[tuple[str, str], str]) -> list[str]:
    """Mark survivors that are equivalent, and no others. Returns what is called equivalent and was
    noticed."""
    wrong = []
    for row in rows:
        judged = (row["function"], row["operator"]) in reasons
        if row["state"] in ("survived", "equivalent"):
            row["state"] = "equivalent" if judged else "survived"
        elif judged:
            wrong.append(f"{row['function']}: {row['operator']} (by {row['by']})")
    return wrong
