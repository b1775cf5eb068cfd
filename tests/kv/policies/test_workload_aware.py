"""workload_aware, by the properties of the paper's sheet."""

from __future__ import annotations

import random
from math import exp, inf

import pytest

from teola.kv import Access
from teola.kv.policies.fits import Fit, Fits
from teola.kv.policies.workload_aware import WorkloadAware
from tests.kv.policies.replaying import Watched, asked
from tests.planted import catches, edited


def access(name: str, turn: int = 0) -> Access:
    return Access((name, ""), turn)


def told(life_s: float | str = 5.0, **fits: tuple[float, float]) -> WorkloadAware:
    """A policy that knows the rate and the reuse of some categories, and learns nothing more."""
    made = WorkloadAware(life_s, refit_s=3600.0)  # type: ignore[arg-type]
    made.fits.published = {
        ((name, ""), 0): Fit(rate, reused, inf) for name, (rate, reused) in fits.items()
    }
    made.fits._due = inf
    return made


def probability(rate: float, reused: float, age: float, life: float) -> float:
    policy = told(life, a=(rate, reused))
    return exp(policy._worth((("a", ""), 0), 0.0, age))


@catches(
    "life-is-not-subtracted",
    "how likely it is at all to be read again, whenever",
    edited(WorkloadAware._fitted, "-expm1(-fit.rate * life)", "1.0"),
)
def test_the_formula() -> None:
    assert probability(0.05, 0.4, 10, 5) == pytest.approx(0.0536656, abs=1e-7)
    assert probability(0.02, 0.8, 30, 5) == pytest.approx(0.0417811, abs=1e-7)
    assert probability(0.1, 1, 20, 5) == pytest.approx(0.05325, abs=1e-5)
    assert probability(0.001, 1, 20, 5) == pytest.approx(0.00489, abs=1e-5)
    assert probability(0.1, 1, 20, inf) == pytest.approx(0.13534, abs=1e-5)
    assert probability(0.001, 1, 20, inf) == pytest.approx(0.98020, abs=1e-5)
    assert probability(0.05, 0.4, 0, 5) == pytest.approx(0.4 * (1 - exp(-0.05 * 5)))
    assert probability(0.05, 0.4, -1, 5) == probability(0.05, 0.4, 0, 5), "not yet used"
    assert probability(0.1, 1, 44.12, 5) == pytest.approx(probability(0.001, 1, 44.12, 5), rel=1e-3)


@pytest.mark.parametrize(("life", "first"), [(inf, "a"), (5.0, "b")])
def test_what_lives_long_does_not_crowd_the_cache(life: float, first: str) -> None:
    made = Watched(2, told(life, quick=(0.1, 1.0), slow=(0.001, 1.0)))
    made.ask("a", access("quick"))
    made.ask("b", access("slow"))
    made.ask("c", access("slow"), 20.0)
    assert made.evicted == [first]


@catches(
    "beginnings-first",
    "of a prompt the beginning goes first",
    edited("teola.kv.policies.queues:Queues.put", "now, -position", "now, position"),
)
def test_of_equals_the_deepest_goes_first() -> None:
    made = Watched(4, told(a=(0.1, 1.0), b=(0.1, 1.0)))
    made.ask(["a0"], access("a"))
    made.ask(["b0", "b1", "b2"], access("b"))
    made.ask(["c"], access("a"))
    made.ask(["d"], access("a"), 1.0)
    assert made.evicted[:2] == ["b2", "b1"]


def test_what_is_computed_behind_a_kept_beginning_is_deeper_than_that() -> None:
    made = Watched(8, told(a=(0.1, 1.0), b=(0.1, 1.0), c=(0.1, 1.0)))
    made.ask(["a0", "a1", "a2", "a3"], access("a"))
    assert made.ask(["a0", "a1", "a2", "a3", "a4"], access("a")) == 4
    made.ask(["b0", "b1", "b2"], access("b"))
    made.ask(["c"], access("c"))
    assert made.evicted == ["a4"], "of another prompt, as likely to be read, b2 is less deep"


def test_a_quick_category_that_is_older_outlives_a_slow_one() -> None:
    for policy, evicted, found in (
        ("lru", ["x0", "x1"], 0),
        (told(s=(0.1, 1.0), g=(0.001, 1.0)), ["y0", "y1"], 2),
    ):
        made = Watched(4, policy)
        made.ask(["x0", "x1"], access("s"))
        made.ask(["y0", "y1"], access("g"), 1.0)
        made.ask(["z0", "z1"], access("s"), 10.0)
        assert made.evicted == evicted
        assert made.ask(["x0", "x1"], access("s"), 12.0) == found


