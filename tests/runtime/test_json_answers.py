"""Answers in JSON: schemas from pydantic models, and what is said of those that were cut off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from teola import App, EngineConfig, Generate, Runtime
from teola.errors import InputError, QueryFailed
from tests.fake_openai import FakeOpenAI

ANSWER = {"keeper": {"name": "Mara Quist"}, "since": 1987}


class Keeper(BaseModel):
    name: str


class Lamp(BaseModel):
    keeper: Keeper
    since: int = Field(ge=1800)


class Odd(BaseModel):
    test: Callable[[], bool]


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with (
        FakeOpenAI(answer=json.dumps(ANSWER)) as server,
        Runtime({"llm": EngineConfig("openai", {"url": server.url})}) as made,
    ):
        yield made


def app(runtime: Runtime, **config: Any) -> App:
    return App("lamp", Generate(**config), inputs={"question": "text"},
               outputs={"answer": "answer"}, runtime=runtime)  # fmt: skip


def test_a_pydantic_model_is_a_schema(runtime: Runtime) -> None:
    """The answer is the JSON value, which the model takes."""
    answer = app(runtime, json_schema=Lamp).run(question="Who?").answer
    assert answer == ANSWER
    assert Lamp.model_validate(answer).keeper.name == "Mara Quist"


def test_an_answer_that_the_model_does_not_take_is_refused(runtime: Runtime) -> None:
    class Late(Lamp):
        since: int = Field(ge=2000)

    told = r"component 'generate', decoding: the output does not fit its JSON schema at \$\.since"
    with pytest.raises(QueryFailed, match=told):
        app(runtime, json_schema=Late).run(question="Who?")


def test_models_of_one_name_are_told_apart(runtime: Runtime) -> None:
    def named(least: int) -> type[BaseModel]:
        class Since(BaseModel):
            since: int = Field(ge=least)

        return Since

    made = app(runtime)
    assert made.run(question="Who?", overrides={"generate.json_schema": named(1900)}).answer
    with pytest.raises(QueryFailed, match="does not fit"):
        made.run(question="Who?", overrides={"generate.json_schema": named(2000)})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (Odd, r"generate\.json_schema: .*Odd has no JSON schema"),
        (int, r"generate\.json_schema: .*dictionary"),
    ],
)
def test_what_makes_no_schema_is_refused_when_it_is_declared(schema: type, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Generate(json_schema=schema)


def test_json_that_was_cut_off_says_so(runtime: Runtime) -> None:
    told = (
        r"component 'generate', decoding: the JSON was cut off after max_tokens=3: raise "
        r"max_tokens, or ask for less \(expected JSON, found none; the output begins '{"
    )
    with pytest.raises(QueryFailed, match=told):
        app(runtime, json_schema=Lamp, max_tokens=3).run(question="Who?")
