"""Ctrl-C and SIGTERM while a function blocks, from outside the process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

BLOCKING_S = 60
PROMPT_S = 15.0
"""An exit takes a second; one that waited for the function would take a minute."""

APP = f"""\
import time
from teola import App, component

@component(outputs="answer")
def wait(question: str) -> str:
    print("waiting", flush=True)
    time.sleep({BLOCKING_S})
    return ""

@component(outputs="answer")
def write(question: str):
    yield "half an answer"
    time.sleep({BLOCKING_S})

waits = App("waits", wait, inputs={{"question": "text"}}, outputs={{"answer": "answer"}})
writes = App("writes", write, inputs={{"question": "text"}}, outputs={{"answer": "answer"}})
"""

WAYS = {
    "run": 'waits.run(question="Why?")',
    "batch": 'waits.batch([{"question": "Why?"}] * 3)',
    "stream": 'list(waits.stream(question="Why?"))',
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "apps.py"
    path.write_text(APP)
    return path


def interrupted(command: list[str], until: str, number: int) -> tuple[int, str, str, float]:
    """Exit code, output, errors, and seconds after the signal that is sent at `until`."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        told = ""
        while until not in told:
            told += p.stdout.read(1)
        p.send_signal(number)
        began = monotonic()
        out, err = p.communicate(timeout=2 * BLOCKING_S)
        return p.returncode, told + out, err, monotonic() - began


@pytest.mark.parametrize("way", WAYS)
def test_a_function_that_blocks_does_not_hold_the_end_up(script: Path, way: str) -> None:
    script.write_text(APP + WAYS[way])
    code, _, err, took = interrupted([sys.executable, str(script)], "waiting\n", signal.SIGINT)
    assert took < PROMPT_S
    assert code == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nor_that_of_the_command_line(script: Path, number: int) -> None:
    command = [sys.executable, "-m", "teola", "run", f"{script}:waits", "-i", "question=Why?"]
    code, _, err, took = interrupted(command, "waiting\n", number)
    assert took < PROMPT_S
    expected = (130, "teola: cancelled\n") if number == signal.SIGINT else (143, "")
    assert (code, err) == expected


def test_what_is_said_at_an_interrupt_begins_a_line(script: Path) -> None:
    command = [sys.executable, "-m", "teola", "run", f"{script}:writes", "-i", "question=Why?"]
    code, out, err, took = interrupted([*command, "--stream"], "half an answer", signal.SIGINT)
    assert (code, out, err) == (130, "half an answer\n", "teola: cancelled\n")
    assert took < PROMPT_S
