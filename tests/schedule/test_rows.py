"""Rows at an engine's queue: each is over once, and those go again that did not come back.

Long because all of it happens to the same windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from teola.errors import EngineError
from teola.policies import batching, routing
from teola.policies.asker import Asker
from teola.policies.batching import BATCHING
from teola.policies.batching.fair import Fair
from teola.policies.routing import ROUTING, RoutingPolicy
from teola.policies.routing.base import Dispatched, Finished, Loads, Prefilled
from teola.policies.work import Slice, ranges
from teola.profile import EngineProfile, StepTime
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRows,
    Cancelled,
    Cause,
    Dispatch,
    Finish,
    InstanceDown,
    QueueEvent,
    RowFailure,
    RowsCame,
    RowsEnded,
    RowsOver,
    RowsWanted,
    SetTimer,
    SourceEnded,
    Started,
    State,
    Timer,
    Waits,
)
from teola.schedule.instances import CALLS_S, Instances, Limits
from teola.schedule.overdue import Overdue
from teola.schedule.quota import Refusal
from teola.schedule.row_run import RowRun, RowSpecs
from teola.schedule.row_slices import RowSlices
from tests.planted import catches, edited
from tests.schedule.rows_world import Calls, World

PAIRS = [
    *((batch, "least_loaded") for batch in BATCHING),
    *((("critical_path", "fair", "fifo")[k % 3], route) for k, route in enumerate(ROUTING)),
]


@pytest.mark.parametrize(("batch", "route"), PAIRS)
def test_each_row_is_over_once_whatever_happens_under_any_policy(batch: str, route: str) -> None:
    """Rows of two tenants and calls of a third, on three instances that fail, refuse, drain and
    die. The world checks each command, `validate` the core after each event."""
    seed = len(batch) + len(route)
    world = World(seed, {"a": 40, "b": 25}, batch=batch, route=route, overdue=True)
    world.run()
    for name, rows in (("a", 40), ("b", 25)):
        over = world.over[name]
        assert len(over) == rows
        assert set(over.values()) == {1}
        state = State.PARTIAL if world.failed[name] else State.OK
        assert world.ended[name].state is state


# --- one window, step by step ----------------------------------------------------------------


class Bed:
    """One run of rows of 10 tokens in windows that a test gives, on instances of 8 places."""

    def __init__(
        self,
        instances: int = 2,
        *,
        route: str | RoutingPolicy = "least_loaded",
        batch: str = "fifo",
    ):
        limits = [Limits(100, 8, 1, True)] * instances
        policy = batching.make(batch)
        router = routing.make(route) if isinstance(route, str) else route
        self.queue = EngineQueue("llm", limits, policy, router)
        self.core = Core({"llm": self.queue}, lambda run, i: 10)
        self.said: list[Any] = []
        self.begin("rows", "t")

    def begin(self, name: str, tenant: str, *, warm: bool = False) -> None:
        specs = RowSpecs("llm", "rows", interactive=False, output=8)
        self.core.add(RowRun(name, specs, Asker(tenant, "tables", name), warm=warm))
        self.hear(self.core.tell(name, Started({}), 0.0))

    def hear(self, commands: Sequence[Any]) -> None:
        self.said += commands

    def rows(self, count: int, name: str = "rows", now: float = 0.0) -> list[Dispatch]:
        """A window comes; what is dispatched then."""
        self.hear(self.core.tell(name, RowsCame(count, 10), now))
        return self.sent(now)

    def sent(self, now: float) -> list[Dispatch]:
        found = list(self.core.flush(now))
        self.hear(found)
        return [one for one in found if isinstance(one, Dispatch)]

    def tell(self, event: QueueEvent, now: float) -> list[Dispatch]:
        self.hear(self.core.handle(event, now))
        return self.sent(now)

    def over(self, kind: type) -> list[Any]:
        return [one for one in self.said if isinstance(one, kind)]


def ended(one: Dispatch, *rows: int, failed: Sequence[RowFailure] = (), k: int = 0) -> RowsEnded:
    """These rows of a dispatch's slice were answered, at once, and others failed."""
    work, lo, _ = one.slices[k]
    place = "llm", one.batch, work.run, work.primitive, lo
    firsts = len(rows) + sum(one.begun for one in failed)
    return RowsEnded(*place, ranges(rows), failed, firsts, 0, len(rows), list(rows))


