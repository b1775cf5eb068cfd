"""Prompts are measured by the engine that will compute them, together and off the loop."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from teola.engine import Call, Delta, Keys, PrefixChange, SequenceHandle
from teola.policies.work import Size
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.call import call_of
from teola.runtime.live.live import Live
from teola.runtime.live.sizing import Sizing
from teola.schedule.events import CallEnded, Completed, Dispatch, Sized, State
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited
from tests.recording import Bench
from tests.runtime.live.test_call import live_query
from tests.schedule.plans import call, plan


class Keyed(HashModel):
    """A token a word, and a block two tokens."""

    block_tokens = 2

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.threads: list[int] = []

    def keys(self, call: Call) -> Keys:
        self.threads.append(threading.get_ident())
        words = " ".join(part.text for part in call.all_parts).split()
        ends = range(2, len(words) + 1, 2)
        return Keys(len(words), tuple(" ".join(words[:end]) for end in ends))


class Broken(Keyed):
    def keys(self, call: Call) -> Keys:
        raise ValueError("no tokenizer")


class Telling(Keyed):
    """Tells of two blocks, and then nothing more."""

    async def prefix_changes(self) -> Any:
        yield PrefixChange(("a", "a b"))
        yield PrefixChange((), ("a b",))
        await asyncio.sleep(60)


class Caching(HashModel):
    """Finds 16 tokens of each prompt in its cache. priorities: of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.priorities: list[int] = []
        self.categories: list[tuple[str, str]] = []

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.priorities.append(call.priority)
        self.categories.append(call.category)
        async for delta in super().generate(call):
            if delta.usage is not None:
                delta = replace(delta, usage=replace(delta.usage, cached_tokens=16))
            yield delta


async def ask(bench: Bench, count: int = 1) -> list[Any]:
    p = plan(*call("m"))
    return await asyncio.gather(
        *(bench.run(p, {"question": "why is it so?"}) for _ in range(count))
    )


def dispatches(bench: Bench) -> list[Dispatch]:
    return [c for c in bench.core.log.story if isinstance(c, Dispatch)]


async def test_what_is_ready_together_is_measured_together_and_shares_a_batch() -> None:
    model = Keyed()
    async with Bench({"llm": model}, routing="prefix_affinity") as bench:
        endings = await ask(bench, 3)
    assert [e.state for e in endings] == [State.OK] * 3
    (batch,) = dispatches(bench)
    assert len(batch.slices) == 3
    assert threading.get_ident() not in model.threads


async def test_a_work_has_the_tokens_and_keys_that_its_engine_counts() -> None:
    async with Bench({"llm": Keyed()}, routing="prefix_affinity") as bench:
        await ask(bench)
    ((one,),) = (d.slices for d in dispatches(bench))
    prompt = bench.engines["llm"][0].prompts[0]
    words = prompt.split()
    assert one.work.total == len(words)
    keys = tuple(" ".join(words[:end]) for end in range(2, len(words) + 1, 2))
    assert one.work.keys == keys


