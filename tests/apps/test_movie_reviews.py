"""The application movie-reviews: its tables have the paper's statistics, its queries run as files,
and the example in docs/examples runs as it stands."""

from __future__ import annotations

import csv
import runpy
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from teola import tables
from teola_apps.movie_reviews import QUERIES, movies, query, reviews, write
from teola_apps.movie_reviews.__main__ import main
from tests.tables.oracle import FunctionAsker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """As many as in the paper, joined."""
    infos = {film["title"]: film["movie_info"] for film in movies()}
    return [{**row, "movie_info": infos[row["title"]]} for row in reviews()]


def test_lengths_and_distinct_values_are_those_of_the_paper(rows: list[dict[str, Any]]) -> None:
    """Within 2 %: sentences are whole."""
    assert len(rows) == 15018
    known = {"movie_info": (407.27, 68), "review_content": (131.50, 14977), "review_type": (5.3, 2)}
    for name, (length, distinct) in known.items():
        values = [str(row[name]) for row in rows]
        assert mean(map(len, values)) == pytest.approx(length, rel=0.02), name
        assert len(set(values)) == distinct, name
    assert mean(row["review_type"] == "Fresh" for row in rows) == pytest.approx(0.697, abs=0.01)
    assert {row["review_score"] for row in rows} == {f"{n}/5" for n in range(1, 6)}
    assert {row["top_critic"] for row in rows} == {True, False}


def test_some_films_are_reviewed_far_more_often(rows: list[dict[str, Any]]) -> None:
    counts = [count for _, count in Counter(row["title"] for row in rows).most_common()]
    assert len(counts) == 68
    assert 2**0.8 * 0.8 < counts[0] / counts[1] < 2**0.8 * 1.2
    assert counts[0] > 10 * counts[-1]


def test_a_seed_makes_the_same_tables_and_another_one_others() -> None:
    assert reviews(50, 3) == reviews(50, 3) != reviews(50, 4)
    assert movies(50, 3) != movies(50, 4)
    assert len(reviews(1)) == 1


def test_the_command_writes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path / "m"), "--rows", "40"])
    assert f"--file {tmp_path}/m/for_kids.sql" in capsys.readouterr().out
    found = {one.name for one in (tmp_path / "m").iterdir()}
    assert found == {"movies.csv", "reviews.csv", "questions.csv", "plots"} | {
        f"{name}.sql" for name in QUERIES
    }
    assert len([*(tmp_path / "m" / "plots").iterdir()]) == 68
    with (tmp_path / "m" / "reviews.csv").open(newline="") as file:
        assert len([*csv.DictReader(file)]) == 40
    with pytest.raises(SystemExit):
        main(["--rows", "0"])


def said(instruction: str, values: list[str]) -> tuple[str, None]:
    if "kids" in instruction:
        return "Yes" if any("family" in value for value in values) else "No", None
    return "4" if "satisfied" in instruction else "A film.", None


def test_each_query_runs_as_it_stands(tmp_path: Path) -> None:
    write(tmp_path, rows=60)
    sources = {name: tmp_path / f"{name}.csv" for name in ("movies", "reviews", "questions")}
    made = {
        name: tables.sql(query(name), sources, answers=tmp_path / "a.duckdb") for name in QUERIES
    }
    asked = made.pop("questions").explain()
    assert [one.to_ask for one in asked.stages] == [0, 136]
    done = {name: one.run(ask_rows=FunctionAsker(said)) for name, one in made.items()}
    assert {one.state for one in done.values()} == {"ok"}
    assert done["recommend"].row_count == 60
    assert 0 < done["for_kids"].row_count < 60
    assert done["for_kids"].row_count == done["for_kids_recommend"].row_count
    assert done["for_kids_recommend"].report["asked"] == 0, "Q1 and Q2 have asked all of it"
    assert {row[2] for row in done["satisfaction"].rows} == {4.0}


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "docs" / "examples" / "movie_reviews.py"))
    told = capsys.readouterr().out
    assert "total: " in told
    assert "1 asked, " in told
