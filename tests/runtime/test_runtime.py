"""Runtime and App: the facade over the live driver, from plain code and from running loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from teola import App, Generate, Progress, Result, Runtime, Token, component
from teola.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    InputError,
    Overloaded,
    QueryFailed,
    UnknownName,
)
from teola.query import ways
from teola.runtime.engines import EngineConfig
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited
from tests.runtime.faults import Scripted

ANSWER = {"answer": "answer"}
CANCELLED_S = 2.0
"""Within this a query whose caller has left is to be over."""


def app(runtime: Runtime, template: Any = None, outputs: Any = None) -> App:
    return App(
        "test",
        template or Generate(),
        inputs={"question": "text"},
        outputs=outputs or ANSWER,
        runtime=runtime,
    )


@pytest.fixture
def model() -> Scripted:
    return Scripted(["one ", "two ", "three"])


@pytest.fixture
def runtime(model: Scripted) -> Iterator[Runtime]:
    with Runtime({"llm": lambda: model}) as made:
        yield made


def on_loop(runtime: Runtime, work: Any) -> Any:
    """Run a coroutine function on the runtime's loop."""
    return runtime.start(work()).result(timeout=10)


def is_idle(runtime: Runtime, model: HashModel) -> bool:
    """Whether nothing is left, after giving what is ending its turns of the loop."""

    async def look() -> bool:
        for _ in range(1000):
            queues = runtime.live.core.queues.values()
            if not runtime.live.queries and all(queue.idle for queue in queues):
                return model.generating == 0
            await asyncio.sleep(0)
        return False

    found: bool = on_loop(runtime, look)
    return found


# --- running --------------------------------------------------------------------------------


def test_run(runtime: Runtime) -> None:
    result = app(runtime).run(question="why?")
    assert (result.state, result.answer) == ("ok", "one two three")
    assert result.trace is not None
    assert result.trace.latency_s == result.latency_s > 0


def test_a_result_says_nothing_of_engines_that_have_nothing_to_say(runtime: Runtime) -> None:
    result = app(runtime).run(question="why?")
    assert result.notices == ()
    assert "notices" not in result.to_json()


async def test_run_inside_a_running_loop(runtime: Runtime) -> None:
    """As in a notebook: the caller's loop is busy, the runtime's is another."""
    assert app(runtime).run(question="why?").answer == "one two three"
    assert (await app(runtime).arun(question="why?")).answer == "one two three"


def test_run_inside_a_component_is_refused(runtime: Runtime) -> None:
    inner = app(runtime)

    async def nested(question: str) -> Any:
        return inner.run(question=question).answer

    async def awaited(question: str) -> Any:
        return (await inner.arun(question=question)).answer

    outer = app(runtime, component(nested), {"answer": "nested"})
    with pytest.raises(QueryFailed, match="use `await"):
        outer.run(question="why?")
    outer = app(runtime, component(awaited), {"answer": "awaited"})
    assert outer.run(question="why?").answer == "one two three"


async def test_cancelling_arun_cancels_the_query(runtime: Runtime, model: Scripted) -> None:
    model.scripts = ([asyncio.Event()],)
    task = asyncio.ensure_future(app(runtime).arun(question="why?"))
    while not model.generating:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_idle(runtime, model)


def test_the_deadline_is_an_error(runtime: Runtime, model: Scripted) -> None:
    model.scripts = ([asyncio.Event()],)
    with pytest.raises(DeadlineExceeded, match="did not finish before its deadline"):
        app(runtime).run(question="why?", deadline_s=0.05)
    assert is_idle(runtime, model)


def test_functions_run_on_the_loop_or_beside_it(runtime: Runtime) -> None:
    def here() -> str:
        return threading.current_thread().name

    async def there() -> str:
        return threading.current_thread().name

    both = app(
        runtime,
        [component(here), component(there)] >> component(lambda here, there: "", outputs="end"),
        {"here": "here", "there": "there", "end": "end"},
    )
    result = both.run(question="x")
    assert result["there"] == "teola"
    assert result["here"] != "teola"


# --- streams --------------------------------------------------------------------------------


def test_a_stream_ends_with_the_result(runtime: Runtime) -> None:
    events = list(app(runtime).stream(question="why?"))
    *before, last = events
    assert isinstance(last, Result)
    assert [e.text for e in before if isinstance(e, Token)] == ["one ", "two ", "three"]
    assert last.answer == "one two three"
    started = [e.primitive for e in before if isinstance(e, Progress) and e.state == "started"]
    assert "generate.prefill" in started


