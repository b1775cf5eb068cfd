"""Steps: what is kept of a query, under which names, and that it is not done again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from teola import App, Condition, Each, Generate, Runtime, component
from teola.engine import Hit
from teola.errors import OutputError, QueryFailed
from teola.graph import Op, Ref
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.live import steps as kept_steps
from teola.runtime.live.outcomes import results_kept
from teola.runtime.live.steps import Steps, key_of_step, packed, unpacked
from teola.schedule.graph_run import GraphRun
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

RAN: list[str] = []


@component(outputs="plain", pure=True)
def look(question: str) -> str:
    RAN.append("look")
    return f"looked at {question}"


@component(outputs="done")
async def act(plain: str) -> str:
    RAN.append("act")
    return f"acted on {plain}"


@component(outputs="noted")
async def note(topic: str) -> dict[str, Any]:
    RAN.append(f"note {topic}")
    return {"$topic": topic}


@component(outputs="long", batched="topics")
def lengthen(topics: list[str]) -> list[str]:
    RAN.append("lengthen")
    return [topic * 2 for topic in topics]


@component(outputs="odd")
async def odd(question: str) -> object:
    return (1, 2)


class Log:
    """Keeps steps in the order in which they were committed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None]] = []

    async def begun(self, key: str) -> None:
        self.told.append((key, None))

    async def done(self, key: str, result: str) -> None:
        self.told.append((key, result))

    @property
    def found(self) -> dict[str, str | None]:
        return dict(self.told)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({"llm": HashModel}, learn=False) as made:
        yield made


@pytest.fixture(scope="module")
def app(runtime: Runtime) -> App:
    write = Generate(inputs={"context": "done"}, outputs={"answer": "text"})
    choose = Condition(lambda text: True, reads=["text"], then=note_all())
    return App(
        "kept",
        look >> act >> write >> choose,
        inputs={"question": "text", "topics": "texts"},
        outputs={"text": "text", "all": "all"},
        runtime=runtime,
    )


def note_all() -> Each:
    return Each(note, over="topics", item="topic", gives={"all": "noted"})


def run(app: App, log: Log, on_unknown: str = "ask") -> Result:
    RAN.clear()
    job = Job(app, QuerySpec({"question": "why?", "topics": ["a", "b"]}), id="q")
    job.steps = Steps("q", log.found, log, on_unknown)
    return job.runtime.start(job.run()).result(30)


@catches(
    "done-again",
    "what was done before is done again",
    edited(Steps.known, "if not self.found:", "if True:"),
)
def test_what_is_known_is_not_done_again(app: App) -> None:
    log = Log()
    first = run(app, log)
    assert first.state == "ok", first.error
    keys = [key for key, value in log.told if value is not None]
    assert len(keys) == len(set(keys))
    assert sorted(keys) == [
        "act.call",
        "condition.test",
        "each/item/0/note.call",
        "each/item/1/note.call",
        "generate.decode",
    ]
    before = len(log.told)
    again = run(app, log)
    assert (again.state, again.outputs) == ("ok", first.outputs)
    assert RAN == ["look"]
    assert len(log.told) == before


def test_nobody_reads_what_a_step_gave_before_it_is_kept(app: App) -> None:
    """A server that ends meanwhile would do it again, and give something else."""
    ran = dict[str, list[str]]()

    class Slow(Log):
        async def done(self, key: str, result: str) -> None:
            for _ in range(50):
                await asyncio.sleep(0)
            ran[key] = list(RAN)
            await super().done(key, result)

    log = Slow()
    assert run(app, log).state == "ok"
    assert len(log.told) == len(set(log.told)), "each is kept once"
    done = ["look", "act"]
    assert [ran[key] for key in ("act.call", "generate.decode", "condition.test")] == [done] * 3


@catches(
    "begun-unsaid",
    "a function that was cut off is repeated silently",
    edited(results_kept, "if not params.pure:", "if False:"),
)
def test_a_function_that_may_change_the_world_is_announced(app: App) -> None:
    log = Log()
    run(app, log)
    at = {told: k for k, told in enumerate(log.told)}
    assert at["act.call", None] < next(k for (key, v), k in at.items() if key == "act.call" and v)
    cut = Log()
    cut.told = [("act.call", None)]
    failed = run(app, cut, "fail")
    assert failed.state == "failed"
    assert "may have happened, so it is not done again" in str(failed.error)
    assert RAN == ["look"]


