"""urgency: the paper's budgets and order, and what has no objective or none that can be kept."""

from __future__ import annotations

from math import inf

import pytest

from teola.errors import EngineError, InputError
from teola.policies import batching
from teola.policies.batching.urgency import HOPELESS, Urgency, budget_s
from teola.policies.work import Slots, Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import CallEnded, Cause
from tests.planted import catches, edited
from tests.policies.test_batches_slow import lives
from tests.policies.unequal import call, queue, sent, submit


def test_a_budget_is_a_share_of_what_is_left() -> None:
    assert budget_s(60 - 12, 2, 2 + 18 + 6 + 4) == pytest.approx(3.2)
    assert budget_s(60 - 66, 6, 10) == pytest.approx(-3.6)
    assert budget_s(60 - 66, 4, 4) == pytest.approx(-6)


@pytest.mark.parametrize(
    ("took", "budgets"),
    [((None, None, None, None), (4, 36, 12, 8)), ((4, 40, 12, 8), (4, 36, 9.6, 4))],
)
def test_what_a_call_takes_longer_those_that_follow_lack(
    took: tuple[float | None, ...], budgets: tuple[float, ...]
) -> None:
    """Calls of 2, 18, 6 and 4 s, of which each takes its budget, or as long as it is told."""
    now, rest, found = 0.0, [2.0, 18.0, 6.0, 4.0], []
    for takes in took:
        found.append(budget_s(60 - now, rest[0], sum(rest)))
        now += found[-1] if takes is None else takes
        rest.pop(0)
    assert found == pytest.approx(budgets)
    assert now == pytest.approx(60 if took[0] is None else 64)


class Keyed(Urgency):
    """Works have the times on their instance and the budgets that they are given."""

    def _seconds(self, work: Work) -> tuple[float, float, float]:
        return 1.0, work.spec.estimate.rest_s, 1.0


def keyed(run: str, t_comp: float, t_slo: float, at: float, seq: int) -> Work:
    return call(run, 1, at=at, seq=seq, finish_by=100.0, rest_s=t_comp, budget_s=t_slo)


@catches(
    "no-age",
    "how long it has waited is forgotten",
    edited(Urgency.key, "work.budget_s + work.arrival - here_s", "work.budget_s - here_s"),
)
def test_the_order_is_that_of_urgency_and_does_not_change() -> None:
    works = [
        keyed("a", 26.7, 30.4, 0.0, 0),
        keyed("c", 10.0, 40.0, 2.0, 1),
        keyed("b", 3.2, 3.3, 5.0, 2),
    ]
    policy = Keyed()
    for work in works:
        policy.add(work, work.arrival)
    keys = {work.run: policy.key(work, 0.0)[1] for work in works}
    assert keys == pytest.approx({"a": 3.7, "b": 5.1, "c": 32.0})
    order = []
    for now in (6.0, 10.0, 50.0):
        ((work, _, _),) = policy.choose(Slots(0, 1, 9, False, 1), now)
        order.append(work.run)
        work.queued = False
        policy.remove(work, now)
    assert order == ["a", "b", "c"]


def urgent(**options: object) -> EngineQueue:
    return queue([(0.001, 0.0)], batching="urgency", options=dict(options), sequences=1)


def test_a_query_that_is_late_goes_first_and_one_without_an_objective_last() -> None:
    made = urgent()
    for k, (run, finish_by) in enumerate((("none", inf), ("soon", 50.0), ("late", -5.0))):
        submit(made, call(run, 100, seq=k, finish_by=finish_by, rest_s=10.0))
    order = []
    for _ in range(3):
        ((run, _),) = sent(made)
        order.append(run)
        made.withdraw(run, 0, 0.0)
        ((_, batch),) = made.works[run, 0].flying.values()
        made.call_ended(CallEnded("e", batch, run, 0, {}), 0.0)
    assert order == ["late", "soon", "none"]


