"""`teola sql` and `teola answers`, as programs read them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from teola.cli import call
from teola.cli.tables_sql import ERRORS, EXAMPLE, _errors, _tables
from teola.errors import InputError
from teola.tables import plan_runs
from tests.fake_openai import FakeOpenAI
from tests.tables.oracle import FunctionAsker

QUERY = "SELECT id, LLM('Tone?', text, choices := ['good', 'bad']) AS tone FROM r"
STAGE = ["operator", "instruction", "rows", "distinct"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a table; a function is the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEOLA_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "r.csv").write_text("id,text\n1,good\n2,bad\n3,good\n4,odd\n")
    return tmp_path


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FunctionAsker:
    asker = FunctionAsker(lambda instruction, values: (values[0], None))
    monkeypatch.setattr(plan_runs, "_asked_of", lambda runtime, options: asker)
    return asker


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert call(list(words)) == code
    return json.loads(capsys.readouterr().out)


LLM = ("--llm", "http://localhost:1/v1")


def test_json(folder: Path, model: FunctionAsker, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "sql", QUERY, "--table", "r=r.csv", *LLM, "--json")
    assert list(found) == [
        "columns",
        "rows",
        "row_count",
        "state",
        "asked",
        "answered_before",
        "failed",
        "unmatched",
        "truncated",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "seconds",
        "errors",
        "stages",
    ]
    assert found["columns"] == [
        {"name": "id", "type": "BIGINT"},
        {"name": "tone", "type": "VARCHAR"},
    ]
    assert found["rows"] == [[1, "good"], [2, "bad"], [3, "good"], [4, None]]
    assert (found["state"], found["asked"], found["unmatched"]) == ("ok", 3, 1)
    (stage,) = found["stages"]
    assert list(stage) == [*STAGE, "asked", "order", "reason"]
    again = told(capsys, "sql", QUERY, "--table", "r=r.csv", *LLM, "--json", "--out", "o.parquet")
    assert "rows" not in again
    assert (again["row_count"], again["asked"], again["answered_before"]) == (4, 0, 3)
    (kept,) = told(capsys, "answers", "list", "--json")
    assert list(kept) == [
        "operator",
        "model",
        "instruction",
        "answers",
        "errors",
        "bytes",
        "first",
        "last",
    ]


def test_explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.sql").write_text(f"{QUERY} WHERE id > 1")
    words = ("sql", "--file", "q.sql", "--table", "r=r.csv", "--explain", "--json")
    found = told(capsys, *words, "--price", "1,0,1")
    assert list(found) == ["stages", "rewrites", "total"]
    (stage,) = found["stages"]
    assert list(stage) == [
        *STAGE,
        "to_ask",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "seconds",
        "cost",
    ]
    assert (stage["rows"], stage["distinct"], stage["to_ask"]) == (3, 3, 3)
    assert all(list(one) == ["rule", "what", "reason"] for one in found["rewrites"])
    assert [one["rule"] for one in found["rewrites"]] == ["predicates", "dedup", "warm", "sort"]
    assert list(found["total"]) == ["calls", "prompt_tokens", "cached_tokens", "seconds", "cost"]
    assert sorted(one.name for one in folder.iterdir()) == ["q.sql", "r.csv"]


def test_a_budget_ends_it(
    folder: Path, model: FunctionAsker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("sql", QUERY, "--table", "r=r.csv", *LLM, "--most-calls", "1")
    found = told(capsys, *words, "--json", code=1)
    assert (found["state"], found["asked"]) == ("partial", 1)


def test_the_bar_is_no_part_of_what_is_printed(
    folder: Path,
    model: FunctionAsker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At a terminal whose standard output goes elsewhere; an instruction is no markup."""
    query = QUERY.replace("Tone?", "[/b] \x1b[2J Tone?")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert call(["sql", query, "--table", "r=r.csv", *LLM]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].split() == ["id", "tone"]
    assert "[/b] \u241b[2J Tone?" in shown.err
    assert "0 errors" in shown.err


