"""The answers table: dedup, checkpoint and cache in one."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from teola import tables
from teola.errors import InputError, UnknownName
from teola.runtime.engines import EngineConfig
from teola.tables.answer_table import StoredAnswer
from teola.tables.answers_file import AnswersFile
from teola.tables.kept import delete_answers, kept_answers, kept_operators
from teola.tables.model_identity import named_identity
from teola.testing import ScriptedModel
from tests.tables.oracle import FunctionAsker

SQL = "SELECT LLM('q', a) AS k FROM t"


def run(path: Path | bool, values: list[Any], sql: str = SQL, **options: Any) -> tuple[Any, Any]:
    asker = options.pop("asker", None) or FunctionAsker(lambda i, v: (f"{i} {v[0]}", None))
    made = tables.sql(sql, {"t": pa.table({"a": values})}, ask_rows=asker, answers=path)
    return asker, made.run(**options)


def test_only_new_rows_are_asked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "answers.duckdb"
    assert len(run(path, ["a", "b"])[0].prompts) == 2
    asker, done = run(path, ["b", "c", "a"])
    assert asker.prompts == ["q\na: c"]
    assert (done.report["asked"], done.report["answered_before"]) == (1, 2)
    assert done.rows == [("q b",), ("q c",), ("q a",)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_call_is_another_question(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    run(path, ["a"])
    for sql in (
        "SELECT LLM('p', a) AS k FROM t",
        "SELECT LLM('q', a, max_tokens := 9) AS k FROM t",
        "SELECT LLM('q', a, choices := ['q a', 'z']) AS k FROM t",
        "SELECT LLM('q', b) AS k FROM (SELECT a AS b FROM t)",
    ):
        assert len(run(path, ["a"], sql)[0].prompts) == 1, sql
    assert run(path, ["a"], "SELECT upper(LLM('q', a)) AS k FROM t")[0].prompts == []


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    values = [str(at) for at in range(50)]
    first, done = run(path, values, most_calls=20)
    assert (done.state, len(first.prompts), done.row_count) == ("partial", 20, 20)
    second, done = run(path, values)
    assert (done.state, len(second.prompts)) == ("ok", 30)
    assert done.rows == [(f"q {one}",) for one in values]
    assert not set(first.prompts) & set(second.prompts)


KILLED = """
import sys, threading
from pathlib import Path
from tests.tables.oracle import FunctionAsker
from tests.tables.test_answers import run

left, written = int(sys.argv[2]), 0

def answer(instruction, values):
    global left
    if left == 0:
        threading.Event().wait()
    left -= 1
    return f"{instruction} {values[0]}", None

def tell(stage, todo, over, failures):
    print(over, flush=True)

values = [f"{at:02}" for at in range(50)]
run(Path(sys.argv[1]), values, asker=FunctionAsker(answer, batch=1), progress=tell)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_loses_no_answer_that_had_time_to_be_written(
    seed: int, tmp_path: Path
) -> None:
    """It answers so many rows, is silent, and is killed once it told that they are written."""
    path, count = tmp_path / "answers.duckdb", Random(seed).randrange(1, 50)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), str(count)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        while int(child.stdout.readline()) < count:
            pass
        child.kill()
    again, done = run(path, [f"{at:02}" for at in range(50)])
    assert again.prompts == [f"q\na: {at:02}" for at in range(count, 50)]
    assert done.rows == [(f"q {at:02}",) for at in range(50)]


def test_others_cannot_read_it_nor_what_stands_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    run(path, ["a"])
    path.chmod(0o644)
    with duckdb.connect() as con:
        table = AnswersFile(con, path)
        table.add("o", [StoredAnswer("k", "v", None, 1, 0, 1)])
        for one in (path, tmp_path / "answers.duckdb.wal"):
            assert one.stat().st_mode & 0o777 == 0o600
        table.close()


