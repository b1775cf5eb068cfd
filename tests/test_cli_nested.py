"""The command line, with applications whose components run others, or fail and are not needed."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import CommandLine
from tests.fake_openai import FakeOpenAI


def test_inner_applications_use_the_model_that_the_option_names(
    teola: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "nested.py"
    file.write_text(
        "from teola import App, Generate, component\n"
        "inner = App('inner', Generate(), inputs={'question': 'text'},\n"
        "            outputs={'answer': 'answer'})\n"
        "@component(outputs='answer')\n"
        "async def ask(question: str) -> str:\n"
        "    return (await inner.arun(question=question)).answer\n"
        "outer = App('outer', ask, inputs={'question': 'text'}, outputs={'answer': 'answer'})\n"
    )
    with FakeOpenAI("said by the server") as server:
        words = ("run", f"{file}:outer", "-i", "question=Why?", "--llm", server.url, "--json")
        ended = teola(*words)
    assert (ended.code, ended.json["outputs"]) == (0, {"answer": "said by the server"})


def test_why_an_optional_component_failed_is_printed(teola: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "booming.py"
    file.write_text(
        "from teola import App, component\n"
        "@component(optional=True)\n"
        "def boom(question: str) -> str:\n"
        "    raise ValueError('no such place')\n"
        "def say(question: str, boom: str = '') -> str:\n"
        "    return f'{question} {boom}'\n"
        "app = App('booming', boom >> component(say, outputs='answer'),\n"
        "          inputs={'question': 'text'}, outputs={'answer': 'answer'})\n"
    )
    ended = teola("run", file, "-i", "question=Why?")
    assert (ended.code, ended.err) == (0, "")
    assert "without boom: ValueError: no such place\n" in ended.out
    found = teola("run", file, "-i", "question=Why?", "--json").json
    assert (found["missing"], found["reasons"]) == (
        ["boom"],
        {"boom": "ValueError: no such place"},
    )
