"""The spans of parts and of queries inside, woven into those of their query."""

from __future__ import annotations

from typing import Any

import pytest

from teola import App, Each, EngineConfig, Generate, Loop, Runtime, component
from teola.query.result import Result
from teola.runtime.observe.placements import placements
from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.trace import Parent, Trace
from teola.runtime.observe.whole import _Weaving, whole
from teola.serve.looking import timed
from tests.fake_openai import Fail, FakeOpenAI
from tests.planted import catches, edited
from tests.schedule.plans import plan, tool

ROOT = plan(tool("first"), tool("grow", "first"), tool("last", "grow"))
PART = plan(tool("work"), tool("more", "work"))
QUESTION: dict[str, Any] = {"inputs": {"question": "text"}, "outputs": {"answer": "answer"}}


def part(root: Trace, key: str, begun: float, ends: tuple[float, float]) -> None:
    """A part of `grow` that began with its first primitive and ended with its second."""
    trace = Trace(f"{root.query_id}/grow/{key}", "app", PART, root.admitted + begun)
    trace.parent = Parent(root.query_id, "grow")
    start = trace.admitted
    for i, end in enumerate(ends):
        trace.sent(i, 0, 1, start, start, 0, 1, 1)
        trace.ended(i, 0, start := root.admitted + end)
    trace.finish("ok", start)
    root.inner.append(trace)


def grown() -> Trace:
    """`first` until 1, `grow` until 6 with two parts, one after the other, `last` until 7."""
    root = Trace("q", "app", ROOT, 100.0)
    for i, (start, end) in enumerate([(0.0, 1.0), (1.0, 6.0), (6.0, 7.0)]):
        root.sent(i, 0, 1, 100 + start, 100 + start, 0, 1, 1)
        root.ended(i, 0, 100 + end)
    part(root, "1", 1.0, (2.0, 3.0))
    part(root, "2", 3.0, (4.0, 6.0))
    root.finish("ok", 107.0)
    return root


@catches(
    "parts-left-out",
    "the path goes over what grew instead of through it",
    edited(_Weaving._last, "if spans[j].end <= around.end + SAME_S", "if False"),
)
def test_the_critical_path_goes_through_the_parts() -> None:
    found = timed(grown(), {}, 0)
    path = [(s["kind"], s["primitive"], s["start"], s["end"]) for s in found["critical_path"]]
    assert path == [
        ("ran", "first", 0, 1),
        ("ran", "grow/1/work", 1, 2),
        ("ran", "grow/1/more", 2, 3),
        ("ran", "grow/2/work", 3, 4),
        ("ran", "grow/2/more", 4, 6),
        ("ran", "last", 6, 7),
    ]
    names = [span["primitive"] for span in found["spans"]]
    assert "grow" in [names[i] for i in found["critical_spans"]]


def test_a_part_that_begins_beside_others_waited_for_the_one_that_had_just_ended() -> None:
    root = grown()
    part(root, "beside", 1.0, (1.5, 5.0))
    spans, before, within = whole(root)
    names = [span.primitive for span in spans]
    assert names[before[names.index("grow/2/work")]] == "grow/1/more"
    assert names[before[names.index("grow/beside/work")]] == "first"
    assert names[within[names.index("grow/2/work")]] == "grow"


def test_a_part_that_is_cut_off_ends_with_its_query() -> None:
    root = Trace("q", "app", ROOT, 100.0)
    root.sent(1, 0, 1, 101.0, 101.0, 0, 1, 1)
    part(root, "1", 1.0, (2.0, 9.0))
    root.finish("deadline", 103.0)
    assert {span.end for span in whole(root).spans} == {2.0, 3.0}
    path = [(s["primitive"], s["end"]) for s in timed(root, {}, 0)["critical_path"]]
    assert path[-1] == ("grow/1/more", 3.0)


# --- of real queries ----------------------------------------------------------------------------


@component(outputs="verdict")
def judged(answer: str) -> str:
    return "more"


def asked(server: FakeOpenAI, body: Any, **about: Any) -> Result:
    engines = {"llm": EngineConfig("openai", {"url": server.url})}
    with Runtime(engines) as runtime:
        app = App("outer", body(runtime), runtime=runtime, **about)
        return app.run(question="Who?")


def looping(runtime: Runtime) -> Any:
    ask = Generate(context_required=False, temperature=0.5)
    return Loop(
        ask >> judged,
        carry={"question": "answer"},
        until=lambda verdict: verdict == "enough",
        reads=["verdict"],
        gives=["answer"],
        at_most=3,
    )


def asking(runtime: Runtime) -> Any:
    inner = App(
        "inner", Generate(context_required=False, temperature=0.5), runtime=runtime, **QUESTION
    )

    @component(outputs="answer")
    def ask(question: str) -> str:
        return "".join(str(inner.run(question=question)["answer"]) for _ in range(2))

    return ask


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (looping, [f"loop/turn/{k}/generate.prefill" for k in (1, 2, 3)]),
        (asking, ["ask.call/inner/generate.prefill", "ask.call/inner/2/generate.prefill"]),
    ],
)
def test_calls_inside_are_listed_with_their_paths(body: Any, calls: list[str]) -> None:
    with FakeOpenAI("It was the keeper.", token_delay_s=0.02) as server:
        trace = asked(server, body, **QUESTION).trace
        made = len(server.calls)
    assert trace is not None
    assert len(calls) == made
    found = timed(trace, {}, 0)
    assert [one["primitive"] for one in found["calls"]] == calls
    assert [one.primitive for one in placements(trace)] == calls
    decoded = [one["primitive"] for one in found["critical_path"] if one["op"] == "decoding"]
    assert decoded == [one.replace("prefill", "decode") for one in calls]
    assert Recorded.from_json(found, None).critical_path() == Recorded.of(trace).critical_path()


def test_a_function_that_asks_works_itself_between_its_queries() -> None:
    with FakeOpenAI("yes") as server:
        trace = asked(server, asking, **QUESTION).trace
    assert trace is not None
    path = timed(trace, {}, 0)["critical_path"]
    inside = [k for k, one in enumerate(path) if one["primitive"].startswith("ask.call/")]
    between = path[inside[0] : inside[-1]]
    assert {one["primitive"] for one in between if one["kind"] == "between"} == set()


def test_tries_of_parts_have_their_errors() -> None:
    with FakeOpenAI("yes", vllm=False) as server:
        server.script(Fail(500, "out of memory on rank 0"))
        body = Each(
            Generate(context_required=False, temperature=0.5),
            over="items",
            item="question",
            gives={"answers": "answer"},
        )
        engines = {"llm": EngineConfig("openai", {"url": server.url})}
        with Runtime(engines) as runtime:
            about = {"inputs": {"items": "texts"}, "outputs": {"answers": "answers"}}
            trace = App("each", body, runtime=runtime, **about).run(items=["Who?"]).trace
    assert trace is not None
    tries = [
        (one["state"], "500" in one.get("error", ""))
        for one in timed(trace, {}, 0)["spans"]
        if one["op"] == "prefilling"
    ]
    assert tries == [("failed", True), ("done", False)]
