"""`explain` counts what grows: parts times what a part takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola import App, Each, Generate, QueryExpansion
from teola.explain import Explanation
from teola.habit import Habit
from teola.passes import optimise
from teola.passes.estimate import call_tokens, planned_output, planned_tokens, seconds
from teola.profile import paper

APP = App(
    "x",
    QueryExpansion(n=3)
    >> Each(
        Generate(inputs={"question": "q"}, max_tokens=50),
        over="queries",
        item="q",
        gives={"answers": "answer"},
        at_once=1,
    ),
    inputs={"question": "text"},
    outputs={"answers": "answers"},
)


def explained(turns: tuple[int, ...] = ()) -> Explanation:
    habits = {("x", "each"): Habit(calls=9, turns=turns)} if turns else {}
    profile = replace(paper("13b"), habits=habits)
    graph = APP.builder.build(APP.builder.configure({}), {})
    return Explanation("x", optimise(graph, profile, ()), profile)


def test_an_expansion_into_three_counts_three_times_the_call_for_one() -> None:
    found = explained()
    graph, profile = found.optimised.e_graph, found.profile
    one = seconds(graph, graph["each.grow"], profile) / 3
    assert one > 0.5
    expansion = sum(
        seconds(graph, graph[id], profile) for id in ("expand.prefill", "expand.decode")
    )
    whole = found.to_json()["critical_path_s"]["e_graph"]
    assert whole == pytest.approx(expansion + 3 * one)
    assert f"critical path {whole:.3f} s (estimate, with what each is expected to add)" in str(
        found
    )


def test_what_memory_allows_side_by_side_is_told_and_counts() -> None:
    """A call is its prompt and its answer; places and blocks both bound how many run."""
    found = explained()
    llm = found.profile.engines["llm"]
    graph = found.optimised.e_graph
    memory = found.to_json()["memory"]["llm"]
    assert (memory["kv_tokens"], memory["calls_at_once"]) == (65_536, 32)
    expand = graph["expand.prefill"]
    answer = planned_output(graph["expand.decode"])
    assert call_tokens(graph, expand) == planned_tokens(graph, expand) + answer
    assert memory["call_tokens"] >= call_tokens(graph, expand)
    blocks = -(-memory["call_tokens"] // 16)
    little = replace(llm, kv_blocks=2 * blocks + 1)
    tight = replace(found, profile=replace(found.profile, engines={"llm": little}))
    assert tight.to_json()["memory"]["llm"]["calls_at_once"] == 2
    assert f"{32 * blocks + 16:,} tokens of KV, 2 calls like the longest" in str(tight)
    none = replace(found.profile, engines={"llm": replace(llm, kv_blocks=1)})
    assert "does not fit: it will be refused" in str(replace(found, profile=none))


def test_as_many_as_there_were_until_now_are_expected() -> None:
    """Five items, in each of nine runs."""
    whole = {turns: explained(turns).to_json()["critical_path_s"] for turns in ((), (9,) * 6)}
    three, five = (found["e_graph"] for found in whole.values())
    graph = explained().optimised.e_graph
    one = seconds(graph, graph["each.grow"], explained().profile) / 3
    assert five - three == pytest.approx(2 * one)
