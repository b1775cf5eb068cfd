"""The live driver when engines fail, hang, babble, or are no longer wanted.

Long because every way to fail has its case here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from teola import Condition, Embedding, Generate, QueryExpansion, Rerank, component
from teola.engine import Delta, Engine, Request
from teola.errors import EngineError, OutputError
from teola.passes import optimise
from teola.profile import default
from teola.runtime.live.query import Ending, Progress, Token, component_failure
from teola.runtime.python_engine import PythonEngine
from teola.schedule.events import State
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashEmbedder, HashModel, vector
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from tests.recording import Bench, check
from tests.runtime.faults import Flaky, Scripted

Engines = dict[str, Engine | list[Engine]]
BUSY = EngineError("busy", retryable=True)


def plan(template: Any, output: str, passes: list[str] | None = None, notes: int = 4) -> Plan:
    kinds = {"question": Kind.TEXT, "notes": Kind.TEXTS, "found": Kind.HITS}
    builder = Builder("test", template, kinds, {"answer": output})
    graph = builder.build(builder.configure({}), {"notes": notes})
    specs = [HashEmbedder().spec, HashModel().spec, PythonEngine().spec]
    return Plan(optimise(graph, default(specs), passes, debug=True).e_graph)


def embed() -> Plan:
    return plan(Embedding(inputs={"texts": "notes"}), "vectors")


def inputs(*notes: str) -> dict[str, Any]:
    return {"question": "why?", "notes": list(notes) or ["a", "b", "c", "d"]}


def said(ending: Ending) -> str:
    assert ending.error is not None
    assert ending.failed is not None
    return str(component_failure(ending.error, ending.failed))


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("batchable", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_list_that_must_not_be_cut_is_done_whole(count: int, batchable: bool) -> None:
    template = Embedding(inputs={"texts": "notes"}, batchable=batchable)
    async with Bench({"embedding": HashEmbedder()}) as bench:
        ending = await bench.run(plan(template, "vectors"), inputs(*"abc"[:count]))
    assert ending.state is State.OK, ending.error
    assert len(ending.outputs["answer"]) == count


async def test_a_pure_primitive_is_tried_three_times() -> None:
    flaky = Flaky(HashEmbedder(), failing={1, 2})
    async with Bench({"embedding": flaky}) as bench:
        ending = await bench.run(embed(), inputs())
        assert ending.state is State.OK
        assert ending.outputs["answer"] == [vector(note) for note in "abcd"]
        assert flaky.calls == 3
        assert {request.key for request in flaky.requests} == {"q0/embed.embed/0"}
        await bench.settle()
        bench.assert_idle()


async def test_then_the_query_fails_and_names_the_component() -> None:
    flaky = Flaky(HashEmbedder(), failing=range(1, 99))
    async with Bench({"embedding": flaky}) as bench:
        ending = await bench.run(embed(), inputs())
        assert ending.state is State.FAILED
        assert said(ending) == "component 'embed', embedding: out of memory"
        assert flaky.calls == 3
        await bench.settle()
        bench.assert_idle()


async def test_another_instance_is_tried_first() -> None:
    broken = Flaky(HashEmbedder(), failing=range(1, 99))
    works = Flaky(HashEmbedder())
    async with Bench({"embedding": [broken, works]}) as bench:
        for _ in range(3):
            assert (await bench.run(embed(), inputs())).state is State.OK
        assert works.calls == 3


async def test_an_error_that_is_not_retryable_fails_at_once() -> None:
    flaky = Flaky(HashEmbedder(), failing={1}, error=lambda: EngineError("wrong model"))
    async with Bench({"embedding": flaky}) as bench:
        ending = await bench.run(embed(), inputs())
        assert said(ending) == "component 'embed', embedding: wrong model"
        assert flaky.calls == 1


async def test_a_poisoned_request_fails_alone() -> None:
    def poisoned(request: Request) -> bool:
        return "poison" in request.inputs["texts"]

    gate = asyncio.Event()
    wrong = EngineError("no such word")
    flaky = Flaky(HashEmbedder(max_batch=9), poisoned=poisoned, error=lambda: wrong, gate=gate)
    async with Bench({"embedding": flaky}) as bench:
        notes = ["a", "poison", "c"]
        tasks = [bench.start(embed(), inputs(note)) for note in notes]
        await asyncio.sleep(0)
        gate.set()
        states = [ending.state for ending in await asyncio.gather(*tasks)]
        assert states == [State.OK, State.FAILED, State.OK]
        await bench.settle()
        bench.assert_idle()


async def test_an_exception_in_a_batch_of_several_lets_the_innocent_try_again() -> None:
    def fail() -> Exception:
        return ValueError("one of them is wrong")

    gate = asyncio.Event()
    flaky = Flaky(HashEmbedder(max_batch=9), failing={2}, error=fail, gate=gate)
    async with Bench({"embedding": flaky}) as bench:
        first = bench.start(embed(), inputs("x"))
        await asyncio.sleep(0)
        tasks = [bench.start(embed(), inputs(note)) for note in "ab"]
        await asyncio.sleep(0)
        gate.set()
        assert [e.state for e in await asyncio.gather(first, *tasks)] == [State.OK] * 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "gave NoneType, not vectors"),
        ({}, "gave nothing, not vectors"),
        ({"vector": []}, "gave vector, not vectors"),
        ({"vectors": [[1.0]]}, "gave 1 for 4 items of 'vectors', not a list with one for each"),
        (
            {"vectors": None},
            "gave NoneType for 4 items of 'vectors', not a list with one for each",
        ),
        (
            {"vectors": [[1.0], [1.0], "red", [1.0]]},
            "gave 'red' as vectors[2], not a vector (a list of numbers) for each text",
        ),
    ],
)
async def test_garbage_fails_the_query_and_nothing_else(answer: Any, message: str) -> None:
    class Garbage(HashEmbedder):
        async def execute(self, requests: Any) -> Any:
            return [answer for _ in requests]

    async with Bench({"embedding": Garbage()}) as bench:
        ending = await bench.run(embed(), inputs(), deadline_s=5)
        assert said(ending) == f"component 'embed', embedding: engine 'embedding' {message}"
        await bench.settle()
        bench.assert_idle()


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([], "gave 0 results for 1 requests, not one for each"),
        ([{"vectors": [[1.0]]}] * 2, "gave 2 results for 1 requests, not one for each"),
        (None, "gave NoneType for 1 requests, not a list with a result for each"),
    ],
)
async def test_too_few_results_fail_the_query(results: Any, message: str) -> None:
    class Silent(HashEmbedder):
        async def execute(self, requests: Any) -> Any:
            return results

    async with Bench({"embedding": Silent()}) as bench:
        ending = await bench.run(embed(), inputs(), deadline_s=5)
        assert said(ending) == f"component 'embed', embedding: engine 'embedding' {message}"
        await bench.settle()
        bench.assert_idle()


async def test_scores_that_are_no_numbers_fail_the_query() -> None:
    """They are told where they come in, not by the Aggregate that cannot sort by them."""

    class NoScores(HashEmbedder):
        async def execute(self, requests: Any) -> Any:
            return [{"scores": ["good"] * len(r.inputs["hits"])} for r in requests]

    p = plan(Rerank(engine="embedding", inputs={"hits": "found"}) >> Generate(), "answer")
    async with Bench({"embedding": NoScores(), "llm": HashModel()}) as bench:
        ending = await bench.run(p, {**inputs(), "found": ["x"]}, deadline_s=5)
        told = "component 'rerank', reranking: engine 'embedding' gave 'good' as scores[0], not a "
        assert said(ending) == f"{told}score (a number) for each hit"
        bench.assert_idle()


# --- cancelling -----------------------------------------------------------------------------


async def until(condition: Any) -> None:
    """Let the loop turn until `condition` holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


