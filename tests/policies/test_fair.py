"""fair: what tenants and applications that share an engine get, and what they may count on."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.errors import InputError, UnknownName
from teola.graph import Op
from teola.policies import batching
from teola.policies.batching.fair import Fair
from teola.policies.batching.fifo import Fifo
from teola.policies.work import Estimate, Slice, Slots, Work
from tests.policies.choosing import kept, slots, take
from tests.recording import work

FILLING = ["topology", "critical_path", "fifo"]
INNER = [*FILLING, "per_invocation"]
"""The last one leaves room in a batch although more is queued: it runs one bundle at a time."""
BATCH = 8


class Shared:
    """An engine's queue under `fair`. given: items that each flow (here: tenant) got so far."""

    def __init__(self, **options: Any) -> None:
        self.policy = batching.make("fair", **{"by": "tenant", **options})
        self.queued: list[Work] = []
        self.given: Counter[str] = Counter()
        self._seq = 0

    def add(self, tenant: str, count: int = 1, now: float = 0.0, **more: Any) -> list[Work]:
        """Queue works of `tenant`, each of a query of its own."""
        made = []
        for _ in range(count):
            self._seq += 1
            values = {"total": 4, "run": f"{tenant}{self._seq}", "arrival": now, **more}
            made.append(work(self._seq, tenant=tenant, **values))
            self.policy.add(made[-1], now)
        self.queued += made
        return made

    def batch(self, given: Slots | None = None, now: float = 0.0) -> Counter[str]:
        """One batch: items by tenant."""
        before = {w: w.remaining for w in self.queued}
        take(self.policy, given or slots(BATCH), now)
        got: Counter[str] = Counter()
        for w, items in before.items():
            got[w.asker.tenant] += items - w.remaining
        self.queued = [w for w in self.queued if w.queued]
        self.given += got
        return +got

    def backlog(self) -> set[str]:
        return {w.asker.tenant for w in self.queued}


# --- shares ---------------------------------------------------------------------------------


def test_one_that_floods_does_not_hold_up_another() -> None:
    shared = Shared()
    shared.add("loud", 100)
    shared.add("quiet", 2)
    assert shared.batch() == {"loud": 8}
    assert shared.batch() == {"quiet": 8}


def test_weights_are_shares() -> None:
    shared = Shared(weights={"a": 3})
    shared.add("a", 200)
    shared.add("b", 200)
    for _ in range(40):
        shared.batch()
    assert shared.given["a"] / shared.given["b"] == pytest.approx(3, rel=0.1)


def test_what_a_flow_leaves_of_a_batch_is_filled_by_the_next() -> None:
    shared = Shared()
    shared.add("a")
    shared.add("b", 5)
    assert shared.batch() == {"a": 4, "b": 4}


def test_a_long_work_is_charged_for_each_slice() -> None:
    """Were it charged when it is complete, b would wait for all ten batches of a."""
    shared = Shared()
    shared.add("a", total=80)
    shared.add("b", total=80)
    for _ in range(4):
        shared.batch()
    assert shared.given == {"a": 16, "b": 16}


def test_a_flow_that_was_idle_gets_no_credit_for_it() -> None:
    shared = Shared()
    shared.add("a", 100)
    shared.add("b", 2)
    for _ in range(20):
        shared.batch()
    shared.add("b", 100)
    shared.given.clear()
    for _ in range(10):
        shared.batch()
    assert abs(shared.given["a"] - shared.given["b"]) <= BATCH


def test_a_flow_that_had_too_much_still_owes_it_when_it_comes_back() -> None:
    """a takes a batch of 64 and goes; when it is back at once, b is to catch up first."""
    shared = Shared()
    shared.add("b", 40)
    shared.add("a", 1, total=64, cuttable=False)
    assert shared.batch() == {"b": 8}
    assert shared.batch(slots(64)) == {"a": 64}
    shared.add("a", 40)
    for _ in range(6):
        assert shared.batch() == {"b": 8}


def test_rows_save_nothing_up_while_they_wait_for_calls_of_their_tenant() -> None:
    """b's calls share with a's, and then with a's rows, which got nothing until then."""
    shared = Shared(by="both")
    shared.add("a", 20, app="table", yields=True)
    shared.add("a", 20, app="chat")
    shared.add("b", 60, app="chat")
    while any(work.asker.tenant == "a" and not work.spec.yields for work in shared.queued):
        shared.batch()
        assert abs(shared.given["a"] - shared.given["b"]) <= BATCH
    assert shared.given["a"] == 80, "of calls alone"
    shared.given.clear()
    for _ in range(10):
        shared.batch()
        assert abs(shared.given["a"] - shared.given["b"]) <= 2 * BATCH


