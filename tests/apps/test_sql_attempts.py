"""What text-to-sql asks a model, and what it says of a statement that is wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest

from teola.engine import Hit
from teola.errors import TeolaError
from teola_apps.asking_sql import kept, wanted
from teola_apps.asking_sql.attempts import MOST_TOLD, judge
from teola_apps.asking_sql.prompts import NO_SQL, STYLES, prepare
from teola_apps.asking_sql.replies import LONGEST, read_doubt, read_names, read_passed, read_reply


def judged(
    sql: str = "SELECT 1",
    result: dict[str, Any] | None = None,
    tried: list[dict[str, Any]] | None = None,
    **statement: Any,
) -> tuple[dict[str, Any], str, str]:
    """The last turn, the next attempt and the verdict."""
    plain = {"sql": sql, "explanation": "", "missing": "", "instead": "", "quoted": False}
    began = {"began": time.monotonic()}
    found = judge({**plain, **statement}, result or {}, tried or [], began, 0.25, "Style.")
    return found["tried"][-1], found["attempt"], found["verdict"]


NEAR = [
    {"text": "KITE", "value": "Kite", "table": "boats", "column": "name"},
    {"text": "KITE", "value": "kite", "table": "birds", "column": "kind"},
    {"text": "SUND", "value": "Sund", "table": "boats", "column": "port"},
]


def test_what_is_wrong_with_a_statement_is_told_with_it() -> None:
    for told in ({"error": "no such table"}, {"refused": "no such table"}):
        turn, attempt, verdict = judged(result=told)
        assert (turn["outcome"], turn["error"], verdict) == ("error", "no such table", "again")
        assert attempt.startswith("Style.\n\n")
        assert "```sql\nSELECT 1\n```\nWhat is wrong: no such table" in attempt
        assert "result" not in turn
    turn, attempt, _ = judged(result={"error": "x" * (MOST_TOLD + 1)})
    assert len(turn["error"]) == MOST_TOLD
    assert attempt.endswith(f" {turn['error']}")


def test_a_good_statement_ends_its_candidate() -> None:
    turn, attempt, verdict = judged(result={"rows": [[1], [2]]})
    assert (turn["outcome"], turn["rows"], attempt, verdict) == ("ok", 2, "", "done")
    turn, _, verdict = judged(result={"rows": []})
    assert (turn["outcome"], turn["rows"], verdict) == ("ok", 0, "done")
    planned, _, _ = judged(result={"rows": 17.0, "plan": "scan"})
    assert "rows" not in planned


def test_a_statement_that_finds_nothing_is_told_what_there_is() -> None:
    turn, attempt, verdict = judged(result={"rows": [], "near": NEAR})
    assert (turn["outcome"], turn["rows"], verdict) == ("empty", 0, "again")
    assert turn["error"] == (
        "it finds no rows: there is no 'KITE', but 'Kite' in boats.name, 'kite' in birds.kind; "
        "there is no 'SUND', but 'Sund' in boats.port"
    )
    assert turn["error"] in attempt
    assert turn["result"]["rows"] == []


def test_no_statement_is_asked_for_again_and_once() -> None:
    turn, attempt, verdict = judged("")
    assert (turn["outcome"], verdict) == ("no sql", "again")
    assert attempt == f"Style.\n\n{NO_SQL}"
    assert judged("", tried=[turn])[2] == "done"


def test_what_cannot_be_told_ends_its_candidate() -> None:
    turn, attempt, verdict = judged("", missing="no captains", instead="Which boats?")
    assert (turn["outcome"], attempt, verdict) == ("unanswerable", "", "done")
    assert (turn["missing"], turn["instead"]) == ("no captains", "Which boats?")


def test_a_statement_that_was_wrong_before_is_not_tried_again() -> None:
    wrong, _, _ = judged("SELECT  a\nFROM b", {"error": "no a"})
    other, _, _ = judged("SELECT c", {"error": "no c"})
    for tried in ([wrong], [wrong, other], [other, wrong]):
        assert judged("SELECT a FROM b ", {"error": "no a"}, tried)[2] == "done"
    assert judged("SELECT a FROM B", {"error": "no a"}, [wrong, other])[2] == "again"


def test_a_turn_begins_when_the_one_before_it_ended() -> None:
    first, _, _ = judged()
    assert (first["turn"], first["began_s"]) == (1, 0.25)
    assert 0.0 <= first["ended_s"] < 5.0
    before = [{**first, "ended_s": 0.5}, {**first, "ended_s": 1.5}]
    third, _, _ = judged("SELECT 2", tried=before)
    assert (third["turn"], third["began_s"]) == (3, 1.5)


# --- prompts --------------------------------------------------------------------------------------


def prepared(**more: Any) -> dict[str, Any]:
    earlier, ask = more.pop("earlier", []), more.pop("ask", False)
    began = time.monotonic()
    asked = {"question": "Which boats?", "earlier": earlier, "ask": ask, "began": began}
    kept = more.pop("kept", [])
    linked = {
        "dialect": "sqlite", "schema": "table boats", "examples": [], "values": [], "offered": [],
    }  # fmt: skip
    found: dict[str, Any] = prepare(asked, {**linked, **more}, kept)
    return found


def example(n: int, sql: str = "") -> dict[str, str]:
    return {"question": f"Question {n}?", "sql": sql or f"SELECT {n}"}


def test_a_prompt_has_a_few_examples_and_what_people_kept_first() -> None:
    assert prepared()["examples"] == ""
    found = prepared(kept=[example(1), example(2)], examples=[example(3), example(4)])["examples"]
    assert found == "\nExamples:\n" + "\n".join(
        f"Question: Question {n}?\n```sql\nSELECT {n}\n```" for n in (1, 2, 3)
    )
    twice = prepared(kept=[example(1)], examples=[example(2, "SELECT 1"), example(3)])["examples"]
    assert twice.count("```sql") == 2


def test_a_prompts_question_has_values_and_what_was_asked_before() -> None:
    assert prepared()["plain_question"] == "Which boats?"
    values = [{"table": "boats", "column": "name", "value": 'Kite "the"'}]
    turns = [{"question": "How many?", "sql": "SELECT 1"}, {"question": "And now?", "sql": ""}]
    assert prepared(values=values, earlier=turns)["plain_question"] == (
        "Which boats?\n"
        'Values of the database that it may mean:\nboats.name has "Kite \\"the\\""\n'
        "It follows up what was asked before:\nHow many?\nSELECT 1\nAnd now?"
    )
    long = prepared(values=[{**values[0], "value": "x" * 201}])["plain_question"]
    assert long.endswith(f'has "{"x" * 200}"')


def test_candidates_begin_with_styles_of_their_own() -> None:
    found = prepared()
    assert found["schema"] == "Dialect: sqlite\n\ntable boats\n"
    assert (found["attempt_1"], found["attempt_2"]) == STYLES
    assert (found["style_1"], found["style_2"]) == STYLES
    assert found["tried_0"] == []
    assert [
        prepared(offered=offered, ask=ask)["more_calls"]
        for offered, ask in (([], False), (["boats"], False), ([], True), (["boats"], True))
    ] == [0, 1, 1, 2]


# --- what was asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        (True, True),
        (False, False),
        (" Yes ", True),
        ("1", True),
        (1, True),
        ("no", False),
        (0, False),
    ],
)
def test_a_flag_may_be_a_word(value: Any, flag: bool) -> None:
    found = wanted.begin("Which boats are there?", "auto", value, False)["wanted"]
    assert (found["ask"], found["keep"]) == (flag, False)
    found = wanted.begin("Which boats are there?", "auto", False, value, "SELECT 1")
    assert (found["wanted"]["ask"], found["wanted"]["keep"], found["keeps"]) == (False, flag, flag)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"ask": "perhaps"}, "ask must be true or false, not 'perhaps'"),
        ({"keep": None}, "keep must be true or false, not 'None'"),
        ({"keep": True, "sql": " "}, "keep needs `sql`"),
        ({"sql": "x" * 10_001}, "sql has 10,001 characters; 10,000 are taken"),
        ({"question": "x" * 8_001}, "the question has 8,001 characters; 8,000 are taken"),
        ({"run": "AUTO"}, "run must be one of auto, ask, sql, not 'AUTO'"),
    ],
)
def test_what_cannot_be_meant_is_refused(more: dict[str, Any], told: str) -> None:
    usual = {"question": "Why?", "run": "auto", "ask": False, "keep": False}
    with pytest.raises(TeolaError, match=told):
        wanted.begin(**{**usual, **more})


def test_what_just_fits_is_taken() -> None:
    found = wanted.begin("x" * 8_000, "sql", False, False, f" {'y' * 10_000} ")
    assert len(found["own_sql"]) == 10_000
    assert wanted.begin("Why?", "ask", False, False, " ")["own_sql"] == ""


def test_a_follow_up_is_searched_for_with_the_last_questions() -> None:
    history = [{"question": f" Question {n}?"} for n in range(7)]
    found = wanted.begin(" And now? ", "auto", False, False, history=history)
    assert [one["question"] for one in found["wanted"]["earlier"]] == [
        f" Question {n}?" for n in range(2, 7)
    ]
    assert found["search_text"].splitlines()[-1] == "And now?"
    assert found["search_text"].splitlines()[0] == " Question 2?"
    said = "\n".join(f"User: Question {n}?\nAssistant: {n}" for n in range(7))
    earlier = wanted.begin("And now?", "auto", False, False, history=said)["wanted"]["earlier"]
    assert [one["question"] for one in earlier] == [f"Question {n}?" for n in range(2, 7)]
    alone = wanted.begin("Which boats are in the harbour of Sund?", "auto", False, False, "", said)
    assert alone["wanted"]["earlier"] == []


def test_a_conversation_is_read_turn_by_turn() -> None:
    said = (
        "Assistant: Hello.\nUser: One?\nUser: Two?\nAssistant: 2\n```\nSELECT 2\n```\n"
        "Assistant: Anything else?\nUser: Three?\nSystem: Be brief.\n"
        "Assistant: 3\n```sql\nSELECT 3\n```"
    )
    assert wanted.turns_of(said) == [
        {"question": "One?", "sql": ""},
        {"question": "Two?", "sql": "SELECT 2"},
        {"question": "Three?", "sql": "SELECT 3"},
    ]
    long = [{"question": "q" * 2_001, "sql": "s" * 2_001}]
    assert wanted.turns_of(long) == [{"question": "q" * 2_000, "sql": "s" * 2_000}]
    assert wanted.turns_of([{"question": "Why?", "sql": None}])[0]["sql"] == ""


# --- replies --------------------------------------------------------------------------------------


def test_of_a_reply_what_is_shown_is_one_short_line() -> None:
    read = read_reply(f"- Explanation: the {'x' * LONGEST}\n```sql\nSELECT 1\n```")["statement"]
    assert len(read["explanation"]) == LONGEST
    assert read["explanation"].startswith("the x")
    both = read_reply("Unanswerable: no captains\n```sql\nSELECT 1\n```")["statement"]
    assert (both["sql"], both["missing"]) == ("SELECT 1", "")
    silent = read_reply("Unanswerable:")["statement"]
    assert (silent["missing"], silent["instead"]) == ("the tables do not say it", "")
    assert read_reply("“A sentence.” “Another.”")["statement"]["quoted"]
    assert not read_reply("“A sentence.” And more.")["statement"]["quoted"]
    assert read_doubt("<think>Clear?</think>Net or\n gross?") == "Net or gross?"
    assert read_doubt("**Clear**") == read_doubt("") == ""


def test_names_and_numbers_of_replies_are_counted() -> None:
    names = [f"t{n}" for n in range(13)]
    assert read_names("\n".join(names)) == names[:12]
    assert read_names("12) `boats`\n* boats\n\n-\n<think>birds</think>") == ["boats"]
    assert read_passed("0, 3, 2 and 2", 2) == [2]
    assert read_passed("x" * (LONGEST - 1) + "12", 2) == [1]


# --- examples that people keep --------------------------------------------------------------------


def test_examples_are_like_the_question() -> None:
    def hit(score: float, **metadata: Any) -> Hit:
        return Hit("id", "document", f"At {score}?", score, metadata=metadata)

    least = kept.LEAST_LIKENESS
    hits = [
        hit(0.9, sql="SELECT 9"),
        hit(least, sql="SELECT 1"),
        hit(0.9),
        hit(least - 0.01, sql="x"),
    ]
    assert kept.examples_of(hits) == [
        {"question": "At 0.9?", "sql": "SELECT 9"},
        {"question": f"At {least}?", "sql": "SELECT 1"},
    ]


async def test_only_what_has_run_and_was_to_be_kept_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: list[Any] = []

    async def store(**inputs: Any) -> None:
        stored.append(inputs)

    monkeypatch.setattr(kept.store, "arun", store)
    asked = {"keep": True, "question": "Which Boats?"}
    result = {"sql": "SELECT 1", "collection": "examples"}
    assert await kept.keep({**asked, "keep": False}, result) == ""
    assert await kept.keep(asked, {**result, "error": "no"}) == ""
    with pytest.raises(TeolaError, match="up to 4,000 characters"):
        await kept.keep(asked, {**result, "sql": "x" * 4_001})
    assert stored == []
    assert await kept.keep(asked, result) == "It was kept as an example."
    await kept.keep({**asked, "question": "which boats?"}, {**result, "sql": "x" * 4_000})
    first, again = (one["documents"][0] for one in stored)
    assert (first["text"], first["metadata"]) == ("Which Boats?", {"sql": "SELECT 1"})
    assert first["name"] == again["name"], "it takes the place of the first"
    assert stored[0]["collection"] == "examples"


async def test_without_kept_examples_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(**inputs: Any) -> Any:
        raise TeolaError("the collection is gone")

    monkeypatch.setattr(kept.find, "arun", find)
    for linked in ({"kept": True, "collection": "gone"}, {"kept": False}):
        assert await kept.kept_examples(linked, {"question": "Why?"}) == []
