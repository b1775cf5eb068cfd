"""What is remembered of the queries that came lately, and what a tuner makes of a window."""

from __future__ import annotations

import pytest

from teola.errors import InputError
from teola.runtime.sim.staged import StagedCall, StagedQuery, Stages
from teola.runtime.tuning import recent
from teola.runtime.tuning.drift import greater, tail
from teola.runtime.tuning.recent import Recent
from teola.runtime.tuning.tuner import Tuner, TunerOptions


def stages(calls: int = 1) -> Stages:
    return ((StagedCall("c", 1, 1),) * calls,)


def came(told: Recent | Tuner, id: str, at: float, ended: float, calls: int = 1) -> None:
    told.began(id, StagedQuery((), "app", at))
    told.ended(id, stages(calls), ended)


# --- what is remembered -----------------------------------------------------------------------


def test_what_has_ended_has_its_calls_and_how_long_it_took() -> None:
    one = Recent()
    one.began("a", StagedQuery((), "app", 3.0, finish_by_s=9.0))
    one.began("b", StagedQuery((), "app", 4.0))
    assert len(one) == 2
    ended = one.ended("a", stages(2), 5.0)
    expected = StagedQuery(stages(2), "app", 3.0, finish_by_s=9.0, latency_s=2.0)
    assert ended == expected
    assert one.ended("a", stages(), 6.0) is None, "it has ended"
    assert one.ended("unknown", stages(), 6.0) is None
    assert one.ended("b", (), 6.0) is None, "it made no call"
    assert len(one) == 1
    one.dropped("unknown")
    assert one.window(0.0) == [expected]


def test_what_ended_at_a_windows_beginning_was_in_the_one_before() -> None:
    """In the order in which it came."""
    one = Recent()
    for id, at, ended in (("late", 2.0, 3.0), ("long", 1.0, 4.0), ("last", 4.0, 4.0)):
        came(one, id, at, ended)
    assert one.latencies(3.0) == [3.0, 0.0]
    assert [query.arrival for query in one.window(3.0)] == [1.0, 4.0]
    assert [query.arrival for query in one.window(2.9)] == [1.0, 2.0, 4.0]
    assert (one.window(4.0), one.latencies(4.0)) == ([], [])


def test_of_too_many_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 2)
    one = Recent()
    for k in range(3):
        one.began(str(k), StagedQuery((), "app", float(k)))
    assert one.ended("0", stages(), 9.0) is None
    for k in (1, 2):
        assert one.ended(str(k), stages(), 9.0)
    assert [query.arrival for query in one.window(0.0)] == [1.0, 2.0]
    came(one, "3", 3.0, 10.0)
    assert [query.arrival for query in one.window(0.0)] == [2.0, 3.0]


def test_the_calls_of_all_are_bounded_and_those_of_the_forgotten_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "MOST_CALLS", 5)
    one = Recent(window_s=10.0)
    for k, calls in enumerate((2, 3, 1, 4)):
        came(one, str(k), float(k), float(k), calls)
        held = [query.calls for query in one.window(-1.0)]
        assert held == [[2], [2, 3], [3, 1], [1, 4]][k]
    one.forget(12.0)
    assert len(one) == 2, "what is as old as the window is remembered"
    one.forget(12.5)
    assert [query.calls for query in one.window(-1.0)] == [4]


def test_a_sample_is_drawn_at_the_rate_that_is_asked_for() -> None:
    one = Recent()
    assert one.resampled(10.0, 0) == []
    one.began("alone", StagedQuery((), "app", 1.0))
    assert one.resampled(10.0, 0) == [], "of its application none has ended"
    for k in range(10):
        came(one, str(k), float(k), float(k) + 0.5)
    as_it_came = one.resampled(10.0, 0)
    slow, fast = (one.resampled(10.0, 0, rate) for rate in (0.5, 5.0))
    assert slow[-1].arrival == pytest.approx(10 * fast[-1].arrival)
    assert as_it_came[-1].arrival == pytest.approx(slow[-1].arrival * 0.5 * 10 / 11)
    assert one.resampled(10.0, 1) != as_it_came