@pytest.mark.parametrize(
    ("by", "flows"), [("tenant", {"x", "y"}), ("app", {"p", "q"}), ("both", {"x/p", "x/q", "y/p"})]
)
def test_flows_are_tenants_applications_or_both(by: str, flows: set[str]) -> None:
    shared = Shared(by=by)
    for tenant, app in (("x", "p"), ("x", "q"), ("y", "p")):
        shared.add(tenant, app=app)
    assert set(shared.policy._flows) == flows  # type: ignore[attr-defined]


@pytest.mark.property
@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    inner=st.sampled_from(FILLING),
    weights=st.lists(st.sampled_from([0.5, 1, 2, 3.7]), min_size=2, max_size=5),
)
def test_of_flows_that_always_want_more_none_is_ahead_by_more_than_a_batch(
    seed: int, inner: str, weights: list[float]
) -> None:
    """(Divided by its weight.) Others come and go meanwhile; the room varies."""
    draw = random.Random(seed)
    by_name = {f"t{k}": weight for k, weight in enumerate(weights)}
    shared = Shared(inner=inner, weights=by_name)
    for name in draw.sample(sorted(by_name), len(by_name)):
        shared.add(name, 40, total=draw.randint(1, 9))
    for _ in range(60):
        if draw.random() < 0.3:
            shared.add(f"passer-by {draw.randrange(3)}", draw.randint(1, 3))
        shared.batch(slots(draw.randint(1, BATCH)))
        if not set(by_name) <= shared.backlog():
            break
        lead = {name: shared.given[name] / weight for name, weight in by_name.items()}
        for ahead in lead:
            for behind in lead:
                assert lead[ahead] - lead[behind] <= BATCH / by_name[ahead] + 1e-9


@pytest.mark.property
@settings(max_examples=100)
@given(seed=st.integers(0, 10**6), inner=st.sampled_from(INNER), flows=st.integers(1, 4))
def test_everything_is_served_exactly_once(seed: int, inner: str, flows: int) -> None:
    """Works that are bound, cannot be cut, fail and are queued anew: each item once for each try,
    and the same again for the same seed."""
    first, second = (_served(seed, inner, flows) for _ in range(2))
    assert first == second
    works, log = first
    assert Counter((seq, i) for seq, lo, hi in log for i in range(lo, hi)) == Counter(
        (seq, i) for seq, total, tries in works for i in range(total) for _ in range(tries)
    )


def _served(seed: int, inner: str, flows: int) -> tuple[list[Any], list[tuple[int, int, int]]]:
    draw = random.Random(seed)
    shared = Shared(inner=inner, weights={"t0": 2})
    log: list[tuple[int, int, int]] = []
    again: list[Work] = []
    for k in range(30):
        shared.add(
            f"t{draw.randrange(flows)}",
            now=k / 4,
            total=draw.randint(1, 2 * BATCH),
            cuttable=draw.random() < 0.7,
            affinity=draw.choice([-1, -1, 0, 1]),
            component=f"c{draw.randrange(3)}",
            estimate=Estimate(draw.random(), draw.random(), draw.random(), draw.choice([0, 0.1])),
        )
    made = list(shared.queued)
    for n in range(400):
        given = slots(BATCH, entries=3, instance=n % 2, idle=n % 3 == 0, running=n % 4)
        chosen = shared.policy.choose(given, 10.0 + n)
        log += [(w.seq, lo, hi) for w, lo, hi in chosen]
        gone = take(shared.policy, given, 10.0 + n)
        for w in gone:
            if not w.queued and w.tries == 0 and draw.random() < 0.2:
                more = {"spans": [(0, w.total)], "tries": 1, "avoid": n % 2}
                twin = work(w.seq, **{**_values(w), **more})
                again.append(twin)
                shared.policy.add(twin, 10.0 + n)
    assert kept(shared.policy) == 0
    tries = Counter(w.seq for w in [*made, *again])
    return [(w.seq, w.total, tries[w.seq]) for w in made], log


def _values(w: Work) -> dict[str, Any]:
    own = {name: getattr(w, name) for name in ("run", "asker", "total", "arrival")}
    return own | {name: getattr(w.spec, name) for name in ("component", "cuttable", "estimate")}


# --- no starvation --------------------------------------------------------------------------


