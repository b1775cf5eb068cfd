"""The connections to a server: as many as there are calls at once, the one used last first.

httpx's own pool looks at all of its connections when a request begins and when it ends, which took
4.5 ms of processor time for each where 64 were open. Here a pool has one connection, and a request
takes a pool that no other one has.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import httpx
from anyio import CancelScope

SPARE_S: Final = 5.0
"""How long a connection is kept that nobody uses, as httpx does."""
ONE: Final = httpx.Limits(max_connections=1, keepalive_expiry=SPARE_S)


class SpareConnections(httpx.AsyncBaseTransport):
    """Sends requests to servers that no proxy is asked for."""

    def __init__(self) -> None:
        self._ssl = httpx.create_ssl_context()
        self._pools: set[httpx.AsyncHTTPTransport] = set()
        self._spare: deque[tuple[float, httpx.AsyncHTTPTransport]] = deque()
        """Pools that no request has, each with the time of its last one, which grows."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request on a connection that is its own until its answer is closed."""
        if self._spare:
            _, pool = self._spare.pop()
        else:
            pool = httpx.AsyncHTTPTransport(verify=self._ssl, limits=ONE)
            self._pools.add(pool)
        try:
            response = await pool.handle_async_request(request)
        except BaseException:
            self._spare.append((time.monotonic(), pool))  # it has closed its connection
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Answer(response.stream, self, pool)
        return response

    async def give_back(self, pool: httpx.AsyncHTTPTransport) -> None:
        """A request is over; close what was spare for too long."""
        now = time.monotonic()
        self._spare.append((now, pool))
        old = []
        while self._spare[0][0] < now - SPARE_S:
            old.append(self._spare.popleft()[1])
        self._pools.difference_update(old)
        await _close(old)

    async def aclose(self) -> None:
        """Close all connections, also those that are in use."""
        pools, self._pools = list(self._pools), set()
        self._spare.clear()
        await _close(pools)


class _Answer(httpx.AsyncByteStream):
    """The body of an answer, which gives its pool back when it is closed."""

    def __init__(
        self, body: httpx.AsyncByteStream, home: SpareConnections, pool: httpx.AsyncHTTPTransport
    ) -> None:
        self._body, self._home = body, home
        self._pool: httpx.AsyncHTTPTransport | None = pool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await self._body.aclose()
            finally:
                await self._home.give_back(pool)


async def _close(pools: list[httpx.AsyncHTTPTransport]) -> None:
    """Whoever is cancelled meanwhile leaves none half closed."""
    with CancelScope(shield=True):
        for pool in pools:
            with suppress(httpx.TransportError):
                await pool.aclose()
