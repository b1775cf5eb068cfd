"""next_use: what its query needs soonest stays longest."""

from __future__ import annotations

from itertools import pairwise
from math import exp, inf
from sys import maxsize

import pytest

from teola.engine import NextRead
from teola.kv import Access
from teola.kv.policies.next_use import NextUse
from teola.kv.policies.pauses import AGES, Pauses, worth
from tests.kv.policies.replaying import Watched
from tests.planted import catches, edited


def access(query: object, next_s: float | None = None, name: str = "agent") -> Access:
    return Access((name, ""), 0, query, (NextRead(maxsize, next_s),))  # type: ignore[arg-type]


@catches(
    "nearest-first",
    "what is read soonest goes first",
    edited(NextUse.offer, "-(now + next_s)", "now + next_s"),
)
def test_what_the_graphs_need_latest_goes_first() -> None:
    made = Watched(3, "next_use")
    for key, next_s in (("a", 50.0), ("b", 500.0), ("c", 5.0)):
        made.ask(key, access(key, next_s))
    made.ask("d", access("d", 1.0), 1.0)
    made.ask("e", access("e", 1.0), 1.5)
    assert made.evicted == ["b", "a"]


@catches(
    "shared-goes-with-its-query",
    "what others have read goes when one of its queries ends",
    edited(NextUse.touch, "before is None or before.query == query", "True"),
)
def test_what_a_query_that_has_ended_held_alone_goes_first() -> None:
    made = Watched(4, "next_use")
    made.ask("sa", access("other"))
    made.ask("sb", access("ended", inf), 1.0)
    made.ask("c", access("third", 900.0), 2.0)
    made.ask("d", access("fourth", 1.0), 3.0)
    made.ask("e", access("fifth", 1.0), 3.5)
    assert made.evicted == ["b", "c"], "`s` is another query's too"


def test_what_is_overdue_is_away_from_then_on() -> None:
    made = Watched(2, "next_use")
    made.ask("a", access("a", 10.0))
    made.ask("b", access("b", 1000.0))
    made.ask("c", access("c", 5000.0), 900.0)
    assert made.evicted == ["a"], "b comes in 100 s, a has not come for 890"


def test_queries_that_mostly_come_back_soon_outlive_those_that_do_not() -> None:
    made = Watched(None, policy := NextUse(refit_s=10.0))
    now = 0.0
    for query in range(60):
        for name, pause in (("tool", 5.0), ("person", 400.0)):
            made.ask([(name, query)], access((name, query), name=name), now)
            made.ask([(name, query)], access((name, query), name=name), now + pause)
        now += 500.0
    pauses = policy._pauses
    tool, person = (((name, ""), -1) for name in ("tool", "person"))
    assert pauses.worth(tool, 0.0) > 10 * pauses.worth(person, 0.0)
    assert pauses.worth(tool, 300.0) < pauses.worth(person, 300.0), "it will not come any more"


def test_pauses_of_no_memory_are_worth_their_rate_at_any_age() -> None:
    rate = 0.02
    back = [1e6 * (exp(-rate * a) - exp(-rate * b)) for a, b in pairwise(AGES)]
    found = worth([*back, 0.0], [0.0] * len(AGES))
    for k, age in enumerate(AGES):
        if 1 < age < 150:
            assert found[k] == pytest.approx(rate, rel=0.1)


def test_worth_never_rises_with_age() -> None:
    back = [0.0] * len(AGES)
    back[20] = 100.0
    left = [0.0] * len(AGES)
    left[30] = 20.0
    found = worth(back, left)
    assert all(a >= b for a, b in pairwise(found))
    assert found[20] > 0
    assert found[21] == 0


@catches(
    "censored-is-lost",
    "queries that have not come back yet are not counted",
    edited(Pauses.fit, "count_pause(left, away.kind, now - away.since)", "pass"),
)
def test_those_that_are_still_away_count() -> None:
    made = Pauses(3600.0, 1e9)
    for query in range(10):
        made.access(query, "c", 0.0)
    made.access(0, "c", 3.0)
    made.fit(100.0)
    assert made.worth(("c", -1), 0.0) < 0.3


def test_more_blocks_of_a_request_are_no_pause() -> None:
    made = Pauses(3600.0, 60.0)
    kind = made.access("q", "c", 0.0)
    assert made.access("q", "c", 20.0, begins=False) == kind
    assert made.access("q", "c", 20.1) == kind, "at once: the same access"
    assert made.access("q", "c", 40.0) != kind