@catches(
    "pieces-as-a-whole",
    "of a call in pieces the first one is kept as if it were all",
    edited(results_kept, "if hi - lo < work.total:", "if lo > 0:"),
)
@catches(
    "pieces-alike",
    "all pieces of a call are kept under one name",
    edited(results_kept, "if hi - lo < work.total:", "if False:"),
)
def test_a_call_in_pieces_is_kept_piece_by_piece(runtime: Runtime) -> None:
    """A batch of functions has 64 items."""
    for count, pieces in ((64, [""]), (65, ["#0:64", "#64:65"])):
        log = Log()
        for ran in (len(pieces), 0):
            result = in_pieces(runtime, log, count)
            assert len(RAN) == ran
            assert result.outputs["out"] == [f"t{k}" * 2 for k in range(count)]
        keys = [f"lengthen.call{piece}" for piece in pieces]
        assert sorted(key for key, value in log.told if value is None) == keys
        assert sorted(key for key, value in log.told if value is not None) == keys


@pytest.mark.parametrize("lost", range(3))
@pytest.mark.parametrize("begun", [True, False])
def test_a_call_of_which_one_piece_is_missing_is_not_done_again(
    runtime: Runtime, lost: int, begun: bool
) -> None:
    """Of the other pieces people would have to be told: nobody says which of them have happened."""
    log = Log()
    in_pieces(runtime, log, 130)
    key = f"lengthen.call#{('0:64', '64:128', '128:130')[lost]}"
    log.told = [one for one in log.told if one[0] != key] + [(key, None)] * begun
    failed = in_pieces(runtime, log, 130)
    assert RAN == []
    assert "may have happened, so it is not done again" in str(failed.error)


def in_pieces(runtime: Runtime, log: Log, count: int) -> Result:
    RAN.clear()
    gives = {"inputs": {"topics": "texts"}, "outputs": {"out": "long"}}
    app = App("long", lengthen, runtime=runtime, **gives)
    job = Job(app, QuerySpec({"topics": [f"t{k}" for k in range(count)]}), id="q")
    job.steps = Steps("q", log.found, log, "fail")
    return runtime.start(job.run()).result(30)


@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        ({"0:2": [1, 2], "2:3": [3]}, [1, 2, 3]),
        ({"2:3": [3], "0:2": [1, 2]}, [1, 2, 3]),
        ({"0:2": [1, 2]}, None),
        ({"1:3": [2, 3]}, None),
        ({"0:1": [1], "2:3": [3]}, None),
        ({"0:2": [1, 2], "1:3": [2, 3]}, None),
        ({"0:2": [1], "2:3": [3]}, None),
        ({"0:2": [1, 2], "2:4": [3, 4]}, None),
        ({"0:2": "ab", "2:3": [3]}, None),
        ({}, None),
    ],
)
def test_pieces_are_joined_where_they_are_all_there(
    pieces: dict[str, Any], joined: list[int] | None
) -> None:
    gave = {f"f.call#{at}": json.dumps({"gives": {"x": part}}) for at, part in pieces.items()}
    beside = {"f.call": None, "f.calling#0:3": gave.get("f.call#0:2")}
    outputs = Steps("q", {**gave, **beside}).joined("f.call", 3)
    assert outputs == (None if joined is None else {"x": joined})
    failed = Steps("q", {**gave, "f.call#2:3": '{"error": "out of paper"}'})
    assert failed.joined("f.call", 3) is None


def test_what_has_failed_fails_again(runtime: Runtime) -> None:
    @component(outputs="x")
    async def fails(question: str) -> str:
        RAN.append("fails")
        raise ValueError("out of paper")

    inputs = {"question": "text", "topics": "texts"}
    template = fails >> note_all()
    app = App("bad", template, inputs=inputs, outputs={"x": "x", "all": "all"}, runtime=runtime)
    log = Log()
    for ran in (1, 0):
        result = run(app, log)
        assert result.state == "failed"
        assert "out of paper" in str(result.error)
        assert RAN.count("fails") == ran


def test_what_cannot_be_kept_is_refused_by_name(runtime: Runtime) -> None:
    inputs = {"question": "text", "topics": "texts"}
    app = App(
        "odd",
        odd >> note_all(),
        inputs=inputs,
        outputs={"odd": "odd", "all": "all"},
        runtime=runtime,
    )
    with pytest.raises(QueryFailed, match="gave tuple, which cannot be kept"):
        run(app, Log()).checked()


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    monkeypatch.setattr(kept_steps, "MOST_QUERY", 60)
    with pytest.raises(QueryFailed, match="more than can be kept"):
        run(app, Log()).checked()


