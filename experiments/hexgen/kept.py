"""Runs that are kept in a file as they end, so that hours are not lost with a process.

A line a run, in JSON. A run counts only for the code that made it: each line has a digest of the
sources, and lines of other code are passed over.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import experiments.hexgen
import teola
from experiments.common.command import Report
from experiments.hexgen.cases import Case
from teola.errors import InputError

ONLY_SHOWN: Final = frozenset({"__main__.py", "figures.py", "goals.py"})
"""Sources that decide how a run is shown, and not what it gives."""


@cache
def code() -> str:
    """A digest of the sources that decide what a run gives."""
    told = sha256()
    for package in (teola, experiments.hexgen):
        folder = Path(package.__file__ or "").parent
        for path in sorted(folder.rglob("*.py")):
            if package is experiments.hexgen and path.name in ONLY_SHOWN:
                continue
            told.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return told.hexdigest()[:16]


def key_of(case: Case) -> str:
    """A run, as a text that is the same in each process."""
    return json.dumps(asdict(case), sort_keys=True)


def keep(file: Path, case: Case, report: Report) -> None:
    """Add a run to a file. It is one write, so that processes can share the file."""
    line = json.dumps({"code": code(), "case": key_of(case), "report": report})
    with file.open("a", encoding="utf-8") as opened:
        opened.write(line + "\n")


def runs_of(file: Path) -> dict[str, Report]:
    """The runs that a file has of this code, by their keys. Raises InputError."""
    if not file.exists():
        return {}
    found = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            told = json.loads(line)
            key, report, made_by = told["case"], told["report"], told["code"]
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"{file}, line {number}: this is no run of experiments.hexgen; give --resume "
                "another file, or delete that line"
            ) from None
        if made_by == code():
            found[key] = report
    return found
