"""Looking after kept answers: which calls there are, which answers, and what is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from teola.errors import InputError, UnknownName
from teola.tables.answer_table import AnswerTable, Operator, StoredAnswer
from teola.tables.answers_file import AnswersFile
from teola.tables.kept import delete_answers, kept_answers, kept_operators

NOON = datetime(2026, 1, 2, 12)


def answer(key: str, value: str | None, error: str | None = None) -> StoredAnswer:
    return StoredAnswer(key, value, error, 10, 4, 2)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Two calls: one with three answers, of which one is an error, and a later one with one."""
    path = tmp_path / "answers.duckdb"
    with duckdb.connect() as con:
        kept = AnswersFile(con, path)
        for digest, model in ("abc1", "m1"), ("abd2", "m2"):
            kept.know(Operator(digest, model, f"say {digest}"))
        kept.insert(con, "abc1", [answer("k1", "é"), answer("k2", None)], NOON)
        kept.insert(con, "abc1", [answer("k0", None, "it broke")], NOON + timedelta(seconds=1))
        kept.insert(con, "abd2", [answer("k9", "x")], NOON + timedelta(hours=1))
        kept.ran("m1", 3, 1.5)
        kept.sampled("query")
        kept.judged("condition", 10, 4)
        kept.close()
    return str(path)


def test_calls_are_listed_with_the_one_first_that_was_answered_last(path: str) -> None:
    later, first = kept_operators(path)
    assert (later["operator"], later["answers"], later["errors"]) == ("abd2", 1, 0)
    assert first == {
        "operator": "abc1",
        "model": "m1",
        "instruction": "say abc1",
        "answers": 2,
        "errors": 1,
        "bytes": 3 * (2 + 20) + len("é".encode()) + len("it broke"),
        "first": "2026-01-02T12:00:00Z",
        "last": "2026-01-02T12:00:01Z",
    }


def test_answers_are_listed_with_the_newest_first(path: str) -> None:
    rows = kept_answers(path, "abc", 5)
    assert [(row["key"], row["value"], row["error"]) for row in rows] == [
        ("k0", None, "it broke"),
        ("k1", "é", None),
        ("k2", None, None),
    ]
    assert rows[1]["at"] == "2026-01-02T12:00:00Z"
    assert [rows[1][f"{name}_tokens"] for name in ("prompt", "cached", "completion")] == [10, 4, 2]
    assert [row["key"] for row in kept_answers(path, "abc1", 2)] == ["k0", "k1"]


def test_a_call_is_meant_by_the_beginning_of_its_digest(path: str) -> None:
    assert len(kept_answers(path, "abd", 5)) == 1
    for beginning in ("ab", "a"):
        with pytest.raises(
            InputError, match=f"'{beginning}' is the beginning of several: abc1, abd2"
        ):
            delete_answers(path, beginning, None)
    for wrong in ("", "abc12", "c1", "ABC1"):
        with pytest.raises((UnknownName, InputError)):
            delete_answers(path, wrong, None)
    assert [call["operator"] for call in kept_operators(path)] == ["abd2", "abc1"]


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("2026-01-02T12:00:00", ["k0", "k1", "k2"]),
        ("2026-01-02T12:00:01", ["k0"]),
        ("2026-01-02T13:00:01+01:00", ["k0"]),
        ("2026-01-02T12:00:02", []),
    ],
)
def test_answers_before_a_moment_are_deleted(path: str, before: str, left: list[str]) -> None:
    assert delete_answers(path, None, before) == 3 - len(left)
    calls = [call["operator"] for call in kept_operators(path)]
    assert calls == (["abd2", "abc1"] if left else ["abd2"])
    keys = [row["key"] for call in calls for row in kept_answers(path, call, 9)]
    assert sorted(keys) == [*left, "k9"]


def test_what_else_is_known_stays_when_answers_are_deleted(path: str) -> None:
    assert delete_answers(path, "abc1", None) == 3
    with duckdb.connect() as con:
        kept = AnswersFile(con, Path(path))
        assert (kept.knows("m1"), kept.knows("m2")) == (False, True)
        assert (kept.seconds_of("m1", 2), kept.samples_of("query")) == (1.0, 1)
        assert kept.judged_before("condition") == (10, 4)
        kept.close()
    assert [file.name for file in Path(path).parent.iterdir()] == ["answers.duckdb"]


