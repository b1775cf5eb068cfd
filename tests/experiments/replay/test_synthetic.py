"""Synthetic traces have what the papers tell of theirs, and a seed makes them."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest

from experiments.replay.calls import Recording, ideal
from experiments.replay.synthetic import PREBLE, trace_a, trace_b

RATIOS = {"toolbench": 43, "embodied-agent": 157, "programs": 20, "video-questions": 2500}
"""Prompt tokens of each output token, as Preble tells."""


def per_output(found: Recording) -> float:
    tokens = [(int(call.prompt), call.output) for call in found.calls]
    return fmean(prompt for prompt, _ in tokens) / fmean(output for _, output in tokens)


@pytest.mark.parametrize("name", PREBLE)
def test_a_workload_of_preble_s(name: str) -> None:
    found = PREBLE[name](600, rate=6.0, seed=3)
    assert found.name == name
    assert len(found.calls) == 600
    assert found.seconds == pytest.approx(100, rel=0.3)
    assert [call.at for call in found.calls] == sorted(call.at for call in found.calls)
    assert found == PREBLE[name](600, rate=6.0, seed=3)
    assert found != PREBLE[name](600, rate=6.0, seed=4)
    if name in RATIOS:
        assert per_output(found) == pytest.approx(RATIOS[name], rel=0.15)
    assert 0.6 < ideal(found.calls, 16) < 0.99


def test_some_tools_are_asked_for_far_oftener() -> None:
    asked = Counter(call.session for call in PREBLE["toolbench"](4000, rate=9.0, seed=0).calls)
    (_, most), *_ = asked.most_common()
    assert most / 4000 == pytest.approx(0.22, abs=0.03)  # 1 / (sum of k^-1.1 up to 200)


def test_a_step_s_prompt_is_the_last_one_and_more() -> None:
    of: dict[str, list[int]] = {}
    for call in PREBLE["embodied-agent"](200, rate=9.0).calls:
        keys = call.prompt.keys(16, 0)
        before = of.setdefault(call.session, [])
        assert list(keys[: len(before)]) == before
        of[call.session] = list(keys)


def test_trace_a_is_as_it_is_told() -> None:
    found = trace_a(2400, seed=1)
    assert len(found.calls) / 2400 == pytest.approx(5.5, rel=0.1)
    types = Counter(call.category.partition("-")[0] for call in found.calls)
    assert types["text"] / len(found.calls) == pytest.approx(0.61, abs=0.04)
    assert {call.category for call in found.calls} >= {"text-1", "file-5"}
    assert not any(call.category.endswith("-6") for call in found.calls)
    assert ideal(found.calls, 16, 1200.0) == pytest.approx(0.51, abs=0.03)


def test_trace_b_is_as_it_is_told() -> None:
    for seed in range(2):
        found = trace_b(600, seed=seed)
        assert len(found.calls) > 10 * 600
        assert {call.category for call in found.calls} == {"api-1"}
        assert ideal(found.calls, 16, 300.0) == pytest.approx(0.54, abs=0.03)
        assert fmean(call.prompt for call in found.calls) == pytest.approx(1000, rel=0.1)
    users = Counter(call.session for call in found.calls)
    most = sum(count for _, count in users.most_common(40))
    assert most / len(found.calls) > 0.85
