"""What a plan tells policies of a primitive before it runs: paths in seconds, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.graph import QUERY, Graph, Guard, Op
from teola.passes.estimate import planned_tokens, seconds
from teola.passes.estimate import timed as is_timed
from teola.policies.work import Estimate
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.schedule.plan import Plan
from tests.passes.test_each_pass import embed
from tests.schedule.plans import Ref, call, condition, plan, tool

TOOL_S, PREFILL_S, HOP_S = 2.0, 0.5, 0.1
PROFILE = Profile(
    "by hand",
    {
        "python": EngineProfile({Op.TOOL_CALL: Cost(base_s=TOOL_S)}),
        "llm": EngineProfile(step=StepTime.of(Cost(base_s=PREFILL_S), Cost(base_s=0.01))),
    },
    dispatch_s=HOP_S,
)


def timed(*primitives: object, profile: Profile | None = PROFILE) -> dict[str, Estimate]:
    graph: Graph = plan(*primitives).graph  # type: ignore[arg-type]
    made = Plan(graph, profile)
    return dict(zip(made.ids, [spec.estimate for spec in made.specs], strict=True))


def test_the_rest_is_the_longest_path_and_what_is_off_it_may_start_later() -> None:
    """a and b feed d, a through c: the path is a, c, d; b may start when c has to."""
    found = timed(tool("a"), tool("b"), tool("c", "a"), tool("d", "b", "c"))
    step = TOOL_S + HOP_S
    rest = {id: estimate.rest_s for id, estimate in found.items()}
    assert rest == pytest.approx({"a": 3 * step, "b": 2 * step, "c": 2 * step, "d": step})
    latest = {id: estimate.latest_s for id, estimate in found.items()}
    assert latest == pytest.approx({"a": 0.0, "b": step, "c": step, "d": 2 * step})
    assert [estimate.total_s for estimate in found.values()] == pytest.approx([4 * step] * 4)
    assert {estimate.base_s for estimate in found.values()} == {TOOL_S}


def test_a_call_is_its_prefilling_and_its_decoding() -> None:
    found = timed(*call("m"))
    graph = plan(*call("m")).graph
    decode = seconds(graph, graph["m"], PROFILE)
    assert decode > 0
    assert found["m.prefill"].rest_s == pytest.approx(HOP_S + PREFILL_S + decode)
    assert found["m.prefill"].base_s == PREFILL_S


def test_an_item_makes_a_batch_longer_however_many_there_are() -> None:
    """It costs more the longer its texts are. An LLM call shares its steps."""
    costs = {Op.EMBEDDING: Cost(base_s=0.05, per_item_s=0.01, per_token_s=0.0001)}
    profile = replace(PROFILE, engines={**PROFILE.engines, "embedding": EngineProfile(costs)})
    for items in (1, 12):
        texts = embed("e", Ref(QUERY, "texts"), items)
        made = Graph("test", [texts, *call("m")], {"v": Ref("e", "vectors")}, ["texts"])
        planned = Plan(made, profile)
        found = dict(zip(planned.ids, planned.specs, strict=True))
        tokens = planned_tokens(made, texts) / items
        assert tokens > 0
        assert found["e"].estimate.item_s == pytest.approx(0.01 + 0.0001 * tokens)
        assert found["m.prefill"].estimate.item_s == 0.0


def test_a_branch_that_is_not_expected_is_no_part_of_the_total() -> None:
    """Nor of the path before it; what stands in it has the rest of its own."""
    branches = [
        condition("c"),
        tool("then", guards=(Guard("c", "then"),)),
        tool("other", guards=(Guard("c", "otherwise"),)),
        tool("last", "other", guards=(Guard("c", "otherwise"),)),
    ]
    found = timed(*branches)
    step = TOOL_S + HOP_S
    assert found["c"].total_s == pytest.approx(step)
    assert found["c"].rest_s == pytest.approx(step)
    assert found["then"].rest_s == pytest.approx(step)
    assert found["other"].rest_s == pytest.approx(2 * step)


def test_what_may_not_be_wanted_counts_as_likely_as_it_is() -> None:
    """The prefix of a call behind an open condition; the expected branch of two has 2/3."""
    prefix, head, text = call("m", ahead=True)
    wanted = [replace(p, guards=(Guard("c", "then"),)) for p in (head, text)]
    found = timed(prefix, tool("a"), condition("c", Ref("a", "out")), *wanted)
    whole = timed(*call("m", ahead=True))
    assert found["m.ahead"].rest_s == pytest.approx(whole["m.ahead"].rest_s * 2 / 3)
    assert found["m.ahead"].total_s == pytest.approx(found["a"].total_s * 3 / 2)
    assert found["a"].rest_s > found["m.ahead"].rest_s


def test_stages_on_one_instance_follow_one_another() -> None:
    """Three calls of one tool: the first of them has the longest rest, the last the most slack."""
    alone = replace(PROFILE.engines["python"], max_batch=1)
    profile = replace(PROFILE, engines={**PROFILE.engines, "python": alone})
    found = timed(tool("a"), tool("b"), tool("c"), tool("d", "a", "b", "c"), profile=profile)
    step = TOOL_S + HOP_S
    rest = sorted(found[id].rest_s for id in "abc")
    assert rest == pytest.approx([2 * step, 3 * step, 4 * step])
    assert [found[id].latest_s for id in "abc"] == pytest.approx([0.0, step, 2 * step])


def test_without_a_profile_depths_stand_for_paths_and_no_time_is_known() -> None:
    found = timed(tool("a"), tool("b", "a"), profile=None)
    assert found == {"a": Estimate(rest_s=1.0), "b": Estimate(rest_s=0.0)}


def test_where_the_times_of_an_engine_are_not_known_depths_stand_for_all_paths() -> None:
    """Seconds of one engine and nothing of another would say that the other takes no time."""
    found = timed(*call("m"), profile=PROFILE.untimed())
    assert found == timed(*call("m"), profile=None)
    assert {estimate.base_s for estimate in found.values()} == {0.0}


def test_outputs_do_not_matter() -> None:
    made = Plan(plan(tool("a"), tool("b"), outputs={"x": Ref("a", "out")}).graph, PROFILE)
    assert made.specs[0].estimate == made.specs[1].estimate


@pytest.mark.parametrize("known", [True, False])
def test_times_are_known_where_all_engines_but_those_of_functions_are(known: bool) -> None:
    """A function takes no time until it was seen; a branch that is not expected does not matter."""
    profile = PROFILE if known else PROFILE.untimed()
    assert is_timed(plan(condition("if"), tool("a")).graph, profile)
    assert is_timed(plan(tool("a"), *call("m")).graph, profile) is known
    unlikely = call("m", guards=(Guard("if", "otherwise"),))
    assert is_timed(plan(condition("if"), *unlikely, tool("a")).graph, profile)
