"""Early binding: where work is bound when it is queued, and when that changes.

Long because all that an instance keeps, and is to compute, has its cases here.
"""

from collections.abc import Hashable
from itertools import product
from typing import Any

import pytest

from teola.errors import EngineUnavailable
from teola.graph import Op
from teola.policies import batching
from teola.policies.routing import ANY, RoutingPolicy, make
from teola.policies.routing.base import (
    CameUp,
    Dispatched,
    Evicted,
    Finished,
    Left,
    Prefilled,
    WentDown,
    found_tokens,
)
from teola.policies.work import Size, Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    BatchCompleted,
    CallEnded,
    Cause,
    Completed,
    Dispatch,
    Failed,
    FirstToken,
    InstanceDown,
    InstanceDraining,
    InstanceUp,
    PrefixChanged,
    Sized,
    Tell,
)
from teola.schedule.instances import Limits
from teola.schedule.placing import FEW, Placing
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
from tests.recording import work

LOST = Cause(EngineUnavailable("connection refused"), retryable=True)


class ByName(RoutingPolicy):
    """Binds each run to where `at` says, and notes what it is told."""

    observes = (Dispatched, Prefilled, Finished, WentDown, CameUp)

    def __init__(self, **at: int) -> None:
        self.at, self.told, self.asked = at, list[Any](), list[str]()

    def place(self, work: Work, now: float) -> int:
        self.asked.append(work.run)
        return self.at.get(work.run, ANY)

    def observe(self, event: Any, now: float) -> None:
        self.told.append(event)


def queue_of(routing: RoutingPolicy, instances: int = 2, **limits: Any) -> EngineQueue:
    more = {"max_batch": 100, "max_sequences": 4, "concurrency": 1, "continuous": True, **limits}
    return EngineQueue("e", [Limits(**more)] * instances, batching.make("fifo"), routing)


def call(run: str, total: int = 40, keys: tuple[Hashable, ...] = (), **more: Any) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "cuttable": False, "retries": 2, "seq": 0}
    made = work(**{**given, "run": run, "total": total, "primitive": 0, **more})
    made.keys = keys
    return made


def sent(queue: EngineQueue, now: float = 0.0) -> list[tuple[int, list[str]]]:
    found = [c for c in queue.dispatch(now) if isinstance(c, Dispatch)]
    validate_queue(queue, now)
    return [(d.instance, [w.run for w, _, _ in d.slices]) for d in found]


def end(queue: EngineQueue, run: str, now: float, cached: int | None = None, **more: Any) -> Any:
    """The call's first token, and its end."""
    w = queue.works[run, 0]
    ((instance, batch),) = w.flying.values()
    if "outcome" not in more:
        queue.first_token(FirstToken("e", instance, run, 0), now)
    outcome = more.get("outcome", {})
    return queue.call_ended(CallEnded("e", batch, run, 0, outcome, cached), now)


@catches(
    "bound-is-free",
    "what is bound goes to whoever has room",
    edited(Placing.bind, "work.affinity = at", "work.affinity = -1"),
)
def test_what_is_bound_waits_for_its_instance_although_another_is_idle() -> None:
    queue = queue_of(ByName(a=1, b=1))
    queue.submit(call("a", 90), 0.0)
    assert sent(queue) == [(1, ["a"])]
    queue.submit(call("b", 90), 0.0)
    assert sent(queue) == []
    assert queue.placing.routing.view.instances(0.0)[1][1:5] == (1, 90, 90, 90)
    end(queue, "a", 1.0)
    assert sent(queue, 1.0) == [(1, ["b"])]


def test_what_is_bound_to_none_goes_wherever_there_is_room() -> None:
    queue = queue_of(ByName(a=1))
    queue.submit(call("x", 90), 0.0)
    queue.submit(call("y", 90), 0.0)
    assert sorted(sent(queue)) == [(0, ["x"]), (1, ["y"])]


def test_what_can_be_cut_is_never_bound() -> None:
    queue = queue_of(ByName(a=1), continuous=False)
    queue.submit(work(run="a", total=3, primitive=0), 0.0)
    assert queue.placing.routing.asked == []  # type: ignore[attr-defined]
    assert sent(queue) == [(0, ["a"])]


def test_a_policy_that_names_what_is_not_to_be_had_binds_nothing() -> None:
    queue = queue_of(ByName(a=1))
    queue.down(InstanceDown("e", 1), 0.0)
    queue.submit(call("a"), 0.0)
    assert sent(queue) == [(0, ["a"])]