@catches(
    "depth-for-seconds",
    "a call whose times are not known has no budget",
    edited(Urgency.key, "known = mean_s > 0", "known = rest_s > 0"),
)
def test_without_times_the_first_promise_goes_first() -> None:
    made = queue([(0.0, 0.0)], batching="urgency", sequences=1)
    submit(made, call("later", 100, finish_by=100.0, rest_s=3.0))
    submit(made, call("sooner", 100, seq=1, finish_by=10.0, rest_s=1.0))
    assert sent(made) == [("sooner", 0)]


@catches(
    "hope",
    "what cannot be in time goes first all the same",
    edited(Urgency.key, "HOPELESS if hopeless else PROMISED", "PROMISED"),
)
def test_those_that_cannot_be_in_time_do_not_starve_those_that_can() -> None:
    made = urgent(drop_hopeless=True)
    submit(made, call("hopeless", 100, finish_by=1.0, rest_s=60.0))
    submit(made, call("soon", 100, seq=1, finish_by=70.0, rest_s=60.0))
    assert sent(made) == [("soon", 0)]


def test_the_most_urgent_is_waited_for_unless_those_that_fit_may_go_before() -> None:
    for skips, expected in ((False, []), (True, [("small", 0)])):
        options = {"skip_unfit": skips}
        made = queue([(0.001, 0.0)], batching="urgency", options=options, budget=100)
        submit(made, call("running", 60, finish_by=5.0))
        assert sent(made) == [("running", 0)]
        submit(made, call("large", 90, seq=1, finish_by=5.0, rest_s=9.0))
        submit(made, call("small", 10, seq=2, finish_by=50.0))
        assert sent(made) == expected


def test_a_call_that_is_tried_again_has_the_budget_that_it_had() -> None:
    made = urgent()
    work = call("q", 100, finish_by=50.0, rest_s=10.0)
    submit(made, work, 1.0)
    sent(made, 2.0)
    ((_, batch),) = work.flying.values()
    failed = Cause(EngineError("x", retryable=True), retryable=True)
    made.call_ended(CallEnded("e", batch, "q", 0, failed), 9.0)
    again = made.works["q", 0]
    assert again is not work
    assert again.budget_s == work.budget_s == pytest.approx(49 * 0.1 / 10.0)


@pytest.mark.parametrize("option", ["drop_hopeless", "skip_unfit"])
def test_options_are_true_or_false(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} must be true or false"):
        batching.make("urgency", **{option: "yes"})


@catches(
    "classes-mixed",
    "among priorities of a server's own queue, how urgent a call is outweighs its class",
    edited(Urgency.priority, "where * CLASS_MS + 1000 * behind", "1000 * behind"),
)
def test_priorities_are_in_its_order_whatever_class_works_are_of() -> None:
    made = urgent(drop_hopeless=True)
    policy = made.line.policy
    assert isinstance(policy, Urgency)
    works = [
        call("soon", 100, finish_by=1e6, rest_s=1.0),
        call("later", 100, finish_by=2e6, rest_s=1.0),
        call("old", 100, admitted=-5e5),
        call("young", 100, admitted=7.0),
        call("hopeless", 100, finish_by=1.0, rest_s=60.0),
        call("more so", 100, finish_by=2.0, rest_s=90.0),
    ]
    by_key = sorted(works, key=lambda one: policy.key(one, 0.0))
    assert [one.run for one in by_key][:4] == ["soon", "later", "old", "young"]
    by_priority = sorted(works, key=lambda one: -policy.priority(one, 0.0))
    assert [one.run for one in by_priority] == [one.run for one in by_key]


def test_just_in_time_is_not_hopeless() -> None:
    """The query's calls take 60 s on the only instance, and nothing else is in the way."""
    made = urgent(drop_hopeless=True)
    policy = made.line.policy
    assert isinstance(policy, Urgency)
    for finish_by, hopeless in ((60.0, False), (59.9, True)):
        one = call("q", 100, finish_by=finish_by, rest_s=60.0)
        assert (policy.key(one, 0.0)[0] == HOPELESS) is hopeless


def test_each_batch_is_what_a_slow_policy_takes() -> None:
    for seed in range(3):
        for name in ("urgency", "skipping urgency"):
            lives(name, seed)
