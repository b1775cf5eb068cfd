"""Estimates of a whole query: what shares an instance runs one after another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola import App
from teola.graph import Op
from teola.passes import optimise
from teola.passes.timetable import _Instance, _Scheduling, timetable
from teola.profile import Cost, EngineProfile, Profile, paper
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola_apps.advanced_rag import app as advanced_rag
from teola_apps.chat_rag import app as chat_rag
from teola_apps.naive_rag import app as naive_rag
from tests.planted import catches, edited
from tests.schedule.plans import Guard, aggregate, condition, plan, tool

ALONE = Profile("by hand", {"python": EngineProfile({Op.TOOL_CALL: Cost(base_s=1.0)}, max_batch=1)})


def test_what_shares_an_instance_is_done_one_after_another() -> None:
    graph = plan(tool("a"), tool("b"), tool("c"), aggregate("d", "a", "b", "c")).graph
    table = timetable(graph, ALONE)
    assert table.length_s == pytest.approx(3.0)
    assert table.path == ["a", "b", "c", "d"]


def test_instances_and_batches_are_used() -> None:
    graph = plan(tool("a"), tool("b"), tool("c"), aggregate("d", "a", "b", "c")).graph
    for more, length in (
        ({"instances": 2}, 2.0),
        ({"concurrency": 3}, 1.0),
        ({"max_batch": 3}, 1.0),
    ):
        engine = replace(ALONE.engines["python"], **more)
        assert timetable(graph, Profile("more", {"python": engine})).length_s == pytest.approx(
            length
        )


def test_the_longest_path_goes_first() -> None:
    """Else `b`, with two more behind it, would wait for `a`."""
    graph = plan(tool("a"), tool("b"), tool("c", "b"), tool("d", "c")).graph
    assert timetable(graph, ALONE).ends_s["b"] == pytest.approx(1.0)


@catches(
    "decoding-is-idle",
    "an instance that decodes counts as one without work",
    edited(_Scheduling._part, " and not i.decoding", ""),
)
@catches(
    "just-free-is-busy",
    "an instance that is free just now counts as one with work",
    edited(_Scheduling._part, "i.free_s <= now", "i.free_s < now"),
)
def test_prefills_are_shared_by_those_without_work() -> None:
    scheduling = _Scheduling(plan(tool("a")).graph, ALONE, False)
    for instances, takes in (
        ([_Instance(), _Instance()], 3),
        ([_Instance(), _Instance(decoding={"d"})], 5),
        ([_Instance(free_s=1.0), _Instance()], 3),
        ([_Instance(free_s=1.5), _Instance()], 5),
        ([_Instance(decoding={"c"}), _Instance(decoding={"d"})], 5),
    ):
        scheduling._instances["llm"] = instances
        assert scheduling._part("llm", Op.PREFILLING, 5, 1.0) == takes
        assert scheduling._part("llm", Op.RERANKING, 5, 1.0) == 5


def test_a_branch_that_is_not_expected_takes_no_time_of_the_others() -> None:
    graph = plan(
        condition("if"),
        tool("then", guards=(Guard("if", "then"),)),
        tool("other", guards=(Guard("if", "otherwise"),)),
        aggregate("z", "then", "other"),
    ).graph
    table = timetable(graph, ALONE)
    assert table.length_s == pytest.approx(1.0)
    assert "other" not in table.path
    assert table.ends_s["other"] == pytest.approx(1.0)


@pytest.mark.parametrize("app", [naive_rag, advanced_rag, chat_rag], ids=lambda app: app.name)
@pytest.mark.parametrize("chunks", [45, 480, 1200])
@pytest.mark.parametrize("passes", ["none", "all"])
def test_it_is_about_what_the_simulator_measures(app: App, chunks: int, passes: str) -> None:
    """Within 15 %: naive RAG's four calls of one time share prefills that are planned apart."""
    profile = paper("13b")
    graph = app.builder.build(app.builder.configure({}), {"chunks": chunks})
    made = optimise(graph, profile, passes if passes != "none" else ()).e_graph
    sim = Sim(profile)
    inputs = {"question": Tokens(16), "history": Tokens(1024), "scope": Tokens(0)}
    given = {**inputs, "chunks": [Tokens(256)] * chunks}
    sim.submit(Plan(made, profile), {name: given[name] for name in made.inputs})
    (measured,) = sim.run()
    assert timetable(made, profile).length_s == pytest.approx(measured.finished, rel=0.15)