@pytest.mark.parametrize("how", ["down", "drain", "eject"])
def test_what_waited_for_an_instance_is_placed_anew_without_a_try(how: str) -> None:
    routing = ByName(a=1, b=1)
    queue = queue_of(routing)
    queue.submit(call("a", 90, retries=0), 0.0)
    sent(queue)
    queue.submit(call("b", 90, retries=1), 0.0)
    assert sent(queue) == []
    routing.at = {"b": 0}
    if how == "down":
        queue.down(InstanceDown("e", 1), 1.0)
    elif how == "drain":
        queue.draining(InstanceDraining("e", 1), 1.0)
    else:
        end(queue, "a", 1.0, outcome=LOST)
    assert queue.works["b", 0].affinity == 0
    assert queue.works["b", 0].tries == queue.works["b", 0].excused == 1
    assert (0, ["b"]) in sent(queue, 1.0)


@catches(
    "up-changes-nothing",
    "what was bound stays where it is when another instance comes up",
    edited(EngineQueue.up, "self.placing.rebind(now)", "pass"),
)
def test_what_waits_may_move_to_an_instance_that_came_up() -> None:
    routing = ByName(a=0, **{f"b{k}": 0 for k in range(FEW + 1)})
    queue = queue_of(routing)
    queue.down(InstanceDown("e", 1), 0.0)
    queue.submit(call("a", 90), 0.0)
    for k in range(FEW + 1):
        queue.submit(call(f"b{k}", 90), 0.0)
    assert sent(queue) == [(0, ["a"])]
    routing.at[f"b{FEW}"] = 1
    queue.up(InstanceUp("e", 1), 1.0)
    assert sent(queue, 1.0) == [(1, [f"b{FEW}"])]
    assert [type(t) for t in routing.told] == [WentDown, Dispatched, CameUp, Dispatched]


@catches(
    "idle-changes-nothing",
    "an instance that has nothing to do gets nothing of what waits for another",
    edited(Placing.rebind, "at != before", "False"),
)
def test_what_waits_may_move_to_an_instance_that_is_idle() -> None:
    routing = ByName(a=0, b=0, c=0)
    queue = queue_of(routing)
    for run in ("a", "b", "c"):
        queue.submit(call(run, 90), 0.0)
    routing.at = {"a": 0, "b": 0, "c": 1}
    assert sorted(sent(queue)) == [(0, ["a"]), (1, ["c"])]


def test_a_home_is_kept_where_the_policy_has_no_opinion() -> None:
    queue = queue_of(make("least_loaded"))
    queue.submit(call("a", affinity=1), 0.0)
    queue.submit(call("b", 90, affinity=1), 0.0)
    assert sent(queue) == [(1, ["a"])]
    assert queue.works["b", 0].home == 1
    queue.down(InstanceDown("e", 1), 1.0)
    assert sorted(sent(queue, 1.0)) == [(0, ["b"])] or queue.works["b", 0].affinity == -1


# --- sizes ----------------------------------------------------------------------------------


def test_what_is_being_measured_is_in_no_policy_and_can_be_withdrawn() -> None:
    routing = ByName(a=1)
    queue = queue_of(routing)
    queue.hold(call("a", 0))
    queue.hold(call("b", 0))
    assert (sent(queue), routing.asked, queue.queued) == ([], [], 0)
    assert queue.withdraw("b", 0, 0.5) == []
    queue.sized(Sized("e", "a", 0, Size(70, ("k",))), 1.0)
    queue.sized(Sized("e", "b", 0, Size(70)), 1.0)  # nobody waits for it any more
    assert sent(queue, 1.0) == [(1, ["a"])]
    assert (queue.works["a", 0].total, queue.works["a", 0].keys) == (70, ("k",))
    queue.sized(Sized("e", "a", 0, Size(5)), 2.0)  # told twice
    assert queue.works["a", 0].total == 70


def test_an_instance_may_die_while_something_is_measured() -> None:
    queue = queue_of(ByName(a=1))
    queue.hold(call("a", 0))
    queue.down(InstanceDown("e", 1), 0.5)
    queue.sized(Sized("e", "a", 0, Size(70)), 1.0)
    assert sent(queue, 1.0) == [(0, ["a"])]


# --- prefix_affinity ------------------------------------------------------------------------

LONG = tuple(f"k{k}" for k in range(4))


def test_a_prompt_goes_where_its_prefix_is_kept() -> None:
    queue = queue_of(make("prefix_affinity"), max_batch=1000)
    queue.submit(call("first", 64, LONG), 0.0)
    assert sent(queue) == [(0, ["first"])]
    end(queue, "first", 1.0)
    queue.submit(call("other", 64, ("z",)), 1.0)  # is in the way, but no longer than what is saved
    queue.submit(call("again", 64, (*LONG[:3], "n")), 1.0)
    assert [i for i, runs in sent(queue, 1.0) if "again" in runs] == [0]


