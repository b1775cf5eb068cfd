"""Components that a query can do without: what fails is named, with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from teola import App, Generate, Runtime, component
from teola.cli.showing import show_result
from teola.errors import EngineUnavailable, InputError
from teola.runtime import runtime as runtimes
from teola.testing.hash_engines import HashModel
from tests.runtime.faults import Scripted

DOWN = "engine 'llm' did not start: OSError: no route"
"""The model calls itself so."""


class Late(HashModel):
    """Does not start before the time that `starts` counts to."""

    def __init__(self, starts: int, error: Exception) -> None:
        super().__init__()
        self.left, self.error = starts, error

    async def start(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise self.error


def report(question: str, answer: str | None = None) -> str:
    return f"{question} {answer or 'nothing'}"


def app(runtime: Runtime, **options: Any) -> App:
    return App(
        "test",
        Generate(engine="llm2", **options) >> component(report),
        inputs={"question": "text"},
        outputs={"report": "report"},
        runtime=runtime,
    )


def on(model: HashModel) -> Runtime:
    return Runtime({"llm2": lambda: model})


@pytest.fixture
def down() -> Iterator[Runtime]:
    with on(Late(99, OSError("no route"))) as runtime:
        yield runtime


def test_an_engine_that_only_optional_components_use_may_be_down(down: Runtime) -> None:
    result = app(down, optional=True).run(question="why?")
    assert (result.state, result["report"]) == ("partial", "why? nothing")
    assert result.missing == ("generate",)
    assert result.reasons == {"generate": DOWN}


def test_one_that_others_use_may_not(down: Runtime) -> None:
    with pytest.raises(EngineUnavailable, match="no route"):
        app(down).run(question="why?")


def test_a_wrong_configuration_is_an_error_of_all() -> None:
    with (
        on(Late(99, InputError("llm2 needs a URL"))) as runtime,
        pytest.raises(InputError, match="needs a URL"),
    ):
        app(runtime, optional=True).run(question="why?")


def test_it_is_used_as_soon_as_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "AGAIN_S", 0.0)
    with on(Late(1, OSError("no route"))) as runtime:
        asked = app(runtime, optional=True)
        assert asked.run(question="why?").state == "partial"
        result = asked.run(question="why?")
        assert (result.state, result.missing) == ("ok", ())
        assert result["report"].startswith("why? answer ")


def test_not_every_query_waits_for_it() -> None:
    """Its start may take long before it fails."""
    model = Late(99, OSError("no route"))
    with on(model) as runtime:
        asked = app(runtime, optional=True)
        assert [asked.run(question="why?").state for _ in range(3)] == ["partial"] * 3
        assert model.left == 98


def test_many_queries_at_once_do_without_it(down: Runtime) -> None:
    results = app(down, optional=True).batch([{"question": "why?"}] * 20)
    assert {result.state for result in results} == {"partial"}
    assert {result.reasons["generate"] for result in results} == {DOWN}


# --- the reason -----------------------------------------------------------------------------


def boom(question: str) -> str:
    raise ValueError("no such\nplace")


@pytest.fixture
def booming() -> Iterator[App]:
    with Runtime({"llm": lambda: Scripted(["fine"])}) as runtime:
        yield App(
            "test",
            component(boom, optional=True) >> Generate(inputs={"context": "boom"}),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtime,
        )


def test_why_a_component_failed_is_in_the_result_and_in_the_trace(booming: App) -> None:
    result = booming.run(question="why?")
    assert result.missing == ("boom",)
    assert result.reasons == {"boom": "ValueError: no such\n    place"}
    assert result.to_json()["reasons"] == {"boom": "ValueError: no such\n    place"}
    assert result.trace is not None
    told = json.loads(json.dumps(result.trace.to_json()))
    (span,) = [span for span in told["spans"] if span["component"] == "boom"]
    assert (span["state"], span["error"]) == ("failed", "ValueError: no such\n    place")
    assert all("error" not in other for other in told["spans"] if other is not span)


def test_it_is_shown(booming: App, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(booming.run(question="why?"))
    assert "without boom: ValueError: no such\n" in capsys.readouterr().out


def test_a_query_that_needs_nothing_says_nothing(booming: App) -> None:
    with Runtime({"llm": lambda: Scripted(["fine"])}) as runtime:
        plain = App("plain", Generate(), inputs={"question": "text"}, outputs={"answer": "answer"})
        plain.runtime = runtime
        assert "reasons" not in plain.run(question="why?").to_json()
