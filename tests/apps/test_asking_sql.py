"""What text-to-sql is made of: replies, follow-ups, results that agree, charts, numbers."""

from __future__ import annotations

import threading
from time import process_time
from typing import Any

import pytest

from teola import Write
from teola.errors import TemplateError, TeolaError
from teola_apps.asking_sql.answering import facts, foreign_numbers
from teola_apps.asking_sql.charts import chart_of
from teola_apps.asking_sql.choosing import _shown, rows_as_set
from teola_apps.asking_sql.inline import inline, left_of
from teola_apps.asking_sql.replies import read_doubt, read_names, read_passed, read_reply
from teola_apps.asking_sql.wanted import begin, stands_alone, turns_of


@pytest.mark.parametrize(
    ("question", "alone"),
    [
        ("Which ten customers paid most in the year 2024?", True),
        ("How many boats of each kind are in the harbour?", True),
        ("And which of them are from Sund?", False),
        ("What about the ones in March only?", False),
        ("Sort them by length, the longest first", False),
        ("Only in June", False),
        ("Und welche davon liegen in Sund am Kai?", False),
        ("Which ports have boats that are longer than 10 m?", True),
        ("How many boats are there in the whole harbour?", True),
        ("Which customers paid above the average of all orders?", True),
        ("List the customers and their orders of last year", True),
        ("How much more was sold than in the previous year?", True),
        ("How many of those have a berth in Sund?", False),
        ("What is the average of their lengths in metres?", False),
        ("How much did she pay in June of last year?", False),
        ("Show that by month for the last three years", False),
        ("港に停泊している船のうち長さが十メートルを超えるものは何隻ですか", True),
        ("那些船在哪里停泊并且有多长", False),
        ("多少?", False),
    ],
)
def test_a_question_that_refers_to_nothing_stands_alone(question: str, alone: bool) -> None:
    assert stands_alone(question) is alone


def test_history_in_all_its_forms() -> None:
    turn = {"question": "Which boats?", "sql": "SELECT 1"}
    said = "User: Which boats?\nAssistant: Two.\n```sql\nSELECT 1\n```\nUser: And now?"
    assert (
        turns_of([turn]) == turns_of('[{"question": "Which boats?", "sql": "SELECT 1"}]') == [turn]
    )
    assert turns_of(said) == [turn, {"question": "And now?", "sql": ""}]
    assert turns_of(None) == turns_of("") == []
    for wrong in ({"question": "a"}, [1], [{"sql": "x"}], [{**turn, "rows": [[1]]}]):
        with pytest.raises(TeolaError, match=r"history|rows"):
            turns_of(wrong)
    with pytest.raises(TeolaError, match="8,000 are taken"):
        begin("x" * 100_000, "auto", False, False)


def test_replies() -> None:
    two = read_reply("```sql\nSELECT 1\n```\nor better\n```sql\nSELECT 2;\n```")
    assert two["sql_text"] == "SELECT 2"
    cannot = read_reply("**Unanswerable**: no wages\nInstead: Which jobs?")["statement"]
    assert (cannot["missing"], cannot["instead"]) == ("no wages", "Which jobs?")
    assert read_reply("I am sorry.")["sql_text"] == ""
    assert read_reply("")["statement"]["sql"] == ""
    assert read_doubt(" Clear. ") == ""
    assert read_doubt("Net or gross?") == "Net or gross?"
    assert read_names("1. boats\n- `berths`: depth\n\nboats") == ["boats", "berths"]
    assert read_passed("2 and 1, not 7", 2) == [1, 2]
    assert read_passed("none", 2) == []


