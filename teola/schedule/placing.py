"""Where the works of one engine go: its routing policy, and what that is told.

A work is bound when it is queued, if the policy has an opinion then (early binding), and else goes
to whichever instance has room (late binding, `EngineQueue._round`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from teola.learning import LearnedProfiles
from teola.policies.batching.base import Attached, by_keys
from teola.policies.routing.base import (
    ANY,
    HELD,
    CameUp,
    Dispatched,
    Evicted,
    Finished,
    Happening,
    Left,
    Paused,
    Prefilled,
    RoutingPolicy,
    WentDown,
    found_tokens,
    holdable,
)
from teola.policies.work import Slice, Work
from teola.profile import EngineProfile, weights_of
from teola.schedule.coming import Chain
from teola.schedule.events import PrefixChanged, ProgramPaused
from teola.schedule.explaining import Explaining
from teola.schedule.instances import Instances
from teola.schedule.prefix_index import PrefixIndex
from teola.schedule.view import QueueView
from teola.schedule.waiting_line import WaitingLine


class KeptTokens(NamedTuple):
    """What an instance keeps of prompts, as far as one knows. told: by itself; else it is assumed,
    by what was computed there."""

    tokens: int
    told: bool


class Placing:
    """A routing policy and the index of prefixes, fed with what happens. line: what is queued,
    whose policy may want to know of prefixes, too. profiles: of each instance; none if nothing is
    known."""

    def __init__(
        self,
        routing: RoutingPolicy,
        line: WaitingLine,
        instances: Instances,
        profiles: Sequence[EngineProfile],
    ) -> None:
        self.routing, self._instances, self._faults = routing, instances, line.faults
        self._asking = line.asking
        blocks = [instance.limits.kv_blocks for instance in instances]
        self.by_keys = routing.wants_keys or by_keys(line.policy)
        """Whether one of them wants the keys of prompts."""
        self.prefixes = PrefixIndex(blocks) if self.by_keys else None
        known = profiles or (EngineProfile(),) * len(instances)
        self.profiles = known
        self._version = -1
        self._view = QueueView(instances, known, line.asking, self.prefixes)
        routing.attach(self._view)
        if isinstance(line.policy, Attached):
            line.policy.attach(self._view)
        self.early = type(routing).place is not RoutingPolicy.place
        """Whether it may bind what has no home."""
        self._observed = frozenset(routing.observes)
        self.follows = bool(self._observed) or self.prefixes is not None
        """Whether it is to be told what happens to works."""
        if len(instances) > 1:
            self.weigh()
        self.explaining: Explaining | None = None
        """None while nobody observes why works go where they go."""
        self._telling: set[int] = set()
        """Instances that have told a hit, so that none means none."""
        self._expected: dict[tuple[str, int], tuple[int, float]] = {}
        self._coming: dict[tuple[str, int], Chain] = {}

    @property
    def learns(self) -> bool:
        """Whether its profiles may be others tomorrow."""
        return isinstance(self.profiles, LearnedProfiles)

    def weigh(self) -> None:
        """Let work go by what instances are now known to take."""
        profiles = self.profiles
        version = profiles.version if isinstance(profiles, LearnedProfiles) else 0
        if version != self._version:
            self._version = version
            self._instances.weigh(weights_of([*profiles]))

    def explain(self) -> None:
        """From now on works say why they go where they go."""
        self.explaining = Explaining(self.routing, self._instances, self._asking)
        self.follows = True

    def bind(self, work: Work, now: float, *, may_hold: bool = False) -> bool:
        """Bind a work that is about to be queued, or leave it free. Whether it is to be held
        instead, if that may be."""
        if self._coming:
            self._came(work)
        if work.keys:
            self._view.consider(work.keys)
        at, before = work.home, work.affinity
        if self.early:
            at = ANY if work.spec.cuttable and not work.spec.rows else self._place(work, now)
        held = at == HELD and may_hold and holdable(work, now)
        if at < 0 or at == work.avoid or not self._instances[at].usable(now):
            at = ANY
        prefers = self._asking.preference
        if at < 0 and prefers is not None and work.avoid >= 0 and not work.row_tokens:
            at = prefers.instead(work.avoid, now)
        work.affinity = at
        work.found = work.row_found
        if at >= 0 and work.keys:
            block_tokens = self._instances[at].limits.block_tokens
            blocks = self._view.expected(work.keys, now).get(at, 0)
            found = found_tokens(work, blocks, block_tokens)
            work.found = work.row_found if work.row_tokens else found
            self._comes(work, at, found // block_tokens)
        if self.explaining is not None:
            self.explaining.bound(work, before, held, now)
        if work.keys:
            self._view.consider(None)
        return held

    def send_to(self, work: Work, i: int) -> None:
        """Bind a work that is about to be queued to instance `i`, whatever the policy says."""
        work.affinity, work.found = i, 0
        if work.keys:
            self._comes(work, i, 0)
        if self.explaining is not None:
            self.explaining.looks(work)

    def _place(self, work: Work, now: float) -> int:
        try:
            at = self.routing.place(work, now)
            if HELD <= at < len(self._instances):
                return at
            self._faults.of_routing(f"place gave {at}, and there is no such instance")
        except Exception as error:  # noqa: BLE001 - anybody's code; the queue fails its work
            self._faults.of_routing(error)
        return ANY

    def _comes(self, work: Work, i: int, start: int) -> None:
        """A work is on its way to instance `i`, which will compute its blocks from `start` on."""
        if self.prefixes is not None:
            self._coming[work.run, work.primitive] = self.prefixes.come(i, work.keys, start)

    def _came(self, work: Work) -> None:
        """What it was to compute is there, or will not be."""
        coming = self._coming.pop((work.run, work.primitive), None) if self._coming else None
        if coming is not None and self.prefixes is not None:
            self.prefixes.came(coming)

    def kept(self, i: int) -> KeptTokens | None:
        """What instance `i` keeps; None: nobody wants to know."""
        if self.prefixes is None:
            return None
        tokens = self.prefixes.size(i) * self._instances[i].limits.block_tokens
        return KeptTokens(tokens, self.prefixes.tells(i))

    def free(self, now: float) -> Sequence[Work]:
        """What the routing policy holds no longer."""
        try:
            return list(self.routing.free(now))
        except Exception as error:  # noqa: BLE001 - as above
            self._faults.of_routing(error)
            return ()

    def wake_at(self, now: float) -> float | None:
        """When the routing policy wants to free some of it."""
        try:
            return self.routing.wake_at(now)
        except Exception as error:  # noqa: BLE001 - as above
            self._faults.of_routing(error)
            return None

    # --- what happens -----------------------------------------------------------------------

    def dispatched(self, i: int, slices: Sequence[Slice], now: float) -> None:
        """A batch goes to instance `i`."""
        if self.explaining is not None:
            self.explaining.sent(i, slices, now)
        if self.prefixes is not None:
            for work, _, _ in slices:
                if work.keys:
                    self._expected[work.run, work.primitive] = self.prefixes.last_used(i, work.keys)
                    if work.affinity < 0:
                        self._comes(work, i, 0)
        if Dispatched in self._observed:
            self._observe(Dispatched(i, [work for work, _, _ in slices]), now)

    def took_over(self, i: int, work: Work, now: float) -> None:
        """A call goes on at instance `i` alone, where it was sent a second time."""
        if Dispatched in self._observed:
            self._observe(Dispatched(i, [work]), now)

    def prefilled(self, i: int, work: Work, now: float) -> None:
        """A call on instance `i` has given its first token."""
        if self.prefixes is not None:
            self.prefixes.computed(i, work.keys, now)
            self._came(work)
        if Prefilled in self._observed:
            self._observe(Prefilled(i, work), now)

    def left(self, work: Work, now: float) -> None:
        """A work that was queued is withdrawn."""
        self._came(work)
        if Left in self._observed:
            self._observe(Left(work), now)

    def finished(
        self,
        i: int,
        work: Work,
        now: float,
        failed: bool,
        cached: int | None,
        generated: int | None,
    ) -> None:
        """A slice came back from instance `i`. Where that found less in its cache than one thought,
        it has evicted whatever was used no later than what it lacked. Servers compute a prompt's
        last token in any case, and the block that ends with it."""
        if self.prefixes is not None and work.keys:
            self._came(work)
            blocks, used = self._expected.pop((work.run, work.primitive), (0, 0.0))
            if cached:
                self._telling.add(i)
            tells = cached is not None and i in self._telling
            tokens = self._instances[i].limits.block_tokens
            if tells and (cached or 0) < (blocks - 1) * tokens:
                self.prefixes.expire(i, used)
        if Finished in self._observed:
            self._observe(Finished(i, work, failed, cached, generated), now)

    def changed(self, event: PrefixChanged, now: float) -> None:
        """An instance tells what it keeps."""
        if self.prefixes is not None:
            if event.cleared:
                self.prefixes.forget(event.instance)
            self.prefixes.told(event.instance, event.stored, event.evicted)
        if event.evicted and Evicted in self._observed:
            self._observe(Evicted(event.instance, event.evicted), now)

    def paused(self, event: ProgramPaused, now: float) -> None:
        """A program makes no call for a while, or none any more."""
        if Paused in self._observed:
            self._observe(Paused(event.program, event.reason, event.ended), now)

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
        try:
            self.routing.observe(event, now)
        except Exception as error:  # noqa: BLE001 - as above
            self._faults.of_routing(error)
