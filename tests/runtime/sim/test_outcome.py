"""What simulated calls give: how long it is, when each piece is there, and what was assumed."""

from __future__ import annotations

from typing import cast

import pytest

from teola.graph import QUERY, Aggregation, Graph, Ref, SearchParams
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim
from teola.runtime.sim.content import answer_of
from teola.runtime.sim.outcome import CHUNK_TOKENS, ITEM_TOKENS, Delivery, Planned
from teola.runtime.sim.staged import StagedCall, StagedPlans, StagedQuery, in_stages
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from tests.passes.test_each_pass import embed, search
from tests.planted import catches, edited
from tests.schedule.plans import aggregate, call, plan, tool

PROFILE = Profile("p", {"llm": EngineProfile(step=StepTime(base_s=0.01))})


class Noting(Planned):
    """Notes what each call gives."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.calls: list[tuple[int, list[Delivery]]] = []

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        self.calls.append(super().call(query, head))
        return self.calls[-1]


def asked(p: Plan, **given: object) -> tuple[int, list[Delivery], dict[str, object]]:
    """What the only call of a plan gives, and what was assumed for it."""
    noting = Noting(**given)
    sim = Sim(PROFILE, outcomes=noting)
    sim.submit(p, {"question": Tokens(10)})
    sim.run()
    ((length, deliveries),) = noting.calls
    return length, deliveries, noting.assumed  # type: ignore[return-value]


@catches(
    "items-from-zero",
    "each item of a list is said to be the first",
    edited(Planned._generated, "0 if p.params.item is None else lo", "0"),
)
def test_items_are_there_one_after_another_and_are_pieces_of_one_text() -> None:
    p = plan(*call("m", 3), aggregate("z", "m.0", "m.1", "m.2", mode=Aggregation.CONCAT))
    length, deliveries, assumed = asked(p, lengths={"m": 7})
    assert (length, assumed) == (21, {})
    assert [delivery.at for delivery in deliveries] == [7, 14, 21]
    pieces = [delivery.result["out"] for delivery in deliveries]
    assert [(piece.start, int(piece)) for piece in pieces] == [(0, 7), (7, 7), (14, 7)]
    assert len({piece.excerpt().text for piece in pieces}) == 1
    length, deliveries, assumed = asked(p)
    assert (length, assumed) == (3 * ITEM_TOKENS, {"m.item_tokens": ITEM_TOKENS})


@pytest.mark.parametrize(
    ("given", "tokens"),
    [({"answer_tokens": 5}, 5), ({"lengths": {"m": 3}, "answer_tokens": 5}, 3)],
)
def test_an_answer_is_as_long_as_was_given_for_it_or_for_all(
    given: dict[str, object], tokens: int
) -> None:
    length, (delivery,), assumed = asked(plan(*call("m")), **given)
    assert (length, delivery.at, assumed) == (tokens, tokens, {})
    assert asked(plan(*call("m")), lengths={"n": 3})[2] == {"m.answer_tokens": 16}


def test_as_many_come_back_as_were_asked_for_and_hits_for_each() -> None:
    graph = [
        embed("e", Ref(QUERY, "texts"), 4),
        search("s", "e", 4),
        tool("t", Ref("s", "hits"), items=4, batchable=True),
        tool("u", Ref("s", "hits")),
    ]
    made = Planned(chunk_tokens=9, lengths={"u": 2})
    p = Plan(Graph("test", graph, {"out": Ref("u", "out")}, ["texts", "scope"]))
    query = cast("Query", type("Asked", (), {"plan": p}))

    def given(id: str, lo: int, hi: int) -> list[object]:
        (value,) = made.result(query, p.index[id], lo, hi).values()
        return [value]

    assert len(cast("list[object]", given("e", 1, 4)[0])) == 3
    (hits,) = given("s", 1, 3)
    assert isinstance(graph[1].params, SearchParams)
    assert [len(each) for each in cast("list[list[Tokens]]", hits)] == [graph[1].params.top_k] * 2
    assert {int(hit) for each in cast("list[list[Tokens]]", hits) for hit in each} == {9}
    (texts,) = given("t", 0, 3)
    assert [int(text) for text in cast("list[Tokens]", texts)] == [16] * 3
    (text,) = given("u", 0, 1)
    assert int(cast("Tokens", text)) == 2
    assert made.assumed == {"t.answer_tokens": 16}
    fresh = Planned()
    fresh.result(query, p.index["s"], 0, 1)
    assert fresh.assumed == {"s.chunk_tokens": CHUNK_TOKENS}


def test_an_answer_is_the_text_of_which_the_last_decoding_gives_the_end() -> None:
    text = Tokens.of(7, 10, 5)
    last = Delivery(0, 15, {"other": 3, "out": text})
    assert answer_of([Delivery(0, 9, {}), last], 15) == (7, 0, 15)
    assert answer_of([last], 16).text != 7, "it goes on behind what was delivered"
    assert answer_of([], 4).length == 4


def test_a_stage_begins_when_a_call_of_the_one_before_has_ended() -> None:
    """Just then, and not a moment before; the first to end counts, whenever it began."""
    calls = {name: StagedCall(name, 1, 1) for name in "abcd"}
    times = {"a": (0.0, 5.0), "b": (1.0, 3.0), "c": (2.9, 9.0), "d": (3.0, 4.0)}
    given = [(queued, end, calls[name]) for name, (queued, end) in times.items()]
    for told in (given, given[::-1]):
        stages = [[call.component for call in stage] for stage in in_stages(told)]
        assert stages == [["a", "b", "c"], ["d"]]
    assert in_stages([]) == ()


def test_plans_of_staged_queries_are_made_once_a_shape() -> None:
    """Lengths are not of the shape; components, engines, stages and the application are."""
    plans = StagedPlans(PROFILE)
    one, other = StagedCall("a", 10, 5), StagedCall("b", 10, 5)
    p = plans.plan(StagedQuery(((one, other), (one,)), "app"))
    assert p is plans.plan(StagedQuery(((one._replace(prompt=99), other), (one,)), "app"))
    for stages, app in (
        (((one,), (other,), (one,)), "app"),
        (((other, one), (one,)), "app"),
        (((one._replace(engine="small"), other), (one,)), "app"),
        (((one, other), (one,)), "another"),
    ):
        assert p is not plans.plan(StagedQuery(stages, app))
    heads = [q for q in p.primitives if q.id.endswith(".prefill")]
    assert [len(q.after) for q in heads] == [0, 0, 2]
