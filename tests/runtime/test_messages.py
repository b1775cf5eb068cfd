"""Errors of somebody else's code: all that they say, with the component that they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from teola import App, Indexing, Runtime, component
from teola.errors import DocumentError, QueryFailed, error_text
from teola.runtime.documents import collected
from tests.command_line import CommandLine

SCRIPT = """
from teola import App, component

@component(outputs="answer")
def fail(question: str) -> str:
    raise ValueError("it is wrong\\n  here: " + question + "\\n  and there")

app = App("failing", fail, inputs={"question": "text"}, outputs={"answer": "answer"})
"""


class Form(BaseModel):
    name: str
    year: int


def test_an_exception_of_several_lines_is_told_whole() -> None:
    @component(outputs="answer")
    def parse(question: str) -> str:
        return Form.model_validate({}).name

    with Runtime() as runtime:
        app = App("x", parse, inputs={"question": "text"}, outputs={"answer": "answer"},
                  runtime=runtime)  # fmt: skip
        with pytest.raises(QueryFailed) as error:
            app.run(question="Why?")
    first, *rest = str(error.value).splitlines()
    assert first == ("component 'parse', tool_call: ValidationError: 2 validation errors for Form")
    assert {"    name", "    year"} <= set(rest)
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("one"), "one"),
        (ValueError("one\ntwo\n three\n"), "one\n    two\n     three"),
        (ValueError(), "ValueError"),
    ],
)
def test_whole(error: Exception, told: str) -> None:
    assert error_text(error) == told


def test_the_command_line_keeps_the_lines(teola: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text(SCRIPT)
    ended = teola("run", file, "-i", "question=Why?")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "teola: component 'fail', tool_call: ValueError: it is wrong",
        "      here: Why?",
        "      and there",
    ]
    file.write_text("from teola import App\nApp(\n")
    assert "SyntaxError: '(' was never closed" in teola("run", file, "-i", "x=y").refused(2)
    file.write_text("raise RuntimeError('one\\ntwo')")
    assert teola("run", file, "-i", "x=y").err.splitlines()[-1] == "    two"


@pytest.mark.parametrize(
    "text", ["Mara keeps the lamp.", "Mara keeps the lamp.\n" * 20, "lamp\0", "~/no/such/lamp.md"]
)
def test_a_text_that_is_taken_for_a_path_is_told_how_to_be_given(text: str) -> None:
    with pytest.raises(DocumentError) as error:
        collected(text)
    told = str(error.value)
    assert told.startswith(f"no such file: {text[:20]!r}"[:-1].replace("\n", "\\n"))
    assert told.endswith("check the path, or give a text itself as {'name': ..., 'text': ...}")
    assert len(told) < 250
    assert "\n" not in told


def test_it_is_told_before_anything_is_read(runtime: Runtime) -> None:
    app = App("x", Indexing(), inputs={"documents": "documents"}, outputs={"done": "stored"},
              runtime=runtime)  # fmt: skip
    with pytest.raises(DocumentError, match="give a text itself as"):
        app.run(documents=[{"name": "a", "text": "b"}, "Mara keeps the lamp."])
