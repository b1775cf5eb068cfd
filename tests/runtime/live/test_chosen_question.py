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
        with pytest.raises(InputError, match=told):
            chosen(named, None, True)
    with pytest.raises(UnknownName, match="third"):
        chosen(schemas, "third", True)
    with pytest.raises(InputError):
        chosen(schemas, "second", "no")
