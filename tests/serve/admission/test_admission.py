"""Who is let in: decisions, what they are learned from, and whole queues in virtual time.

Long because all three are told of the same queries.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.engine import Hit
from teola.errors import Overloaded
from teola.runtime.observe.demand import Demand
from teola.serve.admission.admission import Admission, Lanes, Shares, Ticket
from teola.serve.admission.expecting import characters_of
from teola.serve.admission.learning import Crowd, size_class
from tests.planted import catches, edited
from tests.serve.admission.queueing import ENGINE, on_lanes, side_by_side

NOTHING = Demand(0.0, {ENGINE: 0.0})
"""Planned where no times are known."""


def admission(
    own_s: float = 1.0, lanes: float = 1.0, max_wait_s: float | None = None, **more: object
) -> Admission:
    """One engine, and queries of which each takes it for `own_s`."""
    shares = Shares(**more)  # type: ignore[arg-type]
    planned = Demand(own_s, {ENGINE: own_s})
    return Admission(lambda engine: Lanes(lanes), lambda kind: planned, max_wait_s, shares)


def let_in(door: Admission, most: int = 1000, tenant: str = "a", now: float = 0.0) -> list[Ticket]:
    """As many queries as come in at once."""
    found: list[Ticket] = []
    while len(found) < most:
        try:
            found.append(door.admit("app", 0, tenant, now))
        except Overloaded:
            break
    return found


# --- waits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own_s", "lanes", "max_wait_s", "count"),
    [
        (1.0, 1, 3.0, 4),  # the fourth waits for three
        (1.0, 8, 0.5, 12),  # eight at once, then eight a second for half a second
        (0.125, 1, None, 11),  # ten turns of 1/8 s
        (1.0, 8, None, 18),  # ten turns of 1/8 s, behind the eight that do not wait
        (2**-10, 1, None, 513),  # half a second is always allowed
        (10.0, 1, None, 4),  # and more than 30 s never
    ],
)
def test_as_many_come_in_as_end_in_time(
    own_s: float, lanes: int, max_wait_s: float | None, count: int
) -> None:
    assert len(let_in(admission(own_s, lanes, max_wait_s))) == count


@catches(
    "waits-learned",
    "what queries waited counts as what they take",
    edited(Admission._learn, "if ticket.at_ease or not learned.known else None", ""),
)
def test_an_overload_teaches_nothing_about_what_a_query_takes() -> None:
    """Each takes a second, and those that came at once wait for each other. Later as many come in
    as before, and one with a second to spare is let in behind another."""
    door = admission(max_wait_s=3.0)
    for _ in range(5):
        tickets = let_in(door)
        assert len(tickets) == 4
        for k, ticket in enumerate(tickets):
            door.ended(ticket, Demand(1.0 + k, {ENGINE: 1.0}))
    door.admit("app", 0, "a", 0.0)
    door.admit("app", 0, "a", 0.0, deadline_s=2.5)
    with pytest.raises(Overloaded):
        door.admit("app", 0, "a", 0.0, deadline_s=2.5)


def test_who_is_refused_is_told_when_there_will_be_room() -> None:
    door = admission(max_wait_s=2.5)
    let_in(door, 3)
    with pytest.raises(
        Overloaded, match=r"work for 3\.0 s before this query; try again in 1 s"
    ) as e:
        door.admit("app", 0, "a", 0.0)
    assert e.value.retry_after_s == pytest.approx(0.5)


def test_a_query_that_would_miss_its_deadline_is_refused() -> None:
    door = admission(max_wait_s=100.0)
    let_in(door, 3)
    with pytest.raises(Overloaded):
        door.admit("app", 0, "a", 0.0, deadline_s=3.5)
    door.admit("app", 0, "a", 0.0, deadline_s=4.5)


def test_long_queries_with_lanes_of_their_own_hold_up_nobody() -> None:
    """Four of 10 s on eight lanes: there is room for a short one, though not behind sixteen."""
    took = {0: Demand(10.0, {ENGINE: 10.0}), 3: Demand(0.1, {ENGINE: 0.1})}
    door = Admission(lambda engine: Lanes(8.0), lambda kind: took[kind.size])
    for _ in range(4):
        door.admit("app", 0, "a", 0.0)
    door.admit("app", 100_000, "a", 0.0)
    for _ in range(12):
        door.admit("app", 0, "a", 0.0)
    with pytest.raises(Overloaded):
        door.admit("app", 100_000, "a", 0.0)


def test_the_busiest_engine_decides() -> None:
    planned = Demand(2.0, {"wide": 1.0, "narrow": 1.0})
    lanes = {"wide": Lanes(100.0), "narrow": Lanes(1.0)}
    door = Admission(lanes.__getitem__, lambda kind: planned, 2.0)
    assert len(let_in(door)) == 4
    with pytest.raises(Overloaded, match="engine 'narrow'"):
        door.admit("app", 0, "a", 0.0)


def test_instances_that_are_gone_take_nothing() -> None:
    lanes = {ENGINE: Lanes(4.0)}
    door = Admission(lanes.__getitem__, lambda kind: Demand(1.0, {ENGINE: 1.0}), 1.0)
    assert len(let_in(door, 6)) == 6
    lanes[ENGINE] = Lanes(0.0)
    with pytest.raises(Overloaded, match=r"work for 6\.0 s"):
        door.check("app", 0, "a", 0.0)


# --- learning -------------------------------------------------------------------------------


def test_what_queries_took_replaces_what_was_planned() -> None:
    door = admission(own_s=5.0, max_wait_s=4.0)
    assert len(let_in(door, now=0.0)) == 1
    door = admission(own_s=5.0, max_wait_s=4.0)
    door.ended(door.admit("app", 0, "a", 0.0), Demand(1.0, {ENGINE: 1.0}))
    assert len(let_in(door)) == 5


def test_queries_that_did_not_end_well_teach_nothing() -> None:
    door = admission(own_s=1.0, max_wait_s=4.0)
    door.ended(door.admit("app", 0, "a", 0.0), None)
    assert len(let_in(door)) == 5


def test_sizes_are_learned_apart() -> None:
    door = Admission(lambda engine: Lanes(1.0), lambda kind: NOTHING, 1.5)
    door.ended(door.admit("app", 10, "a", 0.0), Demand(0.1, {ENGINE: 0.1}))
    door.ended(door.admit("app", 10**6, "a", 0.0), Demand(5.0, {ENGINE: 5.0}))
    door.admit("app", 10**6, "a", 0.0)
    with pytest.raises(Overloaded):
        door.admit("app", 10**6, "a", 0.0)
    for _ in range(3):
        door.admit("app", 10, "a", 0.0)


def test_a_kind_of_which_none_has_ended_is_judged_by_its_oldest() -> None:
    """None is known to be long, until the first one has been running for a while."""
    door = Admission(lambda engine: Lanes(1.0), lambda kind: NOTHING, 2.0)
    assert len(let_in(door, 5, now=10.0)) == 5
    door.check("app", 0, "a", 10.3)
    with pytest.raises(Overloaded):
        door.check("app", 0, "a", 11.0)


def test_what_a_crowd_slows_down_is_not_taken_for_what_a_query_needs() -> None:
    """Each took 1 s while few ran. Under load each takes longer, and the door does not widen."""
    crowd: list[Ticket] = []
    door = Admission(lambda engine: Lanes(1.0, len(crowd)), lambda kind: NOTHING, 1.0)
    for _ in range(3):
        door.ended(door.admit("app", 0, "a", 0.0), Demand(1.0, {ENGINE: 1.0}))
    for _ in range(2000):  # four can be done a second
        try:
            crowd.append(door.admit("app", 0, "a", 0.0))
        except Overloaded:
            took = max(1.0, len(crowd) / 4)
            door.ended(crowd.pop(0), Demand(took, {ENGINE: took}))
    assert 4 <= len(crowd) <= 9


def test_who_was_let_in_before_a_restart_is_not_refused_but_counts() -> None:
    door = admission(max_wait_s=2.0)
    tickets = [door.take("app", 0, "a", 0.0) for _ in range(5)]
    with pytest.raises(Overloaded, match=r"work for 5\.0 s"):
        door.admit("app", 0, "a", 0.0)
    for ticket in tickets:
        door.ended(ticket, None)
    assert door.running == 0


def test_who_waits_for_people_brings_no_work_until_it_is_answered() -> None:
    """However many wait, and although none of them has ended."""
    door, waiting = admission(own_s=1.0, lanes=1.0, max_wait_s=3.0), list[Ticket]()
    for _ in range(10):
        waiting += let_in(door)
        for ticket in waiting[-4:]:
            door.pauses(ticket)
    assert len(waiting) == 40
    assert door.running == 0
    assert door.backlog(0.0) == {}
    door.goes_on(waiting[0], 0.0)
    assert len(let_in(door)) == 3


def test_an_engine_that_was_not_seen_to_slow_down_may_take_more() -> None:
    crowd = Crowd()
    assert crowd.lanes(1) == 16
    assert crowd.lanes(3) == 48
    assert crowd.lanes(3, fits=20) == 20, "no more than it has memory for"
    assert crowd.lanes(3, fits=2) == 3, "but one an instance"
    for _ in range(100):
        crowd.saw(20, took_s=1.2, alone_s=1.0)
    assert crowd.lanes(1) == pytest.approx(30)


def test_an_engine_that_slowed_down_can_do_what_it_did_then() -> None:
    crowd = Crowd()
    for _ in range(100):
        crowd.saw(30, took_s=3.0, alone_s=1.0)
    assert crowd.lanes(1) == pytest.approx(10)
    for _ in range(100):
        crowd.saw(6, took_s=1.0, alone_s=1.0)
    assert crowd.lanes(1) == 16, "fewer come, and nothing is held against it"


def test_size_classes() -> None:
    found = [size_class(n) for n in (0, 4095, 4096, 16383, 16384, 65536, 2**26)]
    assert found == [0, 0, 1, 1, 2, 3, 8]


def test_how_much_a_query_brings() -> None:
    documents = [{"name": "a", "text": "bcd"}]
    assert characters_of({"question": "12345", "documents": documents, "filters": None}) == 9
    assert characters_of({"documents": [Hit("0", "0", "seven77", 0.0)] * 3}) == 21


# --- tenants --------------------------------------------------------------------------------


def test_who_uses_less_than_his_share_is_let_in_when_others_are_not() -> None:
    door = admission(max_wait_s=5.0)
    assert len(let_in(door, tenant="greedy")) == 6
    assert let_in(door, 1, tenant="modest")
    assert not let_in(door, 1, tenant="greedy")
    assert len(let_in(door, tenant="modest")) == 2, "half of what one alone gets"


def test_shares_go_by_weight() -> None:
    door = admission(max_wait_s=5.0, weights={"heavy": 3.0})
    let_in(door, tenant="greedy")
    assert len(let_in(door, tenant="heavy")) == 4
    assert len(let_in(door, tenant="modest")) == 1


def test_a_tenant_alone_may_take_everything() -> None:
    door = admission(max_wait_s=5.0, weights={"a": 0.01})
    assert len(let_in(door, tenant="a")) == 6


def test_a_rate_is_kept_over_ten_seconds() -> None:
    door = admission(own_s=1e-6, rate=2.0)
    assert len(let_in(door, tenant="a", now=0.0)) == 20
    with pytest.raises(Overloaded, match="more than 2 queries a second; try again in 1 s") as e:
        door.admit("app", 0, "a", 0.0)
    assert e.value.retry_after_s == pytest.approx(0.5)
    assert len(let_in(door, tenant="b", now=0.0)) == 20, "each tenant has its own"
    assert len(let_in(door, tenant="a", now=3.0)) == 6
    assert len(let_in(door, tenant="a", now=1000.0)) == 20


def test_what_one_tenants_queries_took_says_nothing_of_anothers() -> None:
    alone = len(let_in(admission(own_s=1.0), tenant="b"))
    door = admission(own_s=1.0)
    slow = [door.take("app", 0, "a", 0.0) for _ in range(30)]
    for ticket in slow:
        door.ended(ticket, Demand(25.0, {ENGINE: 25.0}))
    assert len(let_in(door, tenant="b")) == alone == 11
    assert len(let_in(door, tenant="a", now=100.0)) < alone, "of its own it says much"


def test_what_runs_for_one_tenant_leaves_another_its_share() -> None:
    door = admission(own_s=1.0, lanes=4.0)
    for ticket in [door.take("app", 0, "a", 0.0) for _ in range(30)]:
        door.ended(ticket, Demand(25.0, {ENGINE: 25.0}))
    for _ in range(30):
        door.take("app", 0, "a", 100.0)
    room = len(let_in(admission(own_s=1.0, lanes=2.0), tenant="b"))
    assert len(let_in(door, tenant="b", now=101.0)) >= room / 2


def test_how_an_engine_slows_down_is_told_by_ones_own_queries() -> None:
    """A tenant whose first queries are short and the next ones long makes it look slow."""
    door = Admission(lambda engine: Lanes(1.0, door.running), lambda kind: NOTHING)
    for _ in range(3):
        door.ended(door.admit("app", 0, "b", 0.0), Demand(1.0, {ENGINE: 1.0}))
    room = let_in(door, tenant="b")
    for ticket in room:
        door.ended(ticket, None)
    for took in [0.01] * 10 + [25.0] * 40:
        door.ended(door.take("app", 0, "a", 0.0), Demand(took, {ENGINE: took}))
    assert len(let_in(door, tenant="b")) == len(room)


# --- what always holds ----------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["come", "end", "fail", "wait", "answer"]),
        st.sampled_from(["rag", "chat"]),
        st.sampled_from([0, 5000, 10**6]),
        st.sampled_from(["a", "b", "c"]),
        st.floats(0, 20),
    ),
    max_size=80,
)


@pytest.mark.property
@given(events=EVENTS, lanes=st.floats(0, 50), max_wait_s=st.sampled_from([None, 0.01, 3.0]))
@settings(max_examples=100)
def test_nothing_is_left_and_who_comes_to_an_idle_engine_comes_in(
    events: list[tuple[str, str, int, str, float]], lanes: float, max_wait_s: float | None
) -> None:
    planned = Demand(0.0, {"llm": 0.0, "embedding": 0.0})
    inside: list[Ticket] = []
    waiting: list[Ticket] = []
    now = 0.0

    def found(engine: str) -> Lanes:
        return Lanes(lanes, len(inside) if engine == "llm" else None)

    door = Admission(found, lambda kind: planned, max_wait_s)
    for what, app, size, tenant, seconds in events:
        now += seconds
        if what == "come":
            with suppress(Overloaded):
                inside.append(door.admit(app, size, tenant, now, deadline_s=30.0))
            assert inside, "with nothing running everybody is let in"
        elif what == "answer":
            if waiting:
                inside.append(waiting.pop(0))
                door.goes_on(inside[-1], now)
        elif what == "wait":
            if inside:
                waiting.append(inside.pop())
                door.pauses(waiting[-1])
        elif inside:
            demand = Demand(seconds, {"llm": seconds / 2, "embedding": seconds / 3})
            door.ended(inside.pop(), demand if what == "end" else None)
        for work_s, wait_s in door.backlog(now).values():
            assert work_s >= 0
            assert wait_s >= 0
        assert door.running == len(inside)
    for ticket in inside:
        door.ended(ticket, None)
    assert door.running == 0
    assert door.backlog(now) == {}
    door.admit("rag", 10**7, "d", now, deadline_s=0.001)


# --- whole queues, in virtual time ----------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 8, 50])
@pytest.mark.parametrize("spread", ["constant", "exponential"])
def test_ten_times_the_capacity_offered(lanes: int, spread: str) -> None:
    """Goodput stays, and who is let in waits no more than twice as long as at 80 % load."""

    def draw(rng: Random) -> float:
        return 0.5 if spread == "constant" else rng.expovariate(2.0)

    capacity = lanes / 0.5
    phases = [(0.5 * capacity, 1000), (0.8 * capacity, 6_000), (10 * capacity, 25_000)]
    _, calm, flooded = on_lanes(lanes, phases, draw)
    assert calm.refused <= 0.1 * 6_000
    assert flooded.goodput >= 0.9 * capacity
    assert flooded.p99 <= 2 * calm.p99


def test_ten_times_the_capacity_of_an_engine_that_only_slows_down() -> None:
    capacity = 8.0
    calmly = [(0.5 * capacity, 500), (0.8 * capacity, 3_000)]
    _, calm, first, flooded = side_by_side(
        2.0, 16, [*calmly, (10 * capacity, 1_000), (10 * capacity, 10_000)]
    )
    assert calm.refused <= 0.03 * 3_000
    assert flooded.goodput >= 0.9 * capacity
    assert flooded.p99 <= 2 * calm.p99
    assert max(first.latencies) <= 4 * calm.p99, "until it is seen how it becomes slower"


@pytest.mark.parametrize("wide", [True, False])
def test_a_flood_from_the_first_moment_on_is_held_back(wide: bool) -> None:
    """Nothing is known then of what a query takes; what was let in too much is worked off."""
    if wide:
        (found,) = on_lanes(32, [(640.0, 4_000)], lambda rng: 0.5)
    else:
        (found,) = side_by_side(2.0, 16, [(80.0, 4_000)])
    assert max(found.latencies) < 20
