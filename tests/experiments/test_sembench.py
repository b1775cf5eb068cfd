"""SemBench's movies in small: the model, both forms of each question, what is published, and that
the pages say what the kept report says."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.sembench import __main__ as command
from experiments.sembench import figures, published, truth
from experiments.sembench.measure import EVERY, KEPT, OURS_WITHOUT_ANSWERS, PAIRWISE, Asker
from experiments.sembench.questions import (
    ANT_MAN,
    OPPOSITE,
    PAIRS,
    QUESTIONS,
    SAME,
    SCORE,
    SENTIMENT,
    TABLE,
    TAKEN,
)
from experiments.sembench.truth import KnowsTheTruth
from teola import tables
from teola.errors import InputError
from tests.planted import catches, edited

FOLDER = Path(figures.__file__).parent
KEYS = ["question", "system", "calls", "prompt_tokens", "completion_tokens", "right", "of"]
TOLD = {
    "status": "success",
    "token_usage": 14204,
    "money_cost": 0.0050532,
    "row_count": 5,
    "model_name": "gemini-2.5-flash",
    "precision": 1.0,
    "recall": 0.4,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Reviews of three movies; those of one stand twice in the table, and one has a line break."""
    rows = [
        *(("other", 90 + k, f"Other {k}.", "B+", "POSITIVE") for k in range(2)),
        (TAKEN, 1, "Too loud, \nand too long.", "1/4", "NEGATIVE"),
        (TAKEN, 2, "A gentle tale.", "", "POSITIVE"),
        (TAKEN, 3, "A gentle tale.", "", "POSITIVE"),
        *(
            2
            * [
                (ANT_MAN, 4, "Fine.", "3.5/5", "POSITIVE"),
                (ANT_MAN, 5, "No.", "2/5", "NEGATIVE"),
                (ANT_MAN, 6, "Merry.", "4/5", "POSITIVE"),
            ]
        ),
    ]
    head = ["id", "reviewId", "reviewText", "originalScore", "scoreSentiment"]
    with (tmp_path / truth.FILE).open("w", newline="") as lines:
        csv.writer(lines).writerows([head, *rows])
    return tmp_path


@pytest.fixture
def asker(folder: Path) -> Iterator[Asker]:
    with Asker(folder / truth.FILE, truth.read(folder), folder / "answers.duckdb") as made:
        yield made


def asked(asker: Asker, name: str) -> dict[str, dict[str, Any]]:
    rows, same = asker.ask(QUESTIONS[name])
    assert same, name
    assert all(list(row) == KEYS for row in rows)
    return {row["system"]: row for row in rows}


@catches(
    "side-by-side",
    "the model says of two reviews what it says of the first one",
    edited(KnowsTheTruth.__call__, "sentiments[0] == sentiments[1]", "sentiments[0] != 'NEGATIVE'"),
)
def test_the_model_answers_by_what_stands_in_the_prompt(folder: Path) -> None:
    says = KnowsTheTruth(truth.read(folder))
    fine, bad, long = "a.reviewText: Fine.", "b.reviewText: No.", "x: Too loud, \\nand too long."
    assert says(f"{SENTIMENT}\n{long}") == "NEGATIVE"
    assert says(f"{SCORE}\n{fine}") == "3.5"
    assert says(f"{SCORE}\n{long}") == "1.25"
    for one, two in ((fine, bad), (bad, fine)):
        assert says(f"{OPPOSITE}\n{one}\n{two}") == "Yes"
        assert says(f"{SAME}\n{one}\n{two}") == "No"
    assert says(f"{SAME}\n{bad}\n{long}") == "Yes"
    for wrong in (f"{SENTIMENT}\nx: Never seen.", f"{SAME}\n{fine}", f"Why?\n{fine}", SENTIMENT):
        with pytest.raises(InputError):
            says(wrong)


def test_scores() -> None:
    given = {"7/10": 3.5, "1.5 of 4": 1.88, "B+": 3.9, "Recommended": 4.0, "": 4.0, "5 /5": 5.0}
    assert {one: truth.score_of(one, "POSITIVE") for one in given} == given
    assert truth.score_of("", "NEGATIVE") == 2.0


