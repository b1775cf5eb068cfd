"""What E2 remembers of an instance, against lists of everything that it was told."""

from __future__ import annotations

import random

import pytest

from teola.policies.routing.radix import RadixTree
from teola.policies.routing.recent_load import RECENT_S, History, Routed, overloaded
from tests.planted import catches, edited

WINDOW_S, DECODE_S = 60.0, 3.0


def remembers(seed: int, steps: int = 200) -> None:
    """Calls that come, complete or run elsewhere, while time goes on."""
    draw, now, tree = random.Random(seed), 0.0, RadixTree(1, 16)
    history, calls = History(WINDOW_S, DECODE_S), list[Routed]()
    elsewhere, answers = list[Routed](), list[tuple[float, float]]()
    for _ in range(steps):
        now += draw.choice([0.0, 0.5, 2.0, 15.0, RECENT_S, WINDOW_S])
        kind = draw.choice(["comes", "comes", "comes", "elsewhere", "answered"])
        if kind == "comes":
            total = draw.randint(1, 90)
            found = draw.choice([0, total // 2, total])
            calls.append(Routed(0, now, draw.choice([0.1, 0.7, 4.0]), total, found, None, None))
            history.add(calls[-1])
        elif kind == "elsewhere" and calls:
            one = draw.choice(calls[-4:])
            counted = one.at >= now - WINDOW_S and one not in elsewhere
            history.expire(now, tree)
            assert history.forget(one) == counted
            elsewhere.append(one)
        elif kind == "answered":
            answers.append((now, draw.choice([0.5, 2.0, 9.0])))
            history.answered(answers[-1][1], now)
        history.expire(now, tree)
        here = [one for one in calls if one.at >= now - WINDOW_S and one not in elsewhere]
        late = [seconds for at, seconds in answers if at >= now - WINDOW_S]
        decode_s = sum(late) / len(late) if late else DECODE_S
        recent = [one for one in calls if one.at >= now - RECENT_S]
        tokens = sum(one.total for one in recent)
        assert history.calls() == here
        assert history.decode_s == pytest.approx(decode_s)
        load_s = sum(one.prefill_s + decode_s for one in here)
        assert history.load_s == pytest.approx(load_s, abs=1e-9)
        hits = sum(one.found for one in recent) / tokens if tokens else 0.0
        assert history.hit_ratio == pytest.approx(hits)


@catches(
    "window-shorter",
    "a call that is just as old as the window does not count",
    edited(History.expire, "calls[0].at < now", "calls[0].at <= now"),
)
@catches(
    "answers-for-ever",
    "answers of long ago count in the mean",
    edited(History.expire, "answers[0][0] < now - self.window_s", "False"),
)
@catches(
    "hits-for-the-window",
    "how much is found is counted over the whole window",
    edited(History.expire, "now - RECENT_S", "now - self.window_s"),
)
@catches(
    "elsewhere-twice",
    "a call that ran elsewhere is taken away twice",
    edited(History.forget, "if call.gone:", "if False:"),
)
@catches(
    "elsewhere-counts",
    "a call that ran elsewhere takes its prefill here",
    edited(History.forget, "self._prefill_s -= call.prefill_s", "pass"),
)
def test_a_history_is_what_all_calls_of_the_window_add_up_to() -> None:
    for seed in range(12):
        remembers(seed)


@pytest.mark.parametrize(
    ("waits", "now", "is_overloaded"),
    [
        ([], 60.0, False),
        ([(0.0, 1.0)], 60.0, False),  # nothing to compare with
        ([(30.0, 1.0)], 60.0, False),  # nor that with anything before it
        ([(0.0, 1.0), (30.0, 2.0)], 60.0, True),  # just the double
        ([(0.0, 1.0), (30.0, 1.9)], 60.0, False),
        ([(0.0, 1.0), (29.9, 9.0), (30.0, 9.0)], 60.0, False),  # the middle is the second half's
        ([(0.0, 1.0), (30.0, 9.0)], 60.1, False),  # the first one is too old
        ([(0.0, 4.0), (1.0, 0.0), (30.0, 3.0), (60.0, 5.0)], 60.0, True),  # means, not sums
    ],
)
def test_an_instance_is_overloaded_when_the_mean_wait_has_doubled(
    waits: list[tuple[float, float]], now: float, is_overloaded: bool
) -> None:
    assert overloaded(waits, now, 60.0) is is_overloaded
