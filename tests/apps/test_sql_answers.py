"""What text-to-sql answers: which candidate stands, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from teola_apps.asking_sql.answering import (
    NO_ROWS,
    as_rows,
    facts,
    finish,
    foreign_numbers,
    wants_words,
)
from teola_apps.asking_sql.charts import chart_of
from teola_apps.asking_sql.choosing import (
    LONGEST_VALUE,
    _shown,
    compare,
    outcome,
    row_text,
    rows_as_set,
    rows_within,
    vote,
)


def result_of(*rows: list[Any], columns: Any = ("n",), **more: Any) -> dict[str, Any]:
    return {"columns": [*columns], "rows": [*rows], "truncated": False, **more}


def turn(outcome: str, n: int = 1, **more: Any) -> dict[str, Any]:
    """A turn of a candidate, as it has ended."""
    return {"turn": n, "sql": f"SELECT {n}", "explanation": "", "outcome": outcome, **more}


def ok(*rows: list[Any], n: int = 1, **more: Any) -> dict[str, Any]:
    return turn("ok", n, result=result_of(*rows), rows=len(rows), **more)


CANNOT = turn("unanswerable", missing="no captains", instead="Which boats?")
ERROR = turn("error", error="no such table")


# --- which candidate stands -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "best", "differ"),
    [
        (ok([1]), ok([1]), 0, False),
        (ok([1]), ok([2]), 0, True),
        (ERROR, ok([1]), 1, False),
        (ok([1]), ERROR, 0, False),
        (ERROR, ERROR, 0, False),
        (ERROR, CANNOT, 1, False),
        (CANNOT, ERROR, 0, False),
        (CANNOT, CANNOT, 0, False),
        (CANNOT, ok([1]), 1, False),
        (CANNOT, ok(), 0, False),
        (ok(), CANNOT, 1, False),
        (ok(), ERROR, 0, False),
        (turn("empty", result=result_of(), rows=0), ok([1]), 0, True),
        (turn("empty", result=result_of(), rows=0), CANNOT, 1, False),
        (turn("ok", result={"plan": "scan"}), CANNOT, 0, False),
    ],
)
def test_the_first_that_has_run_stands_and_tests_decide_between_two(
    first: dict[str, Any], second: dict[str, Any], best: int, differ: bool
) -> None:
    """By its last turn; one that found nothing gives way to one that says why."""
    found = compare([ERROR, first], [second], "auto")
    assert (found["compared"]["best"], found["compared"]["differ"]) == (best, differ)
    assert bool(found["shown"]) is differ


def test_statements_that_were_not_run_do_not_differ() -> None:
    first, second = (turn("ok", result=result_of([n])) for n in (1, 2))
    assert not compare([first], [second], "ask")["compared"]["differ"]


def test_rows_differ_by_what_can_be_seen() -> None:
    def alike(one: Any, other: Any) -> bool:
        return bool(rows_as_set({"rows": [[one]]}) == rows_as_set({"rows": [[other]]}))

    assert alike(1, 1.0)
    assert alike(0.1 + 0.2, 0.3)
    assert not alike(1, True)
    assert not alike(123_456_789, 123_456_788)
    assert not alike("é", "e")
    assert rows_as_set({}) == rows_as_set({"rows": None}) == rows_as_set({"rows": []})


@pytest.mark.parametrize(
    ("verdicts", "best", "passes"),
    [
        (["1", "2"], 0, [1, 1]),
        (["2", "1, 2"], 1, [1, 2]),
        ([None, "none", ""], 0, [0, 0]),
        (["2", None], 1, [0, 1]),
        (["1 and 1", "2 2"], 0, [1, 1]),
    ],
)
def test_the_one_that_passes_more_tests_stands(
    verdicts: list[str | None], best: int, passes: list[int]
) -> None:
    compared = compare([ok([1])], [ok([2])], "auto")["compared"]
    found = vote(compared, verdicts)
    assert [one["chosen"] for one in found["attempts"]] == [best == 0, best == 1]
    assert found["passes"] == passes
    assert found["calls"] == 2 + 1 + len(verdicts)


def test_an_outcome_tells_what_stands_and_what_the_other_one_doubts() -> None:
    both = [[ERROR, ok([1], n=2)], [CANNOT]]
    found = outcome({"tried": both, "best": 0})
    assert (found["ran"], found["cannot"], found["error"]) == (True, False, "")
    assert (found["doubt"], found["calls"], found["passes"]) == ("no captains", 3, None)
    assert [one["chosen"] for one in found["attempts"]] == [False, True, False]
    assert [one["candidate"] for one in found["attempts"]] == [1, 1, 2]
    assert not any("result" in one for one in found["attempts"])
    assert found["sql"] == "SELECT 2"
    told = turn("ok", result={**result_of([1]), "sql": "SELECT 1 LIMIT 100"})
    assert outcome({"tried": [[told], [ERROR]], "best": 0})["sql"] == "SELECT 1 LIMIT 100"
    cannot = outcome({"tried": both, "best": 1})
    assert (cannot["missing"], cannot["instead"]) == ("no captains", "Which boats?")
    assert (cannot["ran"], cannot["cannot"], cannot["doubt"]) == (False, True, "")
    assert not any(one["chosen"] for one in cannot["attempts"])
    failed = outcome({"tried": [[ERROR], [ERROR]], "best": 0})
    assert (failed["ran"], failed["error"]) == (False, "no such table")


def test_tests_are_told_both_statements_and_the_first_of_their_rows() -> None:
    ten, more = [[n] for n in range(10)], [[n] for n in range(11)]
    shown = _shown([ok(*ten), ok(*more, n=2)]).split("\n\n")
    assert shown[0].startswith('Statement 1:\nSELECT 1\nIts rows, ["n"]:\n[0]\n')
    assert shown[0].endswith("\n[9]")
    assert shown[1].startswith("Statement 2:\nSELECT 2\n")
    assert shown[1].endswith("\n[9]\n...")
    assert _shown([ok()]).endswith(":\n(no rows)")
    cut = turn("ok", result=result_of([1], truncated=True))
    assert _shown([cut]).endswith("\n[1]\n...")


def test_rows_of_a_prompt_are_as_many_as_fit() -> None:
    assert rows_within([["abc"], ["abc"], ["abc"]], 14) == ['["abc"]', '["abc"]']
    assert rows_within([["abc"], ["abc"]], 13) == ['["abc"]']
    assert rows_within([["abc"]], 0) == ['["abc"]'], "the first one in any case"
    assert rows_within([], 14) == []
    long = "x" * LONGEST_VALUE
    assert row_text([long, f"{long}x"]) == f'["{long}", "{long[:-1]}…"]'
    assert row_text([None, True, {"é": 1}]) == '[null, true, "{\\"é\\": 1}"]'
    assert row_text([1] * 50).count("1") == 50
    assert row_text([1] * 51).endswith(', 1, "..."]')


# --- words ----------------------------------------------------------------------------------------


def test_words_are_written_from_the_first_rows() -> None:
    rows = [[n] for n in range(51)]
    assert facts({"result": result_of(*rows[:50])}).splitlines()[-1] == "[49]"
    lines = facts({"result": result_of(*rows)}).splitlines()
    assert lines[0] == '["n"]'
    assert lines[-2:] == ["[49]", "(only the first 50 rows; there are more)"]
    cut = facts({"result": result_of([1], truncated=True)})
    assert cut.splitlines()[-1] == "(only the first 1 rows; there are more)"


@pytest.mark.parametrize(
    ("result", "ran", "own", "wanted"),
    [
        (result_of([1]), True, "", True),
        (result_of(), True, "", False),
        (result_of([1]), False, "", False),
        (result_of([1]), True, "SELECT 1", False),
        ({"rows": 17.0}, True, "", False),
        ({}, True, "", False),
    ],
)
def test_words_are_wanted_for_rows_that_the_model_asked_for(
    result: dict[str, Any], ran: bool, own: str, wanted: bool
) -> None:
    assert wants_words({"result": result, "ran": ran}, own) is wanted


def finished(said: str | None = None, more_calls: int = 0, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "sql": "SELECT 1", "result": result_of([6.5]), "explanation": "", "ran": True,
        "cannot": False, "missing": "", "instead": "", "error": "", "doubt": "", "attempts": [],
        "calls": 2,
    }  # fmt: skip
    found: dict[str, Any] = finish({**given, **more}, {"question": "How deep?"}, more_calls, said)
    return found


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({"said": " 6.5 m. "}, "6.5 m."),
        ({"said": None}, "n: 6.5"),
        ({"said": " "}, "n: 6.5"),
        ({"said": "7.5 m."}, "n: 6.5\n(These are the rows: the model's sentence had a number that "
         "is not in them, 7.5.)"),
        ({"said": "6.5 m.", "result": result_of([6.5], note="cut")}, "6.5 m. (cut)"),
        ({"result": result_of([6.5], note="cut")}, "n: 6.5 (cut)"),
        ({"said": "7 m and 8 m.", "result": result_of([6.2], note="cut")}, "n: 6.2\n(These are the "
         "rows: the model's sentence had a number that is not in them, 7, 8.) (cut)"),
        ({"result": result_of()}, NO_ROWS),
        ({"result": result_of(), "kept": "Kept."}, f"Kept.\n{NO_ROWS}"),
        ({"kept": "Kept."}, "Kept.\nn: 6.5"),
        ({"stopped": "Not run."}, "Not run."),
        ({"result": {"rows": 17.0}}, "The SQL was written and not run."),
        ({"ran": False, "error": "no such table", "result": {}},
         "No statement answered the question. The last error: no such table"),
        ({"ran": False, "cannot": True, "missing": "no captains.", "result": {}},
         "I cannot tell from this data: no captains."),
        ({"ran": False, "cannot": True, "missing": "none", "instead": "Why?", "result": {}},
         "I cannot tell from this data: none. What could be asked: Why?"),
    ],
)  # fmt: skip
def test_each_end_has_its_words(more: dict[str, Any], answer: str) -> None:
    assert finished(**more)["answer"] == answer


def test_what_comes_with_the_answer() -> None:
    found = finished("6.5 m.", more_calls=1, doubt="Maybe not.")
    assert (found["calls"], found["explanation"]) == (
        2 + 1 + 1,
        "(Another attempt doubts it: Maybe not.)",
    )
    assert finished(None)["calls"] == 2
    assert (found["columns"], found["rows"], found["answerable"]) == (["n"], [[6.5]], True)
    planned = finished(result={"rows": 17.0, "tables": ["boats"]})
    assert (planned["columns"], planned["rows"], planned["tables"]) == ([], [], ["boats"])
    cut = finished(result=result_of([1], truncated=True))
    assert (cut["truncated"], found["truncated"]) == (True, False)
    cannot = finished(ran=False, cannot=True, missing="none", result={})
    assert (cannot["sql"], cannot["chart"], cannot["answerable"]) == ("", None, False)
    two = result_of(["a", 1], ["b", 2], columns=("name", "n"))
    assert finished(result=two)["chart"] == {"kind": "bar", "x": "name", "y": "n"}
    assert finished(result=two, ran=False, error="no")["chart"] is None


def test_rows_are_an_answer_too() -> None:
    assert as_rows(result_of([None])) == "n: no value"
    assert as_rows(result_of([0])) == "n: 0"
    assert (
        as_rows(result_of([None, "x" * 201], columns=("n", "name"))) == f"n | name\n | {'x' * 200}"
    )
    twenty = as_rows(result_of(*([n] for n in range(20))))
    assert (twenty.count("\n"), twenty.endswith("\n19")) == (20, True)
    assert as_rows(result_of(*([n] for n in range(21)))).endswith("\n19\n... (21 rows)")
    cut = as_rows(result_of([1], [2], truncated=True))
    assert cut.endswith("\n2\n... (2 rows and more)")


@pytest.mark.parametrize(
    ("said", "foreign"),
    [
        ("-6.449 became 6.45, 6.4 or 6", []),
        ("6.5", ["6.5"]),
        ("6.448", ["6.448"]),
        ("12.5 %, 12.50  % and 0.13", []),
        ("12.5", ["12.5"]),
        ("12.6 %", ["12.6"]),
        ("2 rows, 12,000 or 1e4", []),
        ("3 rows, 13,000 or 2e4", ["3", "13,000", "2e4"]),
        ("1) 7\n10. 6.449\n100. 6.449", ["7", "100"]),
        ("in 2024, for 06", []),
    ],
)
def test_a_number_may_have_fewer_digits_but_no_others(said: str, foreign: list[str]) -> None:
    result = result_of([6.449, 0.125], [-12000, "on 2024-05-06"], columns=("a", "b"))
    assert foreign_numbers(said, "", result) == foreign


# --- charts ---------------------------------------------------------------------------------------


def named(count: int, *more: str) -> dict[str, Any]:
    """Rows with a name each, further words, and a number."""
    rows = [[f"boat {n}", *(text.format(n) for text in more), n] for n in range(count)]
    return {"columns": ["name", *(f"w{i}" for i in range(len(more))), "n"], "rows": rows}


def test_a_chart_has_as_many_rows_as_can_be_read() -> None:
    bar = {"kind": "bar", "x": "name", "y": "n"}
    assert chart_of(named(1)) is None
    assert chart_of(named(2)) == chart_of(named(40)) == bar
    assert chart_of(named(41)) is None
    points: dict[str, Any] = {"columns": ["a", "b"], "rows": [[n, n] for n in range(501)]}
    assert chart_of(points) is None
    assert chart_of({**points, "rows": points["rows"][1:]}) == {"kind": "point", "x": "a", "y": "b"}
    assert chart_of({}) is chart_of({"columns": ["a"], "rows": None}) is None


def test_a_second_column_of_few_words_is_a_series() -> None:
    def of(kinds: int, rows: int = 18) -> Any:
        listed = [[f"boat {n // 2}", f"kind {n % kinds}", n] for n in range(rows)]
        return chart_of({"columns": ["name", "kind", "n"], "rows": listed})

    series = {"kind": "bar", "x": "name", "y": "n", "series": "kind"}
    assert of(2) == of(8) == series
    assert of(1) is of(9) is None
    assert of(2, 320) == series
    assert of(2, 321) is None
    month = [[f"2024-0{n}", "x", f"kind {n % 2}", n, n] for n in (1, 2, 3)]
    line = chart_of({"columns": ["month", "same", "kind", "a", "b"], "rows": month})
    assert line == {"kind": "line", "x": "month", "y": "a", "series": "kind"}


@pytest.mark.parametrize(
    ("column", "values", "numeric"),
    [
        ("order_year", [2023, 2024], False),
        ("Sale-Month", [1, 2], False),
        ("yearly", [1, 2], True),
        ("years", [1, 2], True),
        ("ID", [1, 2], False),
        ("zip", [1, 2], False),
        ("paid", [1, 2], True),
        ("flag", [True, False], False),
        ("n", [1, None], True),
        ("n", [None, None], False),
        ("n", [1, "x"], False),
    ],
)
def test_only_amounts_are_drawn(column: str, values: list[Any], numeric: bool) -> None:
    rows = [[f"boat {n}", value] for n, value in enumerate(values)]
    found = chart_of({"columns": ["name", column], "rows": rows})
    assert (found is not None) is numeric


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024", True), ("2024-05", True), ("2024-05-06", True), ("2024-05-06 10:30", True),
        ("2024-05-06T10:30:01+02:00", True), ("2024-5", False), ("2024-05-06 noon", False),
        ("in 2024", False),
    ],
)  # fmt: skip
def test_dates_make_lines(text: str, time: bool) -> None:
    found = chart_of({"columns": ["a", "n"], "rows": [[text, 1], ["2025", 2]]})
    assert found == {"kind": "line" if time else "bar", "x": "a", "y": "n"}
