"""Events of a query on their way to one client, and what happens when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from teola.errors import Overloaded
from teola.query.event_log import Event, EventLog
from teola.query.result import Result
from teola.serve import streaming
from teola.serve.problems import TooLarge
from teola.serve.streaming import (
    BUFFER,
    LONG,
    Events,
    EventStream,
    first,
    gone,
    json_off_loop,
    numbered_event,
    result_for,
    written_off_loop,
)

RESULT = Result("a", "q1", "ok", {}, 1.0)


class Query(SimpleNamespace):
    """An entry, of which clients are told; nothing runs."""

    result: Any
    waiting: bool

    def __init__(self) -> None:
        super().__init__(
            events=EventLog(), result=None, waiting=False, bytes=0, task=None, cancelled=0
        )
        self.news = asyncio.Event()

    def tell(self, *kinds: str, result: Any = None) -> None:
        for kind in kinds:
            self.events.add(Event(kind, "{}"))
        self.result = result or self.result
        self.news.set()
        self.news = asyncio.Event()

    async def changed(self, after: int) -> None:
        while len(self.events) <= after and self.result is None:
            await self.news.wait()

    async def ended(self) -> Any:
        while self.result is None:
            await self.news.wait()
        return self.result

    async def stopped(self) -> None:
        while self.result is None and not self.waiting:
            await self.news.wait()

    def cancel(self) -> None:
        self.cancelled += 1


def kinds(n: int, event: Event) -> list[str]:
    return [f"{n} {event.kind};"]


async def told(query: Any, **more: Any) -> list[str]:
    async with asyncio.timeout(5.0):
        return [piece async for piece in Events(query, kinds, **more).pieces()]


async def forever() -> None:
    await asyncio.Event().wait()


# --- events ---------------------------------------------------------------------------------------


async def test_events_are_told_from_where_a_client_is_to_the_end() -> None:
    query = Query()
    query.tell("primitive", "token", "token", "done", result=RESULT)
    assert await told(query) == ["1 primitive;2 token;3 token;4 done;"]
    assert await told(query, after=3) == ["4 done;"]
    assert await told(query, after=4) == []


async def test_events_are_told_as_they_come() -> None:
    query, seen = Query(), list[str]()

    async def follow() -> None:
        async for piece in Events(query, kinds).pieces():  # type: ignore[arg-type]
            seen.append(piece)

    following = asyncio.ensure_future(follow())
    for step in (("primitive",), ("token", "token"), ("done",)):
        query.tell(*step, result=RESULT if step == ("done",) else None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait_for(following, 5.0)
    assert "".join(seen) == "1 primitive;2 token;3 token;4 done;"


async def test_after_the_last_kind_nothing_more_is_told() -> None:
    query = Query()
    query.tell("primitive", "waiting", "token", "waiting")
    assert await told(query, last="waiting") == ["1 primitive;2 waiting;"]
    assert await told(query, last="waiting", after=2) == ["3 token;4 waiting;"]
    query.tell("done", result=RESULT)
    assert await told(query, last="waiting", after=4) == ["5 done;"]


async def test_in_silence_a_comment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SILENCE_S", 0.001)
    query = Query()
    pieces = Events(query, kinds).pieces()  # type: ignore[arg-type]
    assert await anext(pieces) == ": still running\n\n"
    query.tell("done", result=RESULT)
    assert await anext(pieces) == "1 done;"
    await pieces.aclose()


async def test_a_client_is_too_slow_once_more_wait_than_may() -> None:
    query = Query()
    query.tell(*["token"] * 10)
    events = Events(query, kinds)  # type: ignore[arg-type]
    slow = asyncio.ensure_future(events.too_slow())
    await asyncio.sleep(0)
    for count, done in ((BUFFER, False), (1, True)):
        query.tell(*["primitive"] * count)
        for _ in range(3):
            await asyncio.sleep(0)
        assert slow.done() is done


def test_our_own_form_numbers_events_behind_those_of_earlier_runs() -> None:
    (text,) = numbered_event(3, Event("token", '{"text": "a"}'), 20)
    assert text == 'id: 23\nevent: token\ndata: {"text": "a"}\n\n'
    failed = Result("a", "q1", "failed", {}, 1.0, error=Overloaded("later"))
    (text,) = numbered_event(1, Event("error", failed))
    assert '"code": "overloaded"' in text
    (text,) = numbered_event(1, Event("done", failed))
    assert '"state": "failed"' in text


# --- clients that leave ---------------------------------------------------------------------------


class Says:
    """What one client is told: a text, and then perhaps nothing for ever."""

    def __init__(self, ends: bool, slow: bool = False) -> None:
        self.ends, self.slow, self.closed = ends, slow, False

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            yield "é"
            if not self.ends:
                await forever()
        finally:
            self.closed = True

    async def too_slow(self) -> None:
        if not self.slow:
            await forever()


async def streamed(says: Says, query: Any, *, leaves: bool = False) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        if not leaves:
            await forever()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await EventStream(says, owned=query, headers={"x-query-id": "q1"})({}, receive, send)
    assert says.closed or not sent[1:]
    return sent


async def test_a_stream_that_is_told_whole_cancels_nothing() -> None:
    query = Query()
    start, body, end = await streamed(Says(ends=True), query)
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert dict(start["headers"])[b"x-query-id"] == b"q1"
    assert (body["body"], body["more_body"]) == ("é".encode(), True)
    assert (end["body"], end.get("more_body", False), query.cancelled) == (b"", False, 0)


@pytest.mark.parametrize("why", ["leaves", "slow"])
async def test_who_owns_a_query_and_leaves_cancels_it_unless_it_waits(why: str) -> None:
    for waits, cancelled in ((False, 1), (True, 0)):
        query = Query()
        query.waiting = waits
        says = Says(ends=False, slow=why == "slow")
        sent = await streamed(says, query, leaves=why == "leaves")
        assert query.cancelled == cancelled
        assert all(message.get("more_body") is not False for message in sent)
    await streamed(Says(ends=False, slow=True), None)


async def test_the_first_that_ends_cancels_the_others() -> None:
    left: list[str] = []

    async def one(name: str, after: int, value: Any = None) -> Any:
        try:
            for _ in range(after):
                await asyncio.sleep(0)
            return value
        except asyncio.CancelledError:
            left.append(name)
            raise

    assert await first(one("work", 1, "a"), one("other", 9)) == "a"
    assert await first(one("work", 9, "a"), one("other", 1), one("third", 9)) is None
    assert await first(one("work", 0, "a"), one("other", 0, "b")) == "a"
    assert left[0] == "other"
    assert sorted(left[1:]) == ["third", "work"]

    async def fails() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await first(fails(), one("last", 9))
    assert left[3:] == ["last"]


async def test_a_result_is_waited_for_as_long_as_the_client_stays() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def stays() -> Any:
        await forever()

    async def asked(query: Any, receive: Any) -> Any:
        async with asyncio.timeout(5.0):
            return await result_for(query, receive)

    there, left, waits, comes = Query(), Query(), Query(), Query()
    there.result = RESULT
    assert await asked(there, receive) is RESULT
    assert (await asked(left, receive), left.cancelled) == (None, 1)
    waits.waiting = True
    assert (await asked(waits, stays), waits.cancelled) == (None, 0)
    asyncio.get_running_loop().call_soon(lambda: comes.tell("done", result=RESULT))
    assert (await asked(comes, stays), comes.cancelled) == (RESULT, 0)


async def test_what_a_client_still_sends_is_no_leaving() -> None:
    messages = iter(["http.request", "http.request", "http.disconnect"])

    async def receive() -> Any:
        return {"type": next(messages)}

    await gone(receive)
    assert list(messages) == []

    async def too_large() -> Any:
        raise TooLarge("more")

    await gone(too_large)


async def test_long_answers_are_written_off_the_loop() -> None:
    loop = asyncio.get_running_loop()

    def here() -> bool:
        try:
            return asyncio.get_running_loop() is loop
        except RuntimeError:
            return False

    query: Any = Query()
    for query.bytes, on_loop in ((LONG, True), (LONG + 1, False)):
        assert await written_off_loop(query, here) is on_loop
        body = await json_off_loop(query, lambda: {"here": here()}, {"x-query-id": "q1"})
        assert bytes(body.body) == (b'{"here":true}' if on_loop else b'{"here":false}')
        assert body.headers["x-query-id"] == "q1"