def spans(dispatches: Sequence[Dispatch]) -> list[tuple[int, int]]:
    return [(lo, hi) for one in dispatches for _, lo, hi in one.slices]


@catches(
    "whole-slice",
    "of an instance that is gone, rows go again that had come back",
    edited(RowSlices.lost, "sorted(row_slice.out)", "list(range(row_slice.lo, row_slice.hi))"),
)
@catches(
    "slice-forgotten",
    "what comes from an instance that is gone is believed",
    edited(
        RowSlices._close, "del self._slices[row_slice.batch, *row_slice.key, row_slice.lo]", "pass"
    ),
)
def test_exactly_the_rows_that_were_out_go_again() -> None:
    bed = Bed()
    first, second = bed.rows(20)
    assert spans([first, second]) == [(0, 8), (8, 16)]
    assert spans(bed.tell(ended(first, 1, 2, 5), 1.0)) == [(16, 19)]
    assert bed.tell(InstanceDown("llm", 0), 2.0) == []  # the other one is full
    assert bed.tell(ended(first, 0, 3), 2.0) == []  # too late
    again = bed.tell(ended(second, *range(8, 16)), 3.0)
    assert spans(again) == [(0, 1), (3, 5), (6, 8), (16, 19)]
    for k in range(4):
        lo, hi = spans(again)[k]
        bed.tell(ended(again[0], *range(lo, hi), k=k), 4.0)
    (last,) = (one for one in bed.over(Dispatch) if one.slices[-1].hi == 20)
    bed.tell(ended(last, 19), 5.0)
    over = [row for one in bed.over(RowsOver) for row in one.given]
    assert sorted(over) == list(range(20))
    assert bed.queue.retry_budget.budgeted == 0


@catches(
    "all-at-once",
    "rows do not wait for the one that computes what all begin with",
    edited(RowRun._want, "1 if self.warming else self.most", "self.most"),
)
@catches(
    "whole-answer",
    "rows wait for the whole answer of the first",
    edited(RowSlices.ended, "event.primitive == 0", "False"),
)
def test_a_run_that_warms_wants_one_window_until_its_first_token() -> None:
    bed = Bed(1)
    bed.begin("warm", "t", warm=True)
    before = len(bed.over(RowsWanted)) - 1
    (sent,) = bed.rows(1, "warm")
    assert len(bed.over(RowsWanted)) == before + 1
    begun = RowsEnded("llm", sent.batch, "warm", 0, 0, firsts=1)
    bed.tell(begun, 1.0)
    assert len(bed.over(RowsWanted)) == before + 3
    bed.rows(4, "warm")
    bed.tell(replace(ended(sent, 0), firsts=0), 2.0)
    assert len(bed.over(RowsWanted)) == before + 4
    # One that fails for good before its first token holds nobody up.
    bed.begin("broken", "t", warm=True)
    before = len(bed.over(RowsWanted))
    (sent,) = bed.rows(1, "broken", 3.0)
    wrong = RowFailure(0, Cause(ValueError("no such row")))
    bed.tell(ended(sent, failed=[wrong]), 3.0)
    assert len(bed.over(RowsWanted)) == before + 3


