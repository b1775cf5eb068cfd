"""next_use beside a slow one, which works out for all that is offered what each block is worth."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import exp, inf
from random import Random
from sys import maxsize

import pytest

from teola.engine import NextRead
from teola.kv import Access
from teola.kv.policies.fits import Fits
from teola.kv.policies.next_use import NextUse
from teola.kv.policies.pauses import SAME_ACCESS_S, Pauses

LIFE_S, WINDOW_S, REFIT_S = 5.0, 500.0, 20.0


@dataclass
class Block:
    """readers: all that have read it since it came. next_s: until its query reads it again, from
    when it is offered on; None: nobody knows. kind: of pause, or of category."""

    readers: set[Hashable] = field(default_factory=set)
    position: int = 0
    next_s: float | None = None
    kind: Hashable = None
    since: float = 0.0

    @property
    def owner(self) -> Hashable:
        (one, *others) = self.readers
        return None if others else one


class Slow:
    """Blocks, and those of them that are offered, in that order."""

    def __init__(self) -> None:
        self.fits = Fits(WINDOW_S, REFIT_S, 3, SAME_ACCESS_S, lives=False)
        self.pauses = Pauses(WINDOW_S, REFIT_S)
        self.blocks: dict[int, Block] = {}
        self.offered: list[int] = []

    def touch(
        self, blocks: Sequence[int], keys: Sequence[int], first: int, access: Access, now: float
    ) -> None:
        pause: Hashable = None
        if access.query is not None:
            pause = self.pauses.access(access.query, access.category, now, begins=first == 0)
            if all(read.seconds in (None, inf) for read in access.reads) and access.is_last:
                self.pauses.ended(access.query)
        common = []
        for at, (block, key) in enumerate(zip(blocks, keys, strict=True), first):
            held = self.blocks.setdefault(block, Block())
            held.readers.add(access.query)
            held.position = at
            if held.owner is None:
                held.kind, held.next_s = (access.category, min(access.turn, 4)), None
                common.append(key)
            else:
                held.kind = pause
                told = [read.seconds for read in access.reads if at < read.until]
                held.next_s = told[0] if told else None
        if common:
            self.fits.access(common, (access.category, min(access.turn, 4)), now)

    def worth(self, block: int, now: float) -> float:
        """Reads for each second for which it is kept on."""
        held = self.blocks[block]
        if held.next_s is not None:
            return 1.0 / max(1e-3, held.since + held.next_s - now)
        age_s = now - held.since
        if held.owner is not None:
            return self.pauses.worth(held.kind, age_s)
        fit = self.fits.of(held.kind)
        if fit is None:
            return 1.0 / (1.0 + age_s)
        later = [exp(-fit.rate * age_s), exp(-fit.rate * (age_s + LIFE_S))]
        return fit.reused * (later[0] - later[1]) / LIFE_S

    def evict(self, now: float) -> int:
        block = self._worst(now)
        self.offered.remove(block)
        del self.blocks[block]
        return block

    def _worst(self, now: float) -> int:
        blocks = self.blocks
        ended = [block for block in self.offered if blocks[block].next_s == inf]
        if ended:
            return ended[0]
        due = {
            block: blocks[block].since + blocks[block].next_s
            for block in self.offered
            if blocks[block].next_s is not None
        }
        for block in sorted((b for b in due if due[b] <= now), key=due.__getitem__):
            blocks[block].since, blocks[block].next_s = due[block], None  # away from then on
            self.offered.remove(block)
            self.offered.append(block)
        known = [block for block in self.offered if blocks[block].next_s is not None]
        fronts: dict[Hashable, int] = {}
        for block in self.offered:
            if block not in known:
                held = blocks[block]
                fronts.setdefault((held.owner is not None, held.kind), block)
        least = min(
            fronts.values(),
            key=lambda b: (self.worth(b, now), -blocks[b].position, blocks[b].since, b),
            default=None,
        )
        latest = min(
            known, key=lambda b: -(blocks[b].since + (blocks[b].next_s or 0.0)), default=None
        )
        if latest is None or least is None:
            found = least if latest is None else latest
            assert found is not None
            return found
        return least if self.worth(least, now) < self.worth(latest, now) else latest


def access(draw: Random, queries: int) -> Access:
    reads = tuple(
        NextRead(until, draw.choice([None, 0.0, 3.0, 40.0, inf, inf]))
        for until in sorted(draw.sample([1, 2, 3, 5, maxsize], draw.choice([0, 1, 1, 2])))
    )
    category = draw.choice([("chat", "a"), ("tool", "b")])
    return Access(category, draw.choice([0, 1, 6]), draw.choice([None, *range(queries)]), reads)


@pytest.mark.parametrize("seed", range(12))
def test_what_goes_is_worth_least(seed: int) -> None:
    """Runs of blocks come and are found, are held for a while, offered, and evicted."""
    draw, now, made = Random(seed), 0.0, 0
    fast, slow = NextUse(LIFE_S, WINDOW_S, REFIT_S, 3), Slow()
    keys: dict[int, int] = {}
    for _ in range(250):
        now += draw.choice([0.0, 0.2, 1.0, 7.0, 60.0])
        held = [block for block in slow.blocks if block not in slow.offered]
        if draw.random() < 0.6:
            first = draw.choice([0, 0, 2])
            old = draw.sample(slow.offered, min(len(slow.offered), draw.choice([0, 1, 2])))
            fresh = range(made, made + draw.choice([0, 1, 3]))
            made = fresh.stop
            keys |= {block: draw.randrange(25) for block in fresh}
            blocks, by = [*old, *fresh], access(draw, 4)
            fast.touch(blocks, [keys[block] for block in blocks], first, by, now)
            slow.touch(blocks, [keys[block] for block in blocks], first, by, now)
            fast.withdraw(old)
            slow.offered = [block for block in slow.offered if block not in old]
        elif held and draw.random() < 0.8:
            back = draw.sample(held, draw.randint(1, len(held)))
            fast.offer(back, now)
            slow.offered += back
            for block in back:
                slow.blocks[block].since = now
        else:
            for _ in range(min(len(slow.offered), draw.choice([1, 2, 9]))):
                assert fast.evict(now) == slow.evict(now), now
    while slow.offered:
        now += draw.choice([0.0, 5.0])
        assert fast.evict(now) == slow.evict(now)
