"""What a server has refused, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from teola.graph import OfferedTools
from teola_engines.llm import refused_tools
from teola_engines.llm.refused_tools import FORGET_S, MOST_KEPT, RefusedSchemas, RefusedTools
from teola_engines.openai.wire import BadRequest, NoSchema, NoTools

WHY = BadRequest("too long")


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(refused_tools, "time", clock)
    return clock


def tools(name: str) -> OfferedTools:
    return OfferedTools(name, "words")


def of_tools() -> tuple[Callable[[str], None], Callable[[str], bool]]:
    refused, no = RefusedTools(), NoTools("no", any_tools=False, instead=WHY)
    return lambda text: refused.add(tools(text), no, "s"), lambda text: tools(text) in refused


def of_schemas() -> tuple[Callable[[str], None], Callable[[str], bool]]:
    refused = RefusedSchemas()
    return lambda text: refused.add(text, NoSchema("no", WHY), "s"), lambda text: text in refused


@pytest.mark.parametrize("kind", [of_tools, of_schemas])
def test_each_is_refused_for_itself_and_a_while_from_its_last_refusal(
    kind: Callable[[], tuple[Callable[[str], None], Callable[[str], bool]]], clock: Clock
) -> None:
    add, refuses = kind()
    assert not refuses("a")
    add("a")
    clock.now += 1.0
    add("b")
    assert (refuses("a"), refuses("b"), refuses("c")) == (True, True, False)
    clock.now += FORGET_S - 1.5
    assert (refuses("a"), refuses("b")) == (True, True)
    clock.now += 0.5
    assert (refuses("a"), refuses("b")) == (False, True)
    add("a")
    clock.now += 1.0
    assert (refuses("a"), refuses("b")) == (True, False)
    add("\ud83d")
    assert refuses("\ud83d"), "text that is no Unicode is refused, too"


@pytest.mark.parametrize("kind", [of_tools, of_schemas])
@pytest.mark.usefixtures("clock")
def test_of_so_many_the_one_refused_first_is_forgotten(
    kind: Callable[[], tuple[Callable[[str], None], Callable[[str], bool]]],
) -> None:
    add, refuses = kind()
    for k in range(MOST_KEPT):
        add(str(k))
    add("0")  # again, so that it is the last
    assert all(refuses(str(k)) for k in range(MOST_KEPT)), "exactly as many as are kept"
    add("one more")
    assert [refuses(text) for text in ("0", "1", "2", "one more")] == [True, False, True, True]


def test_a_server_that_takes_no_tools_refuses_all_for_a_while(clock: Clock) -> None:
    refused = RefusedTools()
    refused.add(tools("a"), NoTools("no", any_tools=True, instead=WHY), "s")
    assert all(tools(text) in refused for text in "ab")
    clock.now += FORGET_S - 0.5
    assert tools("b") in refused
    clock.now += 0.5
    assert not any(tools(text) in refused for text in "ab"), "neither for itself"


def test_refusals_are_logged_with_what_happens_now(caplog: pytest.LogCaptureFixture) -> None:
    refused = RefusedTools()
    refused.add(tools("a"), NoTools("no", any_tools=True, instead=WHY), "s")
    refused.add(tools("a"), NoTools("no", any_tools=False, instead=WHY), "s")
    RefusedSchemas().add("{}", NoSchema("no", WHY), "s")
    assert [record.getMessage() for record in caplog.records] == [
        "s knows no tool calls (too long): calls are asked for in words for 10 minutes",
        "s refuses the tools of a request (too long): calls of these tools are asked for in words "
        "for 10 minutes",
        "s refuses the schema of an answer (too long): answers are checked when they are complete, "
        "for 10 minutes",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