def fits(min_samples: int = 1, **more: float) -> Fits:
    return Fits(more.get("window", 3600.0), 60.0, min_samples, 0.3, lives=True)


@catches(
    "credited-to-the-later",
    "a sample is credited to who reads the block again",
    edited(Fits.access, "self._period(before.category, now)", "self._period(category, now)"),
)
def test_fits_of_three_categories() -> None:
    made = fits()
    for now, name, keys in (
        (0.0, "text-1", (1, 2, 3)),
        (10.0, "text-2", (1, 2, 3, 4)),
        (20.0, "text-1", (7, 8)),
        (50.0, "text-3", (1, 2, 3, 4, 5)),
    ):
        made.access(keys, name, now)
    made.fit(50.0)
    assert made.published["text-1"][:2] == (pytest.approx(0.1), pytest.approx(0.6))
    assert made.published["text-2"][:2] == (pytest.approx(0.025), 1.0)
    assert made.of("text-3") == made.pooled
    assert made.pooled is not None
    assert made.pooled[:2] == (pytest.approx(7 / 190), 0.5)


def test_a_fit_begins_at_nothing_and_leaves_out_what_came_at_once() -> None:
    made = fits()
    now = 0.0
    made.access("a", "c", now)
    for gap in (4, 6, 10, 20, 0.2):
        now += gap
        made.access("a", "c", now)
    made.fit(now)
    assert made.published["c"].rate == pytest.approx(0.1)
    assert made.published["c"].reused == pytest.approx(4 / 6)
    assert made.published["c"].life_s == pytest.approx(40.0, rel=0.2)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    made = fits(window=600.0)
    made.access("a", "c", 0.0)
    made.access("a", "c", 30.0)
    made.fit(30.0)
    assert "c" in made.published
    made.fit(2000.0)
    assert made.published == {}
    assert made.pooled is None
    made.access("a", "c", 2000.0)
    made.fit(2000.0)
    assert made.pooled is None, "the key is not known any more"


def test_too_few_samples_are_no_fit() -> None:
    made = fits(min_samples=2)
    made.access("ab", "few", 0.0)
    made.access("a", "many", 9.0)
    made.access("b", "many", 10.0)
    made.access("a", "many", 11.0)
    made.fit(11.0)
    assert set(made.published) == {"few"}
    assert made.of("many") == made.pooled


def test_the_quick_victim_is_the_naive_one() -> None:
    chance = random.Random(0)
    for _ in range(1000):
        rates = {name: (chance.uniform(1e-4, 1.0), chance.uniform(0.01, 1.0)) for name in "abc"}
        policy = told(**rates)
        ages = sorted({round(chance.uniform(0, 200), 6) for _ in range(12)})
        blocks = []
        for block, at in enumerate(ages):
            name, position = chance.choice("abc"), chance.randint(0, 3)
            policy.touch([block], [block], position, access(name), at)
            policy.offer([block], at)
            blocks.append((name, at, position, block))
        now, gone = 201.0, list[int]()
        while blocks:
            _, least = min(
                ((policy._worth(((of[0], ""), 0), of[1], now), -of[2], *of[1:]), of)
                for of in blocks
            )
            blocks.remove(least)
            gone.append(policy.evict(now))
            assert gone[-1] == least[3]
            now += chance.choice([0.0, 5.0])


def test_with_one_category_it_is_lru() -> None:
    chance = random.Random(1)
    for _ in range(20):
        keys = "".join(chance.choice("abcdefgh") for _ in range(200))
        lru, made = asked("lru", 4, keys), asked("workload_aware", 4, keys)
        assert (made.hits, made.evicted) == (lru.hits, lru.evicted)


def test_nothing_underflows_and_no_probability_is_the_least() -> None:
    made = Watched(2, told(quick=(50.0, 1.0), never=(0.1, 0.0)))
    made.ask("a", access("quick"))
    made.ask("b", access("never"), 1.0)
    made.ask("c", access("quick"), 1e6)
    assert made.evicted == ["b"]
    made.ask("d", access("quick"), 1e5)
    assert made.evicted == ["b", "a"], "a clock that goes back stands still"


def test_turns_are_told_apart_up_to_the_fifth() -> None:
    policy = WorkloadAware()
    for turn in range(8):
        policy.touch([turn], [turn], 0, access("chat", turn), 0.0)
    assert len({category for category, _ in policy._seen.values()}) == 5