@catches(
    "each-waits",
    "each row that was refused is told by itself",
    edited(
        RowSlices._refused,
        "out.append(Waits",
        "out += [Waits(queue.engine, i, *one.key, until, last)] * len(back) or out.append(Waits",
    ),
)
@catches(
    "refusals-cost",
    "a refusal costs a row a try",
    edited(RowSlices._refused, 'costs = usable and cause.refused.kind != "busy"', "costs = True"),
)
def test_refusals_hold_up_a_window_as_one_and_cost_no_tries() -> None:
    bed = Bed(1)
    (sent,) = bed.rows(20)
    busy = Cause(EngineError("429", retryable=True), True, refused=Refusal("busy", 5.0))
    now = 0.0
    for _ in range(5):
        rows = [row for lo, hi in spans([sent]) for row in range(lo, hi)]
        waits = len(bed.over(Waits))
        told = [RowFailure(row, busy) for row in rows]
        assert bed.tell(ended(sent, failed=told), now) == []
        (wait,) = bed.over(Waits)[waits:]
        assert (wait.primitive, wait.until > now) == (0, True)
        now = wait.until
        (sent,) = bed.tell(Timer("llm"), now)
        assert sent.slices[0].lo == 0
    assert bed.queue.retries == 0
    assert not bed.over(RowsOver)


@catches(
    "retried-at-once",
    "rows that failed are put among those that wait",
    edited(
        RowSlices._later,
        "window.failed_at = instance",
        "window.failed_at = instance\n"
        "    work.spans[:0] = [(row, row + 1) for row in window.failed]; window.failed = {}",
    ),
)
@catches(
    "retried-for-ever",
    "a row may fail as often as it likes",
    edited(RowSlices._again, "tries < work.spec.retries", "True"),
)
def test_rows_that_failed_go_again_when_the_rest_is_over_and_are_errors_in_the_end() -> None:
    bed = Bed(1)
    broken = Cause(EngineError("it broke", retryable=True), True)
    wrong = Cause(ValueError("no such row"))
    (sent,) = bed.rows(10)
    work = sent.slices[0].work
    failed = [RowFailure(1, broken, True), RowFailure(3, broken), RowFailure(4, wrong)]
    (more,) = bed.tell(ended(sent, 0, 2, 5, 6, 7, failed=failed), 1.0)
    assert spans([more]) == [(8, 10)]
    assert bed.over(RowsOver)[-1].failed == [(4, wrong)]
    (again,) = bed.tell(ended(more, 8, 9), 2.0)
    assert spans([again]) == [(1, 2), (3, 4)]
    assert again.slices[0].work is not work
    bed.tell(ended(again, 1), 3.0)
    (last,) = bed.tell(ended(again, failed=[RowFailure(3, broken)], k=1), 3.0)
    assert spans([last]) == [(3, 4)]
    bed.tell(ended(last, failed=[RowFailure(3, broken)]), 4.0)
    assert bed.over(RowsOver)[-1].failed == [(3, broken)]
    bed.hear(bed.core.tell("rows", SourceEnded(), 5.0))
    assert bed.over(Finish) == [Finish("rows", State.PARTIAL, None, ())]
    budget = bed.core.queues["llm"].retry_budget
    assert (budget.retries, budget.budgeted) == (3, 3), "each row that was tried again"


@catches(
    "no-room-left",
    "rows take all places though calls come",
    edited(Instances._room_of_llm, "now >= self.last_call + CALLS_S", "True"),
)
@catches(
    "room-left-for-ever",
    "the places that are left to calls are left when none come",
    edited(RowSlices.wake, "return self._alarm", "return None"),
)
def test_an_eighth_of_the_places_is_left_to_calls_while_they_come() -> None:
    bed = Bed(1, batch="critical_path")
    calls = Calls("calls", Asker(), 2)
    bed.core.add(calls)
    bed.hear(bed.core.tell("calls", Started({}), 0.0))
    (sent,) = bed.rows(30)
    assert [(one.work.run, one.hi - one.lo) for one in sent.slices] == [
        ("calls", 10), ("calls", 10), ("rows", 5)
    ]  # fmt: skip
    assert spans(bed.tell(ended(sent, 0, 1, k=2), 0.5)) == [(5, 7)]
    (timer,) = bed.over(SetTimer)
    assert timer.at == CALLS_S
    assert spans(bed.tell(Timer("llm"), timer.at)) == [(7, 8)]


