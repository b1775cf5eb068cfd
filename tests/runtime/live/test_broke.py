"""What raises where nobody expects it ends the queries concerned; none outlives its deadline."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import teola
from teola import App, Each, Runtime, component
from teola.policies.batching.fifo import Fifo
from teola.policies.work import Slice, Slots
from teola.query.job import Job
from teola.query.spec import QuerySpec
from teola.schedule.events import State
from teola.testing.hash_engines import HashEmbedder
from tests.recording import Bench
from tests.runtime.live.test_live import embed, inputs


@pytest.mark.parametrize("where", ["tell", "handle", "flush"])
async def test_an_error_of_the_core_ends_the_queries_concerned(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bench({"embedding": HashEmbedder()}) as bench:
        method = getattr(bench.core, where)

        def once(*given: Any) -> Any:
            monkeypatch.setattr(bench.core, where, method)
            if where == "handle":
                method(*given)  # its queue has heard of it, and the run has not
            raise KeyError("lost")

        monkeypatch.setattr(bench.core, where, once)
        ending = await bench.run(embed(), inputs())
        assert ending.state is State.FAILED
        assert repr(ending.error) == "KeyError('lost')"
        await bench.settle()
        bench.assert_idle()
        assert bench.live.outermost == 0
        assert (await bench.run(embed(), inputs())).state is State.OK


@pytest.mark.parametrize("where", ["dispatch", "finished"])
async def test_an_error_of_the_driver_does_so_too(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bench({"embedding": HashEmbedder()}) as bench:

        def broken(*given: Any) -> None:
            raise KeyError("lost")

        with monkeypatch.context() as patch:
            patch.setattr(bench.live, where, broken)
            ending = await bench.run(embed(), inputs())
        assert ending.state is State.FAILED
        assert repr(ending.error) == "KeyError('lost')"
        await bench.settle()
        assert not bench.live.queries
        assert not bench.core.runs


class Odd(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError("odd")


class Answers(HashEmbedder):
    """Gives what no store can take."""

    async def execute(self, requests: Any) -> list[Any]:
        return [Odd(vectors=[]) for _ in requests]


async def test_an_answer_that_cannot_be_read_fails_its_query() -> None:
    async with Bench({"embedding": Answers()}) as bench:
        ending = await bench.run(embed(), inputs())
        assert ending.state is State.FAILED
        assert isinstance(ending.error, ZeroDivisionError)
        await bench.settle()
        bench.assert_idle()


class Raises(Fifo):
    eager = False

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        raise KeyError("oops")


async def test_a_policy_is_named_in_the_log_and_in_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with teola.register("batching", "b", Raises), caplog.at_level(logging.ERROR):
        async with Bench({"embedding": HashEmbedder()}, batching="b") as bench:
            ending = await bench.run(embed(), inputs())
    why = "engine 'embedding': batching policy 'b' failed: KeyError('oops')"
    assert str(ending.error) == why
    assert f"{why}; what was queued there has failed" in caplog.text


async def test_a_query_ends_with_all_its_parts_and_nobody_elses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A part of a part broke; another query, its parts and rows of a table go on."""
    gate = asyncio.Event()

    @component(outputs="noted")
    async def note(topic: str) -> str:
        await gate.wait()
        return topic

    inner = Each(note, over="some", item="topic", gives={"notes": "noted"}, name="inner")
    template = Each(inner, over="groups", item="some", gives={"all": "notes"})
    with Runtime(learn=False) as runtime:
        inputs, outputs = {"groups": "any"}, {"all": "all"}
        app = App("nested", template, inputs=inputs, outputs=outputs, runtime=runtime)
        live, groups = runtime.live, [["a", "b"], ["c"]]

        async def work() -> None:
            jobs = [Job(app, QuerySpec({"groups": groups}), id=id) for id in ("one", "two")]
            tasks = [asyncio.ensure_future(job.run()) for job in jobs]
            while len(live.queries) < 12:
                await asyncio.sleep(0)
            traces = {id: query.trace for id, query in live.queries.items()}
            error = KeyError("lost")
            live.broke(["one/each/item/0/inner/item/1", "nobody"], error, live.loop.time())
            broken = await tasks[0]
            why = "a bug, of Teola or of an extension: KeyError: 'lost'"
            assert (broken.state, str(broken.error)) == ("failed", why)
            assert {id.partition("/")[0] for id in live.queries} == {"two"}
            assert len(live.queries) == 6
            assert {run.partition("/")[0] for run in live.core.runs} == {"two"}
            assert live.outermost == 1
            states = {id: trace.state for id, trace in traces.items()}
            assert {states[id] for id in states if id.startswith("one")} == {"failed"}
            assert {states[id] for id in states if id.startswith("two")} == {"running"}
            gate.set()
            assert (await tasks[1]).outputs == {"all": groups}
            assert not live.queries
            assert live.outermost == 0

        with caplog.at_level(logging.ERROR):
            runtime.start(work()).result(30)
    (record,) = caplog.records
    assert record.getMessage() == "queries end that KeyError may concern"
    assert record.exc_info is not None
    assert repr(record.exc_info[1]) == "KeyError('lost')"
