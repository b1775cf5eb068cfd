"""Servers of tools that are processes of ours: a real one, and one that misbehaves."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from teola import Runtime
from teola.errors import EngineUnavailable, UnknownName
from teola.tools import Tool, Toolbox, ToolResult, ToolServer, mcp_tools, tool
from teola.tools import mcp_connection as connections
from teola.tools.loop_life import close_here
from tests.planted import catches, edited

TIME = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
ODD = [sys.executable, "-m", "tests.tools.odd_server"]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PAUSE_S", 0.05)


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No process, no task, no thread, no open file once what is kept on the loop has ended."""
    before, files = children(), open_files()
    yield
    await close_here()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await until(lambda: children() <= before)
    await until(lambda: not [t for t in threading.enumerate() if "waitpid" in t.name])
    await until(lambda: open_files() <= files)


OTHERS: set[int] = set()
"""Processes of tests before this one, such as a browser."""


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS.clear()
    OTHERS.update(children())


def children() -> set[int]:
    """Processes of this test, dead ones that nobody has waited for included."""
    return {one.pid for one in psutil.Process().children(recursive=True)} - OTHERS


def open_files() -> int:
    return psutil.Process().num_fds()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


def odd(*words: str, **options: Any) -> ToolServer:
    return mcp_tools(name="odd", command=[*ODD, *words], **options)


async def named(server: ToolServer, name: str) -> Tool:
    return (await Toolbox.of(server))[name]


async def call(server: ToolServer, name: str, **arguments: Any) -> ToolResult:
    return await (await named(server, name)).call(arguments)


# --- a real server ----------------------------------------------------------------------------


async def test_a_real_server_tells_the_time() -> None:
    server = mcp_tools(name="time", command=TIME, pure=["get_current_time"])
    box = await Toolbox.of(server)
    assert box.names == ["get_current_time", "convert_time"]
    assert box["get_current_time"].pure
    assert not box["convert_time"].pure, "whatever it says of itself"
    assert "Get current time" in box["get_current_time"].description
    result = await box["convert_time"].call(
        {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}
    )
    assert not result.failed, result.text
    assert "T03:00:00" in result.text
    assert result.value["time_difference"] == "-9.0h"


async def test_what_it_refuses_is_a_text_for_the_model() -> None:
    server = mcp_tools(name="time", command=TIME)
    result = await call(server, "get_current_time", timezone="Mars/Olympus")
    assert result.failed
    assert result.text.startswith("get_current_time failed: ")
    assert "Mars/Olympus" in result.text
    result = await call(server, "get_current_time", timezone=3)
    told = "get_current_time was not called: argument 'timezone' must be a text, got 3"
    assert result.text == told


def test_a_runtime_ends_what_it_has_started() -> None:
    before = children()
    server = mcp_tools(name="time", command=TIME)
    with Runtime(tools={"time": server}) as runtime:
        assert runtime.tools["time"] is server
        box = runtime.start(Toolbox.of(server)).result()
        asked = box["get_current_time"].call({"timezone": "UTC"})
        assert not runtime.start(asked).result().failed
        assert children() - before
    assert children() <= before
    over = time.monotonic() + 5
    while [one for one in threading.enumerate() if one.name.startswith("teola-tool")]:
        assert time.monotonic() < over
        time.sleep(0.01)


# --- what is started, and when ----------------------------------------------------------------


async def test_it_is_started_on_first_use_and_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = odd("--log", str(log))
    assert not log.exists()
    results = await asyncio.gather(*(call(server, "echo", text=str(i)) for i in range(8)))
    assert [one.text for one in results] == [str(i) for i in range(8)]
    assert log.read_text().count("start") == 1
    await server.close()
    assert not children()
    assert (await call(server, "echo", text="again")).text == "again"
    assert log.read_text().count("start") == 2


async def test_it_gets_of_our_environment_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEOLA_TEST_SECRET", "hush")
    server = odd(env={"ODD_KEY": "hush"})
    names = (await call(server, "environment")).value["names"]
    assert {"PATH", "ODD_KEY"} <= set(names)
    assert "TEOLA_TEST_SECRET" not in names
    assert "hush" not in repr(server)


