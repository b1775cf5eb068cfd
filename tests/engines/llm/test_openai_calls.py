"""Tool calls of a server, as our own lists have them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from teola.engine import Call, TextPart
from teola.errors import EngineError
from teola.graph import OfferedTools, Role
from teola_engines.llm import refused_tools
from teola_engines.openai.calls import CallPiece, CallsText, pieces_of
from teola_engines.openai.wire import NoTools, TooLong, finish_reason, read_piece, refusal
from tests.engines.llm.openai_calls import PROMPT, a_call, answer, started
from tests.fake_openai import Fail, FakeOpenAI, Says
from tests.planted import catches, edited


def fed(*events: tuple[str, list[dict[str, Any]]], typed: bool = False) -> list[str]:
    """What is written for each event, (content, tool_calls), and at the end."""
    text = CallsText("fake", typed)
    written = [text.feed(said, pieces_of({"tool_calls": calls})) for said, calls in events]
    return [*written, text.end()]


def a_piece(
    arguments: Any = None, name: str | None = None, *, index: int | None = None, id: str = ""
) -> dict[str, Any]:
    """An item of `tool_calls`, with what is given of it."""
    place = {} if index is None else {"index": index}
    named = {"id": id, "type": "function"} if id else {}
    return {**place, **named, "function": {"name": name, "arguments": arguments}}


def began(index: int, name: str, arguments: str = "") -> tuple[str, list[dict[str, Any]]]:
    return "", [a_piece(arguments, name, index=index)]


def more(index: int, arguments: str) -> tuple[str, list[dict[str, Any]]]:
    return "", [a_piece(arguments, index=index)]


def test_calls_become_a_list_with_what_was_thought() -> None:
    pieces = fed(
        ("I need ", []),
        ('"both".', []),
        began(0, "weather"),
        more(0, '{"city": "Os'),
        more(0, 'lo"}'),
        began(1, "now"),
        ("  Now.", []),
        began(2, "add", '{"a": {"b": 1}}'),
    )
    assert json.loads("".join(pieces)) == {
        "thought": 'I need "both".  Now.',
        "calls": [
            {"tool": "weather", "args": {"city": "Oslo"}},
            {"tool": "now", "args": {}},
            {"tool": "add", "args": {"a": {"b": 1}}},
        ],
    }


ONE, TWO = '{"x": 1}', '{"x": 2}'


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([[a_piece(ONE, "f", id="a")], [a_piece(TWO, "f", id="b")]], id="ids only"),
        pytest.param(
            [
                [a_piece('{"x"', "f", id="a")],
                [a_piece(": 1}")],
                [a_piece("", "f", id="b")],
                [a_piece(TWO)],
            ],
            id="ids only, in pieces",
        ),
        pytest.param([[a_piece(ONE, "f"), a_piece(TWO, "f")]], id="neither, in one event"),
        pytest.param([[a_piece(ONE, "f")], [a_piece(TWO, "f")]], id="neither, one by one"),
        pytest.param(
            [[a_piece(ONE, "f", index=0, id="a")], [a_piece(TWO, "f", index=0, id="b")]],
            id="the same index",
        ),
        pytest.param(
            [[a_piece(ONE, "f", index=0), a_piece(TWO, "f", index=0)]],
            id="the same index, in one event, no ids",
        ),
        pytest.param(
            [[a_piece(ONE, "f", index=0, id="a")], [a_piece(TWO, "f", index=1, id="a")]],
            id="the same id",
        ),
        pytest.param(
            [
                [a_piece("", "f", index=0, id="a")],
                [a_piece("", "f", index=1, id="b")],
                [a_piece('{"x"', index=0)],
                [a_piece(TWO, index=1)],
                [a_piece(": 1}", index=0)],
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                [a_piece('{"x"', "f", index=0, id="a")],
                [a_piece(": 1}", "f", index=0, id="a")],
                [a_piece({"x": 2}, "f", index=1, id="b")],
            ],
            id="the name again, and arguments that are parsed",
        ),
        pytest.param(
            [
                [a_piece("", "f", index=0)],
                [a_piece(ONE, index=0, id="a")],
                [a_piece(ONE, "f", index=0, id="a")],
                [a_piece(TWO, "f", index=0, id="b")],
            ],
            id="the id late, and the arguments again",
        ),
    ],
)
def test_each_call_is_one_however_servers_number_them(events: list[Any]) -> None:
    written = "".join(fed(*(("", calls) for calls in events)))
    calls = [{"tool": "f", "args": {"x": 1}}, {"tool": "f", "args": {"x": 2}}]
    assert json.loads(written) == {"calls": calls}


@pytest.mark.parametrize("seed", range(40))
def test_calls_in_any_pieces_are_those_that_were_made(seed: int) -> None:
    """However a server names them: each is read when its last argument has come."""
    chance = Random(seed)
    form = chance.choice(["index", "id", "both", "neither"])
    values = [{}, {"a": 1}, {"a": '}"\\\\{['}, {"b": [{"c": "\\\\"}], "d": None}, {"e": "é"}]
    calls = [(chance.choice("fgh"), chance.choice(values)) for _ in range(chance.randint(1, 4))]
    text, written, said = CallsText("fake", typed=False), "", ""
    for k, (tool, args) in enumerate(calls):
        rest, first = json.dumps(args, ensure_ascii=chance.random() < 0.5), True
        while rest or first:
            size = chance.choice([0, 1, 2, 5, 100])
            piece, rest = rest[:size], rest[size:]
            place = {"index": k} if form in ("index", "both") else {}
            id = f"id{k}" if form == "id" or (form == "both" and first) else ""
            name = tool if first or (chance.random() < 0.2 and form == "id") else None
            thought = chance.choice(["", "", "so "])
            said += thought
            more = a_piece(piece, name, id=id) | place
            written += text.feed(thought, pieces_of({"tool_calls": [more]}))
            first = False
        made = [{"tool": tool, "args": args} for tool, args in calls[: k + 1]]
        assert json.loads(written + "]}") == {"calls": made}, "each is there with its last piece"
    found = json.loads(written + text.end())
    assert found.pop("thought", "") == said.strip()
    assert found == {"calls": made}


@pytest.mark.parametrize("other", ["g", "f"])
def test_calls_without_arguments_are_told_apart_by_their_names(other: str) -> None:
    events = [[a_piece("", "f", index=0)], [a_piece("", other, index=0)]]
    found = json.loads("".join(fed(*(("", calls) for calls in events))))["calls"]
    assert [one["tool"] for one in found] == list(dict.fromkeys(("f", other)))


@catches(
    "late-call",
    "a call is complete only when the next one begins",
    edited(CallsText._written, "if not call.complete and", "if"),
)
def test_a_call_is_complete_with_its_last_argument() -> None:
    pieces = fed(began(0, "f", '{"a": "}\\'), more(0, '"}'), more(0, '"}'), began(1, "g", "{}"))
    assert (pieces[1], pieces[2]) == ('"}', '"}}')
    assert json.loads("".join(pieces))["calls"][0] == {"tool": "f", "args": {"a": '}"}'}}


def test_arguments_that_are_no_json_are_no_list() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        json.loads("".join(fed(began(0, "f", '{"a": '))))


@pytest.mark.parametrize("arguments", ["null", "[1]", "[1, {}]"])
def test_arguments_that_are_no_object_are_passed_on_as_they_are(arguments: str) -> None:
    pieces = fed(began(0, "f", arguments), began(1, "g", "{}"))
    assert pieces[0].endswith(f"{arguments}}}")
    assert json.loads("".join(pieces))["calls"][0]["args"] == json.loads(arguments)


def test_more_arguments_than_one_value_are_an_error() -> None:
    with pytest.raises(EngineError, match="whose arguments were complete"):
        fed(began(0, "f", ONE), more(0, "{"))


@pytest.mark.parametrize(
    ("content", "typed", "answer"),
    [
        ("It rains.", False, "It rains."),
        ("42", False, "42"),
        ("42", True, 42),
        ('```json\n{"n": 3}\n```', True, {"n": 3}),
        ('{"answer": "as told"}', False, "as told"),
        ('{"n": 3}', False, '{"n": 3}'),
    ],
)
def test_without_calls_it_is_an_answer(content: str, typed: bool, answer: Any) -> None:
    assert json.loads("".join(fed((content, []), typed=typed))) == {"answer": answer}


def test_a_list_in_words_stays_one() -> None:
    listed = '{"thought": "x", "calls": [{"tool": "f", "args": {}}]}'
    assert "".join(fed((listed, []))) == listed


@catches(
    "blank-arguments",
    "arguments of white space count as arguments",
    edited(CallsText._written, "any(map(str.strip, call.arguments))", "any(call.arguments)"),
)
@pytest.mark.parametrize("blank", [" ", "\n", " \t "])
def test_a_call_whose_arguments_are_blank_has_none(blank: str) -> None:
    for events in ([began(0, "now", blank)], [began(0, "now"), more(0, blank), more(0, blank)]):
        found = json.loads("".join(fed(*events, began(1, "then", '{"a": 1}'))))
        assert found["calls"] == [{"tool": "now", "args": {}}, {"tool": "then", "args": {"a": 1}}]


def test_pieces_are_read_as_servers_send_them() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    (piece,) = pieces_of({"tool_calls": [{"function": function}]})
    assert piece == CallPiece(None, "", "f", '{"a": 1}')
    assert pieces_of({"content": "x", "tool_calls": None}) == ()
    with pytest.raises(ValueError, match="without a function"):
        pieces_of({"tool_calls": [{"index": 0}]})
    delta = {"tool_calls": [{"index": 1, "function": {"arguments": "x"}}]}
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    found = read_piece(json.dumps(event), "fake", "m")
    assert (found.calls, found.finish_reason) == ((CallPiece(1, "", "", "x"),), "tool_calls")


@pytest.mark.parametrize(
    ("status", "message", "any_tools"),
    [
        (400, "registry/llama2 does not support tools", True),
        (400, '"auto" tool choice requires --enable-auto-tool-choice', True),
        (500, "tools param requires --jinja flag", True),
        (404, "No endpoints found that support tool use", True),
        (400, "Unrecognized request argument supplied: tools", True),
        (400, "Invalid 'tools[2].function.description': string too long", False),
        (400, "tools.0: 'x.y' does not match the pattern; unknown keyword in its schema", False),
        (400, "at most 128 tools", False),
    ],
)
def test_servers_without_tools_say_so(status: int, message: str, any_tools: bool) -> None:
    found = refusal("fake", "m", status, {"message": message})
    assert isinstance(found, NoTools)
    assert found.any_tools is any_tools
    assert not isinstance(refusal("fake", "m", status, {"message": "too warm"}), NoTools)


def test_a_prompt_that_is_too_long_for_its_tools_is_too_long() -> None:
    told = "This model's maximum context length is 4096 tokens; 90 of them are in the tools"
    assert isinstance(refusal("fake", "m", 400, {"message": told}), TooLong)


@pytest.mark.parametrize(
    ("reason", "ends"),
    [("tool_calls", "stop"), ("end_turn", "stop"), ("STOP", "stop"), ("eos", "stop"),
     ("MAX_TOKENS", "length"), ("max_tokens", "length")],
)  # fmt: skip
def test_gateways_have_words_of_their_own_for_an_end(reason: str, ends: str) -> None:
    assert finish_reason(reason, "fake") == ends


# --- on a server ------------------------------------------------------------------------------


def tools(description: str = "f", **more: Any) -> OfferedTools:
    function = {"name": "f", "description": description, "parameters": {"type": "object"}}
    functions = json.dumps([{"type": "function", "function": function}])
    return OfferedTools(functions, "IN WORDS", "BRIEF", **more)


def asking(offered: OfferedTools) -> Call:
    return a_call([TextPart(Role.INSTRUCTION, "IN WORDS"), *PROMPT], tools=offered, max_tokens=9)


def native(server: FakeOpenAI) -> list[bool]:
    return ["tools" in seen.body for seen in server.calls]


LONG = Fail(400, "Invalid 'tools[0].function.description': string too long")


async def test_tools_that_are_refused_are_so_for_themselves_and_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(refused_tools.time, "monotonic", lambda: now[0])
    with FakeOpenAI("Words.", vllm=False) as server:
        async with started(server) as engine:
            server.script(LONG)
            await answer(engine, asking(tools("long")))
            assert native(server) == [True, False]
            await answer(engine, asking(tools("short")))
            await answer(engine, asking(tools("long")))
            assert native(server)[2:] == [True, False]
            assert "BRIEF" in str(server.calls[2].body)
            assert "IN WORDS" in str(server.calls[3].body)
            now[0] += refused_tools.FORGET_S
            await answer(engine, asking(tools("long")))
            assert native(server)[4:] == [True]
    assert [record.levelname for record in caplog.records if "tools" in record.msg] == ["WARNING"]


async def test_a_server_without_tools_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(refused_tools.time, "monotonic", lambda: now[0])
    with FakeOpenAI("Words.", vllm=False) as server:
        async with started(server) as engine:
            server.script(Fail(400, "this model does not support tools"))
            await answer(engine, asking(tools("one")))
            await answer(engine, asking(tools("two")))
            now[0] += refused_tools.FORGET_S
            await answer(engine, asking(tools("two")))
    assert native(server) == [True, False, False, True]


async def test_a_request_that_is_refused_in_words_too_says_why() -> None:
    with FakeOpenAI(vllm=False) as server:
        async with started(server) as engine:
            server.script(LONG, Fail(400, "the tools are too long", code="string_too_long"))
            with pytest.raises(EngineError, match=r"invalid \(400.*string_too_long"):
                await answer(engine, asking(tools()))
    assert native(server) == [True, False]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("f", {"type": "function", "function": {"name": "f"}}),
    ],
)
async def test_what_has_to_be_called_reaches_the_server(choice: str, sent: Any) -> None:
    with FakeOpenAI(vllm=False) as server:
        async with started(server) as engine:
            await answer(engine, asking(tools(choice=choice, parallel=choice != "f")))
    body = server.calls[0].body
    assert body["tool_choice"] == sent
    assert body.get("parallel_tool_calls") is (False if choice == "f" else None)


async def test_refusals_and_contents_in_parts_are_texts() -> None:
    parts = [{"content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    no = [{"content": None, "refusal": ""}, {"refusal": "I can't "}, {"refusal": "help."}]
    with FakeOpenAI(vllm=False) as server:
        async with started(server) as engine:
            server.script(Says(parts), Says(no))
            text, last = await answer(engine, a_call())
            assert (text, last.finish_reason) == ("hello", "stop")
            text, last = await answer(engine, a_call())
            assert (text, last.finish_reason) == ("I can't help.", "refusal")


def test_a_call_without_end_is_stopped_also_where_it_waits_for_another() -> None:
    waiting = more(1, "x" * 2**19)
    assert len(fed(began(0, "weather"), began(1, "now", '{"a": "'), waiting)) == 4
    with pytest.raises(EngineError, match="fake writes calls of more than 1,048,576"):
        fed(began(0, "weather"), began(1, "now", '{"a": "'), waiting, waiting)
