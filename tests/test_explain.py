"""What an explanation says of an application that has not run."""

from __future__ import annotations

import re

import pytest

from teola import App, Component, Condition, Generate, component


def app(answering: Component) -> App:
    return App("asks", answering, inputs={"question": "text"}, outputs={"answer": "answer"})


@pytest.mark.parametrize("passes", ["all", "none"])
def test_calls_that_may_not_be_made_are_told_with_what_they_cost_at_most(passes: str) -> None:
    maybe = Condition(
        bool, reads=["question"], then=Generate(inputs={"context": "question"}), otherwise=known()
    )
    text = app(maybe).explain(question="Why?", profile="paper-13b", passes=passes).text()
    told = re.search(r"^tokens and cost of calls.*\n *prompt tokens: 0, .*?(\d+)$", text, re.M)
    assert told
    assert int(told[1]) > 0


def known() -> Component:
    @component(outputs="answer")
    def answer(question: str) -> str:
        """The answer that everybody knows."""
        return question

    return answer


def test_without_calls_there_is_nothing_to_tell_of_them() -> None:
    text = app(known()).explain(question="Why?", profile="paper-13b").text()
    assert "tokens and cost" not in text