def test_one_thing_is_said_to_be_deleted(path: str) -> None:
    for operator, before in (None, None), ("abc1", "2026-01-01"):
        with pytest.raises(InputError, match="say what to delete"):
            delete_answers(path, operator, before)
    with pytest.raises(InputError, match="there is no answers file"):
        kept_operators(f"{path}.none")
    with pytest.raises(InputError, match="give the path of an answers file"):
        kept_operators("off")


def test_nothing_is_kept_before_the_first_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEOLA_DATA_DIR", str(tmp_path / "data"))
    assert kept_operators(None) == []
    assert delete_answers(None, None, "2026-01-01") == 0
    with pytest.raises(UnknownName):
        kept_answers(None, "abc", 5)
    assert not (tmp_path / "data").exists()


# --- what a run knows -----------------------------------------------------------------------------


@pytest.fixture
def table() -> AnswerTable:
    return AnswerTable(duckdb.connect())


def test_an_answer_counts_before_an_error_and_a_later_one_before_an_earlier(
    table: AnswerTable,
) -> None:
    """An error of an earlier run is none where it is to be asked again."""
    table.since = NOON
    before, now = NOON - timedelta(seconds=1), NOON
    table.insert(table.con, "o", [answer("a", "old"), answer("b", None, "old")], before)
    table.insert(table.con, "o", [answer("c", None, "old"), answer("e", None)], before)
    table.insert(table.con, "o", [answer("a", None, "new"), answer("b", "new")], now)
    table.insert(table.con, "o", [answer("d", None, "new")], now)
    table.insert(table.con, "other", [answer("f", "x")], now)
    table.con.execute("CREATE TABLE keys AS SELECT unnest(['a', 'b', 'c', 'd', 'e', 'f']) AS key")

    def known(*, failed: bool) -> dict[str, tuple[str | None, str | None, bool]]:
        rows = table.con.execute(table.known("o", "keys", failed=failed)).fetchall()
        return {key: (value, error, before) for key, value, error, before in rows}

    found = {
        "a": ("old", None, True),
        "b": ("new", None, False),
        "d": (None, "new", False),
        "e": (None, None, True),
    }
    assert known(failed=False) == found
    assert known(failed=True) == {
        **found,
        "b": ("new", None, True),
        "c": (None, "old", True),
    }


def test_figures_are_of_one_call_and_one_model(table: AnswerTable) -> None:
    assert (table.mean_answer("o"), table.seconds_of("m", 5)) == (None, None)
    table.insert(table.con, "o", [answer("a", "x"), answer("b", None, "e")], NOON)
    table.insert(table.con, "p", [StoredAnswer("c", "x", None, 1, None, None)], NOON)
    assert (table.mean_answer("o"), table.mean_answer("p")) == (2.0, None)
    assert table.took(["o"], NOON) == (2, 20, 4)
    assert table.took(["o", "p"], NOON) == (3, 21, 4)
    assert table.took(["o"], NOON + timedelta(microseconds=1)) == (0, 0, 0)
    assert table.took([], NOON) == (0, 0, 0)
    for model, asked, seconds in ("m", 0, 9.0), ("m", 4, 1.0), ("n", 1, 7.0):
        table.ran(model, asked, seconds)
    assert (table.seconds_of("m", 2), table.seconds_of("n", 0)) == (5.0, 0.0)
    table.judged("c", 10, 3)
    table.judged("c", 5, 5)
    assert (table.judged_before("c"), table.judged_before("d")) == ((15, 8), (0, 0))
    for count in (1, 2):
        table.sampled("q")
        assert (table.samples_of("q"), table.samples_of("r")) == (count, 0)
    for _ in range(2):
        table.know(Operator("o", "m", "q"))
    assert table.con.execute(f"SELECT count(*) FROM {table.operators}").fetchall() == [(1,)]