def test_a_large_work_is_not_passed_over_for_ever_by_small_ones() -> None:
    """It needs an idle instance. While it is first in line, the room is kept for it."""
    shared = Shared()
    shared.add("large", total=20, cuttable=False)
    shared.add("small", 50, total=1)
    busy = slots(5, idle=False)
    assert shared.batch(busy) == {}
    assert shared.batch(slots(BATCH)) == {"large": 20}


def test_a_flow_that_is_bound_elsewhere_holds_nobody_up() -> None:
    shared = Shared()
    shared.add("a", affinity=1)
    shared.add("b")
    assert shared.batch() == {"b": 4}
    assert shared.batch(slots(instance=1)) == {"a": 4}


@pytest.mark.parametrize("inner", INNER)
def test_many_flows_are_all_served(inner: str) -> None:
    shared = Shared(inner=inner)
    for k in range(200):
        shared.add(f"t{k}", 3)
    for _ in range(300):
        shared.batch()
    assert shared.queued == []
    assert kept(shared.policy) == 0


# --- together -------------------------------------------------------------------------------


def test_the_inner_policy_decides_within_a_flow() -> None:
    shared = Shared(inner="critical_path")
    shared.add("a", estimate=Estimate(total_s=9.0))
    second = shared.add("a", estimate=Estimate(total_s=1.0))
    assert take(shared.policy, slots(4)) == second


def test_lanes_do_not_mix_across_flows() -> None:
    shared = Shared()
    shared.add("a", lane=Op.SEARCHING)
    shared.add("b", lane=Op.INGESTION)
    shared.add("b", lane=Op.SEARCHING)
    assert shared.batch() == {"a": 4, "b": 4}
    assert [w.spec.lane for w in shared.queued] == [Op.INGESTION]


def test_who_waits_for_company_joins_another_flow_that_goes() -> None:
    """a's call has slack until 50 s, b's has waited enough: both go, in one prefill."""
    shared = Shared(inner="critical_path")
    call = {"lane": None, "total": 100, "cuttable": False}
    shared.add("a", estimate=Estimate(latest_s=50.0, base_s=0.2), **call)
    assert shared.batch(slots(1024, running=3), 1.0) == {}
    assert shared.policy.wake_at(1.0) == pytest.approx(50.0)
    shared.add("b", estimate=Estimate(base_s=0.2), **call)
    assert shared.batch(slots(1024, running=3), 1.5) == {}
    assert shared.policy.wake_at(1.5) == pytest.approx(2.1)
    assert shared.batch(slots(1024, running=3), 2.1) == {"a": 100, "b": 100}


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0, -1, "2", True, None, float("nan"), float("inf")])
def test_a_wrong_weight_is_refused(weight: object) -> None:
    with pytest.raises(InputError, match="weight of 'a' must be a number above 0"):
        batching.make("fair", weights={"b": 1.0, "a": weight})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"by": "user"},
            r"unknown way to form flows 'user' in batching policy 'fair'.*valid: app, both, tenant",
        ),
        ({"inner": "topolgy"}, r"unknown batching policy 'topolgy'.*'topology'"),
        ({"inner": "fifo", "inner_options": {"wait": 1}}, r"option 'wait' in batching policy"),
        ({"weight": {}}, r"unknown option 'weight' .*'weights'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        batching.make("fair", **options)


class Knows(Fifo):
    """A policy whose priorities go by what it was told: how many works it has."""

    def priority(self, work: Work, now: float) -> int:
        return self._live


def test_a_call_is_as_urgent_for_its_server_as_the_policy_of_its_flow_says() -> None:
    policy = Fair(Knows, "tenant", {})
    calls = [work(k, run=f"q{k}", tenant=tenant) for k, tenant in enumerate("aab")]
    for call in calls:
        policy.add(call, 0.0)
    assert [policy.priority(call, 0.0) for call in calls] == [2, 2, 1]
    assert policy.priority(work(3, tenant="c"), 0.0) == 0, "it has no flow"


def test_what_is_left_of_a_batch_is_as_it_was_for_the_next_flow() -> None:
    asked = list[Slots]()

    class Sees(Fifo):
        def choose(self, slots: Slots, now: float) -> list[Slice]:
            asked.append(slots)
            return super().choose(slots, now)

    policy, given = Fair(Sees, "tenant", {}), Slots(1, 10, 5, True, rationed=True, kept=2)
    for k, tenant in enumerate("ab"):
        policy.add(work(k, run=f"q{k}", tenant=tenant, total=4), 0.0)
    assert len(policy.choose(given, 0.0)) == 2
    left = given._replace(weight=6, entries=4, idle=False, lane=Op.EMBEDDING)
    assert asked == [given, left]
