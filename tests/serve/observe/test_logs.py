"""Log lines: what is in them, and what never is."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from teola import Runtime
from teola.runtime.observe.noting import note, working_for
from teola.serve.access.auth import KeyFile
from teola.serve.board import Board
from teola.serve.observe import observing
from teola.serve.observe.logs import WAITING, AsText, Lines, LogForm, as_json, failure, logging_to
from teola.serve.observe.metrics import Metrics
from teola.serve.observe.observing import REFUSALS_EVERY_S, Observers
from teola.serve.problems import Problem
from tests.serve.conftest import soon
from tests.serve.running import Running, running

QUESTION, DOCUMENT, NAME = "canary-question-1", "canary-document-2", "canary-name-3.txt"


# --- a server's ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    return file, KeyFile(file).create("alice", "shop")


@pytest.fixture(scope="module")
def server(
    servers: None, tmp_path_factory: pytest.TempPathFactory, keys: tuple[Path, str]
) -> Iterator[tuple[Running, str]]:
    with running(tmp_path_factory.mktemp("logs"), "--keys", str(keys[0])) as found:
        yield found, keys[1]


def test_a_query_has_two_lines(server: tuple[Running, str]) -> None:
    running, key = server
    id = running.ask("echo", QUESTION, authorization=f"Bearer {key}").json()["query_id"]
    soon(lambda: len(lines(running, id)) == 2)
    accepted, ended = lines(running, id)
    assert accepted["event"] == "query_accepted"
    assert {key: ended[key] for key in ("event", "level", "tenant", "app", "mode", "state")} == {
        "event": "query_ended",
        "level": "info",
        "tenant": "shop",
        "app": "echo",
        "mode": "sync",
        "state": "ok",
    }
    assert 0 <= ended["latency_s"] < 60
    assert ended["first_token_s"] > 0


def lines(running: Running, id: str) -> list[dict[str, Any]]:
    return [line for line in running.lines() if line.get("query_id") == id]


def test_a_failure_says_where_and_what_kind(server: tuple[Running, str]) -> None:
    running, key = server
    answer = running.ask("echo", f"fail {QUESTION}", authorization=f"Bearer {key}").json()
    id = answer["error"]["query_id"]
    assert QUESTION in answer["error"]["message"], "the client may know"
    soon(lambda: len(lines(running, id)) == 2)
    ended = lines(running, id)[-1]
    assert ended["level"] == "warning"
    assert ended["state"] == ended["error"] == "failed"
    assert ended["error_type"] == "ValueError"
    assert ended["component"] == "say"
    assert ended["raised_at"].startswith("observed.py:")


def test_refusals_are_logged_with_their_code(server: tuple[Running, str]) -> None:
    running, key = server
    wrong = httpx.post(
        f"{running.url}/v1/apps/{NAME}/queries",
        json={"inputs": {"question": QUESTION}},
        headers={"authorization": f"Bearer {key}"},
    )
    assert wrong.status_code == 404
    soon(lambda: bool(running.lines("refused")))
    refused = running.lines("refused")[0]
    assert refused["code"] == "not_found"
    assert refused["route"] == "/v1/apps/{app}/queries"
    assert refused["tenant"] == "shop"


def test_starting_and_engines_are_told(server: tuple[Running, str]) -> None:
    events = [line["event"] for line in server[0].lines()]
    for event in ("start", "engine_started", "ready"):
        assert event in events
    assert events.index("start") < events.index("ready")


def test_nothing_secret_is_in_the_log(server: tuple[Running, str]) -> None:
    running, key = server
    headers = {"authorization": f"Bearer {key}"}
    for path in ("/v1/apps/echo/queries", "/v1/chat/completions", f"/v1/{NAME}"):
        body = {
            "model": "echo",
            "messages": [{"role": "user", "content": f"fail {QUESTION}"}],
            "inputs": {"question": QUESTION, "documents": {"name": NAME, "text": DOCUMENT}},
        }
        httpx.post(f"{running.url}{path}", json=body, headers=headers)
        httpx.post(f"{running.url}{path}", json=body, headers={"x-api-key": f"{key}x"})
        httpx.post(f"{running.url}{path}?q={QUESTION}", content=QUESTION, headers=headers)
    soon(lambda: len(running.lines("refused")) >= 2)
    text = running.log.read_text()
    for secret in (QUESTION, DOCUMENT, NAME, key, key[-20:]):
        assert secret not in text


@pytest.mark.parametrize("seed", range(5))
def test_each_refusal_is_counted_in_one_line(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line of each code at most once a second, with how many there were since the last one."""
    draw, now = random.Random(seed), [float(10 * seed)]
    monkeypatch.setattr(observing, "monotonic", lambda: now[0])
    caplog.set_level(logging.INFO, observing.log.name)
    refused: Counter[str] = Counter()
    last: dict[str, float] = {}
    problems = [Problem(404, "not_found", ""), Problem(429, "overloaded", "")]
    with Runtime() as runtime:
        board = Board(1)
        observers = Observers(board, Metrics(runtime, {}, board), None)
        for _ in range(200):
            now[0] += draw.choice((0.0, 0.125, 0.5, 1.0, 2.0))
            problem = draw.choice(problems)
            caplog.clear()
            board.on_refused(problem) if draw.random() < 0.5 else observers.refused(problem, {})
            refused[problem.code] += 1
            told: list[Any] = [getattr(record, "fields") for record in caplog.records]  # noqa: B009
            due = now[0] - last.get(problem.code, -inf) >= REFUSALS_EVERY_S
            assert [(line["code"], line["count"]) for line in told] == (
                [(problem.code, refused.pop(problem.code))] if due else []
            )
            if due:
                last[problem.code] = now[0]