def test_tenants_have_their_own(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    for tenant, asked in (("a", 1), ("b", 1), ("a", 0), ("", 1)):
        assert len(run(path, ["x"], tenant=tenant)[0].prompts) == asked


def test_samples_are_asked_anew_unless_their_query_was_interrupted(tmp_path: Path) -> None:
    path, values = tmp_path / "answers.duckdb", [str(at % 2) for at in range(10)]
    sql = "SELECT LLM('q', a, temperature := 0.5) AS k FROM t"
    assert len(run(path, values, sql)[0].prompts) == 10
    assert run(path, values, sql, most_calls=4)[1].report["asked"] == 4
    assert len(run(path, values, sql)[0].prompts) == 6
    assert len(run(path, values, sql)[0].prompts) == 10
    both = f"{sql} UNION ALL {sql}"
    assert len(run(path, values, both)[0].prompts) == 20
    shared = "SELECT LLM('q', a, temperature := 0.5, shared := true) AS k FROM t"
    assert len(run(path, values, shared)[0].prompts) == 2
    assert len(run(path, values, shared)[0].prompts) == 0


def test_models_are_told_apart(tmp_path: Path) -> None:
    def name(config: Any) -> str:
        return named_identity(config).name

    url = "http://user:secret@host/v1"
    pools = [EngineConfig("vllm", pool=[{"url": url, "model": one}]) for one in ("small", "large")]
    assert name(pools[0]) == "small at http://host/v1"
    assert "secret" not in named_identity(pools[1]).doubt
    says = [ScriptedModel(lambda call: "a"), ScriptedModel(lambda call: "b")]
    assert name(says[0]) != name(says[1])
    before = name(says[0])
    says[0].calls.append(None)  # type: ignore[arg-type]
    assert name(says[0]) == before == name(ScriptedModel(lambda call: "a"))
    first, other = (lambda name: says[0]), (lambda name: says[1])
    assert name(EngineConfig(first)) != name(EngineConfig(other))
    (tmp_path / "config.json").write_text("{}")
    weights, names = tmp_path / "model.safetensors", set()
    for byte in (b"a", b"b"):
        weights.write_bytes(byte * 200_000)
        names.add(name(EngineConfig("vllm", {"model": str(tmp_path)})))
    assert len(names) == 2


def test_it_is_said_once_that_a_server_may_change_its_model(tmp_path: Path) -> None:
    config = EngineConfig("openai", {"url": "http://localhost:1/v1", "model": "m"})
    path = tmp_path / "answers.duckdb"
    notes = [run(path, ["x"], llm=config)[1].notes for _ in range(2)]
    assert ["m at http://localhost:1/v1" in one for one in notes[0]] == [True]
    assert notes[1] == ()


def test_errors_are_asked_again_unless_they_are_to_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    run(
        path,
        ["a", "b"],
        asker=FunctionAsker(lambda i, v: (None, "busy") if v == ["a"] else ("x", None)),
    )
    asker, done = run(path, ["a", "b"], retry_failed=False)
    assert (asker.prompts, done.rows, done.state) == ([], [(None,), ("x",)], "partial")
    asker, done = run(path, ["a", "b"])
    assert (asker.prompts, done.state) == (["q\na: a"], "ok")
    assert done.rows == [("q a",), ("x",)]


def test_nothing_is_kept_where_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEOLA_DATA_DIR", str(tmp_path / "data"))
    run(False, ["a"])
    assert not (tmp_path / "data").exists()


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    run(path, ["a"])
    with duckdb.connect() as con:
        table = AnswersFile(con, path)
        with pytest.raises(InputError, match="in use by another query"):
            run(path, ["a"])
        made = tables.sql(SQL, {"t": pa.table({"a": ["a"]})}, answers=path)
        assert "in use" in made.explain().notes[0]
        table.close()
    code = (
        "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('up', flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InputError, match=f"in use by process {other.pid}"):
            run(path, ["a"])
        other.kill()
    assert run(path, ["a"])[0].prompts == []


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    path.write_text("no database")
    with pytest.raises(InputError, match="no answers file"):
        run(path, ["a"])
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as con:
        con.execute("CREATE TABLE mine (a INTEGER)")
    with pytest.raises(InputError, match="holds other tables"):
        run(other, ["a"])
    old = tmp_path / "old.duckdb"
    run(old, ["a"])
    with duckdb.connect(str(old)) as con:
        con.execute("UPDATE about SET version = 7")
    with pytest.raises(InputError, match="version 7"):
        run(old, ["a"])


@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "+02:00", "-11:30", "+14:00"])
def test_a_date_is_the_same_moment_in_every_zone(tmp_path: Path, zone: str) -> None:
    """Without one it is UTC's."""
    path = str(tmp_path / "answers.duckdb")
    run(Path(path), ["a"])
    (call,) = kept_operators(path)
    (answer,) = kept_answers(path, call["operator"], 5)
    for minutes, deleted in ((-1, 0), (1, 1)):
        moment = datetime.fromisoformat(answer["at"]) + timedelta(minutes=minutes)
        there = moment.astimezone(datetime.fromisoformat(f"2026-01-01T00:00{zone or 'Z'}").tzinfo)
        before = f"{there.replace(tzinfo=None).isoformat()}{zone}"
        assert delete_answers(path, None, before) == deleted


def test_looking_after_it(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    run(path, [f"{at}" + "x" * 2000 for at in range(400)])
    run(path, ["a"], "SELECT LLM('p', a) AS k FROM t")
    found = {one["instruction"]: one for one in kept_operators(str(path))}
    assert (found["q"]["answers"], found["p"]["answers"], found["p"]["errors"]) == (400, 1, 0)
    assert found["q"]["bytes"] > 400 * 2000
    (one,) = kept_answers(str(path), found["p"]["operator"][:8], 5)
    assert (one["value"], one["error"]) == ("p a", None)
    before = path.stat().st_size
    assert delete_answers(str(path), found["q"]["operator"], None) == 400
    assert path.stat().st_size < before
    assert path.stat().st_mode & 0o777 == 0o600
    assert run(path, ["a"], "SELECT LLM('p', a) AS k FROM t")[0].prompts == []
    assert delete_answers(str(path), None, "2999-01-01") == 1
    assert kept_operators(str(path)) == []
    with pytest.raises(UnknownName):
        delete_answers(str(path), "f00", None)
    with pytest.raises(InputError, match="no date"):
        delete_answers(str(path), None, "soon")