async def test_cancelling_stops_a_batch_of_one() -> None:
    flaky = Flaky(HashEmbedder(), gate=asyncio.Event())
    async with Bench({"embedding": flaky}) as bench:
        task = bench.start(embed(), inputs())
        await until(lambda: flaky.running)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bench.settle()
        assert flaky.running == 0
        bench.assert_idle()


async def test_cancelling_one_of_a_batch_detaches_it() -> None:
    gate = asyncio.Event()
    flaky = Flaky(HashEmbedder(max_batch=9), gate=gate)
    async with Bench({"embedding": flaky}) as bench:
        tasks = [bench.start(embed(), inputs(note)) for note in "ab"]
        await until(lambda: flaky.running)
        lives = [query.context.life for query in bench.live.queries.values()]
        tasks[0].cancel()
        await asyncio.sleep(0)
        assert flaky.running == 1, "the other one is still wanted"
        assert [life.over for life in lives] == [True, False]
        gate.set()
        assert (await tasks[1]).state is State.OK
        await bench.settle()
        bench.assert_idle()


async def test_cancelling_aborts_llm_calls() -> None:
    model = Scripted(["one", asyncio.Event()])
    async with Bench({"llm": model}) as bench:
        tasks = [bench.start(plan(Generate(), "answer"), inputs()) for _ in range(2)]
        await until(lambda: model.generating == 2)
        tasks[0].cancel()
        await until(lambda: model.generating == 1)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await bench.settle()
        assert model.generating == 0
        bench.assert_idle()


