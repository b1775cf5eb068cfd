"""Passes that `teola.register` puts into the pipeline: where they run, and in which queries."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import teola
from teola import Runtime
from teola.errors import InputError
from teola.passes import PIPELINE, pipeline, select
from teola.passes.rewrite import Rewrite
from teola.policies.batching import Fifo
from teola.profile import paper
from teola.query.spec import QuerySpec
from teola.runtime.optimiser import Optimiser
from teola_apps.advanced_rag import app as advanced_rag
from tests.test_registering import declining, echo, nothing_is_left

__all__ = ["nothing_is_left"]


def names(chosen: Any = None) -> list[str]:
    return [step.name for step in select(chosen)]


def test_a_pass_runs_where_it_was_put_and_can_be_left_out() -> None:
    first, *_, last = PIPELINE
    with (
        teola.register("pass", "late", declining),
        teola.register("pass", "behind", declining, after=first),
        teola.register("pass", "ahead", declining, before=first),
        teola.register("pass", "last", declining, after=last),
        teola.register("pass", "behind-late", declining, after="late"),
    ):
        ours = ["ahead", first, "behind", *list(PIPELINE)[1:], "last", "late", "behind-late"]
        assert names() == names("all") == ours
        assert names(list(PIPELINE)) == list(PIPELINE)
        assert names("late, all") == ["late", *(name for name in ours if name != "late")]
        with pytest.raises(InputError, match="'late' has 'behind-late' beside it"):
            teola.unregister("pass", "late")
    assert names() == list(PIPELINE)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ({"after": "split_prefiling"}, "in the pipeline; did you mean 'split_prefilling'"),
        ({"before": "mine"}, "unknown pass 'mine' in the pipeline"),
        ({"after": "all"}, "unknown pass 'all' in the pipeline"),
        ({"after": "prune_dependencies", "before": "split_prefilling"}, "not both"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(place: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        teola.register("pass", "mine", declining, **place)


@pytest.mark.parametrize("place", [{"after": "fifo"}, {"before": "fifo"}])
def test_only_passes_have_a_place(place: dict[str, str]) -> None:
    with pytest.raises(InputError, match="only passes have a place"):
        teola.register("batching", "mine", Fifo, **place)


def test_no_pass_is_put_beside_itself() -> None:
    with (
        teola.register("pass", "a", declining),
        teola.register("pass", "b", declining, after="a"),
        pytest.raises(InputError, match="'a' would be put beside itself"),
    ):
        teola.register("pass", "a", declining, before="b")


PLACES = st.lists(
    st.tuples(st.sampled_from(["after", "before", ""]), st.integers(0, 9)), max_size=7
)


@given(places=PLACES, seed=st.randoms())
def test_the_order_of_registrations_does_not_matter(
    places: list[tuple[str, int]], seed: Any
) -> None:
    """Each pass stands alone, or beside a built-in pass or one that is drawn before it."""
    drawn: dict[str, dict[str, str]] = {}
    for (where, beside), number in zip(places, count()):
        there = [*PIPELINE, *drawn]
        drawn[f"p{number}"] = {where: there[beside % len(there)]} if where else {}
    found = []
    for shuffled in (False, True):
        left = list(drawn)
        with ExitStack() as registered:
            while left:
                ready = [n for n in left if not set(left) & set(drawn[n].values())]
                name = seed.choice(ready) if shuffled else ready[0]
                left.remove(name)
                registered.enter_context(teola.register("pass", name, declining, **drawn[name]))
            found.append(names())
    assert found[0] == found[1]
    assert [name for name in found[0] if name in PIPELINE] == list(PIPELINE)
    assert sorted(found[0]) == sorted([*PIPELINE, *drawn])
    for name, place in drawn.items():
        for where, beside in place.items():
            after = found[0].index(name) > found[0].index(beside)
            assert after == (where == "after")


def told(optimiser: Optimiser, passes: Any = None) -> list[str]:
    """Reasons that the passes of this file's give for the plan of a query."""
    plan = optimiser.plan({}, {"chunks": 48}, passes)
    assert plan.optimised is not None
    return [r.reason for r in plan.optimised.rewrites if r.pass_name == "mine"]


def saying(reason: str) -> Any:
    return lambda graph, profile: (graph, [Rewrite("mine", "", False, reason)])


def test_no_plan_from_before_a_registration_is_used_after_it() -> None:
    optimiser = Optimiser(advanced_rag.builder, paper("13b"))
    assert told(optimiser) == []
    with teola.register("pass", "mine", saying("one")):
        assert told(optimiser) == told(optimiser) == ["one"]
        assert told(optimiser, tuple(PIPELINE)) == []
    assert told(optimiser) == []
    with teola.register("pass", "mine", saying("two")):
        assert told(optimiser) == ["two"]
    assert (optimiser.hits, optimiser.misses) == (3, 3)


def test_an_app_runs_the_passes_that_are_there_when_it_is_asked() -> None:
    with Runtime() as runtime:
        app = echo()
        app.runtime = runtime
        seen = lambda **asked: {  # noqa: E731
            r.pass_name for r in app.explain(question="a", **asked).optimised.rewrites
        }
        assert "declining" not in seen()
        with teola.register("pass", "declining", declining, before="prune_dependencies"):
            assert "declining" in seen()
            assert "declining" not in seen(passes=list(PIPELINE))
            job = app.job(QuerySpec({"question": "b"}, deadline_s=9.0))
        result = runtime.start(job.run()).result().checked()
    assert result["said"] == "b"
    plan = result.trace.plan
    assert "declining" in {r.pass_name for r in plan.optimised.rewrites}, "as it was asked"


def test_who_plans_while_others_register_sees_whole_pipelines() -> None:
    """A pass is never there without the one that it was put beside."""
    optimiser = Optimiser(advanced_rag.builder, paper("13b"))
    over = threading.Event()

    def register() -> None:
        while not over.is_set():
            with (
                teola.register("pass", "mine", saying("first"), after="prune_dependencies"),
                teola.register("pass", "beside", saying("second"), before="mine"),
            ):
                assert pipeline()[1].name == "beside"

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(register)
        try:
            for _ in range(300):
                assert told(optimiser) in ([], ["first"], ["second", "first"])
        finally:
            over.set()
        done.result()