def test_a_prefix_is_computed_anew_where_its_keeper_has_too_much_to_do() -> None:
    queue = queue_of(make("prefix_affinity"), max_batch=1000)
    queue.submit(call("first", 64, LONG), 0.0)
    sent(queue)
    end(queue, "first", 1.0)
    queue.placing.prefixes.computed(0, ("busy",), 1.0)  # type: ignore[union-attr]
    queue.submit(call("busy", 900, ("busy",), affinity=0), 1.0)
    assert sent(queue, 1.0) == [(0, ["busy"])]
    queue.submit(call("again", 64, LONG), 1.0)
    assert sent(queue, 1.0) == [(1, ["again"])]


@catches(
    "last-token-found",
    "a prompt that is kept whole counts as if nothing of it were computed",
    edited(found_tokens, "max(0, work.tokens - 1)", "work.tokens"),
)
def test_the_block_with_a_prompt_s_last_token_is_computed_in_any_case() -> None:
    """48 of 64 tokens are found, so the 52 that are in the way are too many."""
    queue = queue_of(make("prefix_affinity"), max_batch=1000)
    queue.prefixes(PrefixChanged("e", 0, LONG), 0.0)
    queue.submit(call("busy", 52, affinity=0), 0.0)
    assert sent(queue) == [(0, ["busy"])]
    queue.submit(call("again", 64, LONG), 0.0)
    assert sent(queue) == [(1, ["again"])]


@catches(
    "restart-remembers",
    "an instance that was restarted is taken to keep what the old one kept",
    edited(Placing.down, "lost and", "False and"),
    edited(Placing.up, "self.prefixes is not None", "False"),
)
def test_a_restart_forgets() -> None:
    queue = queue_of(make("prefix_affinity"))
    queue.prefixes(PrefixChanged("e", 1, LONG), 0.0)
    assert queue.placing.routing.view.hits(LONG, 0.0) == {1: 4}
    queue.down(InstanceDown("e", 1), 1.0)
    queue.up(InstanceUp("e", 1), 2.0)
    assert queue.placing.routing.view.hits(LONG, 2.0) == {}


def test_a_server_that_tells_of_fewer_hits_has_evicted_more() -> None:
    """Once it has told a hit, it tells when there is none."""
    queue = queue_of(make("prefix_affinity"), instances=1)
    index = queue.placing.prefixes
    assert index is not None
    for run, now, cached in (("a", 0.0, None), ("b", 1.0, 0), ("c", 2.0, 64), ("d", 3.0, 64)):
        queue.submit(call(run, 64, LONG), now)
        sent(queue, now)
        end(queue, run, now, cached)
    index.computed(0, ("old",), 3.5)
    assert index.hits(("old",), 4.0) == {0: 1}
    queue.submit(call("e", 64, LONG), 4.0)
    sent(queue, 4.0)
    end(queue, "e", 4.0, cached=0)
    assert index.hits(("old",), 4.0) == {0: 1}  # used after what was missing
    index.computed(0, LONG, 5.0)
    queue.submit(call("f", 64, LONG), 6.0)
    sent(queue, 6.0)
    end(queue, "f", 6.0, cached=0)
    assert index.hits(("old",), 6.0) == {}


@pytest.mark.parametrize("told", [*product((None, 0, 64), repeat=4)])
def test_only_who_has_told_of_hits_tells_that_there_is_none(told: tuple[int | None, ...]) -> None:
    queue = queue_of(make("prefix_affinity"), instances=1)
    index: Any = queue.placing.prefixes
    index.computed(0, ("old",), 0.0)
    tells, old = False, True
    for k, cached in enumerate(told):
        queue.submit(call(f"r{k}", 64, LONG), 1.0 + k)
        sent(queue, 1.0 + k)
        end(queue, f"r{k}", 1.0 + k, cached)
        old, tells = old and not (k and tells and cached == 0), tells or bool(cached)
        assert index.hits(LONG, 1.0 + k) == {0: 4}
        assert index.hits(("old",), 1.0 + k) == ({0: 1} if old else {})


def test_a_prefix_that_is_told_leaves_nothing_behind_when_its_call_fails() -> None:
    queue = queue_of(make("prefix_affinity"))
    queue.submit(call("a", 64, LONG, retries=0), 0.0)
    sent(queue)
    out = end(queue, "a", 1.0, outcome=Cause(ValueError("no")))
    assert [type(o.event) for o in out if isinstance(o, Tell)] == [Failed]
    assert queue.placing._expected == {}
    assert queue.idle


