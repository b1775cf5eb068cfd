"""Query expansion by rules."""

import pytest

from teola_engines.llm.reformulate import key_words, reformulate

QUESTIONS = (
    "What is the capital of France?",
    "How do I cancel my subscription?",
    "Why does the build fail on Windows, and how can I fix it?",
    "Who wrote Hamlet?",
    "penguins",
    "???",
    "the of and",
    "How many retries does a primitive get?",
    "¿Dónde está la biblioteca?",
    "巴黎是哪个国家的首都?",
)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 40])
def test_as_many_as_asked_all_different_the_question_first(question: str, count: int) -> None:
    found = reformulate(question, count)
    assert len(found) == count
    assert found[0] == question
    assert len({text.lower().strip(" ?") for text in found}) == count
    assert all(text.strip() and "\n" not in text for text in found)
    assert found == reformulate(question, count)
    assert found[:1] == reformulate(question, 1)


def test_what_the_reformulations_are() -> None:
    assert reformulate("How do I cancel my subscription?", 5) == [
        "How do I cancel my subscription?",
        "cancel subscription",
        "steps to cancel my subscription",
        "how to cancel my subscription",
        "stop subscription",
    ]
    assert reformulate("What is a policy and how does the queue use it?", 4)[1:] == [
        "What is a policy",  # the other clause says "it" and means nothing alone
        "policy queue",
        "policy is",
    ]


def test_white_space_is_folded() -> None:
    assert reformulate("two\n lines ", 1) == ["two lines"]


def test_key_words() -> None:
    assert key_words("What is the dtype of the vectors in PgVector?") == [
        "dtype",
        "vectors",
        "PgVector",
    ]
    assert key_words("who is it") == ["who", "is", "it"]
