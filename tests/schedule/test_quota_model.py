"""What servers take, against slow models: every draw is remembered and added up anew."""

from __future__ import annotations

import random
from math import inf

import pytest

from teola.schedule.quota import (
    AWAY_S,
    FIRST_S,
    GRAIN_S,
    LONGEST_S,
    MINUTE_S,
    MOST_S,
    RAISE_S,
    SECONDS,
    ApiAccount,
    MinuteBudget,
    MinuteLimits,
    Quota,
    Refusal,
)
from tests.planted import catches, edited

COUNTS_S = MINUTE_S + GRAIN_S
"""How long what is drawn counts, if nothing else is drawn at about that time."""


class SlowBudget:
    """All draws, and what the server told last: so much, when, and until when. all: what a minute
    has, as far as that was said."""

    def __init__(self, most: float) -> None:
        self.most = self.all = most
        self.draws: list[tuple[float, float]] = []
        self.told: tuple[float, int, float] = inf, 0, 0.0

    def used(self, now: float, grain_s: float = GRAIN_S) -> float:
        return sum(amount for at, amount in self.draws if now < at + grain_s + MINUTE_S)

    def left(self, now: float) -> float:
        told, first, until = self.told
        mine = self.all - max(0.0, self.used(now))
        if now >= until:
            return mine
        return min(mine, told - sum(amount for _, amount in self.draws[first:]))

    def opens_at(self, wanted: float, now: float) -> float:
        """By looking at each moment at which something changes."""
        moments = {now, self.told[2], *(at + GRAIN_S + MINUTE_S for at, _ in self.draws)}
        for at in sorted(moments):
            if at >= now and self.left(at) >= min(wanted, self.all):
                return at
        raise AssertionError("it never opens")


def budgets(seed: int, steps: int = 300) -> None:
    """Draws at moments that are far enough apart to be told apart."""
    draw = random.Random(seed)
    most = draw.choice([None, 1, 5, 20])
    budget, slow, now = MinuteBudget(most), SlowBudget(inf if most is None else most), 0.0
    for _ in range(steps):
        now += draw.choice([0.0, 0.25, 1.0, 7.0, 60.0, COUNTS_S])
        kind = draw.choice(["draw", "draw", "draw", "told", "look"])
        if kind == "draw":
            amount = draw.choice([1, 1, 2, 5])
            if draw.random() < 0.8:
                amount = min(amount, slow.left(now))
            if 0 < amount < inf:
                budget.draw(amount, now)
                slow.draws.append((now, amount))
        elif kind == "told":
            left, reset_s = draw.choice([0, 1, 3, 20]), draw.choice([0.0, 0.5, 30.0, 60.0])
            limit = draw.choice([None, None, 3, 20])
            budget.told(left, reset_s, now, limit=limit)
            slow.told = left, len(slow.draws), now + reset_s
            if limit is None:
                slow.all = slow.most
            elif reset_s > SECONDS:
                slow.all = min(slow.most, limit)
        assert budget.left(now) == slow.left(now), now
        for wanted in (1, 2, 5, 50):
            opens = budget.opens_at(wanted, now)
            assert opens == pytest.approx(slow.opens_at(wanted, now)), (wanted, now)


@pytest.mark.parametrize("seed", range(8))
def test_a_budget_has_left_what_was_not_drawn(seed: int) -> None:
    budgets(seed)


@catches(
    "told-for-ever",
    "what the server said holds after its time",
    edited(MinuteBudget.left, "now < self._told_until", "True"),
)
@catches(
    "told-not-drawn",
    "what is drawn is not taken from what the server said",
    edited(MinuteBudget.draw, "self._told -= amount", "pass"),
)
@catches(
    "minute-too-short",
    "what was drawn is forgotten a moment too soon",
    edited(MinuteBudget._forget, " + GRAIN_S + ", " + "),
)
@catches(
    "limit-unheard",
    "what a server says that a minute has counts for nothing",
    edited(MinuteBudget.told, "self._limit = limit", "pass"),
)
@catches(
    "second-as-minute",
    "what a server has for a second is taken for what it has for a minute",
    edited(MinuteBudget.told, "reset_s > SECONDS", "True"),
)
@catches(
    "opens-behind-all",
    "a budget opens only when all of it is there",
    edited(MinuteBudget.opens_at, "if missing <= 0:", "if False:"),
)
@catches(
    "opens-late",
    "more than the whole budget waits for what the server said, though all of it is there",
    edited(MinuteBudget.opens_at, "wanted = min(wanted, most)", "pass"),
)
def test_budgets_tell_each_rule_from_its_neighbours() -> None:
    for seed in range(20):
        budgets(seed, 100)