@pytest.mark.parametrize(
    ("places", "kept"), [(1, 0), (2, 1), (8, 1), (15, 1), (16, 2), (17, 2), (64, 8)]
)
def test_one_place_of_one_is_left_to_nobody_and_one_of_two_is(places: int, kept: int) -> None:
    """While calls come: else rows would never go to an instance with one place."""
    instances = Instances([Limits(100, places, 1, True)])
    for last, leaves, expected in ((0.0, True, kept), (0.0, False, 0), (-CALLS_S, True, 0)):
        instances.last_call, instances.leaves_room = last, leaves
        room = instances.room(0, 0.0)
        assert room is not None
        assert (room.entries, room.kept) == (places, expected)


class Hears(RoutingPolicy):
    """Sends all to one instance, and notes what it is told."""

    observes = (Dispatched, Prefilled, Finished)

    def __init__(self, at: int) -> None:
        self.at, self.told = at, list[tuple[str, int]]()
        self.generated: list[int | None] = []

    def order(self, loads: Loads, now: float) -> list[int]:
        return [self.at] if self.at in loads else []

    def observe(self, event: Any, now: float) -> None:
        self.told.append((type(event).__name__, event.instance))
        if isinstance(event, Finished):
            self.generated.append(event.generated)


@pytest.mark.parametrize("instance", [0, 1, 2])
def test_to_a_router_a_window_is_one_call_wherever_it_is(instance: int) -> None:
    """However many slices it is sent in."""
    heard = Hears(instance)
    bed = Bed(3, route=heard)
    flying, rows = bed.rows(20), 0
    while flying:
        sent = flying.pop(0)
        assert sent.instance == instance
        ((_, lo, hi),) = sent.slices
        rows += hi - lo
        flying += bed.tell(replace(ended(sent, *range(lo, hi)), generated=3 * (hi - lo)), 1.0)
    assert rows == 20
    assert heard.generated == [3], "as long as its rows' answers are on average"
    assert heard.told == [("Dispatched", instance), ("Prefilled", instance), ("Finished", instance)]


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_what_was_left_to_calls_is_filled_at_just_that_time_though_nothing_else_happens(
    instances: int,
) -> None:
    """Instances that declined more rows are asked again then."""
    bed = Bed(instances, batch="critical_path")
    calls = Calls("calls", Asker(), 1)
    bed.core.add(calls)
    bed.hear(bed.core.tell("calls", Started({}), 0.0))
    bed.rows(40)
    for now in (0.3, 0.6, 0.9):
        bed.tell(Timer("llm"), now)
    assert bed.tell(Timer("llm"), 0.95) == [], "none takes more before that time"
    before = [one.entries for one in bed.queue.instances]
    assert before == [7] * instances
    bed.tell(Timer("llm"), CALLS_S)
    assert [one.entries for one in bed.queue.instances] == [8] * instances


@catches(
    "part-hangs",
    "rows that stream are stopped because others of their slice are silent",
    edited(RowSlices.late, "row_slice.prefilling == len(row_slice.out)", "row_slice.prefilling"),
)
def test_rows_that_give_no_token_go_elsewhere_once_the_others_are_back() -> None:
    bed = Bed()
    bed.queue.rows.overdue = Overdue()
    first, second = bed.rows(16)
    bed.tell(ended(second, *range(8, 16)), 1.0)
    streams = replace(ended(first, 0, 1, 2, 3, 4, 5), firsts=7)  # row 6 has begun, 7 is silent
    bed.tell(streams, 1.0)
    assert bed.tell(Timer("llm"), 60.0) == bed.tell(Timer("llm"), 120.0) == []
    bed.tell(replace(ended(first, 6), firsts=0), 120.0)
    (again,) = bed.tell(Timer("llm"), 180.0)
    assert bed.over(AbortRows) == [AbortRows("llm", 0, first.batch, "rows", 0, 0)]
    assert (again.instance, spans([again])) == (1, [(7, 8)])


