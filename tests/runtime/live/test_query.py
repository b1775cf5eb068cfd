"""What a live query tells its watcher of steps, known texts and answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from teola.engine import TextPart
from teola.graph import DecodeParams, Grow, Role, ToolStep
from teola.runtime.live.query import STEP_CHARACTERS, LiveQuery

STEP = {"tool": "search", "args": {"q": "tides"}}


def part(step: Any = STEP, over: bool = False) -> tuple[Any, list[ToolStep]]:
    """A part of an agent, whose watcher is heard."""
    told: list[ToolStep] = []
    primitives = [SimpleNamespace(component="other"), SimpleNamespace(component="agent")]
    agent = SimpleNamespace(plan=SimpleNamespace(primitives=primitives))
    growing = SimpleNamespace(query=agent, i=1, over=over)
    place = SimpleNamespace(growing=growing, grow=Grow("call", "1", {}, step=step))
    return SimpleNamespace(id="q/agent/1", place=place, watcher=told.append), told


@pytest.mark.parametrize(
    ("outputs", "state", "text", "seconds"),
    [
        (None, "finished", "", 0.0),
        ({}, "finished", "", 0.0),
        ({"result": None}, "finished", "", 0.0),
        ({"result": "no mapping"}, "finished", "", 0.0),
        ({"result": {"text": "it rains", "seconds": 1.23456789}}, "finished", "it rains", 1.234568),
        ({"result": {"text": 7, "failed": False}}, "finished", "7", 0.0),
        ({"result": {"text": "no such tool", "failed": True}}, "failed", "no such tool", 0.0),
        *(
            ({"result": {"text": "x" * (STEP_CHARACTERS + more)}}, "finished", text, 0.0)
            for more, text in (
                (0, "x" * STEP_CHARACTERS),
                (1, "x" * STEP_CHARACTERS + " [cut]"),
            )
        ),
    ],
)
def test_a_step_is_told_with_what_it_gave_cut_to_what_can_be_read(
    outputs: Any, state: str, text: str, seconds: float
) -> None:
    one, told = part()
    LiveQuery.tell_step(one, "finished", outputs)
    what = "agent", "q/agent/1", "search", {"q": "tides"}
    assert told == [ToolStep(*what, state, text, seconds)]


def test_of_what_is_no_step_or_ended_with_its_agent_nothing_is_told() -> None:
    for one, told in (part(step=None), part(over=True)):
        LiveQuery.tell_step(one, "started")
        assert told == []
    alone, told = part()
    alone.place = None
    LiveQuery.tell_step(alone, "started")
    assert told == []
    unwatched, _ = part()
    unwatched.watcher = None
    LiveQuery.tell_step(unwatched, "started")


@pytest.mark.parametrize(
    ("params", "text", "told"),
    [
        (DecodeParams(), "It rains.", ["It rains."]),
        (DecodeParams(), "", []),
        (DecodeParams(field="answer"), '{"why": "x", "answer": "It rains."}', ["It rains."]),
        (DecodeParams(field="answer"), '{"why": "x"}', []),
        (None, "It rains.", ["It rains."]),
    ],
)
def test_of_a_known_text_its_watcher_is_told_what_it_would_have_seen(
    params: Any, text: str, told: list[str]
) -> None:
    heard: list[str] = []
    LiveQuery.tell_written(
        cast("Any", SimpleNamespace(tell=heard.append)),
        cast("Any", SimpleNamespace(params=params)),
        text,
    )
    assert heard == told


@pytest.mark.parametrize("before", [-1, 0])
def test_a_piece_that_nobody_computes_stands_for_the_whole_prompt_up_to_it(before: int) -> None:
    first, own = (TextPart(Role.QUESTION, text) for text in ("first", "own"))
    held = {0: {"sequence": SimpleNamespace(parts=(first,))}}
    store = SimpleNamespace(values=held, prompt=lambda i: (own,))
    one = SimpleNamespace(run=SimpleNamespace(before=lambda i: before), store=store)
    handle = LiveQuery.uncomputed(cast("Any", one), 3)
    assert (handle.engine, handle.instance) == ("", -1)
    assert handle.parts == ((first, own) if before == 0 else (own,))
