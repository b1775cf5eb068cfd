"""Toolbox: names, what a model is told, and what becomes of what it decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from teola.errors import InputError, OutputError, UnknownName
from teola.tools import Decision, Tool, Toolbox, ToolResult, mcp_tools, tool
from teola.tools.references import referred
from tests.planted import catches, edited


class Person(BaseModel):
    """Somebody."""

    name: str
    boss: Person | None = None


@tool(pure=True)
def weather(city: str, days: Annotated[int, Field(ge=1, le=9)] = 1) -> dict[str, Any]:
    """Tells the weather."""
    return {"city": city, "degrees": [10 + i for i in range(days)]}


@tool
def warm(degrees: list[int], least: float = 10.5) -> bool:
    """Tells whether it is warm."""
    return min(degrees) >= least


@tool
def greet(who: Person, words: str = "Hello") -> str:
    """Greets."""
    return f"{words} {who.name}"


@tool
def nothing() -> None:
    """Does nothing."""


BOX = Toolbox([weather, warm, greet, nothing])


# --- names ------------------------------------------------------------------------------------


def test_it_is_an_ordered_set() -> None:
    assert BOX.names == ["weather", "warm", "greet", "nothing"]
    assert list(BOX) == [weather, warm, greet, nothing]
    assert len(BOX) == 4
    assert "warm" in BOX
    assert BOX["greet"] is greet


def test_functions_are_as_good_as_tools() -> None:
    def shout(text: str) -> str:
        """Shouts."""
        return text.upper()

    assert Toolbox([weather, shout]).names == ["weather", "shout"]


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="unknown tool 'wether'; did you mean 'weather'"):
        BOX["wether"]


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two tools are called 'weather'"):
        Toolbox([weather, tool(weather.carry_out.function)])  # type: ignore[attr-defined]


def test_servers_have_to_be_asked() -> None:
    with pytest.raises(InputError, match=r"server 'time' are not known.*await Toolbox\.of"):
        Toolbox([weather, mcp_tools(name="time", command=["none"])])  # type: ignore[list-item]


async def test_of_functions_it_needs_no_server() -> None:
    assert (await Toolbox.of(weather, warm)).names == ["weather", "warm"]


# --- what a model is told ---------------------------------------------------------------------


def test_each_tool_is_a_line_of_json() -> None:
    lines = [json.loads(line) for line in BOX.text.splitlines()]
    assert [line["name"] for line in lines] == BOX.names
    assert lines[0] == {
        "name": "weather",
        "description": "Tells the weather.",
        "args": json.loads(json.dumps(weather.schema)),
    }


def test_openais_form() -> None:
    assert BOX.openai[1] == {
        "type": "function",
        "function": {
            "name": "warm",
            "description": "Tells whether it is warm.",
            "parameters": warm.schema,
        },
    }


@pytest.mark.parametrize("references", [True, False])
@pytest.mark.parametrize("thought", [True, False])
def test_a_decision_has_one_schema(references: bool, thought: bool) -> None:
    schema = BOX.decision(references=references, thought=thought, most=3)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(schema["properties"]) == [*(["thought"] if thought else []), "calls"]
    validator = jsonschema.Draft202012Validator(schema)

    def fits(*calls: Any) -> bool:
        written = {"thought": "hm", "calls": list(calls)}
        return bool(validator.is_valid(written if thought else {"calls": list(calls)}))

    good = {"tool": "weather", "args": {"city": "Oslo", "days": 2}}
    boss = {"name": "Ada", "boss": {"name": "Eve", "boss": None}}
    assert fits()
    assert fits(good, {"id": 3, **good}, {"tool": "nothing", "args": {}})
    assert fits({"tool": "greet", "args": {"who": boss}})
    assert not fits(good, good, good, good)
    assert not fits({"tool": "wether", "args": {"city": "Oslo"}})
    assert not fits({"tool": "weather", "args": {"city": "Oslo", "dys": 2}})
    assert not fits({"tool": "weather", "args": {"days": 2}})
    assert not fits({"tool": "weather", "args": {"city": "Oslo", "days": "two"}})
    assert not fits({"tool": "greet", "args": {"who": {"name": "Ada", "boss": {"name": 3}}}})
    assert not fits({"args": {}})
    assert fits({"tool": "weather", "args": {"city": "$1", "days": "$1.days"}}) is references
    assert fits({"tool": "warm", "args": {"degrees": ["$1", 3]}}) is references
    assert fits({"tool": "greet", "args": {"who": {"name": "$1", "boss": "$2"}}}) is references
    assert not fits({"tool": "warm", "args": "$1"})


def test_without_tools_there_is_nothing_to_decide() -> None:
    with pytest.raises(InputError, match="no tool to decide on"):
        Toolbox([]).decision()


FOREIGN = {
    "type": "object",
    "title": "Arguments",
    "properties": {
        "title": {"type": "string", "pattern": "^(?=a)", "minLength": 2},
        "when": {"type": "string", "format": "date", "maxLength": 10},
        "home": {"type": "string", "format": "hostname-of-mine"},
        "step": {"type": "integer", "multipleOf": 5, "maximum": 10**30},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "one": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "all": {"allOf": [{"$ref": "#/definitions/x"}]},
        "both": {"allOf": [{"minimum": 1}, {"maximum": 3}]},
        "free": {"type": "object", "patternProperties": {"^x": {}}, "minProperties": 1},
        "self": {"$ref": "#"},
        "deep": {"$ref": "#/properties/one/oneOf/1"},
    },
    "required": ["title", "gone"],
    "definitions": {"x": {"type": "string", "$comment": "x"}},
}
UNKNOWN = {
    "$comment", "$id", "$schema", "allOf", "contains", "definitions", "dependentSchemas", "else",
    "if", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "propertyNames", "then",
    "title", "uniqueItems", "unevaluatedProperties",
}  # fmt: skip
"""Keywords for some of which vLLM refuses a request, and which decoding can do without."""


def test_a_decision_asks_of_a_server_only_what_any_can() -> None:
    async def carry_out(arguments: Mapping[str, Any], _: Any) -> None:
        raise AssertionError

    box = Toolbox([Tool("odd", "Is odd.", FOREIGN, carry_out), greet])
    schema = box.decision(references=False)
    jsonschema.Draft202012Validator.check_schema(schema)
    found = schema["$defs"]["odd"]
    assert set(found["properties"]) == set(FOREIGN["properties"])  # type: ignore[call-overload]
    assert found["required"] == ["title"]
    assert found["properties"]["when"] == {"type": "string", "format": "date"}
    assert found["properties"]["step"] == {"type": "integer"}
    assert found["properties"]["self"] == {"$ref": "#/$defs/odd"}
    for part in schema["$defs"].values():
        assert not _keywords(part) & UNKNOWN
        for ref in _refs(part):
            assert ref.removeprefix("#/$defs/") in schema["$defs"]


def _keywords(schema: Any) -> set[str]:
    """Of a schema, names of properties left out."""
    if isinstance(schema, list):
        return {key for one in schema for key in _keywords(one)}
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for key, value in schema.items():
        inner = list(value.values()) if key == "properties" else value
        found |= _keywords(inner) if key not in ("const", "enum", "default") else set()
    return found


def _refs(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [ref for one in schema for ref in _refs(one)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [ref for value in schema.values() for ref in _refs(value)]


# --- what it answers --------------------------------------------------------------------------


async def test_a_plan_runs_in_stages() -> None:
    written = json.dumps(
        {
            "thought": "both",
            "calls": [
                {"tool": "weather", "args": {"city": "Oslo", "days": 3}},
                {"tool": "weather", "args": {"city": "Rome"}},
                {"tool": "warm", "args": {"degrees": "$1.degrees", "least": "$2.degrees[0]"}},
                {"tool": "greet", "args": {"who": {"name": "${3}, in ${1.city}"}}},
            ],
        }
    )
    decision = BOX.read(written)
    assert decision.thought == "both"
    assert [call.problem for call in decision.calls] == [""] * 4
    assert [call.reads for call in decision.calls] == [(), (), (1, 2), (1, 3)]
    stages = decision.stages()
    assert [[call.number for call in stage] for stage in stages] == [[1, 2], [3], [4]]
    results: dict[int, ToolResult] = {}
    for stage in stages:
        for call in stage:
            results[call.number] = await BOX.run(call, results)
    assert results[3].value is True
    assert results[4].text == "Hello true, in Oslo"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            {"tool": "wether", "args": {}},
            "unknown tool 'wether'; did you mean 'weather'? (valid: greet, nothing, warm, weather)",
        ),
        (
            {"tool": "weather", "args": {"city": "Oslo", "days": 0}},
            "weather was not called: argument 'days' must be an integer >= 1 and <= 9, got 0",
        ),
        (
            {"tool": "weather", "args": {"city": "$1", "days": 0}},
            "weather was not called: argument 'days' must be an integer >= 1 and <= 9, got 0",
        ),
        (
            {"tool": "weather", "args": {"city": "$1", "days": "from $1"}},
            "weather was not called: argument 'days' must be an integer >= 1 and <= 9, "
            "got 'from $1'",
        ),
        (
            {"tool": "weather", "args": {"city": "$2"}},
            "weather was not called: $2 refers to no earlier call; the text $2 is written $$2",
        ),
        (
            {"tool": "greet", "args": {"who": {"name": "$1", "boss": {"nam": "$1"}}}},
            "greet was not called: argument 'who.boss.name' is missing: a text; "
            "argument 'who.boss' has no field 'nam'; did you mean 'name'? (it takes name, boss)",
        ),
    ],
)
async def test_a_call_that_cannot_be_made_says_why(call: Any, told: str) -> None:
    good = {"tool": "weather", "args": {"city": "Oslo"}}
    decision = BOX.read({"thought": "", "calls": [good, call]})
    assert decision.calls[1].problem == told
    result = await BOX.run(decision.calls[1], {})
    assert (result.failed, result.text) == (True, told)


async def test_what_a_reference_brings_is_checked_too() -> None:
    calls = [
        {"tool": "weather", "args": {"city": "Oslo"}},
        {"tool": "warm", "args": {"degrees": "$1.city"}},
        {"tool": "warm", "args": {"degrees": "$1.town"}},
        {"tool": "warm", "args": {"degrees": "$2"}},
    ]
    decision = BOX.read({"calls": calls})
    assert not any(call.problem for call in decision.calls)
    results: dict[int, ToolResult] = {}
    for call in decision.calls:
        results[call.number] = await BOX.run(call, results)
    told = "warm was not called: "
    assert results[2].text == (
        f"{told}argument 'degrees' must be a list, each an integer, got 'Oslo'"
    )
    assert results[3].text.startswith(f"{told}$1.town leads nowhere: there is no 'town'")
    assert results[4].text == f"{told}$2 cannot be read, because call 2 failed"


def test_calls_are_numbered_on() -> None:
    calls = [
        {"tool": "nothing", "args": {}},
        {"id": 9, "tool": "nothing", "args": {}},
        {"tool": "weather", "args": {"city": "${2} or ${9}"}},
    ]
    decision = BOX.read({"calls": calls}, first=4, earlier=[1, 2, 3])
    assert [call.number for call in decision.calls] == [4, 9, 6]
    assert decision.calls[2].reads == (2, 9)
    assert [[call.number for call in stage] for stage in decision.stages()] == [[4, 9], [6]]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "a decision must be JSON: Expecting value"),
        ("[" * 100_000, "a decision must be JSON"),
        ("[]", "a decision must be an object with calls, got []"),
        ('{"thought": "x"}', "calls must be a list, got null"),
        ('{"thought": 1, "calls": []}', "thought must be a text, got 1"),
        ('{"calls": [], "call": []}', "a decision has thought and calls, not 'call'"),
        ('{"calls": ["x"]}', "call 1 must be an object with tool and args, got 'x'"),
        ('{"calls": [{"tool": "x", "arg": {}}]}', "call 1 has id, tool and args, not 'arg'"),
        ('{"calls": [{"args": {}}]}', "call 1: tool must be a name, got null"),
        ('{"calls": [{"id": 0, "tool": "x"}]}', "call 1: id must be an integer >= 1, got 0"),
        ('{"calls": [{"id": true, "tool": "x"}]}', "id must be an integer >= 1, got true"),
        (
            '{"calls": [{"id": 2, "tool": "x"}, {"tool": "x"}]}',
            "call 2: another call has the number 2; leave ids out",
        ),
    ],
)
def test_what_is_no_decision_is_told(written: str, told: str) -> None:
    with pytest.raises(OutputError) as caught:
        BOX.read(written)
    assert told in str(caught.value)


# --- properties -------------------------------------------------------------------------------


@st.composite
def decisions(draw: st.DrawFn) -> dict[str, Any]:
    """Calls that refer to calls before them, of all kinds of tools."""
    calls: list[dict[str, Any]] = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        before = st.sampled_from([f"${one}" for one in range(1, number)] or ["Oslo"])
        one = draw(st.just("Oslo") | before | before.map(lambda ref: f"near {ref}"))
        calls.append({"tool": "weather", "args": {"city": one, "days": draw(st.integers(1, 9))}})
    return {"thought": draw(st.text()), "calls": calls}


@catches(
    "stage-too-early",
    "a call runs beside one that it reads",
    edited(Decision.stages, "max((at[n] + 1 for", "max((at[n] for"),
)
@given(written=decisions())
def test_what_a_call_reads_ends_before_it_begins(written: dict[str, Any]) -> None:
    decision = BOX.read(json.dumps(written))
    stages = decision.stages()
    assert sorted(call.number for stage in stages for call in stage) == [
        call.number for call in decision.calls
    ]
    over: set[int] = set()
    for stage in stages:
        for call in stage:
            assert set(call.reads) <= over
            assert {one.call for one in referred(call.arguments, range(1, call.number))} == set(
                call.reads
            )
        over |= {call.number for call in stage}
    assert isinstance(decision, Decision)


@given(written=decisions())
def test_what_fits_the_schema_can_be_read(written: dict[str, Any]) -> None:
    jsonschema.validate(written, BOX.decision())
    assert not any(call.problem for call in BOX.read(written).calls)