def test_a_join_by_sentiment(asker: Asker) -> None:
    found = asked(asker, "Q7")
    # Of three reviews that stand there twice there are 24 pairs of two, six of them distinct.
    calls = dict.fromkeys((*OURS_WITHOUT_ANSWERS, KEPT), 3) | {PAIRWISE: 6, EVERY: 24}
    assert {name: row["calls"] for name, row in found.items()} == calls
    assert {(row["right"], row["of"]) for name, row in found.items() if name != EVERY} == {(16, 16)}


@pytest.mark.nightly
@pytest.mark.slow
def test_every_question(asker: Asker) -> None:
    kept = {}
    for name in QUESTIONS:
        found = asked(asker, name)
        every = found.pop(EVERY)
        for system, row in found.items():
            assert row["right"] == row["of"] > 0, row
            assert row["calls"] <= every["calls"], (name, system)
        kept[name] = found[KEPT]["calls"]
    assert kept["Q4"] == kept["Q8"] == 0


def test_every_row_is_what_is_asked_without_passes(folder: Path) -> None:
    reviews = truth.read(folder)
    for question in (QUESTIONS["Q9"], PAIRS):
        model = KnowsTheTruth(reviews).model()
        query = tables.sql(question.sql, {TABLE: folder / truth.FILE}, llm=model, answers=False)
        query.run(passes="none")
        assert truth.asked(model) == truth.every_row(question, reviews)


def test_rows_that_are_wrong_or_missing_count() -> None:
    known = [(1,), (2,), (2,), (3,)]
    all_of, few = QUESTIONS["Q9"], QUESTIONS["Q1"]
    assert truth.right(all_of, known, known) == (4, 4)
    assert truth.right(all_of, [(1,), (2,), (9,)], known) == (2, 5)
    assert truth.right(few, [(1,), (2,), (2,), (2,)], known) == (3, 4)
    assert truth.right(few, [(1,)], [(1,)] * 9) == (1, 5)


def test_what_is_published(tmp_path: Path) -> None:
    assert published.tokens(TOLD) == (13844, 360)
    with pytest.raises(InputError, match="price"):
        published.tokens(TOLD | {"money_cost": 0.006})
    told = {name: TOLD for name in QUESTIONS if name not in ("Q3", "Q9")}
    wrong = {key: value for key, value in TOLD.items() if key not in ("precision", "recall")}
    told["Q4"] = wrong | {"relative_error": 0.5, "row_count": 1}
    told["Q9"] = {"status": "failed", "error": "Query 9 not implemented."}
    (tmp_path / "metrics_movie_sf1000_lotus.json").write_text(json.dumps(told))
    rows, missing = published.read(tmp_path)
    found = {row["question"]: row for row in rows}
    assert found["Q1"] == dict(zip(KEYS, ("Q1", "lotus", None, 13844, 360, 2, 5), strict=True))
    assert (found["Q4"]["right"], found["Q4"]["of"]) == (0, 1)
    assert found["Q7"]["right"] is None
    assert missing[:2] == [
        "lotus, Q3: not in metrics_movie_sf1000_lotus.json",
        "lotus, Q9: Query 9 not implemented.",
    ]
    assert len(missing) == 5


def test_mistakes(tmp_path: Path) -> None:
    for words, said in (
        (["--data", str(tmp_path)], "Reviews.csv"),
        (["--questions", "Q11", "--data", str(tmp_path)], "Q11"),
    ):
        if "Q11" in said:
            (tmp_path / truth.FILE).write_text("id\n")
        with pytest.raises(SystemExit, match=said):
            command.main(words)


def test_the_kept_report_and_the_page() -> None:
    report = json.loads((FOLDER / "report.json").read_text())
    assert all(list(row) == KEYS for row in report["rows"])
    assert {row["question"] for row in report["rows"]} == set(QUESTIONS)
    assert [held for *_, held in figures.goals(report)] == 3 * ["met"]
    page = (FOLDER.parents[1] / "docs" / "benchmarks.md").read_text()
    assert figures.section(report, Path("images/sembench.svg")) in page
