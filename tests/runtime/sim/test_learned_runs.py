"""Simulated runs whose plans go by what they learn: epochs, repeatability, and that nothing waits
on a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola.learning import Learner, Lessons
from teola.profile import EngineProfile, paper
from teola.runtime.driver import Driver
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.schedule.events import SetTimer, State
from teola.schedule.plan import Plan
from tests.learning.loaded import Loaded, growing
from tests.planted import catches, edited

APPS = ("naive_rag", "advanced_rag", "chat_rag", "search_agent")
TRUE = paper("13b")


class Watched(Sim):
    """Notes timers, plans and traces."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, on_finish=self._note, **options)
        self.timers: list[SetTimer] = []
        self.plans: list[tuple[float, Plan, Plan]] = []
        self.traces: list[Any] = []

    def set_timer(self, command: SetTimer, now: float) -> None:
        overdue = self.core.queues[command.engine].overdue
        if overdue is None or command.at != overdue.next_at():  # else it looks for late tokens
            self.timers.append(command)
        super().set_timer(command, now)

    def begin(self, query: Query, now: float) -> None:
        query.began_with = query.plan  # type: ignore[attr-defined]
        super().begin(query, now)

    def _note(self, query: Query, result: SimulatedQuery) -> None:
        self.plans.append((result.admitted, query.began_with, query.run.plan))  # type: ignore[attr-defined]
        self.traces.append(query.trace.to_json())


def watched(app: str, **more: Any) -> tuple[Loaded, Watched]:
    made = Loaded(app, TRUE, sim=Watched, **more)
    assert isinstance(made.sim, Watched)
    return made, made.sim


@pytest.mark.parametrize("app", APPS)
def test_as_long_as_nothing_is_known_nothing_waits(app: str) -> None:
    made, sim = watched(app, learns=False)
    results = made.run(40, rate=2.0)
    assert all(result.state is State.OK for result in results)
    assert sim.timers == []


@catches(
    "plan-waits-on-guess",
    "plans have times although those of some engines are not known",
    edited(Plan._estimates, "not estimate.timed(self.graph, profile)", "False"),
    edited(EngineProfile.untimed, "step=UNTIMED,", ""),
)
def test_nor_does_anything_wait_under_more_load() -> None:
    made, sim = watched("advanced_rag", learns=False)
    made.run(60, rate=4.0)
    assert sim.timers == []


def test_it_would_have_waited_with_times() -> None:
    """Else the test above says nothing."""
    made, sim = watched("advanced_rag", learns=False)
    made.optimiser.declared = made.optimiser._profile = TRUE
    made.run(40, rate=2.0)
    assert sim.timers


@pytest.mark.parametrize("app", APPS)
def test_the_same_seed_gives_the_same_trace(app: str) -> None:
    told = []
    for _ in range(2):
        made, sim = watched(app)
        made.run(60, rate=1.0, seed=3)
        assert made.learner is not None
        assert made.learner.lessons.epoch > 1
        told.append(json.dumps([sim.traces, made.learner.snapshot().to_json()]))
    assert told[0] == told[1]


def test_another_seed_gives_another_trace() -> None:
    one, two = watched("naive_rag"), watched("naive_rag")
    one[0].run(20, 1.0, seed=1)
    two[0].run(20, 1.0, seed=2)
    assert one[1].traces != two[1].traces


@catches(
    "optimiser-old-epoch",
    "a plan is kept although more is known",
    edited(Optimiser.plan, "kept.plan.profile.epoch == epoch", "True"),
)
@catches(
    "driver-unpublished",
    "nothing is published when a query ends",
    edited(Driver._finish, "self.learner.publish(now)", "pass"),
)
def test_an_epoch_has_plans_of_its_own_and_a_run_keeps_the_one_it_began_with() -> None:
    made, sim = watched("advanced_rag", chunks=(48, 48))
    made.run(40, rate=2.0)
    assert all(began is now for _, began, now in sim.plans)
    ordered = [plan for _, plan, _ in sorted(sim.plans, key=lambda one: one[0])]
    assert len(set(map(id, ordered))) > 1
    first, last = ordered[0], ordered[-1]
    assert {spec.estimate.base_s for spec in first.specs} == {0.0}
    assert max(spec.estimate.total_s for spec in last.specs) > 0
    assert made.plan(48) is made.plan(48), "of one epoch there is one plan"


def test_a_replay_starts_from_a_snapshot() -> None:
    """Two runs that begin with the same lessons decide the same, and not as one without any."""
    before, _ = watched("advanced_rag")
    before.run(60, rate=1.0)
    assert before.learner is not None
    kept = json.dumps(before.learner.snapshot().to_json())
    told = []
    for _ in range(2):
        learner = Learner()
        learner.recall(Lessons.from_json(json.loads(kept)))
        made, sim = watched("advanced_rag", learner=learner)
        made.run(40, rate=1.0, seed=9)
        told.append(json.dumps(sim.traces))
    fresh, other = watched("advanced_rag")
    fresh.run(40, rate=1.0, seed=9)
    assert told[0] == told[1]
    assert told[0] != json.dumps(other.traces)


def test_what_was_recalled_is_used_by_the_first_plan() -> None:
    before, _ = watched("advanced_rag")
    before.run(100, rate=0.5)
    assert before.learner is not None
    learner = Learner()
    learner.recall(before.learner.snapshot())
    made, _ = watched("advanced_rag", learner=learner)
    known, true = made.plan(48), Optimiser(made.optimiser.builder, TRUE).plan({}, {"chunks": 48})
    total = max(spec.estimate.total_s for spec in known.specs)
    assert total > 0
    longer = total / max(spec.estimate.total_s for spec in true.specs)
    assert 0.5 < longer < 3.0, "answers are longer than planned, engines as slow"


def test_cached_plans_are_those_of_few_epochs() -> None:
    made, _ = watched("naive_rag")
    made.run(150, rate=1.0)
    assert len(made.optimiser._plans) <= 256
    assert made.optimiser.hits > made.optimiser.misses


def mean(results: list[SimulatedQuery]) -> float:
    """Seconds, without the first tenth."""
    counted = sorted(results, key=lambda one: one.admitted)[len(results) // 10 :]
    return sum(one.latency_s for one in counted) / len(counted)


LOADS = {"naive_rag": 0.5, "advanced_rag": 0.3, "chat_rag": 0.3, "search_agent": 3.0}
"""Queries a second: about what the engines can do."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "load"),
    [
        pytest.param(TRUE, 0.5, id="two-terms-0.5", marks=pytest.mark.nightly),
        pytest.param(TRUE, 0.8, id="two-terms-0.8", marks=pytest.mark.nightly),
        pytest.param(growing(), 0.5, id="all-terms-0.5", marks=pytest.mark.nightly),
        pytest.param(growing(), 0.8, id="all-terms-0.8"),
    ],
)
@pytest.mark.parametrize(
    "app",
    [pytest.param(app, marks=[pytest.mark.nightly] * (app == "chat_rag")) for app in APPS],
)
def test_learning_from_nothing_makes_nothing_slower(app: str, profile: Any, load: float) -> None:
    """On average over eight seeds, by no more than 2 %."""
    rate, learned, off = load * LOADS[app], [], []
    for seed in range(8):
        for learns, found in ((True, learned), (False, off)):
            made = Loaded(app, profile, learns=learns)
            found.append(mean(made.run(120, rate, seed)))
    assert sum(learned) / sum(off) < 1.02