async def test_an_async_stream_does_the_same(runtime: Runtime) -> None:
    events = [event async for event in app(runtime).astream(question="why?")]
    assert "".join(e.text for e in events if isinstance(e, Token)) == "one two three"
    assert isinstance(events[-1], Result)


def test_leaving_a_stream_early_cancels_the_query(runtime: Runtime, model: Scripted) -> None:
    model.scripts = (["first", asyncio.Event()],)
    stream = app(runtime).stream(question="why?")
    for event in stream:
        if isinstance(event, Token):
            break
    stream.close()  # type: ignore[attr-defined]
    assert is_idle(runtime, model)


@catches(
    "astream-not-cancelled", "a query runs on", edited(ways.follow_here, "task.cancel()", "pass")
)
async def test_leaving_an_async_stream_early_cancels_the_query(
    runtime: Runtime, model: Scripted
) -> None:
    model.scripts = (["first", asyncio.Event()],)
    stream = app(runtime).astream(question="why?")
    async for event in stream:
        if isinstance(event, Token):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(CANCELLED_S):
        while not is_idle(runtime, model):
            await asyncio.sleep(0.001)


def test_a_stream_that_fails_raises_after_its_tokens(runtime: Runtime, model: Scripted) -> None:
    model.scripts = (["half", ValueError("boom")],)
    heard: list[Token | Progress | Result] = []
    with pytest.raises(QueryFailed, match="'generate', decoding: ValueError: boom"):
        heard.extend(app(runtime).stream(question="why?"))
    assert [e.text for e in heard if isinstance(e, Token)] == ["half"]


# --- many at once ---------------------------------------------------------------------------


def test_a_batch_holds_answers_and_failures_in_order(runtime: Runtime) -> None:
    async def answer(question: str) -> str:
        if question == "bad":
            raise ValueError("bad question")
        return question.upper()

    seen: dict[int, str] = {}
    many = app(runtime, component(answer))
    queries = [{"question": q} for q in ("a", "bad", "c")]
    results = many.batch(queries, on_done=lambda i, result: seen.update({i: result.state}))
    assert [r.state for r in results] == ["ok", "failed", "ok"]
    assert [r.answer for r in results] == ["A", None, "C"]
    assert "component 'answer', tool_call: ValueError: bad question" in str(results[1].error)
    assert seen == {0: "ok", 1: "failed", 2: "ok"}


@pytest.mark.timeout(30)
def test_a_batch_ends_with_what_its_listener_raises(runtime: Runtime) -> None:
    """Also with an error that waiting for it may raise."""

    def told(position: int, result: Result) -> None:
        raise TimeoutError(f"nobody wants {position}")

    with pytest.raises(TimeoutError, match="nobody wants 0"):
        app(runtime).batch([{"question": "a"}], on_done=told)


@pytest.mark.timeout(30)
def test_with_what_its_listener_raises_the_rest_of_a_batch_ends(runtime: Runtime) -> None:
    """Nobody waits for it any more: it is stopped before the error is there."""
    ended: list[str] = []

    async def answer(question: str) -> str:
        if question == "first":
            return question
        try:
            return str(await asyncio.Event().wait())
        finally:
            ended.append(question)

    def told(position: int, result: Result) -> None:
        raise LookupError(f"nobody wants {position}")

    queries = [{"question": q} for q in ("first", "second", "third")]
    with pytest.raises(LookupError, match="nobody wants 0"):
        app(runtime, component(answer)).batch(queries, on_done=told)
    assert sorted(ended) == ["second", "third"]
    assert runtime.live.outermost == 0


def test_a_batch_checks_all_before_it_starts_one(runtime: Runtime, model: Scripted) -> None:
    with pytest.raises(InputError, match="'question' is empty"):
        app(runtime).batch([{"question": "a"}, {"question": " "}])
    assert model.calls == []


def test_too_many_queries_are_refused(model: Scripted) -> None:
    model.scripts = ([asyncio.Event()],)
    with Runtime({"llm": lambda: model}, max_queries=2) as runtime:
        results = app(runtime).batch([{"question": "a"}] * 3, deadline_s=0.2)
        assert sorted(r.state for r in results) == ["deadline", "deadline", "failed"]
        (refused,) = [r for r in results if r.state == "failed"]
        assert isinstance(refused.error, Overloaded)


def test_plans_are_shared_by_the_queries_of_an_app(runtime: Runtime) -> None:
    a = app(runtime)
    a.batch([{"question": "a"}] * 3)
    a.run(question="b", overrides={"generate.max_tokens": 9})
    optimiser = a.optimiser(runtime, None)
    assert (optimiser.hits, optimiser.misses) == (2, 2)


