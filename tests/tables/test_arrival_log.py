"""Answers that have come are there after a kill, though the answers file was not written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from teola.runtime.rows import RowAnswer
from teola.tables import question_run
from teola.tables.answer_table import Operator, StoredAnswer
from teola.tables.answers_file import AnswersFile
from teola.tables.arrival_log import ArrivalLog
from teola.tables.call_stage import CallStage
from teola.tables.llm_call import LlmCall
from teola.tables.question_run import QuestionRun
from teola.tables.run_limits import RunLimits, Spent
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker
from tests.tables.test_answers import run

VALUES = [f"{at:02}" for at in range(50)]

KILLED = """
import sys, threading
from pathlib import Path
from teola.tables import question_run
from tests.tables.oracle import FunctionAsker
from tests.tables.test_arrival_log import VALUES
from tests.tables.test_answers import run

question_run.LOOK_S = 1000.0  # it writes nothing before it ends
left, batch = int(sys.argv[2]), int(sys.argv[3])

def answer(instruction, values):
    global left
    if left == 0:
        print("silent", flush=True)
        threading.Event().wait()
    left -= 1
    return (None, "it broke") if values[0] == "03" else (f"{instruction} {values[0]}", None)

run(Path(sys.argv[1]), VALUES, asker=FunctionAsker(answer, batch=batch))
"""


@catches(
    "not-read",
    "what a killed process has noted is not read",
    edited(AnswersFile._take_arrivals, "if missing:", "if False:"),
)
@pytest.mark.parametrize(("batch", "count"), [(1, 23), (3, 12)])
def test_a_killed_run_loses_no_answer_that_had_come(batch: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    words = [sys.executable, "-c", KILLED, str(path), str(count), str(batch)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "silent\n"
        child.kill()
    logs = list(tmp_path.glob("answers.duckdb.came-*"))
    assert [log.stat().st_mode & 0o777 for log in logs] == [0o600]
    again, done = run(path, VALUES, retry_failed=False)
    assert again.prompts == [f"q\na: {at:02}" for at in range(count, 50)]
    assert done.rows == [(None if at == 3 else f"q {at:02}",) for at in range(50)]
    assert list(tmp_path.iterdir()) == [path]


class Watched(AnswersFile):
    """Calls a function before each write, where it may raise, and after it."""

    during: Any = staticmethod(lambda may_raise: None)

    def add(self, operator: str, answers: Sequence[StoredAnswer]) -> None:
        """See AnswerTable."""
        self.during(True)
        super().add(operator, answers)
        self.during(False)


def left_by_a_kill(folder: Path, to: Path) -> Counter[tuple[Any, ...]]:
    """What is kept where a process ends now: by the files as they are."""
    shutil.copytree(folder, to)
    with duckdb.connect() as con:
        table = AnswersFile(con, to / "answers.duckdb")
        rows = con.execute(f"SELECT key, value, error FROM {table.answers}").fetchall()
        table.close()
    shutil.rmtree(to)
    return Counter(rows)


@catches(
    "not-noted",
    "what has come is not noted",
    edited(QuestionRun._hear, "if arrivals is not None:", "if False:"),
)
@catches(
    "emptied-before",
    "the log is emptied before what it has is written",
    edited(QuestionRun._write, "arrivals.turn()", "(arrivals.turn(), arrivals.written())"),
)
@catches(
    "one-log",
    "what comes during a write goes to the log that is emptied after it",
    edited(ArrivalLog.turn, "self._at = 1 - self._at", "pass"),
    edited(ArrivalLog.written, "k = 1 - self._at", "k = self._at"),
)
@catches(
    "twice",
    "an answer that is in the file is taken from the log once more",
    edited(AnswersFile._take_arrivals, "if answer.key not in written", "if True"),
)
@pytest.mark.parametrize("seed", range(2))
def test_whenever_a_process_ends_all_that_had_come_is_kept_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers come between writes and in the middle of them, some writes fail, and at each of these
    moments the process may end."""
    monkeypatch.setattr(question_run, "BATCH", 3)
    chance, came = Random(seed), list[tuple[str, str | None, str | None]]()
    folder = tmp_path / "kept"
    with duckdb.connect() as con:
        table = Watched(con, folder / "answers.duckdb")
        asked, spent = Operator("o", "m", "q"), Spent(RunLimits())
        call, stage = LlmCall("q", ("a",)), CallStage("o", "q")
        asker, allowed = FunctionAsker(), lambda: 1000
        run = QuestionRun(con, table, asker, spent, call, asked, stage, 99, allowed, None)

        def hear() -> None:
            answers = list[RowAnswer]()
            for id in range(len(came), len(came) + chance.randrange(1, 4)):
                text, error = (None, "it broke") if chance.random() < 0.2 else (f"v{id}", None)
                run.keys[id] = f"k{id}"
                answers.append(RowAnswer(id, text, error))
                came.append((f"k{id}", text, error))
            run._hear(answers)

        def during(may_raise: bool) -> None:
            hear()
            assert left_by_a_kill(folder, tmp_path / "copy") == Counter(came)
            if may_raise and chance.random() < 0.3:
                raise duckdb.IOException("the disk is full")

        table.during = during
        for _ in range(6):
            hear()
            with suppress(duckdb.IOException):
                run._write()
            assert left_by_a_kill(folder, tmp_path / "copy") == Counter(came)
        table.during = lambda may_raise: None
        run._write()
        assert left_by_a_kill(folder, tmp_path / "copy") == Counter(came)
        assert (run.over, run.came, run.keys) == (len(came), [], {})
        table.close()


