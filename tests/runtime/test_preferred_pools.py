"""Several providers as one pool: prices of their own, the cheaper first, alike in nothing but the
texts that they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from teola.config import Configuration
from teola.engine import Call, Delta, QueryContext, SequenceHandle, TextPart
from teola.errors import InputError, UnknownName
from teola.graph import QUERY, DecodeParams, Ref, Role, ToolParams
from teola.price import Price
from teola.runtime.engines import EngineConfig, queue_for
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.live import Live
from teola.runtime.python_engine import PythonEngine
from teola.runtime.runtime import Runtime
from teola.schedule.events import InstanceDraining, State
from teola.testing.hash_engines import HashModel
from tests.fake_openai import FakeOpenAI
from tests.planted import catches, edited
from tests.recording import Bench
from tests.runtime.pooled import asking
from tests.runtime.test_likeness import OtherTokens, refused
from tests.schedule.plans import call, plan, tool

CHEAP, DEAR = {"prompt": 1.0, "answer": 2.0}, {"prompt": 10.0, "answer": 20.0}
PREFER = {"prefer": "cheaper", "prefer_s": 0.2}


def pooled(one: FakeOpenAI, two: FakeOpenAI, **more: Any) -> EngineConfig:
    """The dearer one stands first."""
    pool = [
        {"url": one.url, "model": one.model, "api_key": one.api_key, "price": DEAR},
        {"url": two.url, "model": two.model, "api_key": two.api_key, "price": CHEAP},
    ]
    return EngineConfig("openai", {"max_sequences": 2}, pool=pool, routing_options=PREFER, **more)


@catches(
    "price-of-the-other",
    "an instance's own price is not looked at",
    edited("teola.runtime.live.paying:Paying.price", "self.own.get((engine, instance))", "None"),
)
def test_the_cheaper_provider_is_asked_first_and_each_costs_what_it_costs() -> None:
    with (
        FakeOpenAI(model="large", vllm=False, api_key="sk-one") as dear,
        FakeOpenAI(model="small", vllm=False, api_key="sk-two", token_delay_s=0.02) as cheap,
        Runtime({"llm": pooled(dear, cheap)}) as runtime,
    ):
        app = asking(runtime)
        (first,) = app.batch([{"question": "a"}])
        assert (len(cheap.calls), len(dear.calls)) == (1, 0)
        usage = first.usage
        assert usage.cost == pytest.approx(
            Price(1.0, 2.0).cost(usage.prompt_tokens, usage.completion_tokens)
        )
        (span,) = [s for s in first.trace.spans if s.why]
        assert span.why == "instance 1 of 2: none is cheaper"
        app.batch([{"question": f"b{k}"} for k in range(12)])
        assert len(dear.calls) + len(cheap.calls) == 13
        assert len(dear.calls) >= 4, "of six rounds those that would wait go to the other"
        assert {seen.body["model"] for seen in dear.calls} == {"large"}


def test_a_pool_of_prices_is_told_before_anything_starts() -> None:
    def told(**more: Any) -> str:
        given: dict[str, Any] = {"pool": [{"url": "http://a", "model": "a"}, {"url": "http://b"}]}
        with pytest.raises(InputError) as error:
            Runtime({"llm": EngineConfig("openai", **{**given, **more})}, prices={"a": Price(1.0)})
        return str(error.value)

    assert "price of each instance, and that of entry 1" in told(routing_options=PREFER)
    assert "(valid: cheaper)" in told(routing_options={"prefer": "cheap"})
    assert "from 0 on" in told(routing_options={"prefer": "cheaper", "prefer_s": -1})
    assert "says nothing without prefer" in told(routing_options={"prefer_s": 1.0})
    bad = [{"url": "http://a", "price": 3}, {"url": "http://b"}]
    assert "entry 0 of its pool: price is money" in told(pool=bad)
    bad = [{"url": "http://a", "price": {**CHEAP, "answer": -1}}, {"url": "http://b"}]
    assert "entry 0 of its pool: a price is a number from 0" in told(pool=bad)
    table = {"type": "openai", "pool": [{"url": "http://a"}], "routing_options": PREFER}
    with pytest.raises(InputError, match="entry 0 is not known"):
        Configuration.model_validate({"engines": {"llm": table}}).check()


def test_a_policy_that_binds_calls_prefers_nothing() -> None:
    priced = [{"url": "http://a", "price": CHEAP}, {"url": "http://b", "price": DEAR}]
    config = EngineConfig("openai", pool=priced, routing="graph_aware", routing_options=PREFER)
    with pytest.raises(InputError, match="'graph_aware' chooses an instance by itself"):
        queue_for("llm", [config.make("llm")] * 2, config)
    with pytest.raises(UnknownName, match="cheaper"):
        EngineConfig("openai", pool=priced, routing_options={"prefer": "x"}).check_prices("e", {})


# --- alike = "text" ---------------------------------------------------------------------------


def test_models_that_differ_are_one_pool_only_if_that_is_said() -> None:
    with (
        FakeOpenAI("one", model="a", tokenizes=True) as one,
        OtherTokens("two", model="b", tokenizes=True) as two,
    ):
        pool = [{"url": one.url}, {"url": two.url}]
        options = {"max_sequences": 1}
        assert 'declared so, by alike = "text"' in refused(EngineConfig("vllm", options, pool=pool))
        config = EngineConfig("vllm", options, pool=pool, alike="text", routing="prefix_affinity")
        with Runtime({"llm": config}) as runtime:
            found = asking(runtime).batch([{"question": f"{k}?"} for k in range(6)])
            assert {result.answer for result in found} == {"one", "two"}
            queue = runtime.live.core.queues["llm"]
            assert {one.limits.block_tokens for one in queue.instances} == {16}


def test_only_language_models_are_alike_by_text() -> None:
    pool = [{"url": "http://a"}, {"url": "http://b"}]
    with pytest.raises(InputError, match='alike = "text" is for language models'):
        EngineConfig("openai-embedding", {"model": "m"}, pool=pool, alike="text").placed("e", False)
    with pytest.raises(UnknownName, match="tokens"):
        EngineConfig("openai", pool=pool, alike="texts")


class Ids(HashModel):
    """Keeps token ids, notes those that it is given, and drains once it has computed a prefix."""

    def __init__(self, given: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.given = given
        self.live: Live | None = None

    async def prefill(self, call: Call) -> SequenceHandle:
        assert self.live is not None
        self.live.post(InstanceDraining("llm", 0))
        return SequenceHandle("llm", 0, call.all_parts, token_ids=(1, 2, 3))

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        assert call.prefix is not None
        self.given.append(call.prefix.token_ids)
        async with aclosing(super().generate(call)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield delta


async def rest(x0: str) -> str:
    """What a call reads later."""
    await asyncio.sleep(0.05)
    return "because"


@catches(
    "ids-of-another",
    "an instance is given token ids of one that is alike in texts only",
    edited("teola.runtime.live.call:call_of", "() if by_text else", "() if False else"),
)
async def test_token_ids_of_another_model_are_not_passed_on() -> None:
    assert await ids_elsewhere(by_text=True) == [()]
    assert await ids_elsewhere(by_text=False) == [(1, 2, 3)]


async def ids_elsewhere(*, by_text: bool) -> list[tuple[int, ...]]:
    """Those that instance 1 is given with a prefix that instance 0 has computed."""
    given: list[tuple[int, ...]] = []
    engines = [Ids(given), Ids(given)]
    late = tool("t", Ref(QUERY, "question"))
    late = replace(late, params=ToolParams(rest))
    two = plan(late, *call("m", ahead=True, late="t"))
    async with Bench({"llm": engines, "python": PythonEngine()}) as bench:
        for i, engine in enumerate(engines):
            engine.live = bench.live
            bench.live.hosts["llm", i].by_text = by_text
        ending = await bench.run(two, {"question": "why is it so?"})
    assert ending.state is State.OK
    return given


def test_prompts_are_known_by_text_and_tenant() -> None:
    def keys(host: LocalHost, tenant: str) -> tuple[Any, ...]:
        part = TextPart(Role.QUESTION, "Say why. " * 40)
        asked = Call(QueryContext("q", tenant, 0.0), (part,), DecodeParams())
        assert host.keys is not None
        return host.keys.keys(asked).blocks

    one, two = (LocalHost(HashModel(block_tokens=size), 0, by_text=True) for size in (4, 64))
    assert len(keys(one, "a")) == 5
    assert keys(one, "a") == keys(two, "a")
    assert not set(keys(one, "a")) & set(keys(one, "b"))
