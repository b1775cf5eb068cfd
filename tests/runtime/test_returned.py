"""What functions return: a value that its reader knows, or an error that names the function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import Document as Node
from pydantic import BaseModel

from teola import App, Generate, Runtime, component
from teola.engine import Chunk, Hit
from teola.errors import InputError, QueryFailed
from teola.testing.hash_engines import HashModel

HIT = Hit("1", "lamp.md", "Mara keeps the lamp.", 1.0)


class Document:
    """As LangChain's."""

    page_content = "Mara keeps the lamp."


@dataclass
class Note:
    words: str


class Form(BaseModel):
    words: str


class Opaque:
    pass


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({"llm": HashModel}) as made:
        yield made


def prompts(runtime: Runtime) -> list[str]:
    model = runtime.engines("llm")[0]
    assert isinstance(model, HashModel)
    return model.prompts


def answered(runtime: Runtime, value: Any) -> str:
    """What a prompt makes of a function's value."""
    found = component(lambda question: value, name="find", outputs="context")
    app = App("x", found >> Generate(), inputs={"question": "text"},
              outputs={"answer": "answer"}, runtime=runtime)  # fmt: skip
    prompts(runtime).clear()
    app.run(question="Why?")
    return prompts(runtime)[-1].split("Context:\n")[1].split("\n\nAnswer:")[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a text", "a text"),
        (["one", "two"], "one\n\ntwo"),
        ([HIT, Chunk("d", 0, "chunk", "d")], "Mara keeps the lamp.\n\nchunk"),
        ({"keeper": "Mara", "years": [1987, None, True, 0.5]},
         '{"keeper": "Mara", "years": [1987, null, true, 0.5]}'),
        ({"best": HIT}, '{"best": "Mara keeps the lamp."}'),
        (("one", "two"), '["one", "two"]'),
        (3, "3"),
        (np.array([1.5, 2.0]), "[1.5, 2.0]"),
        ([np.float32(0.5)], "0.5"),
    ],
)  # fmt: skip
def test_what_a_prompt_makes_of_a_value(runtime: Runtime, value: Any, text: str) -> None:
    assert answered(runtime, value) == text


@pytest.mark.parametrize(
    ("value", "named", "way"),
    [
        ([Document()], r"tests\.runtime\.test_returned\.Document", "return its `page_content`, or"),
        (
            [Node(text="x")],
            r"llama_index\..*Document",
            r"return its `get_content\(\)`, or teola\.engine\.Hit",
        ),
        ({"notes": [Note("x")]}, "Note", r"return its `dataclasses\.asdict`"),
        (Form(words="x"), "Form", r"return its `model_dump\(\)`"),
        (Opaque(), "Opaque", r"return text, JSON values.*or teola\.engine\.Hit\("),
        ({"a", "b"}, "set", "return text"),
        (b"bytes", "bytes", "return text"),
        ({Opaque(): 1}, "Opaque", "return text"),
        (iter(["x"]), "list_iterator", "return text"),
    ],
)
def test_what_nobody_can_read_is_refused_where_it_comes_from(
    runtime: Runtime, value: Any, named: str, way: str
) -> None:
    """By the component that gave it, before anything was asked of the model."""
    told = rf"^component 'find', tool_call: it gives 'context' as .*{named}, which prompts.*: {way}"
    with pytest.raises(QueryFailed, match=told):
        answered(runtime, value)
    assert prompts(runtime) == []


def test_an_answer_is_no_object_either(runtime: Runtime) -> None:
    give = component(lambda question: Opaque(), name="give", outputs="answer")
    app = App("x", give, inputs={"question": "text"}, outputs={"answer": "answer"}, runtime=runtime)
    with pytest.raises(QueryFailed, match=r"component 'give'.*Opaque"):
        app.run(question="Why?")


def test_between_functions_any_object_passes(runtime: Runtime) -> None:
    give = component(lambda question: Note(question), name="give", outputs="note")
    read = component(lambda note: note.words, name="read", outputs="answer")
    app = App("x", give >> read, inputs={"question": "text"}, outputs={"answer": "answer"},
              runtime=runtime)  # fmt: skip
    assert app.run(question="Why?").answer == "Why?"


def test_an_object_that_a_query_brings_is_refused_by_its_reader(runtime: Runtime) -> None:
    app = App("x", Generate(), inputs={"question": "text", "context": "any"},
              outputs={"answer": "answer"}, runtime=runtime)  # fmt: skip
    with pytest.raises(
        (QueryFailed, InputError), match=r"'generate'.*a prompt takes texts.*Opaque"
    ):
        app.run(question="Why?", context=Opaque())