@catches(
    "rows-unheard",
    "nobody learns from rows how long a first token takes",
    edited(RowSlices._began, "not row_slice.prefilling", "False"),
)
@catches(
    "rows-budgeted",
    "of rows that hang only as many move as the budget of retries has room for",
    edited(RowSlices._late, "lost=quota.probing > 0", "lost=False"),
)
def test_rows_that_hang_move_soon_once_others_have_begun() -> None:
    bed = Bed()
    bed.queue.rows.overdue = Overdue()
    hung, going = bed.rows(48)
    bed.queue.retry_budget.budgeted = 1000
    limit = bed.queue.instances.limit(0, "llm")
    limit.probing = 1  # it was late before
    for now in (1.0, 2.0, 3.0):
        lo, hi = spans([going])[0]
        (going,) = bed.tell(ended(going, *range(lo, hi)), now)
    assert bed.tell(Timer("llm"), 7.9) == []
    bed.tell(Timer("llm"), 8.0)
    assert bed.over(AbortRows) == [AbortRows("llm", 0, hung.batch, "rows", 0, 0)]


def test_first_tokens_of_each_slice_are_expected_by_its_own_rows_and_what_its_instance_has() -> (
    None
):
    """A token takes 10 ms; the third slice comes where five rows still are."""
    bed = Bed()
    bed.queue.placing.profiles = [EngineProfile(step=StepTime(per_token_s=0.01))] * 2
    bed.queue.rows.overdue = overdue = Overdue()
    first, second = bed.rows(20)
    third = bed.tell(ended(first, 1, 2, 5), 1.0)
    assert spans([first, second, *third]) == [(0, 8), (8, 16), (16, 19)]
    assert [one.tokens for one in overdue._sent.values()] == [80, 80, 80]
    assert [one.expected_s for one in overdue._sent.values()] == pytest.approx([0.8, 0.8, 0.8])


def test_what_is_out_is_stopped_when_rows_are_cancelled_and_comes_for_nobody() -> None:
    bed = Bed()
    sent = bed.rows(30)
    bed.hear(bed.core.tell("rows", Cancelled(), 1.0))
    assert [one.lo for one in bed.over(AbortRows)] == [0, 8]
    assert bed.over(Finish)[0].state is State.CANCELLED
    for one in sent:
        bed.tell(ended(one, *range(*spans([one])[0])), 2.0)
    assert bed.queue.idle
    assert not bed.over(RowsOver)


@catches(
    "rows-as-items",
    "rows are charged to their tenant as one token each",
    edited(Fair._settle, "work.weighs(before - work.remaining)", "before - work.remaining"),
)
def test_tenants_share_by_tokens_and_rows_wait_for_calls_of_their_own_tenant() -> None:
    bed = Bed(1, batch="fair")
    bed.begin("heavy", "u")
    bed.hear(bed.core.tell("heavy", RowsCame(1000, 30), 0.0))
    bed.hear(bed.core.tell("rows", RowsCame(1000, 10), 0.0))
    rows, flying = Counter[str](), bed.sent(0.0)
    for now in range(1, 200):
        one = flying.pop(0)
        for k, (work, lo, hi) in enumerate(one.slices):
            rows[work.run] += hi - lo
            flying += bed.tell(ended(one, *range(lo, hi), k=k), float(now))
    assert rows["rows"] * 10 == pytest.approx(rows["heavy"] * 30, rel=0.05)
    calls = Calls("calls", Asker("t", "chat"), 3)
    bed.core.add(calls)
    bed.hear(bed.core.tell("calls", Started({}), 200.0))
    sent: list[str] = []
    while len(set(sent)) < 3 and flying:
        one = flying.pop(0)
        for k, (work, lo, hi) in enumerate(one.slices):
            if work.row_tokens:
                more = bed.tell(ended(one, *range(lo, hi), k=k), 200.1)
                flying += more
                sent += [piece.work.run for each in more for piece in each.slices]
    own = [run for run in sent if run != "heavy"]
    assert own[:3] == ["calls"] * 3