async def test_its_folder_is_given(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("import tests.tools.odd_server as odd; odd.main()")
    environment = {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    server = mcp_tools(command=[sys.executable, "here.py"], cwd=str(tmp_path), env=environment)
    assert (await call(server, "echo", text="x")).text == "x"


# --- what it offers ---------------------------------------------------------------------------


async def test_odd_names_are_made_fit_and_bad_schemas_left_out() -> None:
    box = await Toolbox.of(odd())
    assert {"notes_add_one", "notes_add_one_2"} <= set(box.names)
    assert "outside" not in box
    assert not (await box["notes_add_one_2"].call({})).failed


async def test_only_what_is_wanted_is_offered() -> None:
    box = await Toolbox.of(odd(only=["echo", "pid"], pure=["pid"], approval=["pid"]))
    assert box.names == ["echo", "pid"]
    assert [one.pure for one in box] == [False, True]
    assert [one.needs_approval({}) for one in box] == [False, True]
    assert all(one.needs_approval({}) for one in await Toolbox.of(odd(approval=True)))


@pytest.mark.parametrize("option", ["pure", "only", "approval"])
async def test_a_name_that_it_has_not_is_refused(option: str) -> None:
    with pytest.raises(UnknownName, match=r"unknown tool 'ecco' in tool server 'odd'; .* 'echo'"):
        await Toolbox.of(odd(**{option: ["ecco"]}))


async def test_where_two_have_a_name_their_servers_go_before_it() -> None:
    @tool
    def pid() -> str:
        """Ours."""
        return "ours"

    other = mcp_tools(name="other", command=ODD, only=["echo"])
    box = await Toolbox.of(pid, odd(only=["echo", "pid", "fail"]), other)
    assert box.names == ["pid", "odd_echo", "odd_pid", "fail", "other_echo"]
    assert (await box["pid"].call({})).text == "ours"
    assert (await box["odd_pid"].call({})).text.isdigit()
    assert (await box["other_echo"].call({"text": "x"})).text == "x"


async def test_a_list_that_has_changed_is_read_anew() -> None:
    server = odd()
    assert "grown" not in await Toolbox.of(server)
    before = await server.tools()
    assert all(map(lambda a, b: a is b, before, await server.tools())), "not asked again"
    assert (await call(server, "grow")).text == "grown"

    async def grown() -> bool:
        return "grown" in await Toolbox.of(server)

    async with asyncio.timeout(10):
        while not await grown():
            await asyncio.sleep(0.01)


# --- when it breaks ---------------------------------------------------------------------------


async def test_an_error_and_what_is_no_text_are_told() -> None:
    server = odd()
    assert (await call(server, "fail")).text == "fail failed: there is no ink"
    assert (await call(server, "picture")).text == "[image, image/png, 4 characters of base64]"
    assert (await call(server, "garbage")).text == "after all"
    assert (await call(server, "echo", text="on")).text == "on"


@catches(
    "lost-calls-hang",
    "a lost server is not started again",
    edited(
        "teola.tools.mcp_connection:McpConnection._ends", "self._lost.set()", "self._lost.is_set()"
    ),
)
async def test_one_that_dies_is_started_again_and_calls_fail_meanwhile(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = odd("--log", str(log), timeout_s=3)
    box = await Toolbox.of(server)
    first = (await box["pid"].call({})).text
    hanging = asyncio.create_task(box["hang"].call({}))
    await asyncio.sleep(0.1)
    died = await box["die"].call({})
    assert died.failed
    assert died.unknown
    told = "the tool server 'odd' was lost; whether it did what it was asked is not known"
    assert died.text == f"die failed: {told}"
    assert (await asyncio.wait_for(hanging, 5)).text == f"hang failed: {told}"
    second = (await box["pid"].call({})).text
    assert second.isdigit()
    assert second != first
    assert log.read_text().count(" die") == 1, "an effect is not repeated"


async def test_a_pure_call_is_made_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = odd("--log", str(log), pure=["die"])
    result = await call(server, "die")
    assert result.failed
    assert not result.unknown
    assert log.read_text().count(" die") == 3


async def test_one_that_does_not_answer_costs_only_its_time() -> None:
    server = odd(timeout_s=0.3)
    began = time.monotonic()
    result = await call(server, "hang")
    assert time.monotonic() - began < 8
    assert result.failed
    assert "took longer than 0.3 s" in result.text
    assert (await call(server, "echo", text="on")).text == "on"


async def test_one_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENT_S", 0.1)
    server = odd(timeout_s=0.3)
    box = await Toolbox.of(server)
    first = (await box["pid"].call({})).text
    assert (await box["stop"].call({})).failed
    for _ in range(connections.SILENT - 1):
        assert (await box["echo"].call({"text": "x"})).failed
    async with asyncio.timeout(20):
        while (found := await box["pid"].call({})).failed:
            await asyncio.sleep(0.05)
    assert found.text != first


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_calls_end_and_effects_happen_once(
    tmp_path: Path, seed: int
) -> None:
    chance, log = random.Random(seed), tmp_path / "log"
    box = await Toolbox.of(odd("--log", str(log), timeout_s=2))

    async def one(number: int) -> ToolResult:
        await asyncio.sleep(chance.random())
        name = chance.choice(["echo"] * 6 + ["garbage", "fail", "die", "hang"])
        return await box[name].call({"text": f"call-{number}"} if name == "echo" else {})

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(one(number) for number in range(30)))
    made = Counter(line.split()[-1] for line in log.read_text().splitlines() if "echo" in line)
    assert made
    assert max(made.values()) == 1
    for number, result in enumerate(results):
        if result.text == f"call-{number}":
            assert made[result.text] == 1
    async with asyncio.timeout(20):
        while (await box["echo"].call({"text": "last"})).failed:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*ODD, "dies"], "did not start: it ended at once"),
        ([*ODD, "hangs"], "did not start: it was not ready in 1 s"),
        ([*ODD, "babbles"], "did not start: what it writes are no messages"),
        (["no-such-program"], "did not start: .*No such file"),
        ([sys.executable, "-c", ""], "did not start: it ended at once"),
    ],
)
async def test_one_that_does_not_start_is_told(words: list[str], told: str) -> None:
    server = mcp_tools(name="odd", command=words, start_s=1)
    with pytest.raises(EngineUnavailable, match=told) as caught:
        await Toolbox.of(server)
    if words[-1] == "dies":
        assert any("I am odd" in one for one in caught.value.__notes__)
        assert str(caught.value).endswith("it wrote: I am odd I will not"), "in one line"


