"""Engines that nobody has, or that nobody uses: told before a query is asked."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from teola import App, Condition, EngineConfig, Generate, Runtime, component
from teola.errors import InputError, UnknownName
from teola.testing.hash_engines import HashModel
from tests.command_line import CommandLine


def app(runtime: Runtime | None = None, engine: str = "llm", **more: Any) -> App:
    return App("asks", Generate(engine=engine), inputs={"question": "text"},
               outputs={"answer": "answer"}, runtime=runtime, **more)  # fmt: skip


# --- engines that cannot be made --------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (EngineConfig("opnai", {"url": "x"}), "unknown engine type 'opnai'; did you mean 'openai'"),
        ("opnai", "unknown engine type 'opnai'"),
        (EngineConfig("extractive", {"max_quote": 2}), "'max_quote' in engine 'llm'.*'max_quotes'"),
        (EngineConfig("openai"), r"'llm' needs the option 'url': EngineConfig\('openai', {'url': "),
        ("openai", r"'llm' needs the option 'url'"),
    ],
)
def test_an_engine_that_cannot_be_made_is_refused_with_its_runtime(config: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Runtime({"llm": config})


# --- engines that a component names -----------------------------------------------------------


def test_an_engine_that_a_runtime_has_not_is_refused_when_they_meet() -> None:
    told = "unknown engine 'llm2' in component 'generate' of application 'asks'; did you mean 'llm'"
    with Runtime({"llm": HashModel}) as runtime:
        with pytest.raises(UnknownName, match=told):
            app(runtime, "llm2")
        later = app(None, "llm2")
        with pytest.raises(UnknownName, match=told):
            later.runtime = runtime
        assert later.runtime is None


def test_without_a_runtime_it_is_refused_before_the_query() -> None:
    """A server may yet bring the engine along, so that declaring it is right."""
    with pytest.raises(UnknownName, match="unknown engine 'llm2' in component 'generate'"):
        app(None, "llm2").run(question="Why?")


def test_an_engine_in_a_branch_counts() -> None:
    template = Condition(
        bool, reads=["question"], then=Generate("a"), otherwise=Generate("b", engine="nosuch")
    )
    with (
        Runtime({"llm": HashModel}) as runtime,
        pytest.raises(UnknownName, match="'nosuch' in component 'b'"),
    ):
        App("x", template, inputs={"question": "text"}, outputs={"answer": "answer"},
            runtime=runtime)  # fmt: skip


# --- engines that no application names --------------------------------------------------------


@pytest.mark.parametrize("name", ["lm", "llmm", "my_llm"])
def test_a_misspelt_engine_is_not_replaced_by_the_default(name: str) -> None:
    with Runtime({name: HashModel}) as runtime:
        asks = app(runtime)
        told = f"engine '{name}' is configured, but no application.*did you mean 'llm'"
        with pytest.raises(InputError, match=told):
            asks.run(question="Why?")
        assert not runtime.engines(name)[0].started  # type: ignore[attr-defined]


def test_an_engine_of_its_own_name_may_be_beside_the_usual_one() -> None:
    with Runtime({"llm": HashModel, "llm2": HashModel}) as runtime:
        asks, also = app(runtime), app(runtime, "llm2")
        assert asks.run(question="Why?").state == also.run(question="Why?").state == "ok"


def test_another_application_may_use_it() -> None:
    template = component(lambda question: question, name="say", outputs="answer")
    with Runtime({"llm2": HashModel}) as runtime:
        app(runtime, "llm2")
        other = App("says", template, inputs={"question": "text"}, outputs={"answer": "answer"},
                    runtime=runtime)  # fmt: skip
        assert other.run(question="Why?").answer == "Why?"


def test_where_the_usual_engine_is_configured_too_nothing_is_meant() -> None:
    with Runtime({"llm": HashModel, "lm": HashModel}) as runtime:
        assert app(runtime).run(question="Why?").state == "ok"


def test_an_engine_of_no_near_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Runtime({"llm": HashModel, "gpt": HashModel}) as runtime:
        asks = app(runtime)
        for _ in range(2):
            asks.run(question="Why?")
    told = [r.getMessage() for r in caplog.records if r.name == "teola.runtime.fitting"]
    assert told == ["engine gpt is configured, but no application here uses it"]


# --- the command line -------------------------------------------------------------------------

FILE = """
from teola import App, Generate, Runtime
from teola.testing.hash_engines import HashModel

runtime = Runtime({{"llm": HashModel, "llm2": HashModel}})
def app(name, engine):
    return App(name, Generate(engine=engine), inputs={{"question": "text"}},
               outputs={{"answer": "answer"}}, runtime={runtime})
one, two = app("one", "llm"), app("two", "llm2")
"""


def test_an_application_may_be_run_without_those_beside_it(
    teola: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(runtime="runtime"))
    for name in ("one", "two"):
        assert teola("run", f"{file}:{name}", "-i", "question=Why?", "--json").code == 0


def test_a_configuration_is_checked_with_its_applications(
    teola: CommandLine, tmp_path: Path
) -> None:
    file, config = tmp_path / "mine.py", tmp_path / "teola.toml"
    file.write_text(FILE.format(runtime="None"))
    engine = '\n[engines.{name}]\ntype = "openai"\noptions = {{ url = "http://127.0.0.1:9" }}\n'
    for apps, name, told in (
        ("two", "llm2", ""),
        ("two", "lm2", "unknown engine 'llm2' in component 'generate'.*did you mean 'lm2'"),
        ("one", "lm", "engine 'lm' is configured.*did you mean 'llm'"),
    ):
        config.write_text(f'apps = ["{file}:{apps}"]\n' + engine.format(name=name))
        ended = teola("config", "check", config)
        assert re.search(told, ended.refused(2)) if told else ended.code == 0, ended