def test_overrides_reach_the_engine(runtime: Runtime, model: Scripted) -> None:
    a = app(runtime)
    a.run(question="q")
    a.run(question="q", overrides={"generate": {"max_tokens": 7, "instruction": "Rhyme."}})
    a.run(question="q", overrides={"generate.temperature": 0.5})
    assert [call.decode.max_tokens for call in model.calls] == [256, 7, 256]
    assert [call.decode.temperature for call in model.calls] == [0.0, 0.0, 0.5]
    assert model.calls[1].all_parts[0].text == "Rhyme."


# --- engines --------------------------------------------------------------------------------


def test_engines_start_once_and_close_once(model: Scripted) -> None:
    with Runtime({"llm": lambda: model}) as runtime:
        app(runtime).batch([{"question": "a"}] * 3)
        assert (model.started, model.closed) == (1, 0)
    assert (model.started, model.closed) == (1, 1)


def test_an_engine_that_does_not_start_is_tried_again(model: Scripted) -> None:
    class Shy(Scripted):
        tries = 0

        async def start(self) -> None:
            Shy.tries += 1
            if Shy.tries == 1:
                raise EngineUnavailable("not yet; try again")

    with Runtime({"llm": lambda: Shy(["yes"])}) as runtime:
        with pytest.raises(EngineUnavailable, match="not yet"):
            app(runtime).run(question="why?")
        assert app(runtime).run(question="why?").answer == "yes"


def test_all_instances_of_an_engine_are_used() -> None:
    made: list[Scripted] = []

    def make() -> Scripted:
        made.append(Scripted(["x"], max_sequences=1))
        return made[-1]

    with Runtime({"llm": EngineConfig(make, instances=3)}) as runtime:
        app(runtime).batch([{"question": "a"}] * 3)
    assert [len(m.calls) for m in made] == [1, 1, 1]
    assert [m.closed for m in made] == [1, 1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batching": "topolgy"}, "did you mean 'topology'"),
        ({"routing": "least"}, "unknown routing policy"),
        ({"profile": "paper-14b"}, "did you mean 'paper-13b'"),
        ({"engines": {"llm": EngineConfig("extractiv")}}, "did you mean 'extractive'"),
    ],
)
def test_wrong_names_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownName, match=message), Runtime(**given) as runtime:
        app(runtime).run(question="why?")


# --- the end --------------------------------------------------------------------------------


def test_closing_leaves_no_threads_and_no_tasks(model: Scripted) -> None:
    before = set(threading.enumerate())
    model.scripts = ([asyncio.Event()],)
    runtime = Runtime({"llm": lambda: model})
    stream = app(runtime).stream(question="why?")
    next(iter(stream))
    left = runtime.loop
    runtime.close()
    assert set(threading.enumerate()) <= before
    assert left.is_closed()
    assert model.generating == 0
    assert model.closed == 1
    runtime.close()


@catches(
    "unclosed-untold",
    "nobody is told of an engine that did not end well",
    edited("teola.runtime.hosts.local:close_all", "if error is not None", "if False"),
)
def test_an_engine_that_does_not_end_well_is_told(
    model: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def close() -> None:
        raise OSError("the link is down")

    monkeypatch.setattr(model, "close", close)
    with Runtime({"llm": lambda: model}) as runtime:
        assert app(runtime).run(question="x").answer == "one two three"
    (told,) = [one for one in caplog.records if getattr(one, "event", "") == "engine_unclosed"]
    assert told.getMessage() == "engine llm did not end well: OSError('the link is down')"


def test_a_closed_runtime_says_so(model: Scripted) -> None:
    runtime = Runtime({"llm": lambda: model})
    runtime.close()
    with pytest.raises(InputError, match="this runtime is closed"):
        app(runtime).run(question="why?")


def test_engines_that_are_like_the_llm_share_its_model() -> None:
    made: list[Scripted] = []

    def factory() -> Scripted:
        made.append(Scripted(["no"]))
        return made[-1]

    draft = Generate("draft", engine="proxy", outputs={"answer": "draft"})
    again = Generate("again", engine="judge", inputs={"question": "draft"})
    with Runtime({"llm": factory}) as runtime:
        asked = app(
            runtime,
            draft >> again >> Generate(inputs={"question": "draft"}, outputs={"answer": "last"}),
            {"answer": "answer", "last": "last"},
        )
        assert asked.run(question="why?").outputs == {"answer": "no", "last": "no"}
        queues = runtime.live.core.queues
        assert len({id(queues[name]) for name in ("llm", "proxy", "judge")}) == 3
    assert [(engine.started, engine.closed) for engine in made if engine.started] == [(1, 1)]
