"""fair beside a slow one: flows as plain records, sorted anew for each batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from teola.policies import batching
from teola.policies.work import Slots, Work
from tests.recording import work

WEIGHTS = {"a": 2.0, "b": 0.5, "x": 4.0, "a/x": 3.0}


@dataclass(eq=False)
class Flow:
    """given: items that it got, divided by its weight. since: its place among those that came at
    the same time."""

    name: str
    tenant: str
    given: float
    since: int
    works: list[Work] = field(default_factory=list)


class Slow:
    """served: what the flow had been given by then that was served last."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.anew()

    def anew(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.served, self.came = 0.0, 0

    def name(self, one: Work) -> str:
        who = {"tenant": one.asker.tenant, "app": one.asker.app}
        return who.get(self.by, f"{one.asker.tenant}/{one.asker.app}")

    def add(self, one: Work) -> None:
        name = self.name(one)
        flow = self.flows.get(name)
        if flow is None or (not flow.works and flow.given <= self.served):
            self.came += 1  # for what it did not want, it gets nothing
            flow = self.flows[name] = Flow(name, one.asker.tenant, self.served, self.came)
        flow.works.append(one)

    def remove(self, one: Work) -> None:
        self.flows[self.name(one)].works.remove(one)
        if not any(flow.works for flow in self.flows.values()):
            self.anew()

    def turns(self) -> list[Flow]:
        """The least given first; a tenant's rows behind all its calls, where those are apart."""
        waiting = [flow for flow in self.flows.values() if flow.works]
        calling = {
            flow.tenant for flow in waiting if not all(one.spec.yields for one in flow.works)
        }
        later = []
        for flow in waiting:
            rows = all(one.spec.yields for one in flow.works)
            if self.by == "both" and rows and flow.tenant in calling:
                flow.given = max(flow.given, self.served)
                later.append(flow)
        return sorted(waiting, key=lambda flow: (flow in later, flow.given, flow.since))

    def choose(self, slots: Slots) -> list[tuple[int, int, int]]:
        """Of each flow in turn, in order of arrival, what has room. Where nothing has been taken
        yet and the next is too large for now, the room is kept for it."""
        weight, entries, alone = slots.weight, slots.entries, slots.idle
        taken = list[tuple[int, int, int]]()
        for flow in self.turns():
            for one in flow.works:
                if weight <= 0 or entries <= 0:
                    return taken
                lo, hi = one.spans[0]
                if hi - lo > weight and not one.spec.cuttable and not alone:
                    if not taken:
                        return []
                    break
                hi = min(hi, lo + weight) if one.spec.cuttable else hi
                taken.append((one.seq, lo, hi))
                weight, entries, alone = weight - (hi - lo), entries - 1, False
        return taken

    def charge(self, taken: list[tuple[Work, int]], weights: dict[str, float]) -> None:
        items: dict[Flow, int] = {}
        for one, count in taken:
            flow = self.flows[self.name(one)]
            items[flow] = items.get(flow, 0) + count
        if items:
            self.served = max(self.served, next(iter(items)).given)
        for flow, count in items.items():
            flow.given += count / weights.get(flow.name, 1.0)


@pytest.mark.parametrize("by", ["tenant", "app", "both"])
@pytest.mark.parametrize("seed", range(8))
def test_each_batch_is_what_a_slow_one_gives(by: str, seed: int) -> None:
    draw, slow, works = Random(seed), Slow(by), list[Work]()
    weights = draw.choice([{}, WEIGHTS])
    policy = batching.make("fair", inner="fifo", by=by, weights=weights)
    for k in range(200):
        busy = k % 40 < 25
        for n in range(draw.choice([0, 1, 3]) if busy else 0):
            one = work(
                10 * k + n,
                run=f"{k}.{n}",
                tenant=draw.choice("aab"),
                app=draw.choice("xy"),
                total=draw.choice([1, 2, 6]),
                cuttable=draw.random() < 0.7,
                arrival=float(k),
                yields=draw.random() < 0.3,
            )
            works.append(one)
            policy.add(one, float(k))
            slow.add(one)
        slots = Slots(0, draw.choice([1, 3, 8]), draw.choice([1, 2, 9]), draw.random() < 0.5)
        slices = policy.choose(slots, float(k))
        found = [(one.seq, lo, hi) for one, lo, hi in slices]
        assert found == slow.choose(slots), (k, slots)
        if draw.random() < 0.8:
            before = [(one, hi - lo) for one, lo, hi in slices]
            gone = list[Work]()
            for one, lo, hi in slices:
                assert one.take(lo, hi)
                if not one.spans:
                    gone.append(one)
            slow.charge(before, weights)
        else:
            gone = [draw.choice(works)] if works else []
        for one in gone:
            one.queued = False
            works.remove(one)
            policy.remove(one, float(k))
            slow.remove(one)