@pytest.mark.parametrize(
    ("written", "sql"),
    [
        ("```SELECT max(depth) FROM berths```", "SELECT max(depth) FROM berths"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("```PostgreSQL\nSELECT 1\n```", "SELECT 1"),
        ("```sql\nSELECT 1;\n```\nIt gives\n```\n| 6.5 |\n```", "SELECT 1"),
        ("```sql\n-- the deepest\n(SELECT 1)\n```", "-- the deepest\n(SELECT 1)"),
        ("```\n| 6.5 |\n```", "| 6.5 |"),
        ("Unanswerable: no captains.\nWith these tables only boats can be listed.", ""),
        ("With pleasure:\nSELECT 1", "With pleasure:\nSELECT 1"),
    ],
)
def test_statements_of_replies(written: str, sql: str) -> None:
    read = read_reply(written)
    assert read["sql_text"] == sql
    assert (read["statement"]["missing"] == "no captains.") is written.startswith("Unanswerable")


def test_a_wide_or_long_result_stays_a_prompt() -> None:
    rows = [[k, *(["x" * 300] * 99)] for k in range(60)]
    outcome = {"result": {"columns": ["c"] * 100, "rows": rows, "truncated": False}}
    text = facts(outcome)
    assert len(text) < 24_000 + 2 * 50 * 210
    assert text.splitlines()[1].startswith("[0, ")
    assert text.splitlines()[1].endswith('"..."]')
    assert text.splitlines()[-1] == "(only the first 2 rows; there are more)"
    assert foreign_numbers("There are 60 in all, 59 of them long.", "", outcome["result"]) == ["59"]
    cut = {**outcome["result"], "truncated": True}
    assert foreign_numbers("There are 60.", "", cut) == ["60"]
    last = {"outcome": "ok", "result": outcome["result"], "sql": "SELECT 1"}
    assert len(_shown([last, last])) < 2 * (8_000 + 2 * 50 * 210)


def test_a_prompts_question_is_one_of_its_parts() -> None:
    with pytest.raises(TemplateError, match="'asked', which is none of its parts: schema, text"):
        Write(instruction="Write.", parts={"schema": "", "text": ""}, question="asked")


def test_results_agree_as_sets() -> None:
    one = {"rows": [[1, "a"], [2.0, "b"], [2, "b"]]}
    other = {"rows": [["b", 2], ["a", 1.0]]}
    assert rows_as_set(one) == rows_as_set(other)
    assert rows_as_set({"rows": [["1"]]}) != rows_as_set({"rows": [[1]]})


@pytest.mark.parametrize(
    ("columns", "rows", "chart"),
    [
        (["name", "n"], [["a", 1], ["b", 2]], {"kind": "bar", "x": "name", "y": "n"}),
        (
            ["month", "n"],
            [["2024-01", 1], ["2024-02", 2]],
            {"kind": "line", "x": "month", "y": "n"},
        ),
        (["year", "n"], [[2023, 1], [2024, 2]], {"kind": "line", "x": "year", "y": "n"}),
        (["a", "b"], [[1, 2.5], [2, 3.5]], {"kind": "point", "x": "a", "y": "b"}),
        (
            ["month", "kind", "n"],
            [["2024-01", "x", 1], ["2024-01", "y", 2], ["2024-02", "x", 2]],
            {"kind": "line", "x": "month", "y": "n", "series": "kind"},
        ),
        (["name"], [["a"], ["b"]], None),
        (["name", "boat_id"], [["a", 1], ["b", 2]], None),
        (["n", "n"], [[1, 2], [2, 3]], None),
        (["n"], [[1]], None),
    ],
)
def test_a_chart_is_chosen_by_types(columns: list[str], rows: list[list[Any]], chart: Any) -> None:
    assert chart_of({"columns": columns, "rows": rows}) == chart


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("It is 6.5 m.", []),
        ("About 1,234.57 in all, of 3 boats in 2024.", []),
        ("1. 6.5\n2. 1234.568", []),
        ("That is 12.5 %.", []),
        ("12.5 of them", ["12.5"]),
        ("It is 7.5 m.", ["7.5"]),
        ("2025 was better: 6.5", ["2025"]),
        ("No number here.", []),
    ],
)
def test_numbers_stand_in_the_rows_or_the_question(said: str, wrong: list[str]) -> None:
    rows = [[6.5, "2024-05-01"], [1234.5678, "x"], [0.125, None]]
    result = {"columns": ["n", "when"], "rows": rows, "truncated": False}
    assert foreign_numbers(said, "How deep were boats in 2024?", result) == wrong


@pytest.mark.parametrize(
    "reply",
    [
        "```\n" + "/**/" * 25 + "x```",
        "\n" * 50_000,
        ".\n" * 20_000,
        "```" * 20_000,
        "<think>" * 10_000,
        "```\n" + "--\n" * 10_000 + "x```",
    ],
    ids=["comments", "lines", "dots", "fences", "thoughts", "notes"],
)
def test_a_reply_without_end_is_read_at_once(reply: str) -> None:
    began = process_time()
    assert read_reply(reply)["statement"]["missing"] == ""
    assert process_time() - began < 1.0


async def test_a_step_takes_a_thread_only_for_much() -> None:
    where: list[bool] = []

    def step(rows: Any) -> int:
        where.append(threading.current_thread() is threading.main_thread())
        return len(rows)

    assert await inline(step)(rows=[[1, "x"]] * 100) == 100
    assert await inline(step)(rows=[[1, "x"]] * 1_000) == 1_000
    assert await inline(step)(rows=[["x" * 30_000]]) == 1
    assert where == [True, False, False]
    nested: Any = {"a": [{"b": ("x" * 10,) * 3}] * 2}
    assert left_of(1_000, nested) > 0 > left_of(100, nested)
    assert left_of(10, None) == 0
    assert left_of(15, "x" * 5) == 0 > left_of(14, "x" * 5)
    assert left_of(28, {"key": "x" * 5}) == 0
    assert left_of(40, [1, 2]) == 10
    assert left_of(50, ("x" * 5, "y" * 5)) == 10
