"""workload_balanced: the paper's scores, and what instances have ahead, whatever happens."""

from __future__ import annotations

from random import Random
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from teola.errors import EngineError, InputError, UnknownName
from teola.policies import routing
from teola.policies.reason import Because
from teola.policies.routing.call_seconds import InstanceKinds
from teola.policies.routing.workload_balanced import WorkloadBalanced
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import CallEnded, Cause, InstanceDown, InstanceDraining, InstanceUp
from tests.planted import catches, edited
from tests.policies.unequal import call, end, first, queue, sent, submit, window


def balanced(speeds: list[tuple[float, float]], **options: object) -> EngineQueue:
    return queue(speeds, routing="workload_balanced", routing_options=dict(options))


def policy_of(made: EngineQueue) -> WorkloadBalanced:
    found = made.placing.routing
    assert isinstance(found, WorkloadBalanced)
    return found


@catches(
    "slow-counts",
    "speed counts for nothing",
    edited(WorkloadBalanced._score, "- alpha * own_s", ""),
)
def test_the_score_is_the_papers() -> None:
    """(t_queue, t_comp) of (20, 5), (8, 10), (12, 9) and beta 40."""
    for alpha, best in ((0.0, 1), (0.2, 1), (0.5, 0), (1.0, 0)):
        check_score(alpha, best)


def check_score(alpha: float, best: int) -> None:
    made = balanced([(0.005, 0.0), (0.010, 0.0), (0.009, 0.0)], alpha=alpha, beta=40.0)
    for i, tokens in enumerate((4000, 800, 1333)):
        submit(made, call(f"before{i}", tokens, affinity=i))
    assert policy_of(made).ahead_s == pytest.approx((20.0, 8.0, 12.0), rel=1e-3)
    assert submit(made, call("q", 1000)) == best


def test_a_call_says_when_it_would_end_where_it_goes_and_where_it_would_end_first() -> None:
    made = balanced([(0.001, 0.0), (0.002, 0.0), (0.002, 0.0)])
    made.placing.explain()
    submit(made, call("before0", 4000, affinity=0))
    submit(made, call("before1", 1000, affinity=1))
    before = submit(made, call("a", 1000)), submit(made, call("b", 1000, seq=1))
    assert before == (2, 1)
    for run, at, here, least, other in (("a", 2, 2.0, 4.0, 1), ("b", 1, 4.0, 4.0, 2)):
        reason = made.works[run, 0].reason
        assert reason is not None
        assert (reason.because, reason.unit, reason.other) == (Because.ENDS, "s", other)
        assert (reason.here, reason.next) == pytest.approx((here, least)), (run, at)


def test_of_two_idle_instances_the_quicker_one_gets_a_call_whatever_its_number() -> None:
    for speeds in ([(0.0012, 0.0), (0.0024, 0.0)], [(0.0024, 0.0), (0.0012, 0.0)]):
        made = balanced(speeds)
        assert speeds[submit(made, call("q", 1000))][0] == 0.0012


def test_answers_count_as_long_as_they_are_expected_to_be() -> None:
    made = balanced([(0.001, 0.01), (0.002, 0.001)], alpha=1.0)
    assert submit(made, call("short", 100, 1)) == 0
    assert submit(made, call("long", 100, 500)) == 1


def test_by_ratio_all_are_given_calls_while_the_first_is_away() -> None:
    made = balanced([(0.001, 0.0)] * 3, score="ratio")
    made.down(InstanceDown("e", 0), 0.0)
    assert {submit(made, call(f"q{k}", 1000, seq=k)) for k in range(4)} == {1, 2}


def test_instances_that_are_learned_to_be_about_alike_are_one_kind() -> None:
    whole = EngineProfile(step=StepTime(0.02, per_token_s=0.001))
    factors = [1 + k / 100_000 for k in range(1000)] + [3 + k / 100_000 for k in range(1000)]
    view: Any = SimpleNamespace(profiles=[whole.slowed(factor, whole) for factor in factors])
    assert len(InstanceKinds(view).profiles) <= 4


@catches(
    "window-is-a-call",
    "a window of rows counts as one call",
    edited(WorkloadBalanced.place, "* work.entries(work.total)", ""),
)
def test_what_is_ahead_counts_each_row_of_a_window() -> None:
    made = balanced([(0.001, 0.0)])
    submit(made, window("rows", 2000, 100))
    assert policy_of(made).ahead_s == pytest.approx((200.0,))


@catches(
    "kept",
    "what is withdrawn stays ahead",
    edited(WorkloadBalanced.observe, "(Finished, Left)", "(Finished, Finished)"),
)
def test_nothing_is_ahead_when_all_calls_have_ended() -> None:
    for seed in range(8):
        check_interleaving(seed)


def check_interleaving(seed: int) -> None:
    draw = Random(seed)
    made = balanced([(0.001, 0.01)] * 2 + [(0.003, 0.02)] * 2, alpha=draw.random())
    waiting, flying, now = [], [], 0.0
    for k in range(60):
        now += draw.random()
        work = call(f"q{k}", draw.randint(1, 5000), draw.randint(0, 300), at=now, seq=k)
        submit(made, work, now)
        waiting.append(work.run)
        for run, _ in sent(made, now):
            waiting.remove(run)
            flying.append(run)
        if waiting and draw.random() < 0.2:
            made.withdraw(waiting.pop(draw.randrange(len(waiting))), 0, now)
        while flying and draw.random() < 0.5:
            run = flying.pop(draw.randrange(len(flying)))
            if draw.random() < 0.2:
                ((_, batch),) = made.works[run, 0].flying.values()
                failed = Cause(EngineError("x", retryable=True), retryable=True)
                made.call_ended(CallEnded("e", batch, run, 0, failed), now)
                waiting.extend([run] if (run, 0) in made.works else [])
            else:
                first(made, run, now)
                end(made, run, now)
    for _ in range(500):
        for run, _ in sent(made, now):
            first(made, run, now)
            end(made, run, now)
        for run in flying:
            end(made, run, now)
        flying.clear()
    assert made.idle
    assert policy_of(made).ahead_s == (0.0,) * 4


