"""What calls take on instances of each kind, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.policies.routing.call_seconds import (
    InstanceKinds,
    call_s,
    prompt_alone_s,
    step_s,
)
from teola.profile import EngineProfile, StepTime
from tests.planted import catches, edited
from tests.policies.unequal import call, queue

FAST, SLOW = (0.001, 0.01), (0.002, 0.02)


def test_a_prompt_takes_a_step_for_each_budget_and_one_for_the_rest() -> None:
    step = StepTime(0.5, per_token_s=0.001, per_pair_s=1e-6, prefill_s=0.25)
    profile = EngineProfile(step=step, max_batch=100)
    for tokens, steps in ((1, 1), (100, 1), (101, 2), (200, 2), (201, 3)):
        pairs = sum(range(1, tokens + 1))
        expected = 0.75 * steps + 0.001 * tokens + 1e-6 * pairs
        assert prompt_alone_s(profile, tokens) == pytest.approx(expected), tokens
    none = replace(profile, step=replace(step, prefill_s=-0.25))
    assert prompt_alone_s(none, 1) == pytest.approx(0.5 + 0.001 + 1e-6), "no prefill takes less"
    assert step_s(profile, 300.0) == step.seconds(1, 300.0)
    assert call_s(profile, 101, 4) == pytest.approx(
        prompt_alone_s(profile, 101) + 4 * step_s(profile)
    )


def test_an_answer_is_as_long_as_is_known_and_else_as_planned() -> None:
    planned = replace(call("a", 100, 30).spec, planned_output=16)
    assert planned.answer_tokens == 30
    assert replace(planned, expected_output=0).answer_tokens == 16


@catches(
    "kinds-not-instances",
    "the mean is that of kinds, however many instances each has",
    edited(InstanceKinds.mean, "each * len(members)", "each * len(self.of) / len(self.members)"),
)
def test_equal_instances_are_one_kind_and_the_mean_is_that_of_all_instances() -> None:
    made = queue([FAST, SLOW, FAST, FAST])
    kinds = InstanceKinds(made.placing.routing.view)
    assert kinds.of == [0, 1, 0, 0]
    assert kinds.members == [[0, 2, 3], [1]]
    assert kinds.timed
    seconds = kinds.seconds(call("a", 100, 10))
    assert seconds == pytest.approx([0.01 + 0.1 + 0.1, 0.02 + 0.2 + 0.2])
    assert kinds.mean(seconds) == pytest.approx((3 * seconds[0] + seconds[1]) / 4)
    assert not kinds.renew(), "nothing is another"
    assert not InstanceKinds(queue([FAST, (0.0, 0.0)]).placing.routing.view).timed


class Learned(list[EngineProfile]):
    """Profiles that change, which a version tells."""

    version = 0


def test_kinds_are_others_when_times_are() -> None:
    view = queue([FAST] * 2).placing.routing.view
    view.profiles = profiles = Learned(view.profiles)
    kinds = InstanceKinds(view)
    assert kinds.of == [0, 0]
    profiles[1] = EngineProfile(step=StepTime(0.5, per_token_s=0.1))
    assert not kinds.renew(), "it is told by its version"
    profiles.version += 1
    assert kinds.renew()
    assert kinds.of == [0, 1]
    assert kinds.members == [[0], [1]]
    for slowness, kind in ((1.0, 0), (1.01, 0), (1.2, 1)):
        made = [replace(profiles[0], slowness=one) for one in (1.0, slowness)]
        view.profiles = made
        assert InstanceKinds(view).of == [0, kind], "about alike is alike"