@pytest.mark.server
def test_the_end_is_told_too(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert server.stop() == 0
        assert [line["event"] for line in server.lines()][-2:] == ["drain", "stopped"]


@pytest.mark.server
def test_a_person_at_a_terminal_gets_text(tmp_path: Path) -> None:
    (tmp_path / "observed.py").write_text(
        "from teola import App, component\n"
        '@component(outputs="answer")\n'
        "async def say(question: str) -> str:\n    return question\n"
        'app = App("echo", say, inputs={"question": "text"}, outputs={"answer": "answer"})\n'
    )
    mine, theirs = pty.openpty()
    words = [sys.executable, "-m", "teola", "serve", str(tmp_path / "observed.py"), "--port", "0"]
    words += ["--learn", "off"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        told = b""
        try:
            while b"ready; Ctrl-C stops" not in told:
                told += os.read(mine, 4096)
        finally:
            process.terminate()
            process.wait(60)
            os.close(mine)
    assert b"serving echo" in told
    assert b"{" not in told


def test_what_is_no_http_is_refused_without_its_text(server: tuple[Running, str]) -> None:
    running, _ = server
    port = int(running.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET / HTTP/9.9 {QUESTION}\r\n\r\n".encode())
        connection.recv(1000)
    soon(lambda: any(line["code"] == "malformed" for line in running.lines("refused")))
    assert QUESTION not in running.log.read_text()


# --- lines ---------------------------------------------------------------------------------------


@pytest.fixture
def log() -> logging.Logger:
    return logging.getLogger("teola.test_logs")


def written(form: LogForm, *, do: Any) -> list[str]:
    """The lines that `do` logs."""
    stream = io.StringIO()
    with logging_to(stream, form):
        do()
    return stream.getvalue().splitlines()


def test_a_note_is_its_fields_for_programs_and_its_sentence_for_people(log: logging.Logger) -> None:
    def do() -> None:
        note(log, logging.INFO, "moved", "%(what)s moved", what="a house")

    (line,) = written("json", do=do)
    found = json.loads(line)
    assert {key: found[key] for key in ("level", "event", "what")} == {
        "level": "info",
        "event": "moved",
        "what": "a house",
    }
    (line,) = written("text", do=do)
    assert line[9:] == "a house moved"


def test_no_errors_text_is_logged(log: logging.Logger) -> None:
    def do() -> None:
        try:
            try:
                raise ValueError(QUESTION)
            except ValueError as error:
                raise RuntimeError(f"because of {QUESTION}") from error
        except RuntimeError as error:
            log.exception("it failed: %s", error)
            log.error("%(why)s", {"why": error})
            log.error(error)

    for form in get_args(LogForm):
        found = written(form, do=do)
        assert len(found) == 3
        assert QUESTION not in "".join(found)
        assert all("RuntimeError" in line for line in found)
    first = json.loads(written("json", do=do)[0])
    assert first["message"] == "it failed: RuntimeError"
    assert (first["error_type"], first["causes"]) == ("RuntimeError", ["ValueError"])
    assert first["raised_at"][-1].startswith("test_logs.py:")


def test_what_libraries_say_is_left_out_and_what_the_operators_code_says_is_not() -> None:
    theirs = logging.getLogger("somebody.elses")
    record = logging.LogRecord("x", logging.WARNING, json.__file__, 7, QUESTION, (), None)

    def do() -> None:
        theirs.handle(record)
        theirs.warning("this file is the operator's")

    library, own = map(json.loads, written("json", do=do))
    assert "message" not in library
    assert library["where"] == "__init__.py:7"
    assert own["message"] == "this file is the operator's"


def test_lines_say_for_which_queries_they_were_written(log: logging.Logger) -> None:
    def do() -> None:
        for queries in ((), ("one",), ("one", "two")):
            token = working_for.set(queries)
            log.info("hello")
            working_for.reset(token)

    none, one, two = map(json.loads, written("json", do=do))
    assert "query_id" not in none
    assert one["query_id"] == "one"
    assert two["query_ids"] == ["one", "two"]


def test_text_cannot_steer_a_terminal(log: logging.Logger) -> None:
    def do() -> None:
        note(log, logging.INFO, "x", "%(what)s", what="a\x1b[31mb\u202ec")

    (line,) = written("text", do=do)
    assert "\x1b" not in line
    assert "\u202e" not in line


def test_a_line_that_cannot_be_made_harms_nothing() -> None:
    stream = io.StringIO()
    lines = Lines(stream, as_json)
    for text, given in (("%d", "x"), ("%s", "next")):
        lines.handle(logging.LogRecord("teola", logging.INFO, __file__, 1, text, (given,), None))
    lines.close()
    bad, good = map(json.loads, stream.getvalue().splitlines())
    assert (bad["event"], bad["error_type"]) == ("log_failed", "TypeError")
    assert good["message"] == "next"


def test_a_reader_who_hangs_stops_nobody(log: logging.Logger) -> None:
    """The pipe is full: lines wait, and beyond a bound they are dropped."""
    read, write = os.pipe()
    with suppress(BrokenPipeError), os.fdopen(write, "w") as stream:
        lines = Lines(stream, as_json)
        record = log.makeRecord("teola", logging.INFO, __file__, 1, "x" * 100, (), None)
        for _ in range(3 * WAITING):
            lines.emit(record)
        assert lines._aside.dropped > 0
        os.close(read)
        lines.close()


def test_colours_are_for_terminals() -> None:
    record = logging.LogRecord("teola", logging.ERROR, __file__, 1, "oh", (), None)
    assert "\x1b[31m" in AsText(coloured=True)(record)
    assert "\x1b" not in AsText(coloured=False)(record)


def test_a_failure_without_a_traceback() -> None:
    assert failure(ValueError("x")) == {"error_type": "ValueError", "causes": [], "raised_at": []}