async def test_an_engine_that_cannot_measure_leaves_an_estimate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Four characters a token; the log says it to who asks for all."""
    with caplog.at_level(logging.DEBUG, "teola.runtime.live.sizing"):
        async with Bench({"llm": Broken()}, routing="prefix_affinity") as bench:
            (ending,) = await ask(bench)
    assert ending.state is State.OK
    ((one,),) = (d.slices for d in dispatches(bench))
    assert (one.work.total, one.work.keys) == (4, ())
    (said,) = [record for record in caplog.records if record.name.endswith("sizing")]
    assert (said.levelname, said.event) == ("DEBUG", "unmeasured")  # type: ignore[attr-defined]
    assert said.getMessage() == "engine llm cannot measure a prompt: ValueError"
    told = {"engine": "llm", "error_type": "ValueError"}
    assert said.fields == told  # type: ignore[attr-defined]


async def test_the_index_of_prefixes_knows_what_an_engine_tells() -> None:
    async with Bench({"llm": Telling()}, routing="prefix_affinity") as bench:
        await ask(bench)
        await asyncio.sleep(0)
        view = bench.core.queues["llm"].placing.routing.view
        assert view.hits(("a", "a b"), 0.0) == {0: 1}
        await bench.live.stop()


@catches(
    "usage-lost",
    "the core does not learn what a server had in its cache",
    edited(Live._call, "generated.cached, generated.generated", "None"),
)
async def test_what_a_server_had_in_its_cache_reaches_the_core() -> None:
    async with Bench({"llm": Caching()}) as bench:
        await ask(bench)
    ended = [given for what, given, *_ in bench.core.log.calls if isinstance(given, CallEnded)]
    assert [one.cached for one in ended] == [16]


@catches(
    "priority-by-depth",
    "servers are told how deep a call is, whatever the policy goes by",
    edited(call_of, "prefix, priority, category", "prefix, query.plan.depth[i], category"),
)
async def test_servers_are_told_the_policy_s_priority() -> None:
    model = Caching()
    async with Bench({"llm": model}, batching="fifo") as bench:
        await ask(bench)
        await ask(bench)
    assert model.priorities == [-1, -2]  # the earlier is the more urgent


async def test_engines_are_told_the_app_and_component_of_a_call() -> None:
    model = Caching()
    async with Bench({"llm": model}) as bench:
        await ask(bench)
    assert model.categories == [("bench", "m")]


# --- by itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("by_keys", [True, False])
@pytest.mark.parametrize(
    ("has_keys", "tokenizer", "lane", "takes"),
    [
        (True, "own", None, "always"),
        (True, "other", None, "by keys"),
        (True, "none", None, "by keys"),
        (False, "own", None, "never"),
        (True, "own", "lane", "never"),
    ],
)
async def test_prompts_are_measured_where_that_is_wanted_or_costs_little(
    has_keys: bool, tokenizer: str, lane: Any, takes: str, by_keys: bool
) -> None:
    """Not those of another engine's lane, nor of one that is not there."""
    engine = Keyed()
    host = LocalHost(engine, 0)
    host.keys = engine if has_keys else None  # type: ignore[assignment]
    host.tokenizer = {"own": engine, "other": Keyed(), "none": None}[tokenizer]  # type: ignore[assignment]
    sizing = Sizing(asyncio.get_running_loop(), {("llm", 0): host}, print, print)
    spec = replace(plan(*call("m")).specs[0], lane=lane)
    expected = takes == "always" or (takes == "by keys" and by_keys)
    assert sizing.takes(spec, by_keys) is expected
    assert not sizing.takes(replace(spec, engine="away"), by_keys)


class Counts(Keyed):
    """Has these sizes, one after the other. None: it fails."""

    def __init__(self, *sizes: int | None) -> None:
        super().__init__()
        self.sizes = [*sizes]

    def keys(self, call: Call) -> Keys:
        self.threads.append(threading.get_ident())
        size = self.sizes.pop(0)
        if size is None:
            raise ValueError("no tokenizer")
        return Keys(size, (f"block {size}",))


async def test_what_comes_in_one_turn_is_measured_together_and_the_rest_of_a_prompt_alone() -> None:
    """Less what stands before it, as it was counted; at least one token is left."""
    engine, said = Counts(9, 30, 30, None, 12), list[Any]()
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake() -> None:
        said.append("wake")
        woken.set()

    sizing = Sizing(loop, {("llm", 0): LocalHost(engine, 0)}, said.append, wake)
    plain, _ = live_query(plan(*call("m")))
    pieces = [live_query(plan(*call("m", ahead=True)))[0] for _ in range(3)]
    for query, before in zip(pieces, (12, 30, 12), strict=True):
        query.store.put(0, {"sequence": SequenceHandle("llm", 0, ())})
        query.run.handle(Completed(0, {"sequence": 1}), 0.0)
        query.tokens[0] = before
    sizing.measure(plain, 0)
    for query in pieces:
        sizing.measure(query, 1)
    assert (said, engine.threads) == ([], []), "in the next turn, and in a thread"
    await asyncio.wait_for(woken.wait(), 60)
    sizes = [Size(9, ("block 9",)), Size(18, ("block 30",)), Size(1, ("block 30",))]
    estimated = Size(pieces[2].prompt_tokens(1))
    assert said == [
        Sized("llm", "q", 0, sizes[0]),
        *(Sized("llm", "q", 1, size) for size in (*sizes[1:], estimated)),
        "wake",
    ]
    assert [query.tokens.get(1) for query in pieces] == [30, 30, None]
    assert plain.tokens == {0: 9}
    assert len({*engine.threads}) == 1
    assert threading.get_ident() not in engine.threads
    woken.clear()
    said.clear()
    sizing.measure(plain, 0)
    await asyncio.wait_for(woken.wait(), 60)
    assert said == [Sized("llm", "q", 0, Size(12, ("block 12",))), "wake"]
