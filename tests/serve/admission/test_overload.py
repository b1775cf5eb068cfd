"""Overload behind HTTP: refusals, what is learned from served queries, shares of tenants."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import httpx
import pytest

from teola import App, Runtime, component
from teola.query.spec import QuerySpec
from teola.runtime.engines import EngineConfig, fair_to_tenants
from teola.runtime.observe.demand import Demand
from teola.runtime.python_engine import PythonEngine
from teola.serve.admission.admission import Admission, Lanes
from teola.serve.admission.expecting import admission_for
from teola.serve.admission.learning import QueryClass, size_class
from tests.serve.conftest import Served, applications, begun, serving, soon

ECHO = "/v1/apps/echo/queries"


def one_at_a_time() -> Admission:
    """Each query is planned to take a second of the only lane; none may wait."""
    planned = Demand(1.0, {"engine": 1.0})
    return Admission(lambda engine: Lanes(1.0), lambda kind: planned, max_wait_s=0.5)


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    """A server for `busy`."""
    with Runtime() as runtime, serving(runtime, applications()) as found:
        yield found


@pytest.fixture
def busy(strict: Served) -> Iterator[httpx.Client]:
    """A client of it, while a query runs."""
    strict.board.admission = one_at_a_time()
    with httpx.Client(base_url=strict.url, timeout=30) as client:
        running = {"inputs": {"question": "wait"}, "mode": "background"}
        where = client.post(ECHO, json=running).headers["location"]
        yield client
        client.delete(where)
        soon(lambda: not strict.board.running)


def test_a_refusal_says_when_to_come_back(busy: httpx.Client) -> None:
    response = busy.post(ECHO, json={"inputs": {"question": "hello"}})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    error = response.json()["error"]
    assert (error["code"], error["retryable"]) == ("overloaded", True)
    assert "has work for 1.0 s before this query" in error["message"]


def test_openai_clients_are_refused_in_their_form(busy: httpx.Client) -> None:
    messages = [{"role": "user", "content": "hello"}]
    response = busy.post("/v1/chat/completions", json={"model": "echo", "messages": messages})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["type"] == "rate_limit_error"


def test_the_body_is_not_waited_for(busy: httpx.Client) -> None:
    host, port = busy.base_url.host, busy.base_url.port
    assert port is not None
    with socket.create_connection((host, port), timeout=20) as raw:
        head = f"POST {ECHO} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3000000\r\n\r\n"
        raw.sendall(head.encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 429")


def test_what_is_queued_is_measured(busy: httpx.Client) -> None:
    lines = busy.get("/metrics").text.splitlines()
    assert 'teola_backlog_seconds{engine="engine"} 1.0' in lines
    assert 'teola_expected_wait_seconds{engine="engine"} 0.0' in lines


def test_it_is_open_again_when_the_query_has_ended(strict: Served, busy: httpx.Client) -> None:
    for id in list(strict.board.running):
        busy.delete(f"/v1/queries/{id}")
    assert busy.post(ECHO, json={"inputs": {"question": "hello"}}).status_code == 200


def test_served_queries_are_learned_from() -> None:
    with Runtime() as runtime, serving(runtime, applications()) as found:
        httpx.post(f"{found.url}{ECHO}", json={"inputs": {"question": "hello"}})
        door = found.board.admission
        assert door is not None
        assert (learned := door._tenants["default"].kinds[QueryClass("echo", 0)]).known
        assert 0 < learned.demand(0.0).work["python"] <= learned.demand(0.0).own_s < 30


def test_a_profile_says_what_to_expect_before_any_query_has_ended() -> None:
    from teola_apps.naive_rag import app

    with Runtime(profile="paper-13b") as runtime:
        door = admission_for(runtime, {"naive-rag": app})
        door.admit("naive-rag", 100, "a", 0.0)
        kinds = door._tenants["a"].kinds
        small = kinds[QueryClass("naive-rag", 0)].demand(0.0)
        door.admit("naive-rag", 10**6, "a", 0.0)
        large = kinds[QueryClass("naive-rag", size_class(10**6))].demand(0.0)
    assert small.work["llm"] > 0
    assert large.work["embedding"] > 10 * small.work["embedding"] > 0


def test_a_query_that_is_cancelled_before_it_begins_counts_no_more() -> None:
    apps = applications()
    with Runtime() as runtime, serving(runtime, apps) as found:
        board = found.board

        async def at_once() -> str:
            entry = begun(board, apps["echo"], "hello", mode="sync")
            entry.cancel()
            return (await asyncio.wait_for(entry.ended(), 20)).state

        assert runtime.start(at_once()).result(30) == "cancelled"
        assert not board.running
        assert board.admission is not None
        assert board.admission.running == 0


# --- shares on the live runtime -------------------------------------------------------------


@pytest.mark.parametrize("fair", [True, False])
def test_one_query_of_a_tenant_does_not_wait_for_a_hundred_of_another(fair: bool) -> None:
    order: list[str] = []

    async def note(question: str) -> str:
        order.append(question)
        await asyncio.sleep(0)
        return question

    engines = {"python": EngineConfig(PythonEngine, {"concurrency": 1})}
    with Runtime(engines) as runtime:
        if fair:
            runtime.configs = fair_to_tenants(runtime.configs, {})
        app = App(
            "note",
            template=component(note, outputs="answer"),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtime,
        )

        async def ask() -> None:
            def one(question: str, tenant: str) -> asyncio.Task[object]:
                job = app.job(QuerySpec({"question": question}, tenant=tenant))
                return asyncio.ensure_future(job.run())

            await runtime.ensure(app.engine_names)
            many = [one(f"greedy {n}", "greedy") for n in range(100)]
            while not order:
                await asyncio.sleep(0)
            await asyncio.gather(*many, one("modest", "modest"))

        runtime.start(ask()).result(60)
    assert len(order) == 101
    before = order.index("modest")
    assert before <= 3 if fair else before == 100, "one in flight, one that was chosen, at most"
