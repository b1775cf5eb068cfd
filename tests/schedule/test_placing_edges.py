"""Where works go anew, at each edge of what decides it: against a slow choice among all of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from teola.errors import EngineError
from teola.policies import batching
from teola.policies.routing import ANY, RoutingPolicy, make
from teola.policies.routing.base import HELD, MOST_HELD_S
from teola.policies.work import Estimate, Slice, Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Cause, PrefixChanged
from teola.schedule.instances import LOOKS_S, Limits
from teola.schedule.placing import LOOKED_AT, LOOKS_ANYWAY_S, KeptTokens
from teola.schedule.quota import Refusal
from tests.recording import work

BLOCK = 16
LIMITS = Limits(100, 8, 1, True, 50, BLOCK)


class Says(RoutingPolicy):
    """Binds or holds as it is told, and wants to be asked at some time."""

    wants_keys = True

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.wakes: float | None = None

    def place(self, work: Work, now: float) -> int:
        return self.at.get(work.run, ANY)

    def wake_at(self, now: float) -> float | None:
        return self.wakes


def queue_of(routing: RoutingPolicy | None = None, instances: int = 3) -> EngineQueue:
    return EngineQueue("e", [LIMITS] * instances, batching.make("fifo"), routing or Says())


def call(run: str, total: int = 40, **more: Any) -> Work:
    given = {"cuttable": False, "lane": None, "retries": 2, "primitive": 0, **more}
    return work(**{**given, "run": run, "total": total})


# --- what goes to see whether an instance is still slow -----------------------------------------

NOW = 1000.0


def drawn(chance: Random, seq: int) -> Work:
    """A work that may go and look, but for what chance changes."""
    estimate = Estimate(
        rest_s=chance.choice([0.0, 2.0]),
        latest_s=chance.choice([0.0, 1.0]),
        call_s=chance.choice([0.0, 1.0, 5.0]),
    )
    made = call(
        f"q{seq}",
        chance.choice([40, 40, 99, 100, 101]),
        seq=seq,
        estimate=estimate,
        finish_by=NOW + chance.choice([1.0, 2.0, 9.0, 17.0, 90.0]),
        admitted=chance.choice([0.0, 5.0]),
        deadline=NOW + LOOKS_S + chance.choice([0.0, 1.0, 2.0]),
    )
    made.behind_s = chance.choice([0.0, 1.0])
    return made


@pytest.mark.parametrize("seed", range(60))
def test_of_the_oldest_that_can_wait_the_one_goes_and_looks_that_can_wait_longest(
    seed: int,
) -> None:
    chance, queue = Random(seed), queue_of(make("least_loaded"))
    slowness = chance.choice([2.0, 4.0])
    queue.instances.slowness = [1.0, slowness, 1.0]
    looked = chance.choice([0.0, LOOKS_ANYWAY_S - 0.1, LOOKS_ANYWAY_S, 9 * LOOKS_ANYWAY_S])
    queue.instances[1].sent_at = NOW - looked
    works: list[Work] = []
    for seq in range(chance.choice([1, 3, 10, LOOKED_AT + 3])):
        made = drawn(chance, seq)
        works.append(made)
        what = chance.choice(["free"] * 5 + ["home", "held", "sent", "avoids", "cut", "there"])
        made.home = made.affinity = {"home": 0, "there": 1}.get(what, -1)
        queue.works[made.run, 0] = made
        made.queued = True
        if what == "held":
            queue.line.hold(made, NOW)
        else:
            queue.line.add(made, NOW)
        if what == "there":
            made.home = -1
        if what == "sent":
            queue.line.remove(made, NOW)
        if what == "avoids":
            made.avoid = chance.choice([0, 1])
        if what == "cut":
            made.spans = [(10, made.total)]

    def spare_s(one: Work) -> float:
        takes = one.spec.estimate
        return (
            (one.asker.finish_by - NOW)
            - (takes.rest_s + one.behind_s)
            - (slowness - 1) * takes.call_s
        )

    able = [
        one
        for one in works[:LOOKED_AT]
        if one.queued and one not in queue.line.held.values() and one.home < 0 and one.avoid != 1
        if one.total <= 100 and one.spans == [(0, one.total)] and one.deadline > NOW + LOOKS_S
        if spare_s(one) > 0 or looked >= LOOKS_ANYWAY_S
    ]
    best: Work | None = None
    for one in able:
        key = spare_s(one), one.deadline, one.began + one.spec.estimate.latest_s
        if best is None or key > (
            spare_s(best), best.deadline, best.began + best.spec.estimate.latest_s,
        ):  # fmt: skip
            best = one
    before = {run: made for (run, _), made in queue.works.items()}
    queue.placing._look(1, NOW)
    changed = [run for (run, _), made in queue.works.items() if made is not before[run]]
    if best is None or best.affinity == 1:
        assert changed == []
        return
    assert changed == [best.run]
    goes = queue.works[best.run, 0]
    assert (goes.affinity, goes.found, goes.queued, best.queued) == (1, 0, True, False)
    assert (goes.tries, goes.excused) == (best.tries + 1, best.excused + 1)


# --- when a round begins by itself ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_a_round_begins_when_the_first_of_what_may_change_does(seed: int) -> None:
    chance, routing = Random(seed), Says()
    queue = queue_of(routing)
    placing, now = queue.placing, 50.0
    times = list[float]()
    if chance.random() < 0.5:  # a server that opens again
        opens = now + chance.choice([1.0, 5.0, 200.0])
        queue.instances.refused(1, "e", Refusal("busy", opens - now), 0, 1, now)
        times.append(opens)
    declined = chance.choice([None, now + 2.0, now + 7.0])
    if declined is not None:
        queue.line.asking.declined(2, declined)
    ready, held = chance.random() < 0.5, chance.random() < 0.6
    if ready:
        free = call("free")
        free.queued = True
        queue.line.add(free, now)
        times += [] if declined is None else [declined]
    routing.wakes = chance.choice([None, now - 1.0, now, now + 3.0])
    if held:
        arrivals = [now - chance.choice([0.0, 3.0, MOST_HELD_S, MOST_HELD_S + 1]) for _ in range(2)]
        for k, arrival in enumerate(sorted(arrivals)):
            waits = call(f"held{k}", arrival=arrival)
            waits.queued = True
            queue.line.hold(waits, now)
        times.append(min(arrivals) + MOST_HELD_S)
        times += [] if routing.wakes is None or routing.wakes <= now else [routing.wakes]
    assert placing.round_at(now) == min(times, default=None)


def test_a_policy_that_cannot_say_when_is_at_fault() -> None:
    class Broken(Says):
        def wake_at(self, now: float) -> float | None:
            raise ZeroDivisionError

    queue = queue_of(Broken())
    queue.works["a", 0] = waits = call("a")
    queue.line.hold(waits, 0.0)
    assert queue.placing.round_at(0.0) == MOST_HELD_S
    assert isinstance(queue.faults.error, Exception)


# --- what is put back -----------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [1, 2, 3])
@pytest.mark.parametrize("away", [True, False])
@pytest.mark.parametrize("home", [-1, 0, 1])
@pytest.mark.parametrize("down", [True, False])
def test_what_was_refused_avoids_a_server_that_is_away_if_there_is_another(
    instances: int, away: bool, home: int, down: bool
) -> None:
    """It stands where it stood, and its home is its own as long as there is nothing else."""
    if home >= instances:
        return
    queue = queue_of(instances=instances)
    one = call("a", home=home, avoid=-1)
    one.queued, one.spans = True, [(30, 40)]
    queue.works["a", 0] = one
    queue.line.add(one, 0.0)
    for i in range(1, instances):
        if down:
            queue.instances.down(i, healing=True)
    queue.placing.put_back(one, 0, 30, 0, 1.0, away=away)
    again = queue.works["a", 0]
    others = instances > 1 and not down
    assert again is not one
    assert (again.spans, again.queued, again.tries) == ([(0, 30), (30, 40)], True, 1)
    assert again.avoid == (0 if away and others else -1)
    assert again.home == (-1 if home == 0 and instances > 1 else home)


@pytest.mark.parametrize("kind", ["busy", "away"])
@pytest.mark.parametrize("tries", [1, 2, 3])
@pytest.mark.parametrize("usable", [True, False])
def test_a_refusal_costs_a_try_where_a_server_is_away_and_another_is_not(
    kind: Any, tries: int, usable: bool
) -> None:
    queue = queue_of(instances=2)
    if not usable:
        for i in range(2):
            queue.instances.refused(i, "e", Refusal("busy", 9.0), 0, 1, 0.0)
    one = call("a", tries=tries, retries=2)
    cause = Cause(EngineError("no", retryable=True), True, refused=Refusal(kind))
    free = kind == "busy" or not usable
    assert queue.placing.may_move(one, cause, 1.0) is (tries < 2 + free)
    assert one.excused == free


@pytest.mark.parametrize("instance", [0, 1])
@pytest.mark.parametrize("alone", [True, False])
def test_another_try_goes_elsewhere_and_has_no_home_any_more(instance: int, alone: bool) -> None:
    queue = queue_of(instances=2)
    if alone:
        queue.instances.down(1 - instance, healing=True)
    one = call("a", home=instance)
    one.queued, one.spans = True, [(30, 40)]
    queue.works["a", 0] = one
    queue.line.add(one, 0.0)
    queue.placing.retry(one, 0, 30, instance, 1.0)
    again = queue.works["a", 0]
    assert (again.home, again.avoid) == (-1, -1 if alone else instance)
    assert (again.spans, again.tries, again.excused) == ([(0, 30), (30, 40)], 1, 0)


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_what_avoids_an_instance_may_go_there_again_once_there_is_no_other(failed: int) -> None:
    """And what avoids another one goes on to."""
    queue = queue_of()
    for k in range(3):
        one = call(f"a{k}", seq=k)
        one.queued, queue.works[f"a{k}", 0] = True, one
        queue.line.add(one, 0.0)
        one.spans = []
        queue.placing.retry(one, 0, 40, k, 0.0)
    others = [k for k in range(3) if k != failed]
    for k in others:
        queue.placing.reconsider(1.0)
        assert [queue.works[f"a{j}", 0].avoid for j in range(3)] == [0, 1, 2]
        queue.instances.down(k, healing=True)
    queue.placing.reconsider(2.0)
    avoids = [queue.works[f"a{j}", 0].avoid for j in range(3)]
    assert avoids == [-1 if j == failed else j for j in range(3)]


# --- what is held ---------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [-3, HELD, ANY, 0, 2, 3])
@pytest.mark.parametrize(
    ("tries", "affinity", "age_s", "holdable"),
    [
        (0, -1, 0.0, True),
        (0, -1, MOST_HELD_S - 0.1, True),
        (0, -1, MOST_HELD_S, False),
        (1, -1, 0.0, False),
        (0, 0, 0.0, False),
    ],
)
def test_only_what_is_new_is_held_and_only_instances_that_there_are_are_bound_to(
    at: int, tries: int, affinity: int, age_s: float, holdable: bool
) -> None:
    routing = Says()
    queue = queue_of(routing)
    routing.at["a"] = at
    for may_hold in (True, False):
        one = call("a", arrival=0.0, tries=tries, affinity=affinity)
        held = queue.placing.bind(one, age_s, may_hold=may_hold)
        assert held is (at == HELD and may_hold and holdable)
        assert one.affinity == (at if at in (0, 2) else ANY)
    told = str(queue.faults.error)
    assert (f"place gave {at}, and there is no such instance" in told) == (at in (-3, 3))


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [0, 1, 2, 3])
@pytest.mark.parametrize("cached", [None, 0, 1, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("told_before", [True, False])
def test_what_a_server_did_not_find_is_gone_with_all_that_is_older(
    blocks: int, cached: int | None, told_before: bool
) -> None:
    """But for the block that ends with a prompt's last token, which is computed in any case. Who
    never found anything may not tell."""
    routing = Says()
    queue = queue_of(routing, instances=2)
    placing, keys = queue.placing, ("a", "b", "c")[:blocks]
    index = placing.prefixes
    assert index is not None
    index.computed(1, ("older",), 1.0)
    index.computed(1, keys, 2.0)
    index.computed(1, ("newer",), 3.0)
    if told_before:
        placing._telling.add(1)
    one = call("q", 3 * BLOCK, affinity=1)
    one.keys = ("a", "b", "c")
    queue.instances.send(1, 0, 48, 1)
    placing.dispatched(1, [Slice(one, 0, 48)], 4.0)
    placing.finished(1, one, 5.0, False, cached, 7)
    tells = cached is not None and (told_before or cached > 0)
    gone = tells and (cached or 0) < (blocks - 1) * BLOCK
    kept = {key for key in ("older", *keys, "newer") if index.hits((key,), 6.0).get(1)}
    assert kept == ({"newer"} if gone else {"older", *keys, "newer"})
    assert placing._expected == {}
    assert (1 in placing._telling) == (told_before or bool(cached))


def test_what_an_instance_keeps_is_told_or_assumed() -> None:
    queue = queue_of(instances=2)
    assert queue.placing.prefixes is not None
    queue.placing.prefixes.computed(0, ("a", "b"), 0.0)
    queue.placing.changed(PrefixChanged("e", 1, ("a", "b", "c")), 0.0)
    assert [queue.placing.kept(i) for i in range(2)] == [
        KeptTokens(2 * BLOCK, False),
        KeptTokens(3 * BLOCK, True),
    ]
    queue.placing.changed(PrefixChanged("e", 1, ("d",), ("a",), cleared=True), 0.0)
    assert queue.placing.kept(1) == KeptTokens(BLOCK, True)
    queue.placing.down(0, 0.0, lost=False)
    assert queue.placing.kept(0) == KeptTokens(2 * BLOCK, False)
    queue.placing.down(0, 0.0, lost=True)
    assert queue.placing.kept(0) == KeptTokens(0, False)
    assert queue_of(make("least_loaded")).placing.kept(0) is None


@pytest.mark.parametrize(("spare_s", "goes"), [(-0.1, False), (0.0, False), (0.1, True)])
def test_a_call_goes_and_looks_if_its_query_ends_before_its_objective_all_the_same(
    spare_s: float, goes: bool
) -> None:
    queue = queue_of(make("least_loaded"))
    queue.instances.slowness, queue.instances[1].sent_at = [1.0, 4.0, 1.0], NOW
    estimate = Estimate(rest_s=2.0, call_s=1.0)
    one = call("a", estimate=estimate, finish_by=NOW + 5.0 + spare_s, deadline=9e9)
    one.queued, queue.works["a", 0] = True, one
    queue.line.add(one, NOW)
    queue.placing._look(1, NOW)
    assert (queue.works["a", 0].affinity == 1) is goes
