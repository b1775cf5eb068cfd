"""Instances of one engine that can take more or less, or are faster or slower than others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest

from teola.graph import Op
from teola.policies import batching
from teola.policies.routing import make
from teola.policies.routing.base import Loads, RoutingPolicy
from teola.policies.routing.prefix_affinity import PrefixAffinity
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Dispatch, FirstToken, InstanceDown, PrefixChanged
from teola.schedule.instances import LOOKS_S, Instances, Limits
from teola.schedule.prefix_index import FORGOTTEN_S, PrefixIndex
from teola.schedule.quota import Refusal
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
from tests.policies import unequal
from tests.recording import work

LARGE, SMALL = Limits(400, 8, 2, False), Limits(100, 8, 1, False)
CHAT = Limits(400, 8, 1, True), Limits(100, 8, 1, True)
SLOW, FAST = (EngineProfile(step=StepTime(per_token_s=s)) for s in (0.004, 0.001))
KEYS = ("a", "ab")


def queue_of(*limits: Limits, routing: str = "least_loaded", **more: Any) -> EngineQueue:
    return EngineQueue("e", limits, batching.make("fifo"), make(routing), **more)


def call(run: str, total: int = 40, **more: Any) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "cuttable": False, "primitive": 0}
    keys = more.pop("keys", ())
    made = work(**{**given, "run": run, "total": total, **more})
    made.keys = keys
    return made


def sent(queue: EngineQueue, now: float = 0.0) -> list[tuple[int, int]]:
    """Instances, and how much was sent there."""
    found = [c for c in queue.dispatch(now) if isinstance(c, Dispatch)]
    validate_queue(queue, now)
    return [(one.instance, sum(hi - lo for _, lo, hi in one.slices)) for one in found]


def test_a_batch_is_as_large_as_its_instance_takes() -> None:
    queue = queue_of(SMALL, LARGE)
    queue.submit(work(total=1000), 0.0)
    assert sorted(sent(queue)) == [(0, 100), (1, 400), (1, 400)]


@catches(
    "load-in-items",
    "an instance is as loaded as it has work, whatever it can take",
    edited(Instances._load, "instance.context / limits.max_batch", "float(instance.context)"),
)
def test_an_instance_is_as_loaded_as_it_is_full() -> None:
    queue = queue_of(*CHAT)
    for k in range(2):
        queue.submit(call(f"q{k}"), 0.0)
    assert sorted(sent(queue)) == [(0, 40), (1, 40)]
    for k in range(2, 5):
        queue.submit(call(f"q{k}"), 0.0)
        assert sent(queue) == [(0, 40)]  # 10 % of the large one each, of the small one 40 %


def test_instances_are_in_the_order_in_which_one_more_would_be_done() -> None:
    """Whichever of them are slow, and whatever they have; 100 tokens are one load."""
    for slowness in ((3.0, 1.0), (1.0, 3.0), (2.0, 4.0, 1.0), (9.0, 1.0, 9.0)):
        for tokens in ((0, 0, 0), (0, 50, 0), (50, 0, 20), (20, 20, 60)):
            instances = Instances([CHAT[1]] * len(slowness))
            instances.weigh(slowness)
            given = dict(zip(range(len(slowness)), tokens, strict=False))
            for i, weight in given.items():
                if weight:
                    instances.send(i, i, weight, 1)
            usual = sum(given.values()) / (sum(map(bool, given.values())) or 1)
            assert instances.usual_items == pytest.approx(usual or 1.0, rel=0.25)
            takes = {i: (given[i] + instances.usual_items) * slowness[i] for i in given}
            assert list(instances.open(0.0).instances) == sorted(given, key=lambda i: (takes[i], i))


def test_what_is_usual_is_reckoned_anew_once_the_mean_is_more_than_a_quarter_away() -> None:
    for last, usual in ((59, 40.0), (60, 40.0), (61, 50.5), (20, 40.0), (19, 29.5)):
        instances = Instances([CHAT[1]] * 2)
        instances.weigh((2.0, 1.0))
        instances.send(0, 0, 40, 1)
        instances.send(1, 1, last, 1)
        assert instances.usual_items == usual
    alike = Instances([CHAT[1]] * 2)
    alike.send(0, 0, 40, 1)
    assert alike.usual_items == 1.0, "nobody asks"


class SecondFirst(RoutingPolicy):
    """It has an order of its own."""

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        return sorted(loads.numbers, reverse=True)


@pytest.mark.parametrize(("routing", "there"), [("least_loaded", False), (SecondFirst(), True)])
def test_what_is_worth_it_on_a_slow_instance_a_policy_with_an_order_of_its_own_decides(
    routing: str | RoutingPolicy, there: bool
) -> None:
    """The ninth call finds the fast one full."""
    router = make(routing) if isinstance(routing, str) else routing
    queue = EngineQueue("e", CHAT, batching.make("fifo"), router, [SLOW, FAST])
    for k in range(9):
        queue.submit(call(f"q{k}", 5), 0.0)
    assert sent(queue).count((0, 5)) == there


@catches(
    "share-of-another",
    "an instance that recovers has its share of what the first one can take",
    edited(Instances._room_of_weak, "limits = instance.limits", "limits = self._all[0].limits"),
)
def test_one_that_recovers_takes_a_share_of_its_own_limits() -> None:
    instances = Instances(CHAT)
    instances.failed(1, 0.0, lost=True)
    until = next(now for now in range(1, 600) if instances.room(1, float(now)))
    slots = instances.room(1, float(until))
    assert slots is not None
    assert (slots.weight, slots.entries) == (100, 1)


def test_the_view_tells_limits_and_profiles_of_each() -> None:
    view = queue_of(*CHAT, profiles=[SLOW, FAST]).placing.routing.view
    assert list(view.limits) == list(CHAT)
    assert list(view.profiles) == [SLOW, FAST]
    unknown = queue_of(*CHAT).placing.routing.view
    assert list(unknown.profiles) == [EngineProfile()] * 2


def bound(profiles: list[EngineProfile]) -> int:
    """Where a prompt goes of which the first instance keeps half, and the second nothing."""
    queue = queue_of(*CHAT, routing="prefix_affinity", profiles=profiles)
    queue.prefixes(PrefixChanged("e", 0, ("a",), ()), 0.0)
    queue.submit(call("q", 32, keys=KEYS), 0.0)
    ((at, _),) = sent(queue)
    return at


@catches(
    "fast-and-slow-alike",
    "tokens count the same on a fast instance and on a slow one",
    edited(PrefixAffinity.place, "if before * token_s[i] < least", "if before < least"),
)
def test_a_prompt_goes_where_its_first_token_comes_first() -> None:
    """Twice the tokens in a quarter of the time each."""
    assert bound([SLOW, FAST]) == 1


@pytest.mark.parametrize("profiles", [[FAST, FAST], [EngineProfile(), FAST], []])
def test_tokens_count_where_times_are_equal_or_not_known_of_all(
    profiles: list[EngineProfile],
) -> None:
    assert bound(profiles) == 0


def test_a_cache_forgets_by_its_own_size() -> None:
    index = PrefixIndex([1, None])
    for i in range(2):
        index.computed(i, KEYS, 0.0)
    assert index.hits(KEYS, 1.0) == {0: 1, 1: 2}
    assert index.hits(KEYS, FORGOTTEN_S + 2) == {0: 1}
    index.validate()


def test_what_a_large_one_had_goes_to_the_small_one_as_far_as_that_takes_it() -> None:
    queue = queue_of(*CHAT)
    for k in range(10):
        queue.submit(call(f"q{k}", retries=2), 0.0)
    assert sum(at == 0 for at, _ in sent(queue)) >= 1
    on_it = [w for w in queue.works.values() if w.on(0)]
    assert len(on_it) == 8
    queue.down(InstanceDown("e", 0, True), 1.0)
    assert sent(queue, 1.0) == []
    for w in [w for w in queue.works.values() if w.on(1)]:
        queue.first_token(FirstToken("e", 1, w.run, 0), 2.0)
    assert sent(queue, 2.0) == [(1, 80)]


@pytest.mark.parametrize("slowness", [1.5, 3.0, 5.0])
def test_a_slow_instance_is_worth_it_as_soon_as_it_is_no_later(slowness: float) -> None:
    """Of `waiting` calls the last would be done elsewhere after 1 + waiting / places times a fast
    one's time. Where no fast one is at work, or one has room that was passed by, it goes."""
    idle = Instances([Limits(100, 8, 1, True)] * 2)
    idle.weigh((slowness, 1.0))
    assert idle.open(0.0).numbers == (0, 1)
    assert idle.worth(0, 1, 0.0)
    idle.down(1, healing=True)
    assert idle.open(0.0).numbers == (0,)
    assert idle.worth(0, 1, 0.0)
    for places in (1, 2, 3, 4):
        instances = Instances([Limits(100, 8, 1, True), *[Limits(100, places, 1, True)] * 2])
        instances.weigh((slowness, 1.0, 1.0))
        for k in range(2 * places):
            instances.send(1 + k % 2, k, 1, 1)
        assert instances.open(0.0).numbers == (0,)
        for waiting in range(1, 20):
            worth = slowness <= 1 + waiting / (2 * places)
            assert instances.worth(0, waiting, 0.0) == worth, (places, waiting)
            alone = slowness <= 1 + waiting / places
            assert instances.worth(0, waiting, 0.0, among={0, 2}) == alone
            assert instances.worth(1, waiting, 0.0), "a fast one always is"