@pytest.mark.parametrize("seed", range(3))
def test_draws_at_about_the_same_time_count_for_a_minute_and_little_more(seed: int) -> None:
    draw, now = random.Random(seed), 0.0
    budget, slow = MinuteBudget(100), SlowBudget(100)
    for _ in range(1500):
        now += draw.choice([0.0, 0.01, 0.05, 0.099, 0.1, 0.3])
        budget.draw(1, now)
        slow.draws.append((now, 1))
        most, least = (100 - slow.used(now, grain_s) for grain_s in (0.0, GRAIN_S))
        assert least <= budget.left(now) <= most


@catches(
    "given-back-late",
    "what is given back is taken from what was drawn later",
    edited("teola.schedule.quota:_taken_back", "entry[0] <= drawn", "True"),
)
@catches(
    "given-back-twice",
    "more is given back than was drawn",
    edited("teola.schedule.quota:_taken_back", "min(missing, entry[1])", "missing"),
)
def test_what_is_given_back_is_of_the_minute_in_which_it_was_drawn() -> None:
    budget = MinuteBudget(10)
    budget.draw(6, 0.0)
    budget.draw(2, 2.0)
    budget.draw(2, 4.0)
    budget.give_back(4, 2.0, now=5.0)  # of the second, and of what came before
    assert budget.left(5.0) == 4
    budget.draw(4, 5.0)
    assert budget.left(COUNTS_S) == 4
    budget.give_back(4, 0.0, now=COUNTS_S + 1)  # its minute is over
    assert budget.left(COUNTS_S + 1) == 4
    assert budget.left(COUNTS_S + 4) == 6
    budget.give_back(50, 5.0, now=COUNTS_S + 4)
    assert budget.left(COUNTS_S + 4) == 10
    assert budget.opens_at(50, COUNTS_S + 4) == COUNTS_S + 4


def test_calls_are_what_both_budgets_have_room_for() -> None:
    """Of calls that are all alike, so that their mean is known."""
    for seed in range(10):
        draw, now = random.Random(seed), 0.0
        tokens = draw.choice([7, 30])
        account = ApiAccount(MinuteLimits(requests=6, tokens=100))
        requests, spent = SlowBudget(6), SlowBudget(100)
        for _ in range(100):
            now += draw.choice([0.0, 1.0, 20.0])
            if requests.left(now) >= 1 and spent.left(now) >= tokens:
                account.draw(tokens, now)
                requests.draws.append((now, 1))
                spent.draws.append((now, tokens))
            if spent.draws:
                calls = min(requests.left(now), spent.left(now) / tokens)
                assert account.calls(now) == pytest.approx(calls)
                opens = max(requests.opens_at(1, now), spent.opens_at(tokens, now))
                assert account.opens_at(now) == pytest.approx(opens)


class SlowServer:
    """What happened at one server. bursts: of each, when it began, how many were in flight then,
    and how many of them were refused. soonest, latest: bounds of when it opens. after: calls from
    this one on were sent after the last burst began."""

    def __init__(self) -> None:
        self.bursts: list[tuple[float, int, int]] = []
        self.in_a_row = self.after = 0
        self.soonest = self.latest = 0.0
        self.away = False

    def refused(self, why: Refusal, batch: int, after: int, flying: int, now: float) -> None:
        same = batch < self.after
        if same:
            begun, sent, refused = self.bursts[-1]
            self.bursts[-1] = begun, sent, refused + 1
        else:
            self.bursts.append((now, flying, 1))
            self.after = after
            self.in_a_row += 1
        self.away |= why.kind == "away"
        if same and why.after_s is None:
            return
        delay = AWAY_S if why.kind == "away" else FIRST_S
        for _ in range(self.in_a_row - 1):
            delay = min(MOST_S, 2 * delay)
        least, most = delay / 2, delay
        if why.after_s:
            said = min(why.after_s, LONGEST_S)
            least, most = max(said, least / 4), max(said, most / 4)
        self.soonest = max(self.soonest, now + least)
        self.latest = max(self.latest, now + most)


