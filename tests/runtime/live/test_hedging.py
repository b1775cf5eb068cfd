"""A call that runs on two instances at once: the first token wins, and nothing is mixed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from teola.engine import Call, Delta
from teola.errors import EngineError, InputError
from teola.runtime.engines import EngineConfig
from teola.runtime.live.call import LiveCall
from teola.schedule.events import State
from teola.schedule.hedging import Hedging
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited
from tests.recording import Bench
from tests.schedule.plans import Ref, call, plan

HEAD, DECODING = call("m")
TEXT = {"answer": Ref("m", "text")}
PLAN = plan(HEAD, replace(DECODING, outputs=("text",)), outputs=TEXT)


class Waits(HashModel):
    """Writes its own letter, ten times, once it is let go; `fails` then."""

    def __init__(self, letter: str, *, fails: bool = False) -> None:
        super().__init__()
        self.letter, self.fails = letter, fails
        self.goes, self.asked, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.asked.set()
        try:
            await self.goes.wait()
            if self.fails:
                raise EngineError("it broke", retryable=True)
            for _ in range(10):
                yield Delta(self.letter)
                await asyncio.sleep(0)
        finally:
            self.over.set()


class Twice(Bench):
    """Two instances, each call of which runs a second time after 10 ms."""

    def __init__(self, *engines: Waits) -> None:
        super().__init__({"llm": engines})
        self.two = engines

    async def __aenter__(self) -> Twice:
        await super().__aenter__()
        queue = self.live.core.queues["llm"]
        queue.hedging = Hedging(1.0)
        assert queue.overdue is not None
        queue.overdue.longer = lambda part, enough=0: 1.0  # type: ignore[method-assign]
        queue.expected_s = lambda *_: 0.01  # type: ignore[method-assign]
        return self

    def asks(self) -> asyncio.Task[tuple[State, object]]:
        async def ask() -> tuple[State, object]:
            ending = await self.run(PLAN, {"question": "why is it so?"}, id="q")
            await self.settle()
            self.assert_idle()
            assert not self.live._called
            return ending.state, ending.outputs.get("answer")

        return asyncio.ensure_future(ask())

    async def both(self) -> None:
        """Until the call is on both."""
        async with asyncio.timeout(5):
            for engine in self.two:
                await engine.asked.wait()


@pytest.mark.parametrize("first", [0, 1])
async def test_the_first_token_wins_and_the_other_call_is_ended(first: int) -> None:
    async with Twice(Waits("a"), Waits("b")) as bench:
        asked = bench.asks()
        await bench.both()
        trace = bench.live.queries["q"].trace
        bench.two[first].goes.set()
        assert await asked == (State.OK, "ab"[first] * 10)
        assert bench.two[1 - first].over.is_set()
        told = {(s.primitive, s.instance): s.state for s in trace.spans}
        assert told["m.prefill", first] == told["m", first] == "done"
        assert told["m.prefill", 1 - first] == "cancelled"


@catches(
    "two-answers-mixed",
    "what comes of the slower of two calls is passed on, too",
    edited(LiveCall._first, "if self.lost:", "if False:"),
)
async def test_tokens_that_come_at_the_same_moment_are_not_mixed() -> None:
    async with Twice(Waits("a"), Waits("b")) as bench:
        asked = bench.asks()
        await bench.both()
        trace = bench.live.queries["q"].trace
        for engine in bench.two:
            engine.goes.set()
        state, answer = await asked
        lost = [span for span in trace.spans if span.state == "cancelled"]
        assert state is State.OK
        assert answer in ("a" * 10, "b" * 10)
        assert [span.primitive for span in lost] == ["m.prefill"]
        delivered = [span for span in trace.spans if span.state == "done"]
        assert [span.primitive for span in delivered] == ["m.prefill", "m"]


@pytest.mark.parametrize("bad", [0, 1])
async def test_the_one_that_fails_leaves_the_other_its_answer(bad: int) -> None:
    engines = [Waits("a", fails=bad == 0), Waits("b", fails=bad == 1)]
    async with Twice(*engines) as bench:
        asked = bench.asks()
        await bench.both()
        engines[bad].goes.set()
        await engines[bad].over.wait()
        engines[1 - bad].goes.set()
        assert await asked == (State.OK, "ab"[1 - bad] * 10)
        assert bench.live.core.queues["llm"].retries == 0


async def test_a_query_that_is_cancelled_ends_both() -> None:
    async with Twice(Waits("a"), Waits("b")) as bench:
        asked = bench.start(PLAN, {"question": "why is it so?"}, deadline_s=0.2)
        await bench.both()
        assert (await asked).state is State.DEADLINE
        await bench.settle()
        assert all(engine.over.is_set() for engine in bench.two)
        bench.assert_idle()


def test_the_option_wants_another_instance_and_a_language_model() -> None:
    with pytest.raises(InputError, match="hedge needs another instance"):
        EngineConfig("openai", {"url": "http://a"}, hedge=0.05)
    with pytest.raises(InputError, match="above 0 and at most 1, got 5"):
        EngineConfig("openai", {"url": "http://a"}, instances=2, hedge=5)
    with pytest.raises(InputError, match="hedge is for calls of language models"):
        EngineConfig("embedding", instances=2, hedge=0.05).placed("embedding", False)