def test_a_configuration_says_who_is_asked_and_with_which_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    with FakeOpenAI("good", model="m", api_key="secret") as server:
        (folder / "teola.toml").write_text(
            '[engines.llm]\ntype = "openai"\n'
            f'options = {{ url = "{server.url}", model = "m", api_key = "${{A_KEY}}" }}\n'
        )
        words = ("sql", QUERY, "--table", "r=r.csv", "--config", "teola.toml", "--json")
        assert told(capsys, *words, "--explain")["total"]["calls"] == 3
        assert server.requests == []
        found = told(capsys, *words)
    assert (found["state"], found["asked"]) == ("ok", 3)
    (kept,) = told(capsys, "answers", "list", "--json")
    assert kept["model"].startswith("m at http")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["SELECT LLM('x', id) FROM r"], "no language model is configured"),
        (["SELECT 1 FROM r", "--table", "R=r.csv"], "given twice"),
        (["SELECT 1 FROM r", "--table", "nothing"], "NAME=FILE"),
        (["SELECT nothing FROM r"], "not found"),
        (["SELECT 1 FROM r", "--max-errors", "-1"], "max_errors"),
        (["SELECT 1 FROM r", "--most-cost", "1"], "price"),
        ([], "give the query"),
        (["SELECT 1 FROM r", "--file", "q.sql"], "give the query"),
        (["SELECT 1 FROM r", "--out", "o.xlsx"], "must end in one of"),
    ],
)
def test_wrong_usage(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert call(["sql", *words, "--table", "r=r.csv"]) == 2
    assert said in capsys.readouterr().err
    assert [one.name for one in folder.iterdir()] == ["r.csv"]


def test_a_password_is_warned_of_and_not_shown(
    folder: Path, model: FunctionAsker, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "postgresql://me:secret@localhost:1/db"
    assert call(["sql", QUERY, "--table", "r=r.csv", *LLM, "--answers", place]) == 2
    said = capsys.readouterr().err
    assert "the password in --answers" in said
    assert "localhost:1/db cannot be reached" in " ".join(said.split())
    assert "secret" not in said
    assert model.prompts == []


def test_people_are_told_what_came_of_it(
    folder: Path, model: FunctionAsker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("sql", QUERY, "--table", "r=r.csv", *LLM)
    assert call(list(words)) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()[:5]] == [
        ["id", "tone"], ["1", "good"], ["2", "bad"], ["3", "good"], ["4", "NULL"],
    ]  # fmt: skip
    assert "4 rows, ok: 3 asked, 1 unmatched;" in " ".join(shown.out.split())
    told = " ".join(shown.err.split())
    assert "1 answer has no choice of good, bad, so their value is NULL, such as 'odd'" in told
    assert "answers are kept; the same command" not in told
    assert call([*words, "--out", "o.csv"]) == 0
    again = capsys.readouterr()
    assert again.out.startswith("4 rows in o.csv, ok: 0 asked, 3 answered before")
    assert (folder / "o.csv").read_text().splitlines()[4] == "4,"


@pytest.mark.parametrize(
    ("more", "code", "goes_on"),
    [
        (["--most-calls", "1"], 1, True),
        (["--most-calls", "0"], 1, False),
        (["--most-calls", "1", "--answers", "off"], 1, False),
        (["--on-error", "fail"], 1, True),
        ([], 0, False),
    ],
)
def test_the_same_command_goes_on_where_answers_were_kept(
    more: list[str],
    code: int,
    goes_on: bool,
    folder: Path,
    model: FunctionAsker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A row with an error ends nothing by itself, and has no answer that was kept."""
    model.function = lambda instruction, values: (
        (None, "it broke") if values == ["odd"] else (values[0], None)
    )
    assert call(["sql", QUERY, "--table", "r=r.csv", *LLM, *more]) == code
    told = capsys.readouterr().err
    assert ("answers are kept; the same command goes on from there" in told) == goes_on
    assert ("partial: most_calls of" in told) == ("--most-calls" in more)
    if not more:
        assert "teola: 1 row has an error: it broke (such as text: odd)" in told


@pytest.mark.parametrize(
    ("count", "last"), [(0, None), (3, "error 2"), (4, "1 other errors"), (1_004, "1,001 other")]
)
def test_the_first_errors_are_told_with_an_example(count: int, last: str | None) -> None:
    errors = [
        {"error": f"error {n}", "rows": 1 + n, "example": "x" if n else "word " * EXAMPLE}
        for n in range(count)
    ]
    told = _errors(errors)
    assert len(told) == min(count, ERRORS + 1)
    if last is not None:
        assert last in told[-1]
        assert told[0].startswith("1 row has an error: error 0 (such as word word")
        assert told[0].endswith("word ...)")
        assert told[1] == "2 rows have an error: error 1 (such as x)"
    assert _errors([{"error": "e", "rows": 1_000, "example": ""}]) == [
        "1,000 rows have an error: e"
    ]


@pytest.mark.parametrize(
    ("typed", "tables"),
    [
        (["a=x.csv", "b=y=z.csv"], {"a": "x.csv", "b": "y=z.csv"}),
        (["a= x.csv"], {"a": " x.csv"}),
        ([], {}),
    ],
)
def test_a_table_is_a_name_and_a_place(typed: list[str], tables: dict[str, str]) -> None:
    assert _tables(typed) == tables
    for wrong in ("a", "=x.csv", "a=", " =x", "a= "):
        with pytest.raises(InputError, match="must be NAME=FILE"):
            _tables([*typed, wrong])