def serves(seed: int, steps: int = 200) -> None:
    """A server that takes a few calls at once, and is away now and then."""
    draw, now, quota, slow = random.Random(seed), 0.0, Quota(f"e/{seed}"), SlowServer()
    takes, flying, next_batch, narrowed, took = draw.randint(1, 6), list[int](), 0, inf, 0
    for _ in range(steps):
        now += draw.choice([0.0, 0.1, 1.0, 10.0, 31.0])
        room = quota.room(len(flying), now)
        if now < slow.soonest:
            assert room == 0
            assert quota.closed(now)
        if now >= slow.latest:
            assert not quota.closed(now)
            if slow.away:
                assert room == max(0, 1 - len(flying))
            else:
                most = inf if quota.window == inf else int(quota.window)
                assert room == max(0, most - len(flying))
        for _ in range(int(min(room, draw.choice([0, 1, 3, 9])))):
            flying.append(next_batch)
            next_batch += 1
        away = draw.random() < 0.1
        after_s = draw.choice([None, None, 0.0, 2.0, 1000.0 if away else 1.0])
        over = len(flying) if away else len(flying) - takes
        for _ in range(over):  # the last ones are refused first
            batch = flying.pop()
            why = Refusal("away" if away else "busy", after_s)
            slow.refused(why, batch, next_batch, len(flying) + 1, now)
            until = quota.refused(why, batch, next_batch, len(flying), now)
            assert slow.soonest <= until <= slow.latest, now
            if not away:
                _, sent, refused = slow.bursts[-1]
                kept = sent - refused
                took = kept if kept else max(1, sent - 1)
                assert quota.window == (min(narrowed, kept) if kept else max(1, quota.window))
                narrowed = quota.window
                narrowed_at = now
        assert quota.refusals == sum(refused for _, _, refused in slow.bursts)
        if flying and over <= 0 and now >= slow.latest:
            before = quota.window
            flying.pop(draw.randrange(len(flying)))
            quota.came_back(len(flying) + 1, now)
            slow.in_a_row, slow.away = 0, False
            assert quota.window >= before
            if quota.window < inf:
                raised = int((now - narrowed_at + 1e-6) // RAISE_S)
                assert quota.window <= max(narrowed, took + raised)
                if len(flying) + 1 < int(before):
                    assert quota.window == before, "not all of it was used"
            narrowed = quota.window


@pytest.mark.parametrize("seed", range(6))
def test_a_server_is_left_alone_as_it_was_refused(seed: int) -> None:
    serves(seed)


@catches(
    "away-is-forgotten",
    "who was away gets all calls at once again",
    edited(Quota.room, "if self.probing else self.window", "if False else self.window"),
)
@catches(
    "back-off-from-two",
    "the first back-off is twice as long",
    edited(Quota._back_off, "self._streak - 1)", "self._streak)"),
)
@catches(
    "back-off-below-the-first",
    "one refused with others, of which one came back, waits for less than a second",
    edited(Quota._back_off, "max(0, self._streak - 1)", "self._streak - 1"),
)
@catches(
    "together-doubles",
    "each of those refused together makes the back-off longer",
    edited(Quota.refused, "together = batch < self._batch", "together = False"),
)
@catches(
    "kept-one-more",
    "who keeps three calls is sent four",
    edited(Quota._narrow, "taken = self._sent - self._refused", "taken = self._sent"),
)
@catches(
    "raised-at-once",
    "one call more is tried without a wait",
    edited(Quota.came_back, "now >= self._raised_at + RAISE_S", "True"),
)
@catches(
    "raised-unused",
    "a window grows though it is not used",
    edited(Quota.came_back, "calls < int(self.window)", "False"),
)
@catches(
    "streak-stays",
    "a call that comes back does not end the doubling",
    edited(Quota.came_back, "self._streak = 0", "pass"),
)
def test_servers_tell_each_rule_from_its_neighbours() -> None:
    for seed in range(12):
        serves(seed, 150)