@pytest.mark.parametrize("turns", range(8))
async def test_cancelling_at_any_moment_leaves_nothing(turns: int) -> None:
    template = QueryExpansion() >> Embedding(inputs={"texts": "queries"})
    engines: Engines = {"llm": [HashModel(), HashModel()], "embedding": HashEmbedder()}
    async with Bench(engines) as bench:
        task = bench.start(plan(template, "vectors"), inputs())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bench.settle()
        bench.assert_idle()


async def test_the_deadline_ends_a_query() -> None:
    model = Scripted([asyncio.Event()])
    async with Bench({"llm": model}) as bench:
        ending = await bench.run(plan(Generate(), "answer"), inputs(), deadline_s=0.05)
        assert ending.state is State.DEADLINE
        await bench.settle()
        assert model.generating == 0
        bench.assert_idle()


async def test_expired_work_is_never_sent() -> None:
    flaky = Flaky(HashEmbedder(), gate=asyncio.Event())
    async with Bench({"embedding": flaky}) as bench:
        first = bench.start(embed(), inputs())
        await until(lambda: flaky.running)
        assert (await bench.run(embed(), inputs(), deadline_s=0.01)).state is State.DEADLINE
        flaky.gate.set()  # type: ignore[union-attr]
        assert (await first).state is State.OK
        await bench.settle()
        assert flaky.calls == 1


# --- LLM calls ------------------------------------------------------------------------------


async def test_tokens_arrive_in_order_and_make_the_answer() -> None:
    heard: list[Token | Progress] = []
    model = Scripted(["The ", "answer ", "is ", "42."])
    async with Bench({"llm": model}) as bench:
        ending = await bench.run(plan(Generate(), "answer"), inputs(), watcher=heard.append)
    texts = [event.text for event in heard if isinstance(event, Token)]
    assert texts == ["The ", "answer ", "is ", "42."]
    assert "".join(texts) == ending.outputs["answer"]
    states = [e.state for e in heard if isinstance(e, Progress) and e.op != "partial_prefilling"]
    assert states == ["started", "writing", "finished"]


async def test_only_the_final_answer_streams() -> None:
    heard: list[Token | Progress] = []
    template = Generate("draft", outputs={"answer": "draft"}) >> Generate(
        inputs={"context": "draft"}
    )
    model = Scripted(["draft"], ["final"])
    async with Bench({"llm": model}) as bench:
        await bench.run(plan(template, "answer", []), inputs(), watcher=heard.append)
    assert [event.text for event in heard if isinstance(event, Token)] == ["final"]


@pytest.mark.parametrize("passes", [[], None])
async def test_a_call_that_breaks_before_its_first_token_is_repeated_elsewhere(passes: Any) -> None:
    broken, works = Scripted([BUSY]), Scripted(["fine"])
    async with Bench({"llm": [broken, works]}) as bench:
        ending = await bench.run(plan(Generate(), "answer", passes), inputs())
        assert ending.outputs["answer"] == "fine"
        await bench.settle()
        bench.assert_idle()


