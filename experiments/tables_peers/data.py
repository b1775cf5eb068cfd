"""The tables: what is asked of whom, as rows of texts that stand on one line each."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from experiments.tables_peers.answers import POISON, row_prompt
from teola.errors import InputError

Fields = dict[str, str]


@dataclass(frozen=True)
class Asked:
    """A data set and what is asked of each of its rows. repeats: whether inputs repeat."""

    name: str
    file: str
    instruction: str
    read: Callable[[Path], list[Fields]]
    repeats: bool


def _csv(**columns: str) -> Callable[[Path], list[Fields]]:
    """Fields by their names, and the columns that they come from."""

    def read(path: Path) -> list[Fields]:
        with path.open(encoding="utf-8", newline="") as lines:
            return [
                {name: _line(row[column]) for name, column in columns.items()}
                for row in csv.DictReader(lines)
            ]

    return read


def _questions(*, asked: bool) -> Callable[[Path], list[Fields]]:
    def read(path: Path) -> list[Fields]:
        found = json.loads(path.read_text(encoding="utf-8"))
        texts = [_line(one["text"]) for one in found["paragraphs"]]
        return [
            {"context": texts[one["paragraph"]]}
            | ({"question": _line(one["question"])} if asked else {})
            for one in found["questions"]
        ]

    return read


def _line(text: str) -> str:
    return " ".join(text.split()) or "none"


_RULES: Final = (
    "You are a data analyst who works on rows of a table, for people who read your answers in a "
    "report and cannot ask you anything more. What you write goes into one cell of a table. Read "
    "all fields of the row before you answer, and do not make up facts that are not in them. "
)

_ALL: Final = (
    Asked(
        "movies_small by movie",
        "movies_small.csv",
        f"{_RULES}Is this movie suitable for kids? Answer with its code.",
        _csv(title="movie_title", info="movie_info"),
        repeats=True,
    ),
    Asked(
        "beer by style",
        "beer.csv",
        f"{_RULES}What would one eat with a beer of this style? Answer with its code.",
        _csv(style="beer/style"),
        repeats=True,
    ),
    Asked(
        "squad by context",
        "xquad_en.json",
        f"{_RULES}What is this text about? Answer with its code.",
        _questions(asked=False),
        repeats=True,
    ),
    Asked(
        "squad by question",
        "xquad_en.json",
        f"{_RULES}Answer the question from the context, with its code.",
        _questions(asked=True),
        repeats=False,
    ),
)
DATA: Final = {one.name: one for one in _ALL}
TRIED: Final = "squad by question"
"""The data set on which systems are killed, and get a row that the server refuses."""


@dataclass(frozen=True)
class Table:
    """Rows by their numbers, and what is asked of them."""

    asked: Asked
    rows: tuple[Fields, ...]

    @property
    def names(self) -> list[str]:
        return list(self.rows[0])

    def write(self, path: Path) -> None:
        """A line of JSON for each row: `id`, `prompt` as a whole, and its fields."""
        with path.open("w", encoding="utf-8") as lines:
            for id, fields in enumerate(self.rows):
                prompt = row_prompt(self.asked.instruction, fields)
                lines.write(json.dumps({"id": id, "prompt": prompt, **fields}) + "\n")

    def poisoned(self) -> Table:
        """The same with one more row, in the middle, which the server refuses."""
        middle = len(self.rows) // 2
        bad = {name: f"{POISON} {name}" for name in self.names}
        return Table(self.asked, (*self.rows[:middle], bad, *self.rows[middle:]))


def table(folder: Path, name: str, rows: int) -> Table:
    """The first rows of a data set. Those beyond its end are its rows once more: where no inputs
    repeat, with the number of the round behind the last field. Raises InputError."""
    asked = DATA[name]
    path = next(
        (one for one in (folder / "tables" / asked.file, folder / asked.file) if one.is_file()),
        None,
    )
    if path is None:
        raise InputError(f"there is no {asked.file} in {folder} or its folder tables")
    return Table(asked, tuple(islice(_rounds(asked, asked.read(path)), rows)))


def _rounds(asked: Asked, rows: list[Fields]) -> Iterator[Fields]:
    yield from rows
    for number in count(2):
        for fields in rows:
            last = list(fields)[-1]
            more = {} if asked.repeats else {last: f"{fields[last]} ({number})"}
            yield {**fields, **more}
