"""The folder that the application is for its user: tables as CSV, queries as SQL, and plots."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from .generated import ROWS, movies, questions, reviews

FOLDER: Final = "movie-reviews"
QUERIES: Final = ("recommend", "for_kids", "for_kids_recommend", "satisfaction", "questions")
"""The paper's Q1 to Q5: projection, filter, filter then projection, aggregate, retrieval."""


def query(name: str) -> str:
    """The text of one of QUERIES."""
    return (files(__package__) / "queries" / f"{name}.sql").read_text(encoding="utf-8")


def write(folder: str | Path = FOLDER, rows: int = ROWS, seed: int = 0) -> Path:
    """Write all files. rows: reviews; as many as in the paper by default. Returns the folder."""
    root = Path(folder)
    (root / "plots").mkdir(parents=True, exist_ok=True)
    films = movies(rows, seed)
    _write_csv(root / "movies.csv", films)
    _write_csv(root / "reviews.csv", reviews(rows, seed))
    _write_csv(root / "questions.csv", questions(rows, seed))
    for film in films:
        plot = root / "plots" / f"{film['title']}.txt"
        plot.write_text(f"{film['title']}. {film['movie_info']}\n", encoding="utf-8")
    for name in QUERIES:
        (root / f"{name}.sql").write_text(query(name), encoding="utf-8")
    return root


def _write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_plain(value) for value in row.values()] for row in rows)


def _plain(value: object) -> object:
    """`true` and `false`, as DuckDB prints them."""
    return str(value).lower() if isinstance(value, bool) else value