def test_a_slow_instance_is_looked_at_again_after_just_so_long() -> None:
    instances = Instances([Limits(100, 8, 1, True)] * 3)
    instances.weigh((1.0, 3.0, 4.0))
    for sent_at in (0.0, 7.0):
        instances[1].sent_at = instances[2].sent_at = sent_at
        for after, due in ((0.0, []), (LOOKS_S - 0.5, []), (LOOKS_S, [1, 2]), (90.0, [1, 2])):
            assert [*instances.due(sent_at + after)] == due
    instances.send(1, 0, 10, 1)
    assert [*instances.due(500.0)] == [2], "one that is at work will tell anyway"
    instances.down(2, healing=True)
    instances.land(1, 0, 10, 10)
    assert [*instances.due(500.0)] == [1]


@pytest.mark.parametrize("seed", range(6))
def test_how_long_something_waited_for_limits_is_added_up(seed: int) -> None:
    """The time from a look at which something waited and no instance took anything to the next look
    at which that was otherwise."""
    draw, now, total, since = Random(seed), 0.0, 0.0, None
    instances = Instances([Limits(100, 8, 1, True)] * 2)
    until = [0.0, 0.0]
    for batch in range(60):
        now += draw.choice([0.0, 0.25, 1.0, 5.0])
        if draw.random() < 0.4:
            i = draw.randrange(2)
            why = Refusal("busy", draw.choice([1.0, 2.5, 6.0]))
            until[i] = instances.refused(i, "e", why, batch, batch + 1, now)
        waits = draw.random() < 0.8
        closed = waits and all(now < at for at in until)
        total += now - since if since is not None and not closed else 0.0
        since = None if not closed else now if since is None else since
        instances.limited(now, waits=waits)
        later = now + draw.choice([0.0, 0.5])
        expected = total + (later - since if since is not None else 0.0)
        assert instances.limited_s(later) == pytest.approx(expected)
    assert total > 0.0


