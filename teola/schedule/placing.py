"""Where the works of one engine go: its routing policy, and what that is told.

A work is bound when it is queued, if the policy has an opinion then (early binding), and else goes
to whichever instance has room (late binding, `EngineQueue._round`).
"""

from __future__ import annotations

from collections.abc import Sequence

from teola.policies.routing.base import (
    ANY,
    CameUp,
    Dispatched,
    Finished,
    Happening,
    Prefilled,
    RoutingPolicy,
    WentDown,
)
from teola.policies.work import Slice, Work
from teola.profile import EngineProfile
from teola.schedule.asking import Asking
from teola.schedule.events import PrefixChanged
from teola.schedule.instances import Instances
from teola.schedule.prefix_index import PrefixIndex
from teola.schedule.view import QueueView


class Placing:
    """A routing policy and the index of prefixes, fed with what happens. profiles: of each
    instance; none if nothing is known."""

    def __init__(
        self,
        routing: RoutingPolicy,
        instances: Instances,
        profiles: Sequence[EngineProfile],
        asking: Asking,
    ) -> None:
        self.routing, self._instances = routing, instances
        blocks = [instance.limits.kv_blocks for instance in instances]
        self.prefixes = PrefixIndex(blocks) if routing.wants_keys else None
        known = profiles or (EngineProfile(),) * len(instances)
        routing.attach(QueueView(instances, known, asking, self.prefixes))
        self.by_keys = routing.wants_keys
        """Whether it wants the keys of prompts."""
        self.early = type(routing).place is not RoutingPolicy.place
        """Whether it may bind what has no home."""
        self._observed = frozenset(routing.observes)
        self.follows = bool(self._observed) or self.prefixes is not None
        """Whether it is to be told what happens to works."""
        self._telling: set[int] = set()
        """Instances that have told a hit, so that none means none."""
        self._expected: dict[tuple[str, int], tuple[int, float]] = {}

    def bind(self, work: Work, now: float) -> None:
        """Bind a work that is about to be queued, or leave it free."""
        at = work.home
        if self.early:
            at = ANY if work.spec.cuttable else self.routing.place(work, now)
        if at >= 0 and (at == work.avoid or not self._instances[at].usable(now)):
            at = ANY
        work.affinity = at

    # --- what happens -----------------------------------------------------------------------

    def dispatched(self, i: int, slices: Sequence[Slice], now: float) -> None:
        """A batch goes to instance `i`."""
        if self.prefixes is not None:
            for work, _, _ in slices:
                if work.keys:
                    self._expected[work.run, work.primitive] = self.prefixes.last_used(i, work.keys)
        if Dispatched in self._observed:
            self._observe(Dispatched(i, [work for work, _, _ in slices]), now)

    def prefilled(self, i: int, work: Work, now: float) -> None:
        """A call on instance `i` has given its first token."""
        if self.prefixes is not None:
            self.prefixes.computed(i, work.keys, now)
        if Prefilled in self._observed:
            self._observe(Prefilled(i, work), now)

    def finished(self, i: int, work: Work, now: float, *, failed: bool, cached: int | None) -> None:
        """A slice came back from instance `i`. Where that found less in its cache than one thought,
        it has evicted whatever was used no later than what it lacked. Servers compute a prompt's
        last token in any case, and the block that ends with it."""
        if self.prefixes is not None and work.keys:
            blocks, used = self._expected.pop((work.run, work.primitive), (0, 0.0))
            if cached:
                self._telling.add(i)
            tells = cached is not None and i in self._telling
            tokens = self._instances[i].limits.block_tokens
            if tells and (cached or 0) < (blocks - 1) * tokens:
                self.prefixes.expire(i, used)
        if Finished in self._observed:
            self._observe(Finished(i, work, failed, cached), now)

    def changed(self, event: PrefixChanged, now: float) -> None:
        """An instance tells what it keeps."""
        if self.prefixes is not None:
            if event.cleared:
                self.prefixes.forget(event.instance)
            self.prefixes.told(event.instance, event.stored, event.evicted, now)

    def down(self, i: int, now: float, *, lost: bool) -> None:
        """Nothing more is sent to instance `i`. lost: with all that it kept."""
        if lost and self.prefixes is not None:
            self.prefixes.forget(i)
        if WentDown in self._observed:
            self._observe(WentDown(i), now)

    def up(self, i: int, now: float) -> None:
        """Instance `i` can take work, as a fresh one."""
        if self.prefixes is not None:
            self.prefixes.forget(i)
        if CameUp in self._observed:
            self._observe(CameUp(i), now)

    def _observe(self, event: Happening, now: float) -> None:
        self.routing.observe(event, now)
