"""Calls of tools: what fails is a result, what may be repeated is, and no more run than may."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from teola.errors import EngineUnavailable, ToolError, ToolLost
from teola.tools import IdempotencyKey, ToolContext, tool
from tests.planted import catches, edited


class Flaky:
    """Fails so many times, then counts its calls. error: what it raises."""

    def __init__(self, failures: int, error: BaseException) -> None:
        self.failures, self.error = failures, error
        self.calls = 0
        self.keys: list[str] = []

    async def __call__(self, key: IdempotencyKey) -> int:
        """Counts."""
        self.calls += 1
        self.keys.append(key)
        if self.calls <= self.failures:
            raise self.error
        return self.calls

    async def without_key(self) -> int:
        """Counts."""
        return await self(IdempotencyKey(""))


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such city"), "act failed: ValueError: no such city"),
        (ToolError("no such city"), "act failed: no such city"),
        (KeyError(), "act failed: KeyError"),
        (SystemExit(3), "act failed: it raised SystemExit"),
        (KeyboardInterrupt(), "act failed: it raised KeyboardInterrupt"),
        (StopIteration(), "act failed: RuntimeError: it raised StopIteration"),
        (GeneratorExit(), "act failed: RuntimeError: it raised GeneratorExit"),
        (asyncio.CancelledError(), "act failed: it raised CancelledError"),
        (ExceptionGroup("two", [ValueError("a"), ValueError("b")]), "act failed: ExceptionGroup"),
    ],
)
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_failure_is_a_text_for_the_model(
    error: BaseException, told: str, threaded: bool
) -> None:
    def act() -> None:
        """Acts."""
        raise error

    async def act_softly() -> None:
        """Acts."""
        if isinstance(error, StopIteration):
            raise RuntimeError("it raised StopIteration") from error
        raise error

    result = await tool(act if threaded else act_softly, name="act").call({})
    assert result.failed
    assert result.value is None
    assert result.text.startswith(told)


async def test_a_long_failure_is_cut() -> None:
    @tool(most_chars=200)
    def act() -> None:
        """Acts."""
        raise ValueError("x" * 10_000)

    assert len((await act.call({})).text) == 200


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_call_that_takes_too_long_is_given_up(threaded: bool) -> None:
    go = threading.Event()

    def act() -> None:
        """Acts."""
        go.wait(30)

    async def act_softly() -> None:
        """Acts."""
        await asyncio.sleep(30)

    made = tool(act if threaded else act_softly, name="act", timeout_s=0.05)
    began = time.monotonic()
    result = await made.call({})
    go.set()
    assert time.monotonic() - began < 5
    assert result.failed
    assert result.unknown
    told = "act failed: it took longer than 0.05 s; whether it did what it was asked is not known"
    assert result.text == told
    assert result.seconds >= 0.05


async def test_a_tool_that_raises_a_timeout_of_its_own_was_not_late() -> None:
    @tool(timeout_s=30)
    async def act() -> None:
        """Acts."""
        raise TimeoutError("the shop is slow")

    result = await act.call({})
    assert (result.text, result.unknown) == ("act failed: TimeoutError: the shop is slow", False)


async def test_a_result_that_is_just_in_time_counts() -> None:
    @tool(timeout_s=0.05)
    async def act() -> str:
        """Does not let itself be interrupted."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "done"
        return "never"

    assert (await act.call({})).value == "done"


@catches(
    "cancellation-swallowed",
    "a cancelled call ends as a failed result",
    edited("teola.tools.base:Tool._try", "if task.cancelling():", "if False:"),
)
async def test_a_cancellation_goes_through() -> None:
    began = asyncio.Event()

    @tool
    async def act() -> None:
        """Acts."""
        began.set()
        await asyncio.sleep(30)

    task = asyncio.create_task(act.call({}))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)


async def test_a_cancellation_goes_through_while_a_thread_works() -> None:
    go, began = threading.Event(), threading.Event()

    @tool
    def act() -> None:
        """Acts."""
        began.set()
        go.wait(30)

    task = asyncio.create_task(act.call({}))
    await asyncio.to_thread(began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()


# --- further tries ----------------------------------------------------------------------------

BROKEN = ValueError("broken")
AWAY = EngineUnavailable("away")


@pytest.mark.parametrize(
    ("options", "error", "calls"),
    [
        ({}, BROKEN, 1),
        ({}, AWAY, 3),
        ({"retries": 1}, BROKEN, 2),
        ({"retries": 4}, BROKEN, 5),
        ({"retries": 0}, AWAY, 1),
        ({"retries": 4}, ToolError("no"), 1),
    ],
)
async def test_what_may_be_repeated_is(options: Any, error: Exception, calls: int) -> None:
    for made, flaky in (
        _keyed(Flaky(9, error), **options),
        _pure(Flaky(9, error), **options),
    ):
        result = await made.call({}, ToolContext(key="k-7"))
        assert result.failed
        assert flaky.calls == calls
        assert set(flaky.keys) <= {"k-7", ""}


@catches(
    "effect-repeated",
    "an effect without a key is called again",
    edited("teola.tools.base:Tool._tried", "TRIES if repeatable else 0", "TRIES"),
)
async def test_an_effect_without_a_key_is_not() -> None:
    for error in (BROKEN, AWAY):
        flaky = Flaky(1, error)
        result = await tool(flaky.without_key, name="act").call({})
        assert result.failed
        assert flaky.calls == 1


async def test_a_try_that_succeeds_is_the_result() -> None:
    made, flaky = _pure(Flaky(2, AWAY))
    assert (await made.call({})).value == 3
    assert flaky.calls == 3


async def test_each_try_has_its_time() -> None:
    calls: list[int] = []

    @tool(pure=True, timeout_s=0.05, retries=2)
    async def act() -> int:
        """Acts."""
        calls.append(1)
        if len(calls) < 3:
            await asyncio.sleep(30)
        return len(calls)

    assert (await act.call({})).value == 3


@pytest.mark.parametrize("error", [ToolLost("away"), BROKEN])
async def test_only_what_may_have_happened_is_unknown(error: Exception) -> None:
    lost = isinstance(error, ToolLost)
    assert (await tool(Flaky(9, error).without_key, name="act").call({})).unknown == lost
    for made, _ in (_keyed(Flaky(9, error)), _pure(Flaky(9, error))):
        assert not (await made.call({})).unknown


def _keyed(flaky: Flaky, **options: Any) -> tuple[Any, Flaky]:
    return tool(flaky, name="act", description="Acts.", **options), flaky


def _pure(flaky: Flaky, **options: Any) -> tuple[Any, Flaky]:
    return tool(flaky.without_key, name="act", pure=True, **options), flaky


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between tries."""
    monkeypatch.setattr("teola.tools.base.PAUSE_S", 0.0)


# --- approval ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approval", "needed"),
    [
        (False, False),
        (True, True),
        (lambda given: given["euros"] > 100, True),
        (lambda given: given["euros"] > 1000, False),
        (lambda given: given["dollars"], True),
    ],
)
def test_who_has_to_agree(approval: bool | Callable[..., bool], needed: bool) -> None:
    @tool(approval=approval)
    def pay(euros: int) -> None:
        """Pays."""

    assert pay.needs_approval({"euros": 500}) is needed
