"""What a function may be as a component, and what is refused when it is declared."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, get_type_hints

import pytest

from teola import component
from teola.errors import TemplateError
from teola.workflow.components.function import Function, Options
from teola.workflow.kinds import Kind


def texts(question: str) -> Iterator[str]:
    yield question


async def texts_softly(question: str) -> AsyncIterator[str]:
    yield question


def anything(question):  # type: ignore[no-untyped-def]
    yield question


class Speaker:
    def __call__(self, question: str) -> Iterator[str]:
        yield question


@pytest.mark.parametrize("function", [texts, texts_softly, anything, Speaker()])
def test_a_function_that_yields_streams_a_text(function: Callable[..., Any]) -> None:
    made = component(function, name="speaks", outputs="answer")
    assert made.streams
    assert made.gives == {"answer": Kind.TEXT}


def numbers(question: str) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "options"),
    [(numbers, {}), (texts, {"outputs": ["a", "b"]}), (texts, {"batched": "question"})],
)
def test_one_that_yields_no_text_is_refused(
    function: Callable[..., Any], options: dict[str, Any]
) -> None:
    with pytest.raises(TemplateError, match="it yields, so it must have one output, a text"):
        component(function, **options)


def plain(question: str) -> str:
    return question


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timeout": 0}, "timeout must be positive, got 0"),
        ({"timeout": -1.0}, "timeout must be positive"),
        ({"timeout": float("nan")}, "timeout must be positive"),
        ({"retries": -1}, "retries must be 0, 1, 2"),
        ({"retries": True, "pure": True}, "retries must be 0, 1, 2"),
        ({"retries": 1.5, "pure": True}, "retries must be 0, 1, 2"),
        ({"retries": 2}, "say pure=True if that is harmless"),
        ({"retries": 2, "pure": True, "effect": True}, "say pure=True if that is harmless"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(TemplateError, match=told):
        component(plain, **options)


def test_limits_that_can_be_kept_are() -> None:
    made = component(plain, retries=2, pure=True, timeout=0.5)
    assert (made.retries, made.timeout) == (2, 0.5)
    assert component(plain, retries=0).retries == 0


def test_the_signature_of_the_decorator_names_its_options() -> None:
    """Editors complete them, and type checkers know them."""
    parameters = inspect.signature(Function.__init__).parameters
    options = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert set(get_type_hints(Options)) == options
    assert inspect.signature(component).parameters["options"].annotation == "Unpack[Options]"
