"""Measured runs of one load each, as benchmarks publish them: so many requests at a time, all of
one length, and how long a token took.

A CSV file has a row for each run, with `isl` and `osl` (tokens of a prompt and of its answer), how
many requests ran at a time (`concurrency`, else `batch_size`), and milliseconds for each token
after the first (`tpot`, `tpot_ms` or `silicon_tpot_ms`). Other columns say what was measured: the
rows to take are chosen by them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from teola.errors import InputError, UnknownName

CONCURRENCY: Final = ("concurrency", "batch_size")
TPOT: Final = ("tpot", "tpot_ms", "silicon_tpot_ms")
FEWEST: Final = 6
"""Runs that say something of five terms."""


class MeasuredRate(NamedTuple):
    """One run: tokens of prompts and of answers, requests at a time, seconds for a token."""

    prompt: int
    output: int
    concurrency: int
    tpot_s: float

    @property
    def terms(self) -> tuple[float, ...]:
        """What the time of a step is in proportion to, on average, in the order of TERMS. While an
        answer is generated each of the others is, once, and each has its prompt computed once."""
        together = float(self.concurrency)
        attended = together * (self.prompt + self.output / 2)
        prompts = together / self.output
        pairs = prompts * self.prompt * (self.prompt + 1) / 2
        return (1.0, together, attended, prompts * self.prompt, pairs, 0.0)


def measured_rates(path: Path, where: Mapping[str, str] | None = None) -> tuple[MeasuredRate, ...]:
    """The runs of a file whose columns are as `where` says. Raises InputError if it is no such
    file, or too few are, and UnknownName for a column that is not there."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = [row for row in reader if None not in row]
            columns = list(reader.fieldnames or ())
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} is no file of measured runs: {error}") from None
    for name in where or {}:
        if name not in columns:
            raise UnknownName("column", name, columns, str(path))
    chosen = [row for row in rows if all(row[name] == is_ for name, is_ in (where or {}).items())]
    together, tpot = _one_of(CONCURRENCY, columns, path), _one_of(TPOT, columns, path)
    measured = [rate for row in chosen if (rate := _rate(row, together, tpot)) is not None]
    if len(measured) < FEWEST:
        raise InputError(
            f"{path}: {len(measured)} runs with isl, osl, {together} and {tpot} are chosen, and it "
            f"takes at least {FEWEST}"
        )
    return tuple(measured)


def _one_of(names: Sequence[str], columns: Sequence[str], path: Path) -> str:
    for name in names:
        if name in columns:
            return name
    raise InputError(f"{path} is no file of measured runs: it has no column {names[0]!r}")


def _rate(row: Mapping[str, str], together: str, tpot: str) -> MeasuredRate | None:
    """None for a row that does not tell."""
    try:
        rate = MeasuredRate(
            int(row["isl"]), int(row["osl"]), int(row[together]), float(row[tpot]) / 1e3
        )
    except (KeyError, ValueError, TypeError):
        return None
    return rate if min(rate) > 0 else None
