"""How many calls a second a routing policy places: 16 instances, prompts of 500 blocks.

85 % of a prompt is one of 100 beginnings; each call is a query of its own. Counted is, in the
processor's time, what the scheduler does besides batching: bind the call, send it, be told at its
first token which blocks its instance stored and evicted, and at its end that its query has ended.
Caches are full, so that as many are evicted as are stored.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Hashable
from typing import Final

from experiments.replay.replay import Fleet
from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.asker import Asker
from teola.policies.work import Slice, Work, WorkSpec
from teola.profile import EngineProfile
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import PrefixChanged, ProgramPaused
from teola.schedule.instances import Limits

INSTANCES: Final = 16
BLOCKS: Final = 500
SHARED: Final = 425
BEGINNINGS: Final = 100
KEPT: Final = 20_000
"""Blocks of each instance's cache."""
RUNNING: Final = 16
"""Calls of each instance under way."""
CALLS: Final = 4000
WARM_UP: Final = 2000
SPEC: Final = WorkSpec("llm", Op.PREFILLING, "call", None, cuttable=False, depth=1)


class _Routes:
    """A queue whose instances answer in order."""

    def __init__(self, policy: str) -> None:
        limits = Limits(2048, 1024, 1, True, KEPT, 16)
        profile = EngineProfile(step=Fleet().step, max_batch=2048, kv_blocks=KEPT)
        made = batching.make("fifo"), routing.make(policy)
        self.queue = EngineQueue("llm", [limits] * INSTANCES, *made, [profile] * INSTANCES)
        self.placing, self.instances = self.queue.placing, self.queue.instances
        self._kept: list[dict[Hashable, None]] = [{} for _ in range(INSTANCES)]
        self._running: list[deque[Work]] = [deque() for _ in range(INSTANCES)]

    def route(self, work: Work, now: float) -> float:
        """One call comes, another one on its instance ends; seconds of the processor that this
        took, without what plays the instance's part."""
        placing, began = self.placing, time.process_time()
        placing.bind(work, now)
        took = time.process_time() - began
        i = work.affinity
        assert i >= 0, "every call is bound"
        event = self._stores(i, work)
        began = time.process_time()
        work.flying[0, work.total] = (i, work.seq)
        self.instances.send(i, work.seq, work.total, 1, work.found)
        placing.dispatched(i, [Slice(work, 0, work.total)], now)
        placing.changed(event, now)
        placing.prefilled(i, work, now)
        self.instances.prefilled(i, work.missing)
        running = self._running[i]
        running.append(work)
        if len(running) > RUNNING:
            ended = running.popleft()
            self.instances.land(i, ended.seq, ended.total, 0)
            placing.finished(i, ended, now, False, ended.found, 100)
            placing.paused(ProgramPaused("llm", ended.asker.program, ended=True), now)
        return took + time.process_time() - began

    def _stores(self, i: int, work: Work) -> PrefixChanged:
        kept = self._kept[i]
        stored = [key for key in work.keys if key not in kept]
        for key in reversed(work.keys):
            kept.pop(key, None)
            kept[key] = None
        evicted = [key for key, _ in zip(kept, range(len(kept) - KEPT), strict=False)]
        for key in evicted:
            del kept[key]
        return PrefixChanged("llm", i, stored, evicted)


def routed_per_s(policy: str, calls: int = CALLS, warm_up: int = WARM_UP) -> int:
    """Calls a second that a policy of that name places."""
    chance, routes = random.Random(0), _Routes(policy)
    beginnings = [tuple((b << 20) + k for k in range(SHARED)) for b in range(BEGINNINGS)]
    spent = 0.0
    gc.collect()
    for number in range(warm_up + calls):
        own = ((1 << 40) + (number << 10) + k for k in range(BLOCKS - SHARED))
        keys = (*chance.choice(beginnings), *own)
        tokens = BLOCKS * 16 + chance.randint(0, 15)
        now = number * 0.01
        query, spans = f"q{number}", [(0, tokens)]
        work = Work(
            SPEC, query, 0, tokens, now, number, asker=Asker(program=query), keys=keys, spans=spans
        )
        took = routes.route(work, now)
        spent += took if number >= warm_up else 0.0
    return round(calls / spent)
