"""What the clients of a query are told: numbered, whole for whoever comes late, and bounded."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from teola.graph import ToolStep
from teola.query.event_log import LEFT_OUT, LONG_TEXT, MOST_EVENTS, Event, EventLog
from teola.runtime.live.query import Progress, Token
from tests.planted import catches, edited


def progress(n: int) -> Event:
    return Event("primitive", Progress(f"p{n}", "decoding", "llm", "started", 1))


def token(text: str) -> Event:
    return Event("token", Token(text))


def heard(log: EventLog, after: int = 0, until: int | None = None) -> list[tuple[int, str, str]]:
    return [(n, event.kind, event.text) for n, event in log.after(after, until)]


@catches(
    "events-join-wrongly",
    "a token that comes again has the text of the one before it, too",
    edited(EventLog._tokens_after, "start = self._ends[first - 1] if first else 0", "start = 0"),
)
def test_whoever_comes_again_hears_the_rest_as_it_was() -> None:
    """From any number on, up to any other, all that was said, each event with its number."""
    draw, log, said = random.Random(7), EventLog(), list[tuple[int, str, str]]()
    for n in range(1, 300):
        text = draw.choice(["", "ab", "ünï", "\ud800", "x" * LONG_TEXT])
        event = token(text) if draw.random() < 0.7 else progress(n)
        log.add(event)
        said.append((n, event.kind, event.text))
    assert len(log) == 299
    for after in (0, 1, 150, 298, 299):
        assert heard(log, after) == said[after:]
        assert heard(log, after, min(after + 20, 299)) == said[after : after + 20]


def test_of_too_many_events_it_is_said_how_many_they_were() -> None:
    log = EventLog(16)
    for n in range(1, 101):
        log.add(token(f"{n} ") if n % 2 else progress(n))
    log.add(Event("waiting", {"asks": []}))
    log.add(Event("done", "{}"))
    events = list(log.after(0))
    assert "".join(event.text for _, event in events) == "".join(f"{n} " for n in range(1, 101, 2))
    assert [n for n, _ in events] == sorted({n for n, _ in events})
    (left_out,) = [(n, event) for n, event in events if event.kind == LEFT_OUT]
    held = [event for _, event in events if event.kind == "primitive"]
    assert left_out[1].data == f'{{"events": {50 - len(held)}}}'
    assert len(held) <= 16
    assert [event.kind for _, event in events][-2:] == ["waiting", "done"]
    behind = [event.kind for n, event in log.after(left_out[0])]
    assert LEFT_OUT not in behind, "whoever has heard of it does not hear it again"
    assert behind.count("primitive") == len(held)


def test_who_reads_while_some_are_left_out_reads_on() -> None:
    log = EventLog(16)
    for n in range(16):
        log.add(progress(n))
    reading = log.after(0, 16)
    heard = [next(reading)[0]]
    for n in range(16, 60):
        log.add(progress(n))
    assert [*heard, *(n for n, _ in reading)] == [*range(1, 17)]


def test_steps_stay_as_long_as_anything_else_can_go() -> None:
    log = EventLog(16)
    for n in range(40):
        log.add(progress(n))
        if n % 8 == 0:
            log.add(Event("step", ToolStep("agent", f"{n}", "look", {}, "finished", "x", 0.1)))
    assert sum(event.kind == "step" for _, event in log.after(0)) == 5


@pytest.mark.parametrize("each", [token, progress])
def test_what_is_counted_is_what_is_held(each: object) -> None:
    """20,000 streamed pieces, and as many events of primitives."""
    tracemalloc.start()
    try:
        log = EventLog()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(20_000):
            log.add(token(f"word{n} ") if each is token else progress(0))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held <= 1.5 * log.nbytes
    assert log.nbytes <= 1.5 * held
    assert each is token or len(list(log.after(0))) <= MOST_EVENTS + 1
