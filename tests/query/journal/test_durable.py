"""Questions as they are written into the journal, and out of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from teola.graph import Inquiry
from teola.query.journal import durable
from teola.query.journal.durable import INQUIRY, as_inquiry, inquiry_of
from teola.query.journal.lost import JournalUnreadable
from teola.query.journal.sealing import MARK, Seal

QUESTION = Inquiry(
    "mail/approve", "q", "approve", "mail", "Sénd?", {"type": "boolean"}, {"tool": "send"}
)


@pytest.mark.parametrize("key", [None, "a key that nobody guesses"])
@pytest.mark.parametrize("about", [{"tool": "send"}, 0, None])
def test_a_question_comes_back_as_it_was_asked(key: str | None, about: Any) -> None:
    """Each in a place of its own."""
    seal = Seal(key).of("alice", "q")
    asked = [replace(QUESTION, about=about), replace(QUESTION, id="other", kind="ask")]
    written = durable._asked(seal, asked)
    assert [*written] == ["mail/approve", "other"]
    assert all(text.startswith(MARK if key else '{"ask": ') for text in written.values())
    assert ("Sénd?" in written["other"]) == (key is None)
    for question in asked:
        told = inquiry_of(seal, "q", question.id, written[question.id])
        assert told == question.to_json()
        assert as_inquiry("q", told) == question
    for ask in ("mail/approve", "other"):
        others = ({*written} - {ask}).pop()
        with pytest.raises(JournalUnreadable):
            inquiry_of(seal, "q", ask, written[others])


def test_what_a_question_is_about_need_be_no_json_and_is_shown_as_text() -> None:
    seal = Seal().of("alice", "q")
    (text,) = durable._asked(seal, [replace(QUESTION, about={"when": {1}})]).values()
    assert json.loads(text)["about"] == {"when": "{1}"}


@pytest.mark.parametrize("answer", ["yes", None, {"do": "take", "result": [1]}])
def test_an_answer_opens_for_its_question(answer: Any) -> None:
    seal = Seal("a key that nobody guesses").of("alice", "q")
    sealed = seal.close("answer/mail/approve", json.dumps(answer))
    assert durable._answered(seal, "q", "mail/approve", sealed) == answer
    with pytest.raises(JournalUnreadable, match="cannot be opened"):
        durable._answered(seal, "q", "other", sealed)


TOLD = QUESTION.to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "what the journal has of query q is not JSON"),
        ("[" * 10**5, "what the journal has of query q is not JSON"),
        *(
            (json.dumps(value), "a question of query q in the journal is none")
            for value in (
                [TOLD],
                None,
                {},
                {**TOLD, "ask": "other"},
                *({k: v for k, v in TOLD.items() if k != left} for left in sorted(INQUIRY)),
            )
        ),
    ],
)
def test_what_is_no_question_is_not_shown_as_one(text: str, message: str) -> None:
    with pytest.raises(JournalUnreadable) as raised:
        inquiry_of(Seal().of("alice", "q"), "q", "mail/approve", text)
    assert str(raised.value) == message
