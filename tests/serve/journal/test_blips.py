"""A living server that PostgreSQL does not see for a while keeps its queries, or has not died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic, sleep

import psycopg
import pytest

from teola.query.journal import database
from teola.query.journal import journal as journals
from teola.serve.journal import keeper
from tests.serve.conftest import soon
from tests.serve.journal.conftest import Serve, ask, rows
from tests.serve.journal.proxy import Proxy, proxied
from tests.serve.journal.test_trouble import MINE, up

COUNTS = "SELECT runs, deaths FROM teola_journal.queries WHERE id = %s"


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with proxied(dsn) as found:
        yield found


def throughout(true: Callable[[], bool], seconds: float) -> None:
    until = monotonic() + seconds
    while monotonic() < until:
        assert true()
        sleep(0.02)


def test_a_slow_look_does_not_free_a_living_servers_queries(
    serve: Serve, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked row keeps one server from writing how its query ended, the other from nothing."""
    monkeypatch.setattr(keeper, "ANSWER_S", 0.5)
    monkeypatch.setattr(database, "WORK_S", 0.5)
    with serve() as (first, one), serve() as (second, two):
        id, unwanted = (ask(one, "please wait").json()["query_id"] for _ in range(2))
        with psycopg.connect(dsn) as other:
            locked = "SELECT FROM teola_journal.queries WHERE id = %s FOR UPDATE"
            other.execute(locked, (unwanted,))
            assert one.delete(f"/v1/queries/{unwanted}").json()["state"] == "cancelled"
            soon(lambda: not up(one))
            throughout(lambda: id in first.board.running and not second.board.running, 2.0)
            assert up(two)
        soon(lambda: up(one))
        soon(lambda: rows(dsn, MINE, unwanted) == [("cancelled",)])
        assert rows(dsn, COUNTS, id) == [(1, 0)]
        assert list(first.board.running) == [id]


def test_a_server_whose_connection_breaks_keeps_its_queries(
    serve: Serve, dsn: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "GRACE_S", 20.0)
    with serve(where=proxy.dsn) as (first, one), serve() as (second, _):
        id = ask(one, "please wait").json()["query_id"]
        proxy.cut()
        soon(lambda: not up(one))
        soon(lambda: up(one))
        throughout(lambda: id in first.board.running and not second.board.running, 1.0)
        assert rows(dsn, COUNTS, id) == [(1, 0)]


def test_a_server_that_is_away_for_longer_has_not_died(
    serve: Serve, dsn: str, proxy: Proxy
) -> None:
    with serve(where=proxy.dsn) as (first, one), serve() as (second, _):
        id = ask(one, "please wait").json()["query_id"]
        soon(lambda: rows(dsn, COUNTS, id) == [(1, 0)])
        proxy.silence()
        proxy.cut()
        soon(lambda: id in second.board.running)
        assert rows(dsn, COUNTS, id) == [(2, 1)]
        proxy.resume()
        soon(lambda: rows(dsn, COUNTS, id) == [(2, 0)])
        soon(lambda: not first.board.running)
        assert list(second.board.running) == [id]