@pytest.mark.parametrize("passes", [[], None])
async def test_a_repeated_call_gets_its_whole_prompt_again(passes: Any) -> None:
    model = Scripted(["half a se", BUSY], ["a sentence"])
    template = component(lambda: "the context", outputs="context", name="f") >> Generate()
    async with Bench({"llm": model, "python": PythonEngine()}) as bench:
        ending = await bench.run(plan(template, "answer", passes), inputs(), deadline_s=5)
        assert ending.outputs["answer"] == "a sentence"
        first, second = ("".join(p.text for p in call.all_parts) for call in model.calls)
        assert first == second
        assert "the context" in second
        assert bench.left == []


async def test_a_call_that_breaks_after_a_token_has_left_is_not_repeated() -> None:
    heard: list[Token | Progress] = []
    model = Scripted(["half a se", BUSY], ["a sentence"])
    async with Bench({"llm": model}) as bench:
        p = plan(Generate(), "answer")
        ending = await bench.run(p, inputs(), watcher=heard.append, deadline_s=5)
        assert said(ending) == "component 'generate', decoding: busy"
        assert len(model.calls) == 1
        await bench.settle()
        bench.assert_idle()


async def test_items_go_on_while_the_model_still_writes() -> None:
    embedder, hold = HashEmbedder(), asyncio.Event()
    model = Scripted(["one\ntw", hold, "o\nthree"])
    template = QueryExpansion(n=3) >> Embedding(inputs={"texts": "queries"})
    async with Bench({"llm": model, "embedding": embedder}) as bench:
        task = bench.start(plan(template, "vectors"), inputs())
        await until(lambda: embedder.batches == [1])
        hold.set()
        assert (await task).outputs["answer"] == [vector(t) for t in ("one", "two", "three")]


@pytest.mark.parametrize("passes", [[], None])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one\ntwo\nthree\nfour\nfive", ["one", "two", "three"]),
        ("one\ntwo", ["one", "two"]),
        ("one", ["one"]),
        ("", None),
    ],
)
async def test_fewer_or_more_items_than_asked(passes: Any, text: str, kept: Any) -> None:
    template = QueryExpansion(n=3) >> Embedding(inputs={"texts": "queries"})
    engines: Engines = {"llm": Scripted([text]), "embedding": HashEmbedder()}
    async with Bench(engines) as bench:
        ending = await bench.run(plan(template, "vectors", passes), inputs(), deadline_s=5)
        assert ending.state is State.OK
        assert ending.outputs["answer"] == (kept and [vector(t) for t in kept])
        await bench.settle()
        check(bench.core.log)
        bench.assert_idle()


@pytest.mark.parametrize("passes", [[], None])
async def test_output_in_another_form_fails_the_query(passes: Any) -> None:
    template = QueryExpansion(n=3, parser="json_list") >> Embedding(inputs={"texts": "queries"})
    engines: Engines = {"llm": Scripted(["I would rather not"]), "embedding": HashEmbedder()}
    async with Bench(engines) as bench:
        ending = await bench.run(plan(template, "vectors", passes), inputs(), deadline_s=5)
        assert isinstance(ending.error, OutputError)
        assert said(ending).startswith("component 'expand', ")
        await bench.settle()
        bench.assert_idle()


async def test_an_answer_that_does_not_fit_its_schema_fails_the_query() -> None:
    schema = {"type": "object", "required": ["year"]}
    model = Scripted(['{"yea', 'r": 1}'], ['{"month": 1}'])
    async with Bench({"llm": model}) as bench:
        p = plan(Generate(json_schema=schema), "answer")
        assert (await bench.run(p, inputs(), deadline_s=30)).outputs["answer"] == {"year": 1}
        ending = await bench.run(p, inputs(), deadline_s=30)
        assert isinstance(ending.error, OutputError)
        await bench.settle()
        bench.assert_idle()


