"""What a driver keeps and tells of each dispatch, each growth and each end, step by step.

Long because a driver is one class, as in test_driver.py, whose scripts it goes on with.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from teola import App, Each, Generate, QueryExpansion, component
from teola.errors import BudgetSpent, EngineError
from teola.graph import Grow, Growth, Op
from teola.graph.ops import PREFILLS
from teola.policies.reason import Because, Reason
from teola.policies.work import Slice
from teola.profile import Cost, EngineProfile, Profile
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.events import (
    Cancelled,
    Cause,
    Dispatch,
    Finish,
    Release,
    RestExpected,
    State,
)
from tests.runtime.sim.test_sim import one_call
from tests.runtime.sim.test_weights import CALL_S, LLM, PROFILE
from tests.runtime.test_driver import (
    BESIDE,
    FED,
    MAP,
    Bed,
    Script,
    Scripted,
    grown,
    of_two_engines,
    spans,
)

# --- dispatches -------------------------------------------------------------------------------


def test_a_prompt_has_its_tokens_and_other_work_its_items() -> None:
    sim = of_two_engines()
    sizes = set()
    for queue in sim.core.queues.values():
        for (run, i), work in queue.works.items():
            if (query := sim.queries.get(run)) is None:
                continue
            prompt = query.plan.primitives[i].op in PREFILLS
            assert work.total == (query.prompt_tokens(i) if prompt else query.store.items(i))
            sizes.add((prompt, work.total))
    assert sizes == {(True, 10), (False, 1)}


def test_each_slice_of_a_dispatch_is_noted_where_it_belongs() -> None:
    """With what its whole batch holds, why it goes there, and the wait that a limit caused it."""
    sim = of_two_engines()
    sim.submit(one_call(), {"question": Tokens(10)}, id="late", at=0.0)
    sim.run(until=0.0)
    works = sim.core.queues["llm"].works
    asks, late = works["asks", 0], works["late", 0]
    (rows,) = [work for work in works.values() if work.row_tokens]
    sim.dispatch = lambda command, now: None  # type: ignore[method-assign]
    asks.reason, late.reason = Reason(Because.ONLY), None
    asks.limited_from, late.limited_from = 1.0, 4.0
    instances = sim.core.queues["llm"].instances
    instances.has_limited, instances._limited_s = True, 4.0
    before = sim.rows["rows"].tries
    slices = Slice(asks, 2, 5), Slice(rows, 1, 2), Slice(late, 0, 10)
    sim._perform([Dispatch("llm", 0, 77, slices)], 3.5)
    told = {}
    for id in ("asks", "late"):
        *_, span = [one for one in sim.queries[id].trace.spans if one.batch == 77]
        assert (span.instance, span.batch_size, span.start) == (0, 3, 3.5)
        told[id] = span.lo, span.hi, span.limited_s, bool(span.why)
    assert told == {"asks": (2, 5, 3.0, True), "late": (0, 10, 0.0, False)}
    assert sim.rows["rows"].tries == before + 1
    instances.has_limited = False
    sim._perform([Dispatch("llm", 0, 78, (Slice(asks, 0, 1),))], 4.5)
    *_, span = [one for one in sim.queries["asks"].trace.spans if one.batch == 78]
    assert span.limited_s == 0.0, "nobody has waited for a limit, whatever the clock says"


def test_what_nobody_reads_any_more_is_let_go_of_if_it_is_still_there() -> None:
    sim = of_two_engines()
    gone: list[Any] = []
    sim.forgotten = gone.append  # type: ignore[method-assign]
    sim._perform([Release("nobody", 0)], 1.0)
    assert (gone, sim.told) == ([], [])
    query = sim.queries["works"]
    query.store.put(0, {"out": "x"})
    sim._perform([Release("works", 0), Release("works", 0)], 1.0)
    assert gone == [{"out": "x"}, None]
    assert not query.store.values


# --- ends -------------------------------------------------------------------------------------


def test_whoever_cannot_be_told_of_its_end_is_there_to_be_broken() -> None:
    sim = of_two_engines()
    error = EngineError("no room")

    def finished(query: Query, command: Finish, now: float) -> None:
        raise error

    sim.finished = finished  # type: ignore[method-assign]
    sim.end("works", Cancelled(), 2.5)
    assert sim.told == [(["works"], error, 2.5)]
    assert set(sim.queries) == {"asks", "works"}
    assert set(sim.rows) == {"rows"}


def test_an_end_is_published_to_whoever_learns_after_it_was_told_and_that_of_rows_is_not() -> None:
    sim = of_two_engines()
    said: list[Any] = []
    sim.learner = SimpleNamespace(publish=lambda now: said.append(now))  # type: ignore[assignment]
    sim.finished = lambda query, command, now: said.append(query.id)  # type: ignore[method-assign]
    sim.end("works", Cancelled(), 2.5)
    assert said == ["works", 2.5]
    sim.end("rows", Cancelled(), 3.5)
    assert said == ["works", 2.5]
    assert (set(sim.queries), set(sim.rows), sim.told) == ({"asks"}, set(), [])


# --- what a growth tells of what is to come ---------------------------------------------------


class Expecting(Bed):
    """Keeps what its query is told to expect, in parts, and what is expected behind each part."""

    more: list[float]
    coming: list[float]

    def tell(self, run: str, event: Any, now: float) -> None:
        if isinstance(event, RestExpected):
            assert run == self.outer.id
            (estimate,) = self.outer.plan.grows.values()
            self.__dict__.setdefault("more", []).append(event.more_s / estimate.part_total_s)
        super().tell(run, event, now)

    def begin(self, query: Query, now: float) -> None:
        if query.place is not None:
            self.__dict__.setdefault("coming", []).append(query.place.coming)
        super().begin(query, now)


@pytest.mark.parametrize(
    ("parts", "more", "coming"),
    [
        ("", [-4], []),
        ("a", [-3], [3]),
        ("abc", [-1], [3, 2, 1]),
        ("abcd", [], [3, 2, 1, 0]),
        ("abcdef", [1, 1], [3, 2, 1, 0, 0, 0]),
    ],
)
def test_a_query_weighs_as_many_parts_as_are_expected_by_then(
    parts: str, more: list[float], coming: list[float]
) -> None:
    """Four are planned. One more is told as it begins, and in the end those that did not."""
    bed = Expecting(Script({("begin",): parts}), 100)
    made = Optimiser(MAP.builder, PROFILE).plan({}, {"rows": 4})
    bed.submit(made, {"question": Tokens(9), "rows": [Tokens(9)] * 4})
    bed.run()
    assert bed.results[0].state is State.OK
    assert bed.__dict__.get("more", []) == pytest.approx(more)
    assert bed.__dict__.get("coming", []) == pytest.approx(coming)
    assert bed.outer.run.longer_s == pytest.approx(sum(more) * part_total_s(bed))


def part_total_s(bed: Bed) -> float:
    (estimate,) = bed.outer.plan.grows.values()
    return estimate.part_total_s


def test_a_decision_takes_its_place_in_the_trace() -> None:
    bed, _ = grown({("begin",): "ab"}, app=BESIDE)
    (test,) = [span for span in bed.outer.trace.spans if span.primitive == "condition.test"]
    assert (test.state, test.lo, test.hi, test.start) == ("done", 0, 1, test.end)
    assert 0 < test.queued <= test.end
    (grows,) = [span for span in bed.outer.trace.spans if span.primitive == "each.grow"]
    assert (grows.lo, grows.hi, grows.engine) == (0, 1, "")


# --- lists that are read while they are written -----------------------------------------------


class Watched(Bed):
    """Keeps whether items were used as they were written."""

    def item_written(self, query: Query, head: int, k: int, item: Any, now: float) -> bool:
        used = super().item_written(query, head, k, item, now)
        self.__dict__.setdefault("used", []).append(used)
        return used


def over_queries(name: str, *reads: str) -> Each:
    body = Generate(
        name=f"note_{name}",
        inputs={"question": "row", **({"context": reads[0]} if reads else {})},
    )
    return Each(body, over="queries", item="row", gives={f"notes_{name}": "answer"}, name=name)


def fed_app(*maps: Each, first: Any) -> App:
    template = QueryExpansion(n=3)
    for one in maps:
        template = template >> one  # type: ignore[assignment]
    outputs = {one.name: f"notes_{one.name}" for one in maps}
    return App("map", first >> template, inputs={"question": "text"}, outputs=outputs)


FIRST = Generate(name="first", context_required=False, outputs={"answer": "asked"})


def watched(app: App, script: Script | type[Script]) -> Watched:
    bed = Watched(script if isinstance(script, Script) else script({}), 100)
    made = Optimiser(app.builder, PROFILE).plan({}, {})
    bed.submit(made, {"question": Tokens(9)})
    bed.run()
    return bed


def test_who_waits_for_a_call_that_ends_with_the_list_has_it_at_once() -> None:
    bed = watched(fed_app(over_queries("map", "asked"), first=FIRST), script := Script({}))
    assert bed.results[0].state is State.OK
    assert bed.__dict__["used"] == [False, False, False]
    assert script.heard == [("begin",), ("result",), ("remarks",)]


class Timed(Watched):
    """With a function that takes so long."""

    def __init__(self, script: Script, function_s: float) -> None:
        takes = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=function_s)})
        profile = Profile("two", {"llm": LLM, "python": takes})
        Sim.__init__(self, profile, outcomes=Scripted(script))
        self.primitives, self.begun, self.causes = 100, [], []


@component(outputs="asked", pure=True)
async def looks(question: str) -> str:
    return question


@pytest.mark.parametrize(
    ("share", "used"),
    [
        (0.1, [True, True, True]),
        (1.5, [False, True, True]),
        (2.5, [False, False, True]),
        (3.5, [False, False, False]),
    ],
)
def test_who_begins_in_the_middle_of_a_list_is_told_of_it_from_its_beginning(
    share: float, used: list[bool]
) -> None:
    """With the first item that comes when all else is there; without any, it has the whole."""
    bed = Timed(script := Script({}), share * CALL_S)
    app = fed_app(over_queries("map", "asked"), first=looks)
    made = Optimiser(app.builder, bed.profile).plan({}, {})  # type: ignore[arg-type]
    bed.submit(made, {"question": Tokens(9)})
    bed.run()
    assert bed.results[0].state is State.OK
    assert bed.__dict__["used"] == used
    told = [("told", "", "queries", str(k)) for k in (1, 2, 3)] if any(used) else []
    ended = [("ended", "")] * any(used)
    assert script.heard == [("begin",), *told, *ended, ("result",), ("remarks",)]


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
def test_an_item_is_used_if_one_of_those_that_read_it_has_begun(names: tuple[str, str]) -> None:
    maps = [over_queries(name, *(["asked"] if name == "two" else [])) for name in names]
    bed = watched(fed_app(*maps, first=FIRST), Script({}))
    assert bed.results[0].state is State.OK
    assert bed.__dict__["used"] == [True, True, True]


class Tells(Script):
    """Its first part tells of two items while it is written, its others of none. seen: what it was
    told, whole."""

    seen: list[tuple[str, str, Any]]

    def hear(self, *told: str) -> Iterable[Grow]:
        for grow in super().hear(*told):
            if grow.key == "a":
                grow = grow._replace(tells=frozenset({"answer"}), expects=((4, "x"), (8, "y")))
            yield grow

    def told(self, key: str, port: str, item: Any) -> Iterable[Grow]:
        self.__dict__.setdefault("seen", []).append((key, port, item))
        return super().told(key, port, item)


def test_who_began_a_part_hears_of_each_item_of_its_list_and_may_go_on_with_it_at_once() -> None:
    """An item that was heard of counts as used. Of a part that asks for nothing nothing is told."""
    script = Tells({("begin",): "a", ("told", "a", "answer", "1"): "b"})
    bed = Watched(script, 100)
    made = Optimiser(MAP.builder, PROFILE).plan({}, {"rows": 4})
    bed.submit(made, {"question": Tokens(9), "rows": [Tokens(9)] * 4})
    bed.run()
    assert bed.results[0].state is State.OK
    assert bed.__dict__["used"] == [True, True]
    assert script.__dict__["seen"] == [("a", "answer", "x"), ("a", "answer", "y")]
    assert {*script.heard[3:5]} == {("ended", "a"), ("ended", "b")}
    (first, second) = bed.begun
    assert (first, second[0]) == (("a", 0.0), "b")
    assert 0.0 < second[1] < 1.0, "it began while the other one was written"


def test_what_is_over_hears_of_no_items_and_they_count_as_unused() -> None:
    script = Tells({("begin",): "a"})
    bed = Watched(script, 100)
    made = Optimiser(MAP.builder, PROFILE).plan({}, {"rows": 4})
    bed.submit(made, {"question": Tokens(9), "rows": [Tokens(9)] * 4})
    bed.run(until=CALL_S / 8)
    (growing,) = bed.outer.growing.values()
    (part,) = growing.open.values()
    growing.over = True
    (head,) = {*part.plan.head}
    assert not bed.item_written(part, head, 0, "x", CALL_S / 8)
    assert script.heard == [("begin",)]


def test_a_driver_of_one_thread_leaves_nothing_to_another() -> None:
    """A call that waited for its budget is begun where something was given back."""
    left = list[Any]()
    assert not Sim(PROFILE).passes_on(lambda: left.append(1))
    assert left == []


class Refused(Scripted):
    def growth(self, query: Query, i: int) -> Growth:
        raise KeyError("no such component")


@pytest.mark.parametrize("app", [FED, MAP])
def test_what_cannot_begin_to_grow_fails_its_query_with_why(app: App) -> None:
    """An item that it was begun for counts as used: the call is not made again."""
    bed = Watched(Script({}), 100)
    bed.outcomes = Refused(bed.outcomes.script)  # type: ignore[attr-defined]
    made = Optimiser(app.builder, PROFILE).plan({}, {"rows": 4} if app is MAP else {})
    given: dict[str, Any] = {"question": Tokens(9), "rows": [Tokens(9)] * 4}
    bed.submit(made, {name: given[name] for name in made.graph.inputs})
    bed.run()
    (result,) = bed.results
    assert (result.state, repr(result.error)) == (State.FAILED, "KeyError('no such component')")
    assert bed.__dict__.get("used", []) == [True] * (app is FED)
    state, start, end = spans(bed)["each.grow"]
    assert (state, start == end) == ("failed", True)
    assert not bed.outer.growing


# --- parts that end ---------------------------------------------------------------------------


class Stops(Script):
    """One that goes on differently after a part that stopped short."""

    def stopped(self, key: str) -> Any:
        return self.hear("stopped", key)


SPENT, AWAY = Cause(BudgetSpent("spent")), Cause(EngineError("away"))


@pytest.mark.parametrize("kind", [Script, Stops])
@pytest.mark.parametrize(
    ("state", "missing", "heard"),
    [
        (State.OK, {}, "ended"),
        (State.PARTIAL, {"search": AWAY}, "ended"),
        (State.PARTIAL, {"search": SPENT}, "stopped"),
        (State.PARTIAL, {"search": AWAY, "rerank": SPENT}, "stopped"),
        (State.FAILED, {}, "failed"),
        (State.DEADLINE, {}, "failed"),
    ],
)
def test_a_growth_is_told_how_each_of_its_parts_ended_and_its_query_what_is_missing(
    state: State, missing: dict[str, Cause], heard: str, kind: type[Script]
) -> None:
    """Of what is missing in several parts the first reason counts."""
    bed = Bed(script := kind({("begin",): "abc"}), 100)
    made = Optimiser(MAP.builder, PROFILE).plan({}, {"rows": 4})
    bed.submit(made, {"question": Tokens(9), "rows": [Tokens(9)] * 4})
    bed.run(until=CALL_S / 2)
    (growing,) = bed.outer.growing.values()
    assert set(growing.open) == {"a", "b"}
    before, known = bed.outer.tally.primitives, Cause(ValueError("before"))
    growing.missing["rerank"] = known
    (part, other) = growing.open.values()
    error = EngineError("broke") if heard == "failed" else None
    finish = Finish(part.id, state, None, (*missing,), -1, (*missing.values(),))
    bed.part_ended(part, finish, {"answer": Tokens(5)}, error, CALL_S / 2)
    told = "ended" if heard == "stopped" and kind is Script else heard
    assert script.heard == [("begin",), (told, "a")]
    assert set(growing.open) == {"b", "c"}, "the next one has its place"
    assert growing.missing == {
        "rerank": known,
        **{k: v for k, v in missing.items() if k == "search"},
    }
    assert bed.outer.tally.primitives == before
    growing.over = True
    bed.part_ended(other, finish, {}, error, CALL_S / 2)
    assert set(growing.open) == {"c"}
    assert script.heard == [("begin",), (told, "a")], "what is over is told nothing"
    assert bed.outer.tally.primitives == before + len(other.plan)


def test_nothing_that_a_driver_does_itself_is_on_an_instance() -> None:
    bed, _ = grown({("begin",): "ab"}, app=BESIDE)
    placed = {bed.outer.plan.primitives[i].op for i in bed.outer.run.instance}
    assert placed == {Op.PREFILLING}
