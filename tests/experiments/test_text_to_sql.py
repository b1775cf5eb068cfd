"""The script of `experiments.text_to_sql`: what it says to whom, and what it permits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from experiments.text_to_sql import demo
from experiments.text_to_sql.__main__ import _allowed
from experiments.text_to_sql.model_server import Model
from experiments.text_to_sql.questions import Question, alternatives, rows_of
from experiments.text_to_sql.script import ANSWER, KINDS, Play, next_of, plays
from experiments.text_to_sql.speed import least, statement
from teola.sql.lookup import SqlAddress
from teola.sql.select_only import select_only
from teola.sql.sql_tables import SqlColumn, SqlTable
from teola_apps.asking_sql import prompts
from teola_apps.asking_sql.replies import read_reply


def test_gold_has_alternatives() -> None:
    gold = "SELECT {a.x, a.y}, n FROM a GROUP BY {};SELECT 1;"
    assert alternatives(gold) == [
        "SELECT a.x, n FROM a GROUP BY a.x",
        "SELECT a.y, n FROM a GROUP BY a.y",
        "SELECT a.x, a.y, n FROM a GROUP BY a.x, a.y",
        "SELECT 1",
    ]


@pytest.fixture
def script(tmp_path: Path) -> list[Play]:
    path = demo.make(tmp_path / "harbour.db")
    where = SqlAddress("sqlite", str(path))
    gold = "SELECT name FROM boats"
    found = ((gold, rows_of(where, gold)),)
    asked = [Question(f"s{n}", "harbour", "sqlite", f"Who? [s{n}]", found) for n in range(20)]
    tables = [SqlTable("boats", (SqlColumn("name", "TEXT", samples=("Kittiwake",)),), 8)]
    return plays(asked, {"harbour": where}, {"harbour": tables})


def test_errors_stand_at_the_same_questions_for_everybody(script: list[Play]) -> None:
    assert [play.kind for play in script] == [KINDS.get(n, "plain") for n in range(20)]
    assert "'KITTIWAKE'" in script[3].first[0]
    allowed = {
        system: sum(_allowed(system, play) for play in script)
        for system in ("teola", "langchain", "llama_index")
    }
    assert allowed == {"teola": 19, "langchain": 19, "llama_index": 13}


def test_a_model_goes_on_with_the_script_from_what_it_sees(script: list[Play]) -> None:
    model = Model({play.tag: play for play in script}, 1.0)
    twice = script[5]

    def said(text: str, **more: Any) -> tuple[str, str, dict[str, Any] | None, bool]:
        return model.said({"messages": [{"role": "user", "content": text}], **more})

    prompt = f"{prompts.WRITE}\n\nQuestion: Who? [s5]\n\n"
    tried = ""
    for step in twice.first:
        tag, text, _, repair = said(prompt + (tried or prompts.STYLES[0]))
        assert (tag, read_reply(text)["sql_text"], repair) == ("s5", step, bool(tried))
        tried = prompts.REPAIR.format(sql=step, error="wrong")
    differ = f"{prompts.WRITE}\n\nQuestion: Who? [s7]\n\n"
    first, second = (said(differ + style)[1] for style in prompts.STYLES)
    assert first != second
    shown = f"Who? [s7]\n\nStatement 1:\nSELECT 0\n\nStatement 2:\n{script[7].gold}\n"
    assert said(f"{prompts.EVALUATE}{shown}")[1] == "2"
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Who? [s1]"}]
    names = []
    for result in ("boats", "CREATE TABLE boats", "Error: no such column", "[('Petrel',)]", ""):
        _, text, call, _ = model.said({"messages": messages, "tools": [{}]})
        names.append(call["name"] if call else text)
        messages += [{"role": "assistant", "content": ""}, {"role": "tool", "content": result}]
    assert names == ["sql_db_list_tables", "sql_db_schema", "sql_db_query", "sql_db_query", ANSWER]
    assert next_of(("a", "b"), "a then b") == "b"


def test_a_prefix_that_was_seen_is_cached(script: list[Play]) -> None:
    model = Model({}, 1.0)
    assert model.prefill("teola", "x" * 640)[1] == 0
    assert model.prefill("teola", "x" * 640 + "y" * 64)[1] == 160
    assert model.prefill("asyncio", "x" * 640)[1] == 0


def test_the_demo_is_made_from_a_seed(tmp_path: Path) -> None:
    a, b = demo.make(tmp_path / "a.db"), demo.make(tmp_path / "b.db")
    for path in (a, b):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM visits").fetchone() == (60,)
    assert a.read_bytes() == b.read_bytes()


def test_the_speed_of_a_filter_is_that_of_a_real_statement() -> None:
    sql = statement(2_000)
    assert 1_900 < len(sql) <= 2_000
    assert select_only(sql, "sqlite", ["berths"]) == sql
    assert 0 <= least(lambda: None) < 0.1
