"""Which connection a request gets, and when one that nobody needs is closed; without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from teola_engines.openai import spare_connections
from teola_engines.openai.spare_connections import SPARE_S, SpareConnections

ASK = httpx.Request("GET", "http://a.b")


class Clock:
    """In place of the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Body(httpx.AsyncByteStream):
    """An answer's; closed: how often."""

    def __init__(self) -> None:
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"a"

    async def aclose(self) -> None:
        self.closed += 1
        if self.closed == 1 and self in BREAKING:
            raise httpx.ReadError("broke")


BREAKING: set[Body] = set()


class Pool:
    """A pool of one connection. It fails as often as it is told to."""

    made: list[Pool]
    fails = 0

    def __init__(self, **_: object) -> None:
        self.made.append(self)
        self.asked, self.closed = 0, False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert not self.closed
        self.asked += 1
        if Pool.fails:
            Pool.fails -= 1
            raise httpx.ConnectError("no")
        return httpx.Response(200, stream=Body())

    async def aclose(self) -> None:
        self.closed = True
        raise httpx.CloseError("half closed")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(spare_connections, "time", clock)
    return clock


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> SpareConnections:
    Pool.made, Pool.fails = [], 0
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", Pool)
    return SpareConnections()


async def answers(spare: SpareConnections, count: int) -> list[httpx.Response]:
    return [await spare.handle_async_request(ASK) for _ in range(count)]


async def test_requests_at_once_have_a_connection_each_and_the_one_used_last_is_used_first(
    spare: SpareConnections,
) -> None:
    one, two, three = await answers(spare, 3)
    assert [pool.asked for pool in Pool.made] == [1, 1, 1]
    for answer in (one, three, two, two):
        await answer.aclose()
    later = await answers(spare, 2)
    assert [pool.asked for pool in Pool.made] == [1, 2, 2]
    await answers(spare, 2)
    assert [pool.asked for pool in Pool.made] == [2, 2, 2, 1]
    assert [answer.status_code for answer in later] == [200, 200]


async def test_a_connection_that_fails_is_used_again(spare: SpareConnections) -> None:
    Pool.fails = 2
    for _ in range(2):
        with pytest.raises(httpx.ConnectError):
            await spare.handle_async_request(ASK)
    (answer,) = await answers(spare, 1)
    assert [pool.asked for pool in Pool.made] == [3]
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    BREAKING.add(answer.stream._body)  # type: ignore[attr-defined]
    with pytest.raises(httpx.ReadError):
        await answer.stream.aclose()
    BREAKING.clear()
    await answers(spare, 1)
    assert [pool.asked for pool in Pool.made] == [4]


async def test_what_was_spare_for_too_long_is_closed_when_another_is_given_back(
    spare: SpareConnections, clock: Clock
) -> None:
    one, two, three = await answers(spare, 3)
    await one.aclose()
    clock.now += 1.0
    await two.aclose()
    clock.now += SPARE_S - 1.0
    await three.aclose()
    assert [pool.closed for pool in Pool.made] == [False] * 3, "just as long as it may"
    (four,) = await answers(spare, 1)
    clock.now += 0.5
    await four.aclose()
    assert [pool.closed for pool in Pool.made] == [True, False, False]
    assert len(spare._pools) == 2
    clock.now += 100.0
    (five,) = await answers(spare, 1)
    await five.aclose()
    assert [pool.closed for pool in Pool.made] == [True, True, False]
    await answers(spare, 2)
    assert len(Pool.made) == 4


async def test_closing_ends_those_in_use_too(spare: SpareConnections) -> None:
    one, two = await answers(spare, 2)
    await one.aclose()
    await spare.aclose()
    assert [pool.closed for pool in Pool.made] == [True, True]
    await two.aclose()