# --- what is coming -------------------------------------------------------------------------


class ByNameAndKeys(ByName):
    wants_keys = True
    observes = (Left, Evicted)


@catches(
    "found-counts",
    "what an instance finds counts as if it had to be computed",
    edited(Placing.bind, "if work.row_tokens else hit_tokens", ""),
)
def test_what_an_instance_finds_takes_none_of_its_room() -> None:
    """100 tokens of room: 36 and 20 of 64 that are to be computed, then 36 more."""
    queue = queue_of(ByNameAndKeys(a=1, b=1, c=1))
    queue.prefixes(PrefixChanged("e", 1, ("a", "b")), 0.0)
    queue.submit(call("a", 68, ("a", "b")), 0.0)
    queue.submit(call("b", 68, ("a", "b", "c")), 0.0)
    queue.submit(call("c", 68, ("a", "b", "c", "d")), 0.0)
    view = queue.placing.routing.view
    assert (
        view.instances(0.0)[1].pending == 36 + 36 + 20
    )  # the third finds what the second computes
    assert (view.instances(0.0)[1].waiting, view.instances(0.0)[1].awaited) == (3, 3 * 68)
    assert sent(queue) == [(1, ["a", "b", "c"])]
    assert (view.instances(0.0)[1].prefilling, view.instances(0.0)[1].context) == (92, 204)
    end(queue, "b", 1.0)
    assert view.instances(1.0)[1].prefilling == 56


@pytest.mark.parametrize("how", ["prefilled", "withdrawn", "lost", "moved"])
def test_what_was_coming_is_expected_no_more(how: str) -> None:
    routing = ByNameAndKeys(a=1, b=1)
    queue = queue_of(routing)
    queue.submit(call("a", 64, LONG), 0.0)
    assert routing.view.expected(LONG, 0.0) == {1: 4}
    if how == "withdrawn":
        queue.withdraw("a", 0, 0.0)
        assert [type(event) for event in routing.told] == [Left]
    else:
        sent(queue)
    if how == "prefilled":
        end(queue, "a", 1.0)
    elif how == "lost":
        queue.down(InstanceDown("e", 1), 0.0)
        assert routing.view.expected(LONG, 0.0) == {}
        routing.at = {}
        sent(queue)
        assert routing.view.expected(LONG, 0.0) == {0: 4}  # it is tried again elsewhere
        end(queue, "a", 1.0)
    elif how == "moved":
        queue.submit(call("b", 64, (*LONG[:2], "x", "y")), 0.0)
        assert routing.view.expected(("k0", "k1", "x", "y"), 0.0) == {1: 4}
        queue.draining(InstanceDraining("e", 1), 0.0)
        assert routing.view.expected(("k0", "k1", "x", "y"), 0.0) == {1: 2}
        end(queue, "a", 1.0)
    kept = {"withdrawn": {}, "lost": {0: 4}}.get(how, {1: 4})
    assert routing.view.expected(LONG, 2.0) == routing.view.hits(LONG, 2.0) == kept
    assert queue.placing._coming == {}


def test_all_calls_of_a_batch_are_coming_where_it_went() -> None:
    routing = ByNameAndKeys()
    queue = queue_of(routing, instances=1)
    for run in "ab":
        queue.submit(call(run, 40, (f"{run}0", f"{run}1")), 0.0)
    assert sent(queue) == [(0, ["a", "b"])]
    for run in "ab":
        assert routing.view.expected((f"{run}0", f"{run}1"), 0.0) == {0: 2}
        end(queue, run, 1.0)
    assert not queue.placing._coming


def test_evictions_that_are_told_are_told_to_the_policy() -> None:
    routing = ByNameAndKeys()
    queue = queue_of(routing)
    queue.prefixes(PrefixChanged("e", 1, LONG), 0.0)
    queue.prefixes(PrefixChanged("e", 1, (), LONG[2:]), 1.0)
    assert routing.told == [Evicted(1, LONG[2:])]


def test_batches_are_told_too() -> None:
    routing = ByName()
    queue = queue_of(routing, instances=1, continuous=False)
    queue.submit(work(run="a", total=3, primitive=0), 0.0)
    (dispatch,) = [c for c in queue.dispatch(0.0) if isinstance(c, Dispatch)]
    out = queue.completed(BatchCompleted("e", dispatch.batch, [{"out": 3}]), 1.0)
    assert out == [Tell("a", Completed(0, {"out": 3}, None, 0))]
    assert [type(t) for t in routing.told] == [Dispatched, Finished]
