"""Which of several open questions an answer is for."""

from __future__ import annotations

import pytest

from teola.errors import InputError, UnknownName
from teola.runtime.live.people import chosen


def test_one_open_question_need_not_be_named_and_others_must_be() -> None:
    schemas = {name: {"type": "boolean"} for name in ("first", "second")}
    assert chosen({"first": schemas["first"]}, None, True) == "first"
    assert chosen(schemas, "second", False) == "second"
    for named, told in (({}, "nothing is open"), (schemas, "'first', 'second'")):
        with pytest.raises(InputError, match=f"^say which question is answered: {told}$"):
            chosen(named, None, True)
    with pytest.raises(UnknownName, match="third"):
        chosen(schemas, "third", True)
    with pytest.raises(InputError):
        chosen(schemas, "second", "no")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (float("nan"), "the answer is no JSON value: Out of range float values are not JSON"),
        ({1}, "the answer is no JSON value: Object of type set is not JSON serializable"),
        (7, "the answer does not fit the question: 7 is not of type 'object'"),
        ({"to": 7}, "the answer does not fit the question at $.to: 7 is not of type 'string'"),
        ({"to": "x"}, ""),
    ],
)
def test_an_answer_fits_its_question(answer: object, told: str) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    if not told:
        assert chosen({"a": schema}, None, answer) == chosen({"a": schema}, "a", answer) == "a"
        return
    with pytest.raises(InputError) as raised:
        chosen({"a": schema}, "a", answer)
    assert str(raised.value).startswith(told)
