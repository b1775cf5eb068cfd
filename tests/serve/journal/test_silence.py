"""A database that is there and answers nothing: no query, request or server waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from teola import Runtime
from teola.query.result import Result
from teola.serve import board
from teola.serve.board import Entry
from teola.serve.journal import keeper
from tests.serve.conftest import applications, begun, serving, soon
from tests.serve.journal.conftest import Serve, ask, rows
from tests.serve.journal.proxy import Proxy, proxied
from tests.serve.journal.test_trouble import MINE, up


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with proxied(dsn) as found:
        yield found


def test_queries_are_cancelled_and_looked_up_without_it(
    serve: Serve, dsn: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "FENCE_S", 3600.0)
    with serve(where=proxy.dsn) as (served, client):
        first, second = (ask(client, "please wait").json()["query_id"] for _ in range(2))
        proxy.silence()
        assert client.delete(f"/v1/queries/{first}").json()["state"] == "cancelled"
        soon(lambda: not up(client))
        assert ask(client, "hello").status_code == 503
        assert client.get(f"/v1/queries/{'0' * 32}").status_code == 503
        assert client.get(f"/v1/queries/{second}").json()["state"] == "running"
        proxy.resume()
        soon(lambda: up(client))
        soon(lambda: rows(dsn, MINE, first) == [("cancelled",)])
        assert list(served.board.running) == [second]
        assert ask(client, "hello").status_code == 202


def test_a_server_ends_without_it_and_the_next_one_goes_on(
    serve: Serve, dsn: str, proxy: Proxy
) -> None:
    with serve(where=proxy.dsn) as (_, client):
        id = ask(client, "please wait").json()["query_id"]
        proxy.silence()
    held = "SELECT state, holder IS NOT NULL FROM teola_journal.queries WHERE id = %s"
    assert rows(dsn, held, id) == [("running", True)]
    proxy.cut()
    with serve() as (served, _):
        soon(lambda: id in served.board.running)


def test_a_drain_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "CANCELLED_S", 0.2)
    go: list[asyncio.Event] = []

    async def stuck(entry: Entry, result: Result) -> Result:
        """How it ended is written down, which does not come to its end."""
        await go[0].wait()
        return result

    monkeypatch.setattr(Entry, "end", stuck)
    apps = applications()
    with Runtime() as runtime, serving(runtime, apps) as served:

        async def drained() -> bool:
            go.append(asyncio.Event())
            entry = begun(served.board, apps["echo"], "please wait")
            await served.board.drain(0.0)
            left = entry.result is None
            go[0].set()
            await entry.ended()
            return left

        assert runtime.start(drained()).result(60)