@catches(
    "first-late-only",
    "of slices that are late at once only the first goes elsewhere",
    edited(RowSlices.late, "self.overdue.late(now) if", "self.overdue.late(now)[:1] if"),
)
def test_all_slices_that_are_late_at_once_go_elsewhere_at_once() -> None:
    bed = Bed(3)
    bed.queue.rows.overdue = Overdue()
    silent, other, third = bed.rows(16)
    bed.tell(ended(third, *range(*spans([third])[0])), 1.0)
    bed.tell(Timer("llm"), 60.0)
    stopped = [(one.instance, one.lo) for one in bed.over(AbortRows)]
    assert stopped == [(0, spans([silent])[0][0]), (1, spans([other])[0][0])]


@pytest.mark.parametrize("down", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("instance", [0, 1, 2])
def test_rows_that_failed_avoid_where_they_did_only_if_there_is_another_instance(
    instance: int, down: tuple[int, ...]
) -> None:
    if instance in down:
        return
    bed = Bed(3)
    sent = {one.instance: one for one in bed.rows(9)}
    for i, one in sent.items():
        if i != instance:
            bed.tell(ended(one, *range(*spans([one])[0])), 1.0)
    for i in down:
        bed.tell(InstanceDown("llm", i), 2.0)
    broken = Cause(EngineError("it broke", retryable=True), True)
    lo, hi = spans([sent[instance]])[0]
    failed = [RowFailure(row, broken) for row in range(lo, hi)]
    again = bed.tell(ended(sent[instance], failed=failed), 3.0)
    alone = len(down) == 2
    assert {one.slices[0].work.avoid for one in again} == {-1 if alone else instance}
    assert all((one.instance == instance) is alone for one in again)


def test_to_a_router_rows_that_go_again_are_another_call() -> None:
    """It is told when that begins, too."""
    heard = Hears(0)
    bed = Bed(1, route=heard)
    (sent,) = bed.rows(4)
    broken = Cause(EngineError("it broke", retryable=True), True)
    (again,) = bed.tell(ended(sent, 0, 1, 2, failed=[RowFailure(3, broken, True)]), 1.0)
    (once_more,) = bed.tell(ended(again, failed=[RowFailure(3, broken, True)]), 2.0)
    bed.tell(ended(once_more, 3), 3.0)
    assert heard.told == 3 * [("Dispatched", 0), ("Prefilled", 0), ("Finished", 0)]
    assert heard.generated == [None, None, 1]


@pytest.mark.parametrize("affinity", [-1, 0, 1])
@pytest.mark.parametrize("idle", [2, 3, 5, 20])
@pytest.mark.parametrize(("lo", "offered"), [(0, 1), (0, 12), (4, 3), (4, 8)])
def test_an_instance_takes_its_part_of_rows_that_may_go_anywhere_and_else_what_it_is_offered(
    lo: int, offered: int, idle: int, affinity: int
) -> None:
    bed = Bed(2)
    (first, *_) = bed.rows(40)
    work = replace(first.slices[0].work, affinity=affinity, spans=[(lo, 12)])
    part = max(k for k in range(13) if k * idle < 12 - lo + idle) if affinity < 0 else offered
    expected = [Slice(work, lo, lo + min(offered, part))]
    rest = Slice(work, 30, 31)
    assert bed.queue.rows.shared([Slice(work, lo, lo + offered), rest], idle) == expected
