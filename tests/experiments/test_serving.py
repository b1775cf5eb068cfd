"""The clients of the serving experiment count what they should; the whole of it in small."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.serving import __main__ as serving
from experiments.serving import load, measure
from experiments.serving.load import LOST, Answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FULL = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"


@asynccontextmanager
async def server(
    answer: Callable[[int], bytes], pause_s: float = 0.0, seen: set[Any] | None = None
) -> AsyncIterator[str]:
    """Gives the n-th request (from 0) `answer(n)`; closes the connection instead of b"". seen:
    gets the address of each client that asks."""
    asked = 0
    turn = asyncio.Lock()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            if head.startswith(b"GET /healthz "):
                writer.write(OK)
                continue
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            json.loads(await reader.readexactly(length))
            if seen is not None:
                seen.add(writer.get_extra_info("peername"))
            n, asked = asked, asked + 1
            async with turn:
                await asyncio.sleep(pause_s)
            if not (text := answer(n)):
                break
            writer.write(text)
        writer.close()

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(quiet, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}/ask"
    finally:
        listening.close()
        await asyncio.sleep(0.05)


def request(url: str) -> bytes:
    return load.post(url, {"question": "Why?"})


async def test_clients_that_wait_for_their_answer() -> None:
    async with server(lambda n: OK if n % 2 else FULL) as url:
        answers = await load.closed(url, request(url), 4, 0.3)
    assert answers.count >= 4
    assert abs(len(answers.of(200)) - len(answers.of(429))) <= 1
    assert set(answers.latencies) == {200, 429}
    assert answers.seconds >= 0.3


async def test_clients_that_do_not_wait_are_all_answered() -> None:
    async with server(lambda n: OK) as url:
        answers = await load.opened(url, request(url), 200.0, 0.5, seed=1)
        again = await load.opened(url, request(url), 200.0, 0.5, seed=1)
    assert answers.count == len(answers.late) == 100
    assert again.count == answers.count, "the same seed, the same arrivals"
    assert list(answers.latencies) == [200]


async def test_a_latency_counts_from_when_the_request_was_due() -> None:
    """Answers come one every 50 ms, requests every 10: each waits longer than the one before."""
    async with server(lambda n: OK, pause_s=0.05) as url:
        answers = await load.opened(url, request(url), 100.0, 0.3, seed=1)
    assert max(answers.of(200)) >= 0.05 * answers.count - 0.3
    assert answers.seconds >= 0.05 * answers.count


async def test_each_query_may_have_a_connection_of_its_own() -> None:
    accepted: set[Any] = set()
    async with server(lambda n: OK, seen=accepted) as url:
        answers = await load.opened(url, request(url), 100.0, 0.2, seed=1, keep=False)
    assert answers.count == len(answers.of(200)) == len(accepted) == 20


async def test_health_is_asked_beside_the_load() -> None:
    async with server(lambda n: OK) as url:
        answers, health = await load.watched(
            url, load.opened(url, request(url), 100.0, 0.5, seed=1)
        )
    assert len(answers.of(200)) == 50
    assert len(health) >= 2
    assert health == sorted(health)
    assert health[0] > 0


def test_a_queue_without_room_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that holds two connections, of which six are asked for."""
    if (before := load.overflows()) is not None:
        with ExitStack() as stack:
            full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
            for _ in range(6):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            limit = time.monotonic() + 20
            while load.overflows() == before:
                assert time.monotonic() < limit, "the kernel counts none"
                time.sleep(0.02)
    monkeypatch.setattr(load, "NETSTAT", tmp_path / "none")
    assert load.overflows() is None


async def test_connections_that_are_lost_are_counted() -> None:
    async with server(lambda n: OK if n < 5 else b"") as url:
        answers = await load.opened(url, request(url), 100.0, 0.2, seed=1)
    assert len(answers.of(200)) == 5
    assert len(answers.of(LOST)) == answers.count - 5 > 0


def test_errors_are_neither_answers_nor_refusals() -> None:
    answers = Answers({200: [1.0], 429: [1.0], 500: [1.0, 2.0], LOST: [1.0]})
    assert measure._errors(answers) == {"lost": 1, "500": 2}


def test_what_is_said_of_reliability_holds_in_the_kept_report() -> None:
    root = Path(serving.__file__).parents[2]
    report = json.loads((root / "experiments" / "serving" / "report.json").read_text())
    rate, added = report["crowd"]["null"]["queries_per_s"], report["added"]["added_ms"]
    page = (root / "docs" / "reliability.md").read_text()
    assert "1,000 queries a second; 1 ms added to each; at ten times, 0.9 of the best" in page
    assert f"saw {rate:,.0f} and {added:.2f} ms |" in page
    assert rate >= 1000
    assert added <= 1.0
    most = [row for row in report["overload"] if row["load"] == 10.0]
    assert [row["app"] for row in most] == ["waiting", "naive-rag"]
    for row in most:
        assert row["of_peak"] >= 0.9
        assert row["of_calm_p99"] <= 2.0
        assert row["refusal_p99_ms"] <= 50.0


@pytest.mark.nightly
@pytest.mark.server
@pytest.mark.timeout(240)
def test_the_whole_of_it_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "QUICK_S", (0.5, 0.5, 1.0, 1.0))
    monkeypatch.setattr(measure, "LOADS", (0.8, 4.0))
    serving.main(["--quick", "--queries", "100", "--out", str(tmp_path)])
    assert (tmp_path / "serving.svg").read_text().startswith("<?xml")
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert [(row["app"], row["load"]) for row in report["overload"]] == [
        ("waiting", 0.8),
        ("waiting", 4.0),
        ("naive-rag", 0.8),
        ("naive-rag", 4.0),
    ]
    for row in report["overload"]:
        assert row["errors"] == {}
        assert row["p99_s"] >= row["p50_s"] >= 0
        assert row["health_max_ms"] >= row["health_p99_ms"] > 0
    assert [(row["app"], row["load"]) for row in report["anew"]] == [
        ("waiting", 4.0),
        ("naive-rag", 4.0),
    ]
    calm, flooded, *_ = report["overload"]
    assert calm["p50_s"] > 0.5 < flooded["p50_s"], "each waits for half a second at least"
    assert calm["of_peak"] > 0
    assert flooded["refused"] > 20
    for name in ("bare", "null"):
        assert report["crowd"][name]["queries_per_s"] > 0
        assert report["crowd"][name]["errors"] == {}
    added = report["added"]
    assert added["added_ms"] == pytest.approx(added["null_p50_ms"] - added["bare_p50_ms"], abs=0.01)
    console = Console(width=160, file=StringIO())
    serving.EXPERIMENT.table(report, console)
    assert "200 clients at once" in console.file.getvalue()  # type: ignore[attr-defined]
    section = serving.EXPERIMENT.section(report, Path("images/serving.svg"))
    assert section.count("| naive-rag |") >= 2
