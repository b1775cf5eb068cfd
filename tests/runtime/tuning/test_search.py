"""What is tuned, when, and by what: the paper's examples of search and test, and the samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.cost import StepTime
from teola.errors import InputError, UnknownName
from teola.profile import EngineProfile, Profile
from teola.runtime.sim.staged import StagedCall, StagedQuery, in_stages
from teola.runtime.tuning import recent
from teola.runtime.tuning.case_json import read_case, written_case
from teola.runtime.tuning.drift import greater, tail
from teola.runtime.tuning.grid_search import best, neighbours
from teola.runtime.tuning.recent import DRAWN, Recent
from teola.runtime.tuning.replay_case import ReplayCase, figure, replayed, tuned
from teola.runtime.tuning.tuner import Tuner, TunerOptions
from tests.planted import catches, edited

GRID = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
COSTS = {0: 31, 0.1: 29, 0.2: 28, 0.3: 27.5, 0.4: 30, 0.6: 33, 0.8: 40, 1: 55}


def test_the_search_is_coarse_and_then_fine() -> None:
    asked: list[float] = []

    def cost(value: float) -> float:
        asked.append(value)
        return COSTS[value]

    assert best(cost, GRID) == 0.3
    assert asked == [*GRID, 0.1, 0.3]
    assert best(lambda value: 1.0, GRID) == 0.0
    asked.clear()
    assert best(lambda value: asked.append(value) or -value, GRID) == 1.0  # type: ignore[func-returns-value]
    assert asked == [*GRID, 0.9]
    assert neighbours((5, 7, 10, 15), 10) == [8.5, 12.5]


@pytest.mark.parametrize(
    ("new", "reference", "t", "p"),
    [
        ((45, 47, 44, 46, 43, 45), (40, 42, 38, 41, 39, 40), 6.1237, 5.6e-5),
        ((41, 43, 39, 42, 40, 41), (40, 42, 38, 41, 39, 40), 1.2247, 0.124),
        ((60, 20, 70, 15, 55), (30, 10, 45, 20, 35), 1.2649, 0.126),
    ],
)
def test_the_test_is_welchs(
    new: tuple[int, ...], reference: tuple[int, ...], t: float, p: float
) -> None:
    found = greater(new, reference)
    assert found is not None
    assert found.t == pytest.approx(t, abs=1e-4)
    assert found.p == pytest.approx(p, rel=0.02)


def test_where_nothing_varies_there_is_nothing_to_test() -> None:
    assert greater((1, 1, 1), (1, 1)) is None
    assert greater((1,), (1, 2)) is None
    assert tail(0.0, 5) == pytest.approx(0.5)
    assert tail(-2.0, 8) == pytest.approx(1 - tail(2.0, 8))
    assert tail(2.262157, 9) == pytest.approx(0.025, abs=1e-6)


# --- samples --------------------------------------------------------------------------------


def query(arrival: float, *, prompt: int = 100, calls: int = 2) -> StagedQuery:
    stages = tuple((StagedCall("c", prompt, 3),) for _ in range(calls))
    return StagedQuery(stages, "app", arrival)


def came(
    told: Recent | Tuner, count: int, every_s: float, takes_s: float, start: float = 0.0
) -> None:
    for k in range(count):
        at = start + k * every_s
        told.began(f"{start}/{k}", replace(query(at), stages=()))
        told.ended(f"{start}/{k}", query(at).stages, at + takes_s + k % 3)


@catches(
    "survivors",
    "what runs goes on as the short ones did that have ended",
    edited(Recent._completed, "source.choice(longer or like)", "source.choice(like)"),
)
@catches(
    "born-anew",
    "what runs is taken for one that has done nothing",
    edited(Recent._done, "self._so_far is None", "True"),
)
def test_what_runs_counts_and_goes_on_as_others_did_that_were_as_long() -> None:
    done = {"runs": (query(0, prompt=7).stages[0],) * 2, "longest": query(0, calls=9).stages}
    one = Recent(so_far=lambda id: done.get(id, ()))
    came(one, 20, 10.0, 5.0)
    one.began("long", replace(query(1.0), stages=()))
    one.ended("long", query(1.0, calls=4).stages, 199.0)
    for id, app in (("runs", "app"), ("longest", "app"), ("alien", "another")):
        one.began(id, StagedQuery((), app, 195.0))
    found = [query for query in one.resampled(200.0, seed=0) if query.arrival]
    assert len(found) == DRAWN
    assert {query.calls for query in found} == {2, 4, 9}
    assert {query.calls for query in found if query.stages[0][0].prompt == 7} == {4}
    span = found[-1].arrival - found[0].arrival
    assert span == pytest.approx(DRAWN * 200 / 23, rel=0.35)
    assert found == one.resampled(200.0, seed=0)[-DRAWN:]


@catches(
    "idle-start",
    "a replay begins with idle engines",
    edited(Recent.resampled, "if rest.stages", "if not rest.stages"),
)
@catches(
    "done-again",
    "what runs has to do all of its calls again",
    edited(Recent._rest, "len(self._done(id)) :", "0:"),
)
@catches(
    "old-objective",
    "what runs has as long until its objective as it had when it came",
    edited(Recent._rest, "now - query.arrival", "0.0"),
)
def test_a_sample_meets_what_runs_and_is_followed_until_the_last_that_counts() -> None:
    done = {"early": query(0, calls=2).stages, "over": query(0, calls=4).stages}
    one = Recent(so_far=lambda id: done.get(id, ()))
    came(one, 20, 10.0, 5.0)
    one.began("long", replace(query(1.0), stages=()))
    one.ended("long", query(1.0, calls=4).stages, 199.0)
    for id, at, objective in (("early", 150.0, 80.0), ("over", 20.0, 90.0), ("new", 190.0, None)):
        one.began(id, StagedQuery((), "app", at, finish_by_s=objective))
    found = one.resampled(200.0, seed=0)
    load, drawn = found[:-DRAWN], found[-DRAWN:]
    assert [(q.arrival, q.counted) for q in load] == [(0.0, False)] * 2
    assert [(q.calls, q.finish_by_s) for q in load[:1]] == [(2, 30.0)]  # 4 in all; 50 s have gone
    assert load[1].finish_by_s is None
    assert [q.counted for q in drawn] == [True] * 64 + [False] * 16
    assert all(q.arrival > 0 for q in drawn)


def test_what_runs_is_a_bounded_load_and_late_objectives_are_due_at_once() -> None:
    one = Recent()
    came(one, 20, 10.0, 5.0)
    for k in range(3 * DRAWN):
        one.began(f"late{k}", StagedQuery((), "app", 100.0, finish_by_s=50.0))
    load = one.resampled(200.0, seed=0)[:-DRAWN]
    assert len(load) == DRAWN
    assert {q.finish_by_s for q in load} == {recent.SOONEST_S}


def test_it_remembers_ten_minutes_and_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Recent()
    came(one, 100, 10.0, 5.0)
    one.forget(1000.0)
    assert len(one) == 60
    monkeypatch.setattr(recent, "MOST_CALLS", 20)
    one.forget(1000.0)
    assert len(one) == 10


def test_the_papers_tuner_tunes_after_a_window_and_when_it_became_slower() -> None:
    one = Tuner(TunerOptions(sample="window"))
    came(one, 10, 9.0, 5.0)
    assert len(one.look(100.0) or ()) == 10
    came(one, 10, 9.0, 50.0, start=100.0)
    assert one.look(200.0) is None  # busy
    one.told()
    came(one, 10, 9.0, 5.0, start=205.0)
    assert one.look(300.0) is None  # it became faster
    came(one, 10, 4.0, 40.0, start=301.0)
    assert one.look(400.0)
    assert one.due == 500.0


@catches(
    "idle", "nothing is tuned by the clock", edited(Tuner.look, "or slower or late", "or slower")
)
def test_by_default_it_tunes_by_the_clock_too() -> None:
    one, when = Tuner(), []
    for k in range(7):
        came(one, 10, 9.0, 5.0, start=100.0 * k)
        if sample := one.look(100.0 * (k + 1)):
            assert [query.counted for query in sample].count(True) == 64
            one.told()
            when.append(k)
    assert when == [0, 3, 6]


def test_a_window_without_queries_tests_nothing() -> None:
    one = Tuner()
    assert one.look(100.0) is None
    came(one, 4, 9.0, 5.0, start=100.0)
    assert one.look(200.0)


@pytest.mark.parametrize(
    "wrong",
    [{"minimise": "median"}, {"ref": "first"}, {"sample": "all"}, {"window_s": 0}, {"p_value": 1}],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((InputError, UnknownName)):
        TunerOptions(**wrong)  # type: ignore[arg-type]


# --- replays --------------------------------------------------------------------------------


def two_speeds() -> Profile:
    """Prompts of 100 tokens take 1.0 and 2.0 s, a decoding step 0.1 and 0.2 s."""
    pool = tuple(
        EngineProfile(step=StepTime(step, per_token_s=(first - step) / 100), max_batch=100)
        for first, step in ((1.0, 0.1), (2.0, 0.2))
    )
    engine = replace(pool[0], pool=pool, instances=2)
    return Profile("two", {"llm": engine})


def case(**more: object) -> ReplayCase:
    queries = [query(0.0, calls=1), query(0.0, calls=1)]
    options = {"routing": "workload_balanced", "batching": "urgency", **more}
    return ReplayCase(queries, two_speeds(), **options)  # type: ignore[arg-type]


def test_a_replay_says_what_another_alpha_would_have_done() -> None:
    """Two calls at once: apart they take 1.2 and 2.4 s; both on the fast one they share it, and the
    second one waits for the first one's prompt. (The first token comes with the prompt.)"""
    apart = [one.latency_s for one in replayed(case(routing_options={"alpha": 0.0}))]
    assert apart == pytest.approx([1.2, 2.4])
    fast = [one.latency_s for one in replayed(case(routing_options={"alpha": 1.0}))]
    assert min(fast) >= 2.0
    assert figure(case(), replayed(case())) == pytest.approx(1.8)
    load = replace(
        case(), queries=[query(0.0, calls=1), replace(query(0.0, calls=1), counted=False)]
    )
    assert figure(load, replayed(load)) == pytest.approx(1.2)
    with pytest.raises(InputError, match="nothing to replay"):
        replace(load, queries=load.queries[1:])
    assert tuned(case(), "routing", "alpha", GRID) == 0.0


def test_a_case_is_the_same_after_its_journey() -> None:
    one = case(routing_options={"alpha": 0.4}, minimise="p95")
    again = read_case(written_case(one))
    assert written_case(again) == written_case(one)
    assert [r.latency_s for r in replayed(again)] == [r.latency_s for r in replayed(one)]
    with pytest.raises(UnknownName, match="figure 'median'"):
        case(minimise="median")


def test_missed_objectives_can_be_what_is_minimised() -> None:
    one = case(minimise="missed")
    late = [replace(q, finish_by_s=s) for q, s in zip(one.queries, (1.5, 1.5), strict=True)]
    one = replace(one, queries=late)
    assert figure(one, replayed(one)) == 0.5


def test_calls_that_overlapped_are_one_stage() -> None:
    a, b, c, d = (StagedCall(name, 1, 1) for name in "abcd")
    told = [(0.0, 2.0, a), (2.0, 9.0, b), (2.0, 4.0, c), (9.0, 10.0, d)]
    assert in_stages(told) == ((a,), (c, b), (d,))
