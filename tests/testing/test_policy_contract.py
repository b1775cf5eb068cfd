"""All shipped policies keep their contract, and one that breaks a promise is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from teola.errors import InputError
from teola.kv.policies import Lru
from teola.policies import batching, routing
from teola.policies.batching import Fifo
from teola.policies.routing import Loads
from teola.policies.routing.base import HELD, RoutingPolicy, holdable
from teola.policies.work import Slice, Slots, Work
from teola.testing import ContractBroken, check_policy

CASES = 6


@pytest.mark.parametrize("name", sorted(batching.BATCHING))
def test_shipped_batching_policies_keep_their_contract(name: str) -> None:
    check_policy(partial(batching.make, name), cases=CASES)


@pytest.mark.parametrize("name", routing.REGISTRY.built_in)
def test_shipped_routing_policies_keep_their_contract(name: str) -> None:
    check_policy(partial(routing.make, name), cases=CASES)


# --- policies that break one promise --------------------------------------------------------


class Raises(Fifo):
    def remove(self, work: Work, now: float) -> None:
        raise KeyError("oops")


class Forgets(Fifo):
    """Loses each seventh work."""

    def add(self, work: Work, now: float) -> None:
        if work.primitive % 7:
            super().add(work, now)


class Simple:
    """First come, first served, one work a batch."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def add(self, work: Work, now: float) -> None:
        self.works.append(work)

    def remove(self, work: Work, now: float) -> None:
        self.works.remove(work)

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        return next(filter(None, (self.piece(work, slots) for work in self.works)), [])

    def wake_at(self, now: float) -> float | None:
        return None

    def piece(self, work: Work, slots: Slots) -> list[Slice]:
        """What the slots may have of a work."""
        if work.affinity not in (-1, slots.instance) or work.avoid == slots.instance:
            return []
        return self.cut(work, slots)

    def cut(self, work: Work, slots: Slots) -> list[Slice]:
        lo, hi = work.spans[0]
        if work.spec.cuttable:
            hi = min(hi, lo + slots.weight)
        fits = hi - lo - work.found <= slots.weight or slots.idle
        return [Slice(work, lo, hi)] if fits else []


class Takes(Simple):
    """Forgets what it chooses at once."""

    def remove(self, work: Work, now: float) -> None:
        pass

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        chosen = super().choose(slots, now)
        for work, _, _ in chosen:
            self.works.remove(work)
        return chosen


class Repeats(Fifo):
    def choose(self, slots: Slots, now: float) -> list[Slice]:
        return super().choose(slots, now)[:1] * 2


class Fills(Fifo):
    """Heeds no limit of a batch."""

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        return super().choose(slots._replace(weight=10**6), now)


class Mixes(Simple):
    """Sends lanes together."""

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        chosen = [piece for work in self.works for piece in self.piece(work, slots)][:2]
        fits = sum(hi - lo - work.found for work, lo, hi in chosen) <= slots.weight
        return chosen if fits and slots.entries > 1 else chosen[:1]


class Anywhere(Simple):
    """Heeds neither what a work is bound to nor where it failed."""

    def piece(self, work: Work, slots: Slots) -> list[Slice]:
        return self.cut(work, slots)


class Newest(Simple):
    """The last comes first, and all else waits."""

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        newest = (self.piece(work, slots) for work in reversed(self.works))
        return next(filter(None, newest), [])


class Chances(Fifo):
    """Now and then waits a little, by chance."""

    def __init__(self) -> None:
        super().__init__(max_wait_s=random.random())


class Sleeps(Fifo):
    """Waits for more than there is."""

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        chosen = super().choose(slots, now)
        return chosen if len(chosen) > 2 else []


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Raises, "'oops'"),
        (Forgets, "works are left after|every instance is idle, and it chooses none"),
        (Takes, "`choose`, asked twice, chose"),
        (Repeats, "queued|weight|have room"),
        (Fills, "a weight of .*, where .* has room"),
        (Mixes, "works of different lanes"),
        (Anywhere, "is bound to instance|is to avoid it"),
        (Newest, "were sent in the order|a work starves"),
        (Chances, "the same events have other consequences the second time"),
        (Sleeps, "every instance is idle, and it chooses none|works are left"),
    ],
)
def test_a_batching_policy_that_breaks_a_promise_is_told(
    policy: Callable[[], Any], told: str
) -> None:
    with pytest.raises(ContractBroken, match=f"^batching policy {policy.__name__}.*({told})"):
        check_policy(policy)


class Elsewhere(RoutingPolicy):
    def place(self, work: Work, now: float) -> int:
        return 99


class Holds(RoutingPolicy):
    """Holds for ever: what is no longer holdable is asked for again, and held again."""

    def place(self, work: Work, now: float) -> int:
        return HELD

    def wake_at(self, now: float) -> float | None:
        return now + 0.001


class Chosen(RoutingPolicy):
    def place(self, work: Work, now: float) -> int:
        return random.randrange(len(self.view))


class Breaks(RoutingPolicy):
    def order(self, loads: Loads, now: float) -> Iterable[int]:
        raise ZeroDivisionError("boom")


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Elsewhere, "place gave 99, and there is no such instance"),
        (Holds, "it wakes its queue without end"),
        (Chosen, "the same events have other consequences"),
        (Breaks, "boom"),
    ],
)
def test_a_routing_policy_that_breaks_a_promise_is_told(
    policy: Callable[[], Any], told: str
) -> None:
    with pytest.raises(ContractBroken, match=f"^routing policy {policy.__name__}.*{told}"):
        check_policy(policy)


def test_a_router_may_hold_for_a_while() -> None:
    class Waits(RoutingPolicy):
        def place(self, work: Work, now: float) -> int:
            return HELD if holdable(work, now) and now < work.arrival + 2 else work.home

        def wake_at(self, now: float) -> float | None:
            return now + 1.0

    check_policy(Waits, cases=2)


def test_what_is_no_such_policy_is_refused() -> None:
    with pytest.raises(InputError, match="Lru has the methods of neither"):
        check_policy(Lru)  # type: ignore[arg-type]
