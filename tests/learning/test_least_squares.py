"""Coefficients of a time, found from measurements."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.learning.least_squares import FIRST, LeastSquares
from tests.planted import catches, edited

RIDGE = (1e-4, 1e-4)
BATCH = (0.05, 0.01)
STEP = (0.012, 0.0003, 1.5e-6, 2e-4, 5e-8, 0.004)
STEPS_RIDGE = (1e-4, 1e-4, 1e-2, 1e-4, 1e-2, 1e-4)


def seconds(coefficients: Sequence[float], quantities: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(coefficients, quantities, strict=True))


def feed(
    squares: LeastSquares,
    count: int,
    *,
    truth: Sequence[float] = BATCH,
    noise: float = 0.0,
    seed: int = 0,
    outlier: float = 1.0,
) -> None:
    """Measurements of batches of 1 to 32; every twentieth takes `outlier` times as long. Solved
    after every tenth, as epochs are begun."""
    drawn = random.Random(seed)
    for k in range(count):
        quantities = (1.0, float(drawn.randint(1, 32)))
        took = seconds(truth, quantities) * drawn.lognormvariate(0.0, noise)
        squares.add(quantities, took * (outlier if k % 20 == 10 else 1.0))
        if k % 10 == 0:
            squares.solve()


def worst(squares: LeastSquares, truth: Sequence[float] = BATCH) -> float:
    """Largest relative error of what it says of batches."""
    found = squares.solve()
    sizes = [(1.0, float(size)) for size in (1, 8, 32)]
    return max(abs(seconds(found, size) / seconds(truth, size) - 1) for size in sizes)


@catches(
    "squares-one-triangle",
    "a row is read beside its diagonal",
    edited(LeastSquares._solution, "self._normal[max(j, k)][min(j, k)]", "self._normal[j][k]"),
)
def test_coefficients_are_found_from_exact_measurements() -> None:
    squares = LeastSquares(RIDGE)
    feed(squares, 40)
    assert squares.solve() == pytest.approx(BATCH, rel=0.01)
    assert squares.count == 40


def test_all_terms_of_a_step_are_found() -> None:
    drawn, squares = random.Random(3), LeastSquares(STEPS_RIDGE)
    for _ in range(400):
        steps, sequences = drawn.randint(5, 60), drawn.randint(1, 16)
        context = steps * sequences * drawn.randint(100, 2000)
        prompts, length = drawn.randint(0, 3), drawn.randint(30, 1000)
        squares.add(
            (steps, steps * sequences, context, prompts * length, prompts * length**2, prompts),
            seconds(
                STEP,
                (steps, steps * sequences, context, prompts * length, prompts * length**2, prompts),
            ),
        )
    found = squares.solve()
    asked = [(1, 1, 300, 0, 0, 0), (1, 16, 8000, 0, 0, 0), (1, 0, 0, 500, 250_000, 1)]
    for one in asked:
        assert seconds(found, one) == pytest.approx(seconds(STEP, one), rel=0.05)


@catches(
    "squares-first-heavy",
    "the first measurement counts as much as what it took is short",
    edited(
        LeastSquares._weigh_first,
        "[fmean(seconds for _, seconds in self._first)] * self.count",
        "[seconds for _, seconds in self._first]",
    ),
)
@pytest.mark.parametrize("first", [1, 2])
def test_a_first_answer_in_no_time_is_soon_forgotten(first: int) -> None:
    """Steps take the same whether one call runs or four; a server greets without its model."""
    drawn, squares = random.Random(4), LeastSquares((1e-4, 1e-4))
    for _ in range(first):
        squares.add((5.0, 5.0), 0.0007)
    for k in range(100):
        calls = 1 if k < 20 else drawn.choice((3, 4, 4, 4))
        squares.add((4.0, 4.0 * calls), 0.1 * drawn.uniform(0.98, 1.06))
    step = squares.solve()
    assert step[0] + step[1] == pytest.approx(0.025, rel=0.15)


@pytest.mark.parametrize(("noise", "off"), [(0.05, 0.03), (0.2, 0.12)])
@pytest.mark.parametrize("seed", range(5))
def test_noise_averages_out(seed: int, noise: float, off: float) -> None:
    squares = LeastSquares(RIDGE)
    feed(squares, 400, noise=noise, seed=seed)
    assert worst(squares) < off


@catches(
    "squares-slow-least",
    "what took long counts less than what was quick",
    edited(LeastSquares._scale, "max(self._expected(quantities), seconds * UNEXPECTED)", "seconds"),
)
@pytest.mark.parametrize("noise", [0.2, 0.3, 0.4])
def test_times_are_those_of_the_mean_however_much_they_scatter(noise: float) -> None:
    """A simulation of such batches takes as long as they took, all together."""
    mean = math.exp(noise**2 / 2)  # of the lognormal distribution
    truth, off = [mean * value for value in BATCH], []
    for seed in range(20):
        squares = LeastSquares(RIDGE)
        feed(squares, 400, noise=noise, seed=seed)
        found = squares.solve()
        off += [seconds(found, size) / seconds(truth, size) for size in ((1.0, 8.0), (1.0, 24.0))]
    assert fmean(off) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("outlier", [10.0, 0.1])
def test_one_outlier_in_twenty_moves_it_by_little(outlier: float, seed: int) -> None:
    """Ten times as long, or a tenth: at most 5 % at any size."""
    squares = LeastSquares(RIDGE)
    feed(squares, 400, noise=0.05, seed=seed, outlier=outlier)
    assert worst(squares) < 0.05


@catches(
    "squares-not-robust",
    "an outlier counts as much as any",
    edited(LeastSquares.add, "weight *= ROBUST * usual / error", "pass"),
)
@catches(
    "squares-own-scale",
    "what came far too soon counts for more",
    edited(LeastSquares._scale, "max(self._expected(quantities), seconds * UNEXPECTED)", "seconds"),
)
def test_what_comes_far_too_soon_counts_no_more_than_others() -> None:
    squares = LeastSquares(RIDGE)
    feed(squares, 400, noise=0.05, outlier=0.05)
    assert worst(squares) < 0.03


@pytest.mark.parametrize("factor", [2.0, 0.5])
@pytest.mark.parametrize("before", [40, 350, 3000])
def test_an_engine_of_other_times_is_followed_within_a_hundred(before: int, factor: float) -> None:
    squares, now = LeastSquares(RIDGE), [factor * value for value in BATCH]
    feed(squares, before, noise=0.05)
    assert worst(squares) < 0.05
    feed(squares, 100, truth=now, noise=0.05, seed=1)
    assert worst(squares, now) < 0.1


@catches(
    "squares-keep-all",
    "what was before a change counts on",
    edited(LeastSquares.add, "self._weight /= BEFORE", "pass"),
)
@catches(
    "squares-row-broken",
    "errors to one side are not counted in a row",
    edited(LeastSquares._have_changed, "self._row + side if", "side if"),
)
def test_what_was_before_a_change_is_forgotten() -> None:
    squares, now = LeastSquares(RIDGE), [2 * value for value in BATCH]
    feed(squares, 1000)
    feed(squares, 100, truth=now)
    assert worst(squares, now) < 0.05


def test_a_slow_drift_is_followed_too() -> None:
    """By 5 % every fifty measurements, which none of them tells from noise."""
    squares, now = LeastSquares(RIDGE), list(BATCH)
    feed(squares, 350, noise=0.05)
    for k in range(20):
        now = [1.05 * value for value in now]
        feed(squares, 50, truth=now, noise=0.05, seed=k)
    assert worst(squares, now) < 0.1


@catches(
    "squares-rash",
    "a solution that was only out of date is held for a change",
    edited(LeastSquares.add, "if abs(self._off(quantities, seconds)) > self._usual:", "if True:"),
)
def test_a_solution_that_is_out_of_date_is_no_change_of_the_times() -> None:
    """Small batches first, then large ones: the coefficients found from the small ones were off,
    and those found from both are right. Nothing is to be forgotten."""
    squares = LeastSquares(RIDGE)
    for _ in range(33):
        squares.add((1.0, 2.0), seconds(BATCH, (1.0, 2.0)))
    squares.solve()
    weight = squares._weight
    for k in range(30):
        size = 20.0 + k % 5
        squares.add((1.0, size), seconds(BATCH, (1.0, size)))
    assert squares._weight < 2 * weight
    assert worst(squares) < 0.05


@catches(
    "squares-negative",
    "a coefficient may be negative",
    edited(LeastSquares._coefficients, "values[worst] >= 0", "values[worst] >= -1e9"),
)
def test_what_would_be_negative_is_nothing() -> None:
    """Large batches that take less than small ones: no time per item."""
    squares = LeastSquares(RIDGE)
    for size, took in [(1.0, 2.0), (10.0, 1.0)] * 20:
        squares.add((1.0, size), took)
    base, per_item = squares.solve()
    assert per_item == 0.0
    assert 1.0 <= base <= 2.0


@catches(
    "squares-no-ridge",
    "terms that cannot be told apart have any coefficients",
    edited(LeastSquares._solution, "(pull if j == k else 0.0)", "0.0"),
)
def test_terms_do_not_blow_up_where_all_sizes_are_equal() -> None:
    """What is known is their sum, and of it nothing is lost."""
    squares = LeastSquares(STEPS_RIDGE)
    quantities = (30.0, 120.0, 30_000.0, 400.0, 160_000.0, 1.0)
    for k in range(500):
        squares.add(quantities, 0.9 + 0.001 * (k % 7))
    found = squares.solve()
    assert seconds(found, quantities) == pytest.approx(0.903, rel=0.01)
    assert all(0 <= value * size <= 0.91 for value, size in zip(found, quantities, strict=True))


measured = st.lists(
    st.tuples(
        st.floats(1.0, 100.0),
        st.one_of(st.just(0.0), st.floats(1.0, 1e4)),
        st.one_of(st.just(0.0), st.floats(1.0, 1e8)),
        st.floats(1e-6, 1e4),
    ),
    max_size=80,
)


@given(measured)
def test_whatever_is_measured_nothing_is_negative_or_infinite(
    rows: list[tuple[float, float, float, float]],
) -> None:
    squares = LeastSquares((1e-4, 1e-4, 1e-2))
    for *quantities, took in rows:
        squares.add(quantities, took)
        if squares.count % 3 == 0:
            squares.solve()
    found = squares.solve()
    assert len(found) == 3
    assert all(0 <= value < 1e6 for value in found)


@catches(
    "squares-never-scaled",
    "weights grow without end",
    edited(LeastSquares.add, "if self._weight > LARGEST:", "if False:"),
)
def test_weights_stay_finite_for_ever() -> None:
    squares = LeastSquares(RIDGE)
    squares._weight = 1e300
    feed(squares, 60)
    squares._weight = max(squares._weight, 1.0)
    assert squares._weight < 1e10
    feed(squares, 60)
    assert worst(squares) < 0.05


def test_solving_twice_gives_the_same_and_nothing_known_is_nothing() -> None:
    squares = LeastSquares(RIDGE)
    assert squares.solve() == (0.0, 0.0)
    feed(squares, 20)
    assert squares.solve() is squares.solve()


def test_every_measurement_counts_at_once() -> None:
    """The first one, too: of an op that a query uses once, it is all there is."""
    squares = LeastSquares((1e-4, 1e-4))
    for count, (units, seconds) in enumerate([(18.0, 2.2), (10.0, 1.4), (40.0, 4.4)] * 3, 1):
        squares.add((1.0, units), seconds)
        base, per_unit = squares.solve()
        assert squares.count == count
        assert base + per_unit * units == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("asked", [1, 2, 3, 15, 16, 17, 21])
def test_what_is_expected_is_worked_out_after_the_first_and_whenever_twice_as_much_was_measured(
    asked: int,
) -> None:
    """As if somebody asked for it then. asked: after so many somebody does."""
    draw = random.Random(asked)
    alone, followed, solved_at = LeastSquares((1e-4, 1e-4)), LeastSquares((1e-4, 1e-4)), 0
    for count in range(90):
        if count == FIRST or count >= max(FIRST, 2 * solved_at):
            followed.solve()
            solved_at = count
        if count == asked:
            assert alone.solve() == followed.solve()
            solved_at = count
        row, seconds = (1.0, draw.choice([1.0, 4.0, 9.0])), draw.uniform(1.0, 2.0)
        alone.add(row, seconds)
        followed.add(row, seconds)
        assert alone.so_far((1.0, 3.0)) == followed.so_far((1.0, 3.0)), count
        assert bool(alone.so_far((1.0, 3.0))) is (count >= min(asked, FIRST))