async def test_a_stream_without_a_token_is_tried_again() -> None:
    class Mute(HashModel):
        calls = 0

        async def generate(self, call: Any) -> Any:
            self.calls += 1
            if call is None:
                yield Delta("never")

    model = Mute()
    async with Bench({"llm": model}) as bench:
        ending = await bench.run(plan(Generate(), "answer"), inputs(), deadline_s=5)
        assert isinstance(ending.error, OutputError)
        assert model.calls == 3


# --- functions ------------------------------------------------------------------------------


async def test_an_exception_in_a_function_is_named() -> None:
    def divide(question: str) -> float:
        return len(question) / 0

    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(plan(component(divide), "divide"), inputs())
        expected = "component 'divide', tool_call: ZeroDivisionError: division by zero"
        assert said(ending) == expected


async def test_an_exception_in_a_test_is_named() -> None:
    async def say() -> str:
        return "x"

    template = Condition(
        lambda question: question.missing,
        reads=["question"],
        then=component(say, outputs="said"),
        name="choose",
    )
    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(plan(template, "said"), inputs())
        assert said(ending).startswith("component 'choose', condition: its test raised Attribute")


async def test_an_impure_function_is_called_once() -> None:
    calls = []

    async def send(question: str) -> None:
        calls.append(question)
        raise EngineError("the line broke", retryable=True)

    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(plan(component(send, effect=True), "send"), inputs())
        assert ending.state is State.FAILED
        assert calls == ["why?"]


async def test_a_pure_function_is_called_again() -> None:
    calls = []

    async def read(question: str) -> str:
        calls.append(question)
        if len(calls) < 3:
            raise EngineError("the line broke", retryable=True)
        return "read"

    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(plan(component(read, pure=True), "read"), inputs())
        assert ending.outputs["answer"] == "read"
        assert len(calls) == 3


async def test_an_optional_component_may_fail() -> None:
    async def lookup(question: str) -> str:
        raise ValueError("no network")

    template = component(lookup, optional=True) >> Generate(
        inputs={"context": "lookup"}, context_required=False
    )
    async with Bench({"python": PythonEngine(), "llm": HashModel()}) as bench:
        ending = await bench.run(plan(template, "answer"), inputs(), deadline_s=5)
        assert ending.state is State.PARTIAL
        assert ending.missing == ("lookup",)
        assert ending.outputs["answer"].startswith("answer ")
        assert bench.left == []
        await bench.settle()
        bench.assert_idle()


async def test_an_optional_call_may_fail_while_it_streams() -> None:
    template = QueryExpansion(n=3, optional=True) >> Embedding(inputs={"texts": "queries"})
    engines: Engines = {
        "llm": Scripted(["one\ntwo\n", EngineError("lost")]),
        "embedding": HashEmbedder(),
    }
    async with Bench(engines) as bench:
        ending = await bench.run(plan(template, "vectors"), inputs(), deadline_s=5)
        assert ending.state is State.PARTIAL
        assert ending.missing == ("expand",)
        assert ending.outputs["answer"] == [vector("one"), vector("two")]
        await bench.settle()
        bench.assert_idle()


async def test_all_who_wait_for_an_instance_to_be_empty_hear_that_it_is() -> None:
    """Whoever leaves off waiting takes nobody along, and the driver goes on."""
    go = asyncio.Event()
    model = Scripted([go, "one"])
    async with Bench({"llm": [model, HashModel()]}) as bench:
        await bench.live.drain("llm", 1)  # it has nothing
        query = bench.start(plan(Generate(inputs={"context": "notes"}), "answer"), inputs())
        while not model.calls:
            await asyncio.sleep(0)
        drained = [asyncio.ensure_future(bench.live.drain("llm", 0)) for _ in range(3)]
        await asyncio.sleep(0)
        drained[0].cancel()
        await asyncio.sleep(0)
        assert [one.done() for one in drained] == [True, False, False]
        go.set()
        async with asyncio.timeout(5):
            await asyncio.gather(*drained[1:])
            assert (await query).outputs["answer"] == "one"
        assert bench.live._draining == {}
