"""The rows of a CSV file, each with the names of its columns: `site: Holm | keeper: Mia`.

So a row can be read alone, wherever a passage begins. A first line that holds no names (it has an
empty cell, a number, or the same text twice) is a row like the others, which then are plain.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import webencodings

from . import Allowed, Extracted, Refused
from .tables import line

_SAMPLE: Final = 4096
_DELIMITERS: Final = ",;\t|"
_TOLD: Final = re.compile(rf'"?sep=([{_DELIMITERS}])"?(?:\r\n?|\n|\Z)', re.IGNORECASE)
"""A first line by which files for Excel tell what stands between cells."""


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of a CSV file in UTF-8, or in what its byte order mark says."""
    data = path.read_bytes()
    marked = webencodings.decode(data[:4], "utf-8")[1].codec_info.name
    try:
        text = data.decode("utf-8-sig" if marked == "utf-8" else marked)
    except UnicodeDecodeError:
        raise Refused("not UTF-8") from None
    if "\0" in text:
        raise Refused("broken")
    text = text.lstrip("\ufeff")
    csv.field_size_limit(max(1, len(text)))
    if told := _TOLD.match(text):
        text, delimiter = text[told.end() :], told[1]
    else:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(text)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names: Sequence[str] | None = None
    lines: list[str] = []
    for number, row in enumerate(filter(any, rows)):
        if number == 0 and _named(row):
            names = [" ".join(cell.split()) for cell in row]
            lines.append(line(row))
        else:
            lines.append(_row(row, names))
    return Extracted("\n".join(filter(None, lines)))


def _delimiter(text: str) -> str:
    """What gives most of the first rows as many cells as the very first one has; of several, what
    gives it the most."""
    sample = text[:_SAMPLE]

    def fit(delimiter: str) -> tuple[float, int]:
        rows = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
        counts = [len(row) for row in rows if any(row)]
        if len(sample) < len(text):
            counts = counts[:-1] or counts  # the last one is cut
        if not counts or counts[0] == 1:
            return 0.0, 1
        return counts.count(counts[0]) / len(counts), counts[0]

    return max(_DELIMITERS, key=fit)


def _named(row: Sequence[str]) -> bool:
    cells = [cell.strip() for cell in row]
    return len(set(cells)) == len(cells) > 1 and all(cells) and not any(map(_numeric, cells))


def _numeric(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _row(row: Sequence[str], names: Sequence[str] | None) -> str:
    if names is None or len(row) > len(names):
        return line(row)
    pairs = zip(names, row, strict=False)
    return line(f"{name}: {cell}" for name, cell in pairs if cell.strip())