@pytest.mark.parametrize(
    "value",
    [
        "text",
        None,
        [1, 2.5, True],
        {"a": {"$hit": [1]}},
        {"$map": {"$hit": "x"}},
        [Hit("1", "d", "t", 0.5, {"$page": 3})],
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert unpacked(json.loads(json.dumps(packed(value, "k")))) == value


@pytest.mark.parametrize("value", [{1: 2}, (1,), {1}, object(), [b"x"]])
def test_values_that_would_not_are_refused(value: Any) -> None:
    with pytest.raises(OutputError, match="k: it gave"):
        packed(value, "k")


def test_a_long_name_is_cut_to_its_digest(app: App) -> None:
    plan = app.optimiser(app.home, None).plan({}, {"topics": 2}, app.passes)
    from teola.schedule.graph_run import GraphRun

    long = GraphRun("q" + "/each/item/1" * 100, plan)
    assert len(key_of_step("q", long, 0)) == 64
    assert key_of_step("q", long, 0) != key_of_step("q", long, 1)


@pytest.mark.parametrize("pieces", [0, 1, 2, 4])
@pytest.mark.parametrize("of", ["m", "other"])
def test_no_piece_of_a_prompt_is_computed_for_an_answer_that_is_known(pieces: int, of: str) -> None:
    """However many pieces it has; of another call's they are."""
    _, first, *rest = call("m", ahead=True)
    middle = [
        replace(
            first,
            id=f"m.piece{k}",
            op=Op.PARTIAL_PREFILLING,
            inputs=(("sequence", Ref(f"m.piece{k - 1}", "sequence")), first.inputs[1]),
        )
        for k in range(pieces)
    ]
    chain = [replace(one, inputs=one.inputs[k == 0 :]) for k, one in enumerate(middle)]
    last = replace(
        first, inputs=(("sequence", Ref(f"m.piece{pieces - 1}", "sequence")), first.inputs[1])
    )
    head = last if pieces else replace(first, op=Op.PREFILLING, inputs=first.inputs[1:])
    p = plan(*chain, head, *rest)
    run, log = GraphRun("q", p), {f"{of}": "{}"}
    expected = {*range(pieces + 1)} if of == "m" else set()
    assert Steps("q", log).known(run) == expected


@pytest.mark.parametrize(("before", "more"), [(0, 0), (0, 1), (30, 0), (30, 1), (60, 0)])
async def test_as_much_as_can_be_kept_is_kept_with_what_was_kept_before(
    before: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By length of their JSON: one step, and all of a query, whatever server kept them."""
    monkeypatch.setattr(kept_steps, "MOST_QUERY", 100)
    steps = Steps("q", {"old": "x" * before, "begun": None})
    for k in range(2):
        await steps.keep(f"step{k}", {"v": "y" * 11})  # 20 characters of JSON
    left = 60 - before + more
    if more or left < 9:
        with pytest.raises(OutputError, match="more than can be kept"):
            await steps.keep("last", {"v": "z" * max(0, left - 9)})
        assert "last" not in steps.found
    else:
        await steps.keep("last", {"v": "z" * (left - 9)})
        assert len(steps.found["last"] or "") == left
    monkeypatch.setattr(kept_steps, "MOST_VALUE", 20)
    fresh = Steps("q")
    await fresh.keep("fits", {"v": "y" * 11})
    with pytest.raises(OutputError, match="has 21 characters"):
        await fresh.keep("one more", {"v": "y" * 12})


async def test_what_was_refused_or_is_done_again_takes_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query whose one result was too long can keep all others."""
    monkeypatch.setattr(kept_steps, "MOST_QUERY", 60)
    steps = Steps("q")
    for _ in range(3):
        with pytest.raises(OutputError, match="has 61 characters"):
            await steps.keep("long", {"v": "y" * 52})
        await steps.begin("again")
        await steps.keep("again", {"error": "y" * 17})  # 30 characters of JSON
        await steps.keep("again", {"v": "y" * 11})  # 20
    await steps.keep("other", {"v": "y" * 31})
    with pytest.raises(OutputError, match="more than can be kept"):
        await steps.keep("one more", {})
    await steps.begin("again")
    await steps.keep("one more", {})
    assert {key: len(text or "") for key, text in steps.found.items()} == {
        "again": 0,
        "other": 40,
        "one more": 2,
    }


@pytest.mark.parametrize("value", [{"$hit": [1]}, {"$map": {"a": 1}}, [{"$map": {}}], "$hit", None])
def test_what_people_have_answered_is_read_as_they_gave_it(value: Any) -> None:
    """Whatever else has such names in what is kept; what a step gave is packed."""
    kept = {"asked": {"answer": value}, "gave": {"gives": packed({"x": value}, "k")}}
    steps = Steps("q", {key: json.dumps(result) for key, result in kept.items()})
    assert steps.result("asked") == {"answer": value}
    assert steps.result("gave") == {"gives": {"x": value}}
    assert steps.result("other") is None