def test_a_mean_prompt_is_that_of_all_calls_and_each_row_is_one() -> None:
    draw, instances = Random(1), Instances([Limits(1000, 90, 1, True, 100, 16)] * 2)
    assert (instances.mean_tokens, instances.fits([*instances])) == (0.0, inf)
    tokens = calls = 0
    for batch in range(30):
        entries = draw.choice([1, 1, 2, 8])
        items = entries * draw.randint(1, 90)
        instances.send(draw.randrange(2), batch, items, entries, found=draw.randrange(items))
        tokens, calls = tokens + items, calls + entries
        assert instances.mean_tokens == pytest.approx(tokens / calls)
        assert instances.fits([instances[0]]) == pytest.approx(1600 / (tokens / calls))
        assert instances.fits([*instances]) == pytest.approx(3200 / (tokens / calls))
    untold = Instances([Limits(1000, 90, 1, True, 100, 16), Limits(1000, 90, 1, True)])
    untold.send(0, 0, 40, 1)
    assert untold.fits([untold[0]]) == 40.0
    assert untold.fits([*untold]) == inf


@pytest.mark.parametrize(("affinity", "each"), [(1, [90]), (-1, [30, 30, 30])])
def test_idle_instances_share_rows_that_are_bound_to_none(affinity: int, each: list[int]) -> None:
    made = unequal.queue([(0.001, 0.01)] * 3)
    made.submit(replace(unequal.window("rows", 90, 10), affinity=affinity), 0.0)
    rows = dict(sent(made))
    assert [*rows.values()] == each
    assert affinity < 0 or [*rows] == [affinity]
