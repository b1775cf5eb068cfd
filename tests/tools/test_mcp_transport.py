"""What a server of ours by standard streams writes is bounded, and all that it started ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from teola import Runtime
from teola.errors import EngineUnavailable, InputError
from teola.tools import Tool, Toolbox, ToolResult, ToolServer, mcp_tools
from teola.tools import mcp_connection as connections
from teola.tools.loop_life import close_here
from teola.tools.mcp_process import MARK, signal_marked

HOSTILE = [sys.executable, "-m", "tests.tools.hostile_server"]
MIB = 2**20

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
async def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(connections, "PAUSE_S", 0.05)
    yield
    await close_here()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def hostile(*words: str, **options: Any) -> ToolServer:
    return mcp_tools(name="hostile", command=[*HOSTILE, *words], **options)


async def call(server: ToolServer, name: str, number: int = 0) -> ToolResult:
    tool: Tool = (await Toolbox.of(server))[name]
    return await tool.call({"number": number})


async def again(server: ToolServer) -> str:
    """The process id, once the server has been started anew."""
    async with asyncio.timeout(30):
        while (found := await call(server, "pid")).failed:
            await asyncio.sleep(0.02)
    return found.text


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def rss() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


class Turns:
    """The processor time of the longest turn of the loop while this runs."""

    async def __aenter__(self) -> Turns:
        self.longest = 0.0
        self._before = time.thread_time()
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - self._before)
            self._before = now


# --- the size of a message --------------------------------------------------------------------


async def test_an_endless_line_loses_its_server_at_once() -> None:
    server = hostile(timeout_s=60)
    pid = int(await again(server))
    memory, processor = rss(), time.process_time()
    async with Turns() as turns:
        result = await call(server, "endless")
    assert result.text == (
        "endless failed: the tool server 'hostile' was lost: it wrote a message of more than "
        "8388608 bytes (most_message_bytes); whether it did what it was asked is not known"
    )
    assert rss() - memory < 100 * MIB
    assert turns.longest < 0.25
    other = int(await again(server))
    assert other != pid
    assert not lives(pid)
    assert time.process_time() - processor < 20


def test_a_runtime_ends_while_a_server_writes_without_end() -> None:
    with Runtime(tools={"hostile": hostile(most_message_bytes=2**40)}) as runtime:

        async def begin() -> int:
            server = runtime.tools["hostile"]
            assert isinstance(server, ToolServer)
            pid = int((await call(server, "pid")).text)
            asking = asyncio.create_task(call(server, "endless"))
            before = psutil.Process(pid).io_counters().write_chars
            while psutil.Process(pid).io_counters().write_chars < before + 4 * MIB:
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.wait([asking])
            return pid

        pid = runtime.start(begin()).result()
    assert not lives(pid)


@pytest.mark.parametrize("most", [100_000, 8 * MIB])
async def test_a_message_may_have_as_many_bytes_as_the_limit_and_no_more(most: int) -> None:
    server = hostile(most_message_bytes=most)
    assert not (await call(server, "sized", most)).failed
    told = (await call(server, "sized", most + 1)).text
    assert f"more than {most} bytes (most_message_bytes)" in told
    assert (await again(server)).isdigit(), "as after other losses"


async def test_the_limit_is_checked() -> None:
    for most in (0, 4_095, 1e9, True, "8"):
        with pytest.raises(InputError, match="most_message_bytes must be a whole number from 4096"):
            hostile(most_message_bytes=most)


async def test_what_takes_the_interpreter_long_is_refused_before_it_is_parsed() -> None:
    server = hostile(most_message_bytes=2 * MIB)
    assert (await call(server, "commas", 200_000)).text.startswith("[{,")
    async with Turns() as turns:
        told = (await call(server, "values", 100_000)).text
    assert "more than 65536 values, one for 32 of 2097152 bytes (most_message_bytes)" in told
    assert turns.longest < 0.25


async def test_what_the_sdk_checks_one_by_one_is_cut_and_told() -> None:
    server = hostile()
    async with Turns() as turns:
        result = await call(server, "blocks", 50_000)
    assert result.text.endswith("[45904 more parts are left out]")
    assert turns.longest < 0.25


async def test_a_schema_of_results_cannot_hold_the_loop() -> None:
    result = await call(hostile("patterns"), "lines")
    assert result.value == {"text": "a" * 40 + "!"}


# --- the stream -------------------------------------------------------------------------------


async def test_messages_come_in_any_pieces() -> None:
    server = hostile()
    assert (await call(server, "pieces")).text == "ä" * 500
    assert (await call(server, "pair")).text == "pair"
    assert (await call(server, "unended")).text == "unended"
    assert (await again(server)).isdigit()


async def test_floods_do_not_grow() -> None:
    server = hostile(timeout_s=60)
    assert (await call(server, "tells", 10)).text == "told"
    memory = rss()
    assert (await call(server, "tells", 4_000)).text == "told"
    assert (await call(server, "complains", 50)).text == "complained"
    assert rss() - memory < 25 * MIB
    told = (await call(server, "asks")).text
    assert "was lost: it asks, and does not read what it is answered" in told
    assert rss() - memory < 25 * MIB


# --- the list of tools ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["unlisted", "deep"])
async def test_a_list_that_is_not_answered_ends_in_time(fault: str) -> None:
    server = hostile(fault, start_s=3)
    told = r"'hostile' did not list its tools in 3 s \(start_s\)"
    async with asyncio.timeout(9):  # all together, and not one after the other
        found = await asyncio.gather(*(server.tools() for _ in range(4)), return_exceptions=True)
    for error in found:
        with pytest.raises(EngineUnavailable, match=told):
            raise error if isinstance(error, BaseException) else AssertionError(error)


async def test_a_long_list_is_not_read_to_the_end(caplog: pytest.LogCaptureFixture) -> None:
    told = "tool server hostile: its list goes on after 1024 tools"
    pages = hostile("pages")
    names = [tool.name for tool in await pages.tools()]
    assert names == [f"t{index // 200}-{index % 200}" for index in range(len(names))]
    assert told in caplog.text
    await pages.close()
    caplog.clear()
    assert len(await hostile("many").tools()) <= 1024
    assert "55904 items of a list that a tool server told are left out" in caplog.text
    assert told in caplog.text


# --- the end of a process ---------------------------------------------------------------------


async def test_what_left_the_group_ends_too() -> None:
    server = hostile()
    left = json.loads((await call(server, "leaves")).text)
    assert all(map(lives, left))
    await server.close()
    assert not [pid for pid in left if lives(pid)]


async def test_what_left_the_group_ends_with_a_server_that_is_lost() -> None:
    server = hostile()
    left = json.loads((await call(server, "leaves")).text)
    assert (await call(server, "endless")).failed
    assert int(await again(server)) not in left
    assert not [pid for pid in left if lives(pid)]


async def test_only_what_is_marked_or_in_the_group_is_signalled() -> None:
    async def sleeper(mark: str) -> asyncio.subprocess.Process:
        environment = {**os.environ, MARK: mark}
        return await asyncio.create_subprocess_exec(
            "sleep", "3600", env=environment, start_new_session=True
        )

    marked, other, grouped = [await sleeper(mark) for mark in ("one", "oneandmore", "three")]
    assert await asyncio.to_thread(signal_marked, "one", grouped.pid, 9, False) == 2
    assert [await one.wait() for one in (marked, grouped)] == [-9, -9]
    # the number of a leader that ended is a stranger's by now
    assert await asyncio.to_thread(signal_marked, "one", other.pid, 9, True) == 0
    assert other.returncode is None
    other.kill()
    await other.wait()
