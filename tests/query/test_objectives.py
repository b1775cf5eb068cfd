"""Objectives: who states them, what inherits them, and whether they were kept."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from teola import App, Runtime, component
from teola.cli.given import Engines
from teola.cli.showing import show_result
from teola.config import Configuration
from teola.errors import InputError
from teola.query.job import Job
from teola.query.journal.query_rows import Body
from teola.query.spec import QuerySpec
from teola.runtime.objectives import Objective, objective_left
from tests.planted import catches, edited


@component(outputs="answer")
def answer(question: str) -> str:
    time.sleep(0.02)
    return question


def app_of(runtime: Runtime, **more: Any) -> App:
    return App(
        "plain",
        answer,
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        runtime=runtime,
        **more,
    )


def test_a_query_says_by_when_it_is_wanted_and_hears_whether_it_was() -> None:
    with Runtime() as runtime:
        app = app_of(runtime, finish_by_s=7.0)
        for stated, by_s, met in ((None, 7.0, True), (60.0, 60.0, True), (0.001, 0.001, False)):
            result = app.run(question="Why?", finish_by_s=stated)
            assert result.state == "ok"
            assert result.objective == Objective(by_s, stated=True)
            told = {"finish_by_s": by_s, "stated": True, "met": met}
            assert result.to_json()["objective"] == told


@pytest.mark.parametrize("late", [False, True])
def test_it_is_met_by_any_answer_in_time_and_by_nothing_else(
    late: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON, and as the command line says it."""
    with Runtime() as runtime:
        result = app_of(runtime).run(question="Why?", finish_by_s=0.001 if late else 60.0)
    met, words = {}, {True: " kept", False: " missed", None: ""}
    for state in ("ok", "partial", "failed", "cancelled", "deadline", "waiting"):
        ended = replace(result, state=state)
        met[state] = ended.to_json().get("objective", {}).get("met")
        assert ended.met_objective == met[state]
        show_result(ended)
        told = f"objective of {0.001 if late else 60:g} s{words[met[state]]} ·"
        assert told in " ".join(capsys.readouterr().out.split())
    answered = dict.fromkeys(("ok", "partial"), not late)
    assert met == {**dict.fromkeys(met, False), **answered, "waiting": None}


@catches(
    "after-the-end",
    "an application's objective may be after the query's end",
    edited(Job._finish_by, "plan, self.deadline_s", "plan"),
)
def test_the_configuration_goes_before_the_author() -> None:
    with Runtime(objectives={"plain": 30.0}) as runtime:
        app = app_of(runtime, finish_by_s=7.0)
        assert app.run(question="Why?").objective == Objective(30.0, stated=True)
        found = app.run(question="Why?", deadline_s=20.0).objective
        assert found is not None
        assert 15.0 < found.by_s <= 20.0
    told = Configuration.model_validate(
        {"objectives": {"plain": 4.0}, "policies": {"slo_scale": 2.0, "learn": False}}
    )
    with Engines().configured(told, []) as runtime:
        assert runtime.objectives.by_app == {"plain": 4.0}
        assert runtime.objectives.scale == 2.0


def test_others_have_one_by_what_they_take_as_soon_as_that_is_known() -> None:
    with Runtime(slo_scale=4.0) as runtime:
        app = app_of(runtime)
        assert app.run(question="Why?").objective is None
        found = app.run(question="Why?").objective
        assert found is not None
        assert not found.stated
        assert 4 * 0.02 <= found.by_s < 4 * 1.0


@catches(
    "orphan",
    "a query inside has an objective of its own",
    edited(Job._finish_by, "return min(own, around)", "return own"),
)
def test_a_query_inside_another_one_inherits_and_may_state_an_earlier_one() -> None:
    seen: list[float] = []

    @component(outputs="answer")
    def around(question: str) -> str:
        for stated in (None, 90.0, 5.0):
            inner.run(question=question, finish_by_s=stated)
        return question

    with Runtime() as runtime:
        inner = app_of(runtime)
        outer = App(
            "outer", around, inputs={"question": "text"}, outputs={"answer": "answer"},
            runtime=runtime,
        )  # fmt: skip
        begin = runtime.live.begin

        def begun(query: Any, now: float) -> None:
            seen.append(query.run.asker.finish_by - now)
            begin(query, now)

        runtime.live.begin = begun  # type: ignore[method-assign]
        outer.run(question="Why?", finish_by_s=30.0)
    assert [round(left) for left in seen] == [30, 30, 30, 5]


@pytest.mark.parametrize("wrong", [0, -1, nan, inf, "5", True])
def test_what_is_no_objective_is_refused(wrong: Any) -> None:
    with Runtime() as runtime:
        with pytest.raises(InputError, match="finish_by_s must be a number of seconds above 0"):
            app_of(runtime).run(question="Why?", finish_by_s=wrong)
        with pytest.raises(InputError, match="finish_by_s must be a number of seconds above 0"):
            app_of(runtime, finish_by_s=wrong)
    with pytest.raises(InputError, match="objective of application 'x'"):
        Runtime(objectives={"x": wrong})
    with pytest.raises(InputError, match="slo_scale must be a number above 0"):
        Runtime(slo_scale=wrong)


def test_one_that_is_later_than_the_deadline_is_refused_with_what_to_do() -> None:
    with Runtime() as runtime, pytest.raises(InputError, match="give it a longer deadline_s"):
        app_of(runtime).run(question="Why?", deadline_s=5, finish_by_s=6)


def test_the_journal_keeps_it_and_what_waited_has_less_of_it() -> None:
    text, _ = Body(inputs={"question": "x"}, finish_by_s=9.0).packed()
    assert Body.read(text).finish_by_s == 9.0
    assert "finish_by_s" not in Body(inputs={}).packed()[0]
    assert objective_left(9.0, accepted=100.0, now=103.0, left_s=50.0) == 6.0
    assert objective_left(9.0, accepted=100.0, now=200.0, left_s=50.0) == 0.001
    assert objective_left(None, 0.0, 0.0, 1.0) is None
    assert QuerySpec({}).finish_by_s is None