# --- when it is tuned -------------------------------------------------------------------------


def window(one: Tuner, latencies: list[float], end: float) -> bool:
    """Whether a sample is replayed after a window in which queries took so long."""
    for k, latency_s in enumerate(latencies):
        at = end - 50.0 + k
        came(one, f"{end}/{k}", at, at + latency_s)
    sample = one.look(end)
    return sample is not None


USUAL, SLOWER = [1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 1.9, 2.0]


@pytest.mark.parametrize(("ref", "after"), [("previous", False), ("since_tuning", True)])
def test_latencies_are_compared_with_the_window_before_or_since_the_last_tuning(
    ref: str, after: bool
) -> None:
    """Slowly growing ones are noticed since the tuning only."""
    options = TunerOptions(ref=ref, sample="window", p_value=0.01)  # type: ignore[arg-type]
    one = Tuner(options)
    assert window(one, USUAL, 100.0)
    one.told()
    noticed = [window(one, [x * 1.08**k for x in USUAL], 100.0 + 100 * k) for k in range(1, 5)]
    assert any(noticed) is after
    one.told()
    assert window(one, SLOWER, 900.0)


def test_a_sample_is_named_once_until_its_replay_is_over() -> None:
    one = Tuner(TunerOptions(sample="window"), now=10.0)
    assert one.due == 110.0
    assert window(one, USUAL, 110.0)
    assert (one.busy, one.due) == (True, 210.0)
    assert not window(one, SLOWER, 210.0)
    one.told()
    assert not one.busy
    assert not window(one, SLOWER, 310.0), "it is as slow as in the window before"


@pytest.mark.parametrize(("late_s", "tuned"), [(-1.0, False), (0.0, True)])
def test_a_sample_is_due_as_long_after_the_last_one_as_was_asked(
    late_s: float, tuned: bool
) -> None:
    one = Tuner(TunerOptions(every_s=300.0))
    assert window(one, USUAL, 100.0)
    one.told()
    assert window(one, USUAL, 400.0 + late_s) is tuned


@pytest.mark.parametrize("name", ["window_s", "every_s"])
@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan"), "1", True, None])
def test_times_are_seconds_above_0(name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=f"{name} must be seconds above 0, got {wrong!r}"):
        TunerOptions(**{name: wrong})  # type: ignore[arg-type]
    assert getattr(TunerOptions(**{name: 0.5}), name) == 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, 1, 1.5, -0.1, True, "0.5"])
def test_a_p_value_is_between_0_and_1(wrong: object) -> None:
    with pytest.raises(InputError, match="p_value must be between 0 and 1"):
        TunerOptions(p_value=wrong)  # type: ignore[arg-type]


def test_a_tuner_remembers_a_window_however_long_it_is() -> None:
    for window_s, remembered_s in ((100.0, 600.0), (600.0, 600.0), (900.0, 900.0)):
        assert Tuner(TunerOptions(window_s=window_s)).recent.window_s == remembered_s


# --- the test ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [
        (1.0, 1, 0.25),
        (0.0, 1, 0.5),
        (2.920, 2, 0.05),
        (1.812, 10, 0.05),
        (0.1, 10, 0.46116),
        (6.965, 2, 0.01),
        (50.0, 3, 8.8086e-6),
        (1.645, 1e5, 0.05),
        (float("inf"), 3, 0.0),
        (float("-inf"), 3, 1.0),
    ],
)
def test_the_tail_is_students(t: float, freedom: float, p: float) -> None:
    assert tail(t, freedom) == pytest.approx(p, rel=2e-3, abs=1e-9)
    assert tail(-t, freedom) == pytest.approx(1 - p, rel=2e-3, abs=1e-9)


def test_samples_of_two_are_enough_and_one_of_them_need_not_vary() -> None:
    found = greater((3.0, 5.0), (1.0, 1.0))
    assert found is not None
    assert found.t == pytest.approx(3.0)
    assert found.p == pytest.approx(tail(3.0, 1))
    assert greater((3.0,), (1.0, 2.0)) is None
    assert greater((3.0, 4.0), (1.0,)) is None
