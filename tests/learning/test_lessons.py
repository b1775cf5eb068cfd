"""Lessons as data: what stands in a file, and what they do to a profile."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.errors import InputError
from teola.graph import Op
from teola.habit import Habit
from teola.learning import NO_LESSONS, EngineTimes, Lessons
from teola.learning.lessons import Slowness
from teola.profile import Cost, EngineProfile, Profile, StepTime, paper
from tests.planted import catches, edited

STEP = StepTime(0.012, 0.0003, 1.5e-6, 2e-4, 5e-8, 0.004)
KNOWN = Lessons(
    7,
    {
        "llm": EngineTimes(step=STEP, seen=400),
        "embedding": EngineTimes({Op.EMBEDDING: Cost(0.05, 0.01)}, None, 60, frozenset(Op)),
    },
    {("app", "answer"): Habit(9, 1.5, 64.0, 2.0, 4.0, None, {"yes": 3}, (9, 9, 2))},
)

figure = st.floats(0, 1e6, allow_nan=False)
costs = st.builds(Cost, figure, figure, figure, st.integers(0, 1000))
steps = st.none() | st.builds(StepTime, figure, figure, figure, figure, figure, figure)
times = st.builds(
    EngineTimes,
    st.dictionaries(st.sampled_from(Op), costs, max_size=2),
    steps,
    st.integers(0, 10**6),
    st.frozensets(st.sampled_from(Op)),
    figure,
    st.dictionaries(st.text(), st.builds(Slowness, figure, st.integers(0, 99)), max_size=2),
)
branches = st.dictionaries(st.text(), st.integers(0, 99), max_size=3)
turns = st.lists(st.integers(0, 99), max_size=66).map(tuple)
habit = st.builds(
    Habit, st.integers(0, 99), figure, figure, figure, figure, st.none() | figure, branches, turns
)
lessons = st.builds(
    Lessons,
    st.integers(0, 10**6),
    st.dictionaries(st.text(), times, max_size=3),
    st.dictionaries(st.tuples(st.text(), st.text()), habit, max_size=3),
)


@given(lessons)
def test_what_is_written_is_read_back(known: Lessons) -> None:
    assert Lessons.from_json(json.loads(json.dumps(known.to_json()))) == known


def written(**changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(KNOWN.to_json())), **changes}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "expected version 1 of what was learned"),
        ([], "expected version 1"),
        ({}, "expected version 1"),
        (written(version=2), "expected version 1"),
        ({"version": 1}, "malformed ('engines')"),
        (written(engines=[]), "malformed"),
        (written(engines={"llm": None}), "malformed"),
        (written(engines={"llm": {"costs": {}, "step": None, "seen": 1}}), "'varied'"),
        (
            written(engines={"llm": {"costs": {"x": {}}, "step": 0, "seen": 1, "varied": []}}),
            "'x' is not a valid Op",
        ),
        (written(epoch="many"), "'many'"),
        (written(habits=[["app", "answer"]]), "malformed"),
        (written(habits=[["app", "answer", {"unheard_of": 1}]]), "unheard_of"),
    ],
)
def test_what_is_malformed_is_refused_and_says_where_and_why(data: Any, told: str) -> None:
    with pytest.raises(InputError) as found:
        Lessons.from_json(data, "here.json")
    assert str(found.value).startswith("here.json: ")
    assert told in str(found.value)


FIGURES = (
    ("llm", "step", {**written()["engines"]["llm"]["step"], "base_s": -1.0}),
    ("llm", "step", {**written()["engines"]["llm"]["step"], "per_token_s": float("nan")}),
    ("llm", "step", {**written()["engines"]["llm"]["step"], "per_token_s": "fast"}),
    ("embedding", "costs", {"embedding": {"base_s": float("inf")}}),
    ("embedding", "costs", {"embedding": {"base_s": None}}),
    ("llm", "crowding", -0.1),
    ("llm", "crowding", float("nan")),
    ("llm", "crowding", "much"),
    ("llm", "instances", {"one": {"factor": float("inf"), "seen": 3}}),
    ("llm", "instances", {"one": {"factor": -1.0, "seen": 3}}),
    ("llm", "instances", {"one": {"factor": 1.0, "seen": -1}}),
)


def test_a_file_from_before_crowds_and_single_instances_were_known_is_read() -> None:
    data = written()
    for name in ("crowding", "instances"):
        del data["engines"]["llm"][name]
    read = Lessons.from_json(data).engines["llm"]
    assert (read.crowding, dict(read.instances)) == (0.0, {})
    assert read == KNOWN.engines["llm"]


@pytest.mark.parametrize(("engine", "field", "value"), FIGURES)
def test_figures_that_cannot_be_times_are_refused(engine: str, field: str, value: Any) -> None:
    """A file may have been edited by hand: what a policy waits for must be a time."""
    data = written()
    data["engines"][engine][field] = value
    with pytest.raises(InputError, match="malformed"):
        Lessons.from_json(data)


@pytest.mark.parametrize(
    "change",
    [{"output": -1.0}, {"prompt": float("nan")}, {"branches": {"a": -3}}, {"seconds": "x"}],
)
def test_habits_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    data = written()
    data["habits"][0][2] |= change
    with pytest.raises(InputError, match="malformed"):
        Lessons.from_json(data)


def test_what_was_learned_replaces_the_times_of_its_engines_only() -> None:
    before = paper("13b")
    known = KNOWN.over(before)
    assert known.engines["llm"].step == STEP
    assert known.engines["llm"].max_sequences == before.engines["llm"].max_sequences
    assert known.engines["embedding"].costs[Op.EMBEDDING] == Cost(0.05, 0.01)
    assert known.engines["rerank"] == before.engines["rerank"]
    assert "vectorstore" in known.engines
    assert known.engines.keys() == before.engines.keys()
    assert (known.epoch, known.habits) == (7, KNOWN.habits)


def test_it_says_where_the_times_come_from() -> None:
    known = KNOWN.over(paper("13b"))
    assert known.engines["llm"].source == "learned from 400 calls"
    assert known.engines["embedding"].source == "learned from 60 batches"
    assert known.engines["rerank"].source == ""


@catches(
    "lessons-trust-all",
    "the largest efficient batch follows from times of one size",
    edited(EngineTimes.over, "self.varied.issuperset(self.costs)", "True"),
)
def test_a_declared_limit_of_batches_stands_until_the_base_is_known() -> None:
    declared = EngineProfile(max_batch=64, max_efficient=64)
    guessed = EngineTimes({Op.EMBEDDING: Cost(0.0, 0.01)}, None, 5)
    assert guessed.over(declared).max_efficient == 64
    known = replace(guessed, costs={Op.EMBEDDING: Cost(0.1, 0.01)}, varied=frozenset(Op))
    assert known.over(declared).max_efficient is None


def test_nothing_learned_changes_nothing() -> None:
    before = Profile("mine", {"llm": EngineProfile()}, 0.5)
    assert NO_LESSONS.over(before) == before


def test_lessons_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        KNOWN.epoch = 8  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        KNOWN.engines["llm"].seen = 8  # type: ignore[misc]


@catches(
    "pool-untaught",
    "instances of a pool stay without times",
    edited(EngineTimes.over, "instance if instance.timed else self.over(instance)", "instance"),
)
def test_instances_of_a_pool_take_the_times_that_they_have_not_themselves() -> None:
    own = EngineProfile(step=StepTime(base_s=9.0))
    engine = EngineProfile(pool=(EngineProfile(max_sequences=3), own))
    found = EngineTimes(step=StepTime(base_s=2.0), seen=7).over(engine)
    assert [one.step.base_s for one in found.pool] == [2.0, 9.0]
    assert found.pool[0].max_sequences == 3