def noted(folder: Path, *answers: StoredAnswer, operator: str = "o") -> Path:
    """A log that a killed process left, and the path of its answers file."""
    path = folder / "answers.duckdb"
    log = ArrivalLog(path)
    log.add(operator, answers)
    log.close()
    return path


def stored(path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        table = AnswersFile(con, path)
        rows = con.execute(
            f"SELECT operator, key, value, error, prompt_tokens, cached_tokens, completion_tokens "
            f"FROM {table.answers} ORDER BY asked_at"
        ).fetchall()
        table.close()
    return rows


WHOLE = StoredAnswer("k", 'a "word"\nand é', None, 7, None, None)


def test_what_is_read_from_a_log_is_what_was_noted_and_the_log_goes(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    assert stored(path) == []
    failed = StoredAnswer("e", None, "it broke", 0, 3, 1)
    noted(tmp_path, WHOLE, failed)
    assert stored(path) == [("o", *WHOLE), ("o", *failed)]
    assert list(tmp_path.iterdir()) == [path]
    assert len(stored(path)) == 2


@catches(
    "older",
    "an answer that came before this one's question was asked again stands for it",
    edited(AnswersFile._take_arrivals, " AND asked_at >= $2", " AND asked_at IS DISTINCT FROM $2"),
)
def test_an_answer_that_was_asked_for_again_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    with duckdb.connect() as con:
        table = AnswersFile(con, path)
        table.add("o", [StoredAnswer("k", None, "it broke", 0, None, None)])
        table.close()
    noted(tmp_path, WHOLE)
    assert [row[2] for row in stored(path)] == [None, WHOLE.value]


@catches(
    "of-another",
    "a log is read whose answers file somebody has deleted",
    edited(AnswersFile._take_arrivals, "if not new else ()", ""),
)
def test_who_deletes_the_answers_deletes_what_the_log_has(tmp_path: Path) -> None:
    path = noted(tmp_path, WHOLE)
    assert stored(path) == []
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "torn", [b'["o", "2026-01-01", [["x', b'["o", "x", []]\n', b"\0\0\n", b"7\n"]
)
def test_a_line_that_is_not_whole_ends_a_log(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "answers.duckdb"
    assert stored(path) == []
    noted(tmp_path, WHOLE)
    (log,) = tmp_path.glob("*.came-*")
    log.write_bytes(log.read_bytes() + torn + (b"" if torn[-1:] != b"\n" else log.read_bytes()))
    assert stored(path) == [("o", *WHOLE)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_holds_no_more_than_came_since_the_write_before(tmp_path: Path) -> None:
    log = ArrivalLog(tmp_path / "answers.duckdb")
    most = 0
    for k in range(6):
        log.add("op", [(f"key {k}", "yes", None, 1, None, None)])
        most = most or log._paths[0].stat().st_size
        log.turn()
        log.written()
        assert [path.stat().st_size for path in log._paths if path.exists()] == [0] * min(k + 1, 2)
    assert most > 0
    log.close()
    assert not list(tmp_path.iterdir())


def test_where_no_log_can_be_written_answers_are(tmp_path: Path) -> None:
    """Its name is taken by a link, through which nothing is written."""
    path, other = tmp_path / "answers.duckdb", tmp_path / "other"
    other.write_text("mine")

    def answer(instruction: str, values: Sequence[str]) -> tuple[str, None]:
        log = tmp_path / "answers.duckdb.came-0"
        if not log.is_symlink():
            log.symlink_to(other)
        return values[0], None

    _, done = run(path, VALUES, asker=FunctionAsker(answer))
    assert done.rows == [(value,) for value in VALUES]
    assert other.read_text() == "mine"
    assert run(path, VALUES)[0].prompts == []
