"""`teola run` of applications that ask people: at a terminal, and without one."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from rich.console import Console

from teola.cli.prompting import Prompter, TypedLine
from teola.graph import Inquiry
from tests.command_line import CommandLine

APPS = """
from teola import App, Ask, component

@component(outputs="draft", pure=True)
def draft(topic: str) -> str:
    return f"About {topic}."

@component(outputs="answer")
def send(draft: str, verdict: str, words: int) -> str:
    return f"{verdict}, {words}: {draft}"

verdict = Ask("Send?\\n{draft}", schema={"enum": ["yes", "no"]}, gives="verdict")
words = Ask(
    "You said {verdict}. How many words?", schema={"type": "integer"}, gives="words", name="words"
)
app = App("mail", draft >> verdict >> words >> send,
          inputs={"topic": "text"}, outputs={"answer": "answer"})
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
WAIT_S = 60.0
ROOT = Path(__file__).parents[1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mail.py"
    path.write_text(APPS)
    return path


def test_without_a_terminal_it_says_what_is_asked(teola: CommandLine, file: Path) -> None:
    ended = teola("run", file, "-i", "topic=tides")
    assert ended.code == 3
    assert "Send?\nAbout tides." in ended.out
    assert "(yes, no)" in ended.out
    assert ended.err.startswith("teola: the query asks people, and there is no terminal")
    found = json.loads(teola("run", file, "-i", "topic=tides", "--json").out)
    assert (found["state"], [one["ask"] for one in found["asks"]]) == ("waiting", ["ask.ask"])


HOSTILE = """
from teola import App, component
from teola.errors import EngineError

TEXT = "\\x1b]52;c;cm0=\\x07\\x1b[2J\\x00 exe.\\u202egnp \\x9b1m end\\r\\n"

@component(outputs="answer")
def say(topic: str) -> str:
    if topic == "fail":
        raise EngineError(TEXT)
    return TEXT

app = App("hostile", say, inputs={"topic": "text"}, outputs={"answer": "answer"})
"""
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_no_text_commands_a_terminal(teola: CommandLine, tmp_path: Path) -> None:
    """Of an answer, as text and as JSON, of an error, or of what people are asked."""
    file = tmp_path / "hostile.py"
    file.write_text(HOSTILE)
    shown = teola("run", file, "-i", "topic=x")
    assert "\u241b]52;c;cm0=\u241b[2J\u2400 exe.\ufffdgnp \ufffd1m end\n" in shown.out
    as_json = teola("run", file, "-i", "topic=x", "--json")
    assert json.loads(as_json.out)["outputs"]["answer"].count("\u202e") == 1, "nothing is lost"
    failed = teola("run", file, "-i", "topic=fail")
    assert "exe." in failed.err
    for text in (shown.out, as_json.out, failed.err):
        assert not COMMANDS.search(text)
    out = io.StringIO()
    prompter = Prompter()
    prompter._console.file = out
    about = {"tool": "send", "arguments": {"text": "a\x1b[1m\u202eb"}}
    prompter._show(Inquiry("ask", "query", "unknown", "agent", "What\x1b[2J?", {}, about))
    assert "text: a\u241b[1m\ufffdb" in out.getvalue()
    assert not COMMANDS.search(out.getvalue())


class Terminal:
    """`teola` at a terminal of its own. Its standard output is a pipe."""

    def __init__(self, *words: str | Path) -> None:
        self._mine, theirs = pty.openpty()
        code = "import sys; from teola.cli import main; sys.argv[0] = 'teola'; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": str(ROOT)},
        )
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        """Wait until this is shown."""
        self._read(lambda: text in self.shown)

    def type(self, line: str) -> None:
        """Type a line."""
        self.shown = ""
        os.write(self._mine, f"{line}\n".encode())

    def end(self) -> tuple[int, str]:
        """Its exit code and its standard output."""
        try:
            told, _ = self.process.communicate(timeout=WAIT_S)
        finally:
            self.process.kill()
        self._read(lambda: False)
        os.close(self._mine)
        return self.process.returncode, told

    def _read(self, enough: Callable[[], bool]) -> None:
        until = monotonic() + WAIT_S
        while not enough():
            assert monotonic() < until, self.shown
            try:
                piece = os.read(self._mine, 4096).decode(errors="replace")
            except OSError:  # nobody is at the other end any more
                assert enough() or self.process.poll() is not None, self.shown
                return
            self.shown += ESCAPES.sub("", piece).replace("\r", "")


def test_at_a_terminal_people_are_asked(file: Path) -> None:
    terminal = Terminal("run", file, "-i", "topic=tides", "--json")
    terminal.until("About tides.")
    terminal.until("answer [yes/no]")
    terminal.type("perhaps")
    terminal.until("select one of the available options")
    terminal.type("yes")
    terminal.until("You said yes. How many words?")
    terminal.type("seven")
    terminal.until("does not fit the question")
    terminal.type("7")
    code, told = terminal.end()
    assert code == 0, terminal.shown
    assert json.loads(told)["outputs"] == {"answer": "yes, 7: About tides."}


def test_who_leaves_the_terminal_ends_the_query(file: Path) -> None:
    terminal = Terminal("run", file, "-i", "topic=tides")
    terminal.until("answer [yes/no]")
    terminal.process.send_signal(signal.SIGINT)
    code, told = terminal.end()
    assert (code, told) == (130, "")
    assert "teola: cancelled" in terminal.shown


def test_an_interrupt_that_comes_before_it_waits_for_a_line_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What no read of a line notices: the interrupt is there, and the read has not begun."""
    nothing, _typed = os.pipe()
    waits = select.select

    def late(*given: Any) -> Any:
        found = waits(*given)  # in C until its time is over
        raise KeyboardInterrupt if given[3] is not None else AssertionError(found)

    with os.fdopen(nothing) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("select.select", late)
        with pytest.raises(KeyboardInterrupt):
            TypedLine.ask("answer", console=Console(stderr=True))
    os.close(_typed)


AGENT = """
from teola import Agent, App, Runtime
from tests.serve.ui.questions import Decides, send

app = App("clerk", Agent([send]), inputs={"question": "text"}, outputs={"answer": "answer"},
          runtime=Runtime({"llm": Decides}))
"""


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["approve"], "sent 'The lamp is out.' to Mara, 1 times"),
        (
            ["edit", '{"to": "Jon", "text": "Hi"}'],
            "sent 'Hi' to Jon, 1 times",
        ),
        (["reject", "not on Sundays"], "a person rejected it: not on Sundays"),
    ],
)
def test_calls_are_decided_on_at_a_terminal(tmp_path: Path, typed: list[str], told: str) -> None:
    file = tmp_path / "clerk.py"
    file.write_text(AGENT)
    terminal = Terminal("run", file, "-i", "question=tides", "--json")
    terminal.until("text: The lamp is out.")
    terminal.until("approve [approve/edit/reject]")
    for line, prompt in zip(
        typed, ["", "for the model" if typed[0] == "reject" else "JSON object"], strict=False
    ):
        terminal.until(prompt)
        terminal.type(line)
    code, out = terminal.end()
    assert code == 0, terminal.shown
    assert told in json.loads(out)["outputs"]["answer"]