async def test_one_that_never_starts_is_given_up_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PAUSE_S", 0.0)
    log = tmp_path / "log"
    server = odd("dies", "--log", str(log))

    async def ask() -> None:
        with pytest.raises(EngineUnavailable, match="ended at once"):
            await server.tools()

    async with asyncio.timeout(30):
        while not log.exists() or log.read_text().count("start") < connections.TRIES:
            await ask()
    for _ in range(5):
        await ask()
    assert log.read_text().count("start") == connections.TRIES
    monkeypatch.setattr(connections, "AGAIN_S", 0.0)
    await ask()
    async with asyncio.timeout(10):
        while log.read_text().count("start") == connections.TRIES:
            await asyncio.sleep(0.01)


async def test_a_query_that_is_cancelled_leaves_the_server_alone() -> None:
    server = odd()
    box = await Toolbox.of(server)
    first = (await box["pid"].call({})).text
    hanging = asyncio.create_task(box["hang"].call({}))
    await asyncio.sleep(0.1)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert (await box["pid"].call({})).text == first


async def test_who_waits_when_it_is_closed_is_told() -> None:
    server = odd("hangs")
    waiting = asyncio.create_task(Toolbox.of(server))
    async with asyncio.timeout(5):
        while not children():
            await asyncio.sleep(0.01)
    await server.close()
    with pytest.raises(EngineUnavailable, match="'odd' is closed"):
        await waiting


async def test_closing_waits_for_a_process_that_is_being_ended() -> None:
    server = odd("hangs", start_s=0.3)
    waiting = asyncio.create_task(server.tools())
    await asyncio.sleep(1)  # by now it is told to end, and has seconds to do so
    assert children()
    async with asyncio.timeout(10):
        await server.close()
    assert not children()
    with pytest.raises(EngineUnavailable, match="is closed"):
        await waiting


def test_without_a_runtime_it_ends_with_the_loop() -> None:
    before = children()

    async def once() -> str:
        return (await call(odd(), "echo", text="x")).text

    assert asyncio.run(once()) == "x"
    assert children() <= before
