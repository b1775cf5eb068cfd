"""Decisions: which calls may run together, against chains that are followed one by one, and what
their schema takes, against the sentences that say it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from teola.errors import OutputError
from teola.tools.decision import (
    Decision,
    PlannedCall,
    decision_fields,
    decision_schema,
    opened_decision,
)
from teola.validators import Draft202012Validator


@pytest.mark.parametrize("seed", range(15))
def test_a_call_runs_as_soon_as_all_that_it_reads_have_ended(seed: int) -> None:
    """Numbers of calls of earlier decisions, which have ended, hold up nobody."""
    chance = Random(seed)
    numbers = chance.sample(range(10, 40), 8)
    calls = list[PlannedCall]()
    for at, number in enumerate(numbers):
        before = [*numbers[:at], 1, 2, 3]
        reads = chance.sample(before, min(len(before), chance.randint(0, 3)))
        calls.append(PlannedCall(number, "f", {}, tuple(reads)))
    by_number = {call.number: call for call in calls}

    def chain(number: int) -> int:
        """How many calls of this decision have to end one after the other before it."""
        reads = [read for read in by_number[number].reads if read in by_number]
        return max((chain(read) + 1 for read in reads), default=0)

    stages = Decision("", tuple(calls)).stages()
    assert stages == [
        [call for call in calls if chain(call.number) == stage]
        for stage in range(1 + max(map(chain, numbers)))
    ]
    assert Decision("", ()).stages() == []


NEAREST = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "near": {"$ref": "#/$defs/place"}},
    "required": ["city"],
    "$defs": {"place": {"type": "array", "items": {"type": "number"}}},
}
COUNTED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = {"weather": NEAREST, "count": COUNTED}
ARGUMENTS: dict[str, list[tuple[dict[str, Any], bool, bool]]] = {
    "weather": [
        ({"city": "Oslo"}, True, True),
        ({"city": "Oslo", "near": [59.9, 10.7]}, True, True),
        ({"city": "Oslo", "near": "$1"}, False, True),
        ({"city": "Oslo", "near": "here"}, False, False),
        ({"near": [1.0]}, False, False),
    ],
    "count": [
        ({"n": 3}, True, True),
        ({"n": "$12.total[0]"}, False, True),
        ({"n": "$0"}, False, False),
        ({}, False, False),
    ],
    "other": [({}, False, False)],
}
"""Arguments of each tool, and whether they fit: without references, and with them."""


@pytest.mark.parametrize("seed", range(4))
def test_the_schema_takes_decisions_as_they_were_asked_for_and_no_others(seed: int) -> None:
    chance = Random(seed)
    least = chance.randint(0, 2)
    most, thought = least + chance.randint(0, 2), bool(seed % 2)
    references = seed > 1
    schema = decision_schema(TOOLS, most=most, least=least, thought=thought, references=references)
    validator, taken = Draft202012Validator(schema), [0, 0]
    for _ in range(40):
        count = chance.randint(max(0, least - 1), most + 1)
        calls, fits = list[dict[str, Any]](), least <= count <= most
        for _ in range(count):
            tool = chance.choices(("weather", "count", "other"), (5, 5, 1))[0]
            arguments, plain, referring = chance.choice(ARGUMENTS[tool][: chance.choice((2, 9))])
            call: dict[str, Any] = {"tool": tool, "args": arguments}
            fits = fits and (referring if references else plain)
            match chance.randint(0, 12):
                case 0:
                    del call[chance.choice(("tool", "args"))]
                    fits = False
                case 1:
                    call["more"] = 1
                    fits = False
                case 2:
                    call["id"] = chance.randint(0, 2)
                    fits = fits and call["id"] > 0
                case 3:
                    call["id"] = 7
            calls.append(call)
        decision: dict[str, Any] = {"calls": calls}
        if written := chance.random() < 0.5 + 0.4 * thought:
            decision["thought"] = "I need them."
        assert validator.is_valid(decision) == (fits and written == thought), decision
        taken[fits and written == thought] += 1
    assert min(taken) > 2
    calls = [{"tool": "count", "args": {"n": 1}}] * most
    whole = {"calls": calls, **({"thought": ""} if thought else {})}
    assert validator.is_valid(whole)
    for name in whole:
        assert not validator.is_valid({key: part for key, part in whole.items() if key != name})


@pytest.mark.parametrize(
    "decision",
    [
        [],
        {"calls": {}},
        {"thought": "no calls"},
        {"thought": None, "calls": []},
        {"calls": [], "more": 1},
    ],
)
def test_what_is_no_decision_is_refused(decision: Any) -> None:
    with pytest.raises(OutputError):
        opened_decision(decision)


def test_a_call_has_its_own_number_or_its_place() -> None:
    assert opened_decision({"calls": []}) == ("", [])
    assert decision_fields({"tool": "f"}, 3, {1, 2}) == (3, "f", {})
    assert decision_fields({"tool": "f", "args": [], "id": 1}, 3, {2}) == (1, "f", [])
    for call, taken in (
        ({"tool": "f", "id": 0}, ()),
        ({"tool": "f", "id": True}, ()),
        ({"tool": "f", "id": 1.0}, ()),
        ({"tool": "f", "id": 4}, (4,)),
        ({"tool": "f"}, (3,)),  # another call has said that it is this one
        ({"args": {}}, ()),
        ({"tool": "f", "arguments": {}}, ()),
        ("f", ()),
    ):
        with pytest.raises(OutputError):
            decision_fields(call, 3, taken)
