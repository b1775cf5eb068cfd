"""`teola run` of an agent: its steps in words, and what the run took."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teola.cli.watching import watching
from teola.runtime.live.query import Progress
from teola.tools import ToolStep
from tests.command_line import CommandLine
from tests.fake_openai import FakeOpenAI

APP = '''
from teola import Agent, App
from teola.tools import tool

@tool(pure=True)
def search(query: str) -> list[str]:
    """Look for texts."""
    return [f"the {query} is [red]high[/] at noon", 'a "second" one']

app = App("seeker", Agent([search]), inputs={"question": "text"},
          outputs={"answer": "answer", "steps": "steps"})
'''
CALLS = [{"tool": "search", "args": {"query": query}} for query in ("tide [x]", "lamp")]


def said(messages: Any) -> str:
    if "Calls so far" in json.dumps(messages):
        return '{"answer": "At noon, it seems."}'
    return json.dumps({"thought": "I look it up", "calls": CALLS})


@pytest.fixture
def words(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    file = tmp_path / "seeker.py"
    file.write_text(APP)
    with FakeOpenAI(said) as server:
        yield ("run", f"{file}:app", "-i", "question=When?", "--llm", server.url)


def test_steps_are_lines_of_words(teola: CommandLine, words: tuple[str, ...]) -> None:
    ended = teola(*words)
    assert ended.code == 0, ended
    lines = ended.out.splitlines()
    at = lines.index("steps")
    assert lines[at + 1] == "  thought: I look it up"
    assert re.fullmatch(r'  search\("tide \[x\]"\) -> 2 results(, \d+ ms)?', lines[at + 2])
    assert re.fullmatch(r'  search\("lamp"\) -> 2 results(, \d+ ms)?', lines[at + 3])
    assert "\\" not in ended.out
    assert "At noon, it seems." in lines


def test_the_end_says_what_it_took(teola: CommandLine, words: tuple[str, ...]) -> None:
    last = teola(*words).out.splitlines()[-1].split(" · ")
    assert last[0] == "ok"
    assert re.fullmatch(r"\d+\.\d\d s", last[1])
    assert re.fullmatch(r"[1-9]\d* primitives", last[2])
    assert re.fullmatch(r"[1-9][\d,]* tokens read, [1-9][\d,]* written", last[3])
    shares = [int(one) for one in re.findall(r"(\d+) %", last[4])]
    assert 95 <= sum(shares) <= 104
    assert "decoding" in last[4]


def test_json_has_the_steps_as_they_are(teola: CommandLine, words: tuple[str, ...]) -> None:
    found = teola(*words, "--json").json
    steps = found["outputs"]["steps"]
    assert [step["args"] for step in steps] == [call["args"] for call in CALLS]
    assert json.loads(steps[0]["result"])[1] == 'a "second" one'
    assert found["primitives"] > 2


def test_a_terminal_is_told_each_call_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with watching() as watch:
        for k, query in enumerate(["tide [x]", "lamp " * 40]):
            watch.call(ToolStep("agent", f"c{k}", "search", {"query": query}, "started"))
            watch.event(Progress("agent-pure.call", "tool_call", "python", "started", 1))
        watch.event(Progress("turn.prefill", "prefilling", "llm", "writing", 1))
        for k, query in enumerate(["tide [x]", "lamp " * 40]):
            args, gave = {"query": query}, json.dumps([1] * k)
            watch.call(ToolStep("agent", f"c{k}", "search", args, "finished", gave, 0.4))
        assert watch.calls == 2
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    lines = [line.strip() for line in re.split(r"[\r\n]+", shown)]
    assert 'search("tide [x]") -> no results, 0.4 s' in lines
    assert any(line.endswith("-> 1 result, 0.4 s") for line in lines)
    assert not any("agent-pure" in line for line in lines)
    assert max(map(len, lines)) <= 80
