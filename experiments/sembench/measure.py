"""Asks the ten questions in each way, and counts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.sembench import published, truth
from experiments.sembench.questions import PAIRS, QUESTIONS, TABLE, Question
from experiments.sembench.truth import KnowsTheTruth, Review
from teola import tables
from teola.errors import InputError, UnknownName
from teola.runtime import machine
from teola.runtime.runtime import Runtime
from teola.tables import TableQuery

FOLDER: Final = "sembench"
SQL, RELATIONS, KEPT, PAIRWISE, EVERY = (
    "teola",
    "teola_relations",
    "teola_answers_kept",
    "teola_pairs",
    "every_row",
)
OURS_WITHOUT_ANSWERS: Final = (SQL, RELATIONS)
GOAL: Final = 8
"""Questions of ten that must take fewer calls and tokens than every row."""
Rows = list[tuple[Any, ...]]


def measure(options: Options, progress: Progress) -> Report:
    """A row for each question and system. Raises InputError, UnknownName."""
    folder = folder_of(options)
    reviews = truth.read(folder)
    names = _chosen(options.given.questions)
    theirs, missing = published.read(folder)
    task = progress.add_task("sembench", total=len(names))
    rows, same = [], {}
    with (
        tempfile.TemporaryDirectory(prefix="teola-sembench-") as kept,
        Asker(folder / truth.FILE, reviews, Path(kept) / "answers.duckdb") as asker,
    ):
        for name in names:
            mine, same[name] = asker.ask(QUESTIONS[name])
            rows += [*mine, *(row for row in theirs if row["question"] == name)]
            progress.advance(task)
    return {
        "rows": rows,
        "same": same,
        "missing": missing,
        "about": {"reviews": len(reviews), "machine": machine.describe(("teola", "duckdb"))},
    }


def folder_of(options: Options) -> Path:
    """Where the tables are. Raises InputError."""
    if options.data is None:
        raise InputError(
            "the tables of SemBench's movie scenario are needed: --data FOLDER, or TEOLA_DATA, "
            f"with {truth.FILE} in it or in its folder {FOLDER}"
        )
    inner = options.data / FOLDER
    return inner if inner.is_dir() else options.data


def _chosen(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in QUESTIONS:
            raise UnknownName("question", name, list(QUESTIONS))
    return names or list(QUESTIONS)


class Asker:
    """Asks a model that knows the truth. file: the table, with these reviews. answers: kept from
    one question to the next, for the system that keeps them. Nothing else is."""

    def __init__(self, file: Path, reviews: Sequence[Review], answers: Path) -> None:
        self._file, self._reviews, self._answers = file, reviews, answers
        self._model = KnowsTheTruth(reviews).model()
        self._runtime = Runtime({"llm": self._model}, learn=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runtime.close()

    def ask(self, question: Question) -> tuple[list[dict[str, Any]], bool]:
        """A question's rows, and whether SQL and relations gave the same."""
        known = truth.expected(question.name, self._reviews)
        sql = tables.sql(question.sql, {TABLE: self._file})
        ways: dict[str, tuple[TableQuery, Path | bool]] = {
            SQL: (sql, False),
            RELATIONS: (question.relation(lambda: tables.read(self._file)), False),
            KEPT: (sql, self._answers),
        }
        if question.name == PAIRS.name:
            ways[PAIRWISE] = (tables.sql(PAIRS.sql, {TABLE: self._file}), False)
        rows, results = [], {}
        for system, (query, answers) in ways.items():
            self._model.calls.clear()
            result = query.run(runtime=self._runtime, answers=answers).rows
            counted = truth.asked(self._model)
            rows.append(_row(question, system, counted, truth.right(question, result, known)))
            results[system] = _plain(result)
        rows.append(_row(question, EVERY, truth.every_row(question, self._reviews), None))
        return rows, results[SQL] == results[RELATIONS]


def _plain(rows: Rows) -> Rows:
    """Rows to compare: the order is not asked for."""
    return sorted(tuple(map(str, row)) for row in rows)


def _row(
    question: Question, system: str, counted: truth.Asked, right: tuple[int, int] | None
) -> dict[str, Any]:
    """right: None where nothing was run, only counted."""
    return {
        "question": question.name,
        "system": system,
        **counted._asdict(),
        "right": None if right is None else right[0],
        "of": None if right is None else right[1],
    }