def test_a_lost_instance_has_nothing_ahead_and_its_calls_go_elsewhere() -> None:
    made = balanced([(0.001, 0.0), (0.001, 0.0)])
    works = [call(f"q{k}", 1000, seq=k) for k in range(4)]
    assert [submit(made, work) for work in works] == [0, 1, 0, 1]
    made.down(InstanceDown("e", 0), 1.0)
    assert policy_of(made).ahead_s == pytest.approx((0.0, 4.0))
    made.up(InstanceUp("e", 0), 2.0)
    assert policy_of(made).ahead_s[0] + policy_of(made).ahead_s[1] == pytest.approx(4.0)


def test_running_calls_count_only_if_they_are_to() -> None:
    for count_running, ahead in ((True, 1.0), (False, 0.0)):
        made = balanced([(0.001, 0.0), (0.001, 0.0)], count_running=count_running)
        submit(made, call("q", 1000))
        assert sent(made) == [("q", 0)]
        assert policy_of(made).ahead_s[0] == pytest.approx(ahead)
        alone = balanced([(0.001, 0.0)], count_running=count_running)
        for run in "ab":
            submit(alone, call(run, 500))
        assert sent(alone) == [("a", 0), ("b", 0)]
        assert policy_of(alone).ahead_s == pytest.approx((ahead,))


def test_instances_that_turn_out_to_differ_are_put_in_order_anew() -> None:
    made = balanced([(0.001, 0.0)] * 2, alpha=1.0)
    assert submit(made, call("a", 1000)) == 0
    view: Any = policy_of(made).view
    view.profiles = [EngineProfile(step=StepTime(per_token_s=s)) for s in (0.003, 0.001)]
    assert submit(made, call("b", 1000, seq=1)) == 1
    assert made.faults.error is None


def test_what_was_there_before_an_instance_went_counts_no_more_when_it_ends() -> None:
    made = balanced([(0.001, 0.0)])
    for run in "ab":
        submit(made, call(run, 500))
    sent(made)
    made.draining(InstanceDraining("e", 0), 1.0)
    assert policy_of(made).ahead_s == (0.0,)
    made.up(InstanceUp("e", 0), 2.0)
    submit(made, call("new", 1000))
    for run in "ab":
        end(made, run, 3.0)
    assert policy_of(made).ahead_s == pytest.approx((1.0,))


def test_the_authors_variant_begins_with_the_first_and_halves_the_slow() -> None:
    made = balanced([(0.001, 0.0), (0.003, 0.0)], score="ratio")
    assert [submit(made, call(f"q{k}", 1000, seq=k)) for k in range(3)] == [0, 1, 0]


def test_without_times_work_goes_to_whoever_has_room_and_says_why() -> None:
    made = balanced([(0.0, 0.0), (0.0, 0.0)])
    made.placing.explain()
    work = call("q", 10)
    assert submit(made, work) == -1
    sent(made)
    assert work.reason is not None
    assert work.reason.because is Because.UNTIMED


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"alpha": 1.1}, "alpha must be a number from 0"),
        ({"alpha": float("nan")}, "alpha must be a number from 0"),
        ({"alpha": True}, "alpha must be a number from 0"),
        ({"beta": 0}, "beta must be a number above 0"),
        ({"count_running": 1}, "count_running must be true or false"),
        ({"score": "best"}, "score must be 'paper' or 'ratio'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        routing.make("workload_balanced", **options)
    with pytest.raises(UnknownName, match="alpha"):
        routing.make("workload_balanced", alhpa=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "most_us"), [(4, 20.0), (1000, 100.0)])
def test_placing_is_quick(instances: int, most_us: float) -> None:
    speeds = [(0.001, 0.01), (0.002, 0.02), (0.003, 0.02), (0.004, 0.03)]
    made = balanced([speeds[k % 4] for k in range(instances)], alpha=0.2)
    works = [call(f"q{k}", 1000 + k % 7, 50, seq=k) for k in range(2000)]
    policy = policy_of(made)
    took = []
    for k in range(0, 2000, 100):
        began = perf_counter()
        for work in works[k : k + 100]:
            policy.place(work, 0.0)
        took.append((perf_counter() - began) / 100)
    assert min(took) * 1e6 <= most_us


@catches(
    "counted-again",
    "a call that is tried again counts once more in the mean",
    edited(WorkloadBalanced.place, "not again and not work.tries", "not again"),
)
def test_each_call_counts_once_in_the_mean_however_often_it_is_tried() -> None:
    """The second one fails twice, and is far from the mean."""
    means = []
    for fails in (0, 2):
        made = balanced([(0.001, 0.01)])
        for run, prompt in (("a", 1000), ("b", 9000)):
            submit(made, call(run, prompt))
            for _ in range(fails if run == "b" else 0):
                assert sent(made) == [(run, 0)]
                ((_, batch),) = made.works[run, 0].flying.values()
                failed = Cause(EngineError("x", retryable=True), retryable=True)
                made.call_ended(CallEnded("e", batch, run, 0, failed), 0.0)
            sent(made)
            first(made, run)
            end(made, run)
        means.append(policy_of(made)._mean_s)
    assert means[0] == means[1] == pytest.approx(5.01, rel=0.01)
