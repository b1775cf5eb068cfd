"""Where the works of one engine go: its routing policy, what that is told, and works bound anew.

A work is bound when it is queued, if the policy has an opinion then (early binding), and else goes
to whichever instance has room (late binding, `EngineQueue._round`). It is bound anew when it failed
or was refused, when its instance is not to be had, and when what the policy holds may go. Another
try is a work of its own in the place of the old one, because policies have to forget that.

Long because all that binds a work, and binds it anew, has its place here.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile
from math import inf
from typing import Final, NamedTuple

from teola.learning import LearnedProfiles
from teola.policies.batching.base import Attached, by_keys
from teola.policies.routing.base import (
    ANY,
    HELD,
    MOST_HELD_S,
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
from teola.policies.work import Slice, Work, WorkKey
from teola.profile import EngineProfile, weights_of
from teola.schedule.coming import Chain
from teola.schedule.events import Cause, PrefixChanged, ProgramPaused
from teola.schedule.explaining import Explaining
from teola.schedule.instances import LOOKS_S, Instances
from teola.schedule.prefix_index import PrefixIndex
from teola.schedule.view import QueueView
from teola.schedule.waiting_line import WaitingLine

LOOKED_AT: Final = 32
"""Works of which one is chosen that can wait."""
LOOKS_ANYWAY_S: Final = 5 * LOOKS_S
"""An instance that has had nothing for so long is looked at, whatever the call may lose by it."""
FEW: Final = 8
"""Works that may be bound anew in one round because an instance has nothing to do."""


class KeptTokens(NamedTuple):
    """What an instance keeps of prompts, as far as one knows. told: by itself; else it is assumed,
    by what was computed there."""

    tokens: int
    told: bool


class Placing:
    """A routing policy and the index of prefixes, fed with what happens. works: all that the queue
    knows. line: those that are queued, whose policy may want to know of prefixes, too. profiles: of
    each instance; none if nothing is known."""

    def __init__(
        self,
        routing: RoutingPolicy,
        works: MutableMapping[WorkKey, Work],
        line: WaitingLine,
        instances: Instances,
        profiles: Sequence[EngineProfile],
    ) -> None:
        self.routing, self._instances, self._faults = routing, instances, line.faults
        self._works, self._line, self._asking = works, line, line.asking
        blocks = [instance.limits.kv_blocks for instance in instances]
        self.by_keys = routing.wants_keys or by_keys(line.policy)
        """Whether one of them wants the keys of prompts."""
        self.prefixes = PrefixIndex(blocks) if self.by_keys else None
        profiled = profiles or (EngineProfile(),) * len(instances)
        self.profiles = profiled
        self._version = -1
        self._view = QueueView(instances, profiled, line.asking, self.prefixes)
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
        self._avoided: set[int] = set()
        """Instances that something queued may be kept from."""

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
        bound = work.home >= 0 or work.avoid >= 0 or work.keys
        if not (self.early or bound or self.explaining is not None):
            work.affinity, work.found = ANY, work.row_found
            return False
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
            hit_tokens = found_tokens(work, blocks, block_tokens)
            work.found = work.row_found if work.row_tokens else hit_tokens
            self._comes(work, at, hit_tokens // block_tokens)
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

    # --- what is bound anew -----------------------------------------------------------------

    def retry(self, old: Work, lo: int, hi: int, instance: int, now: float) -> None:
        """Queue the failed slice, with what is still queued of the same primitive, anew."""
        self._line.remove(old, now)
        avoid = instance if self._instances.others(instance, now) else -1
        spans = [(lo, hi), *old.spans]
        self._again(replace(old, spans=spans, home=-1, avoid=avoid, queued=True), now)

    def may_move(self, work: Work, cause: Cause, now: float) -> bool:
        """Whether what a server refused may go on waiting, or elsewhere. That it takes no more now
        costs no try; that it is not there costs one, while another is."""
        assert cause.refused is not None
        if cause.refused.kind == "busy" or not any(one.usable(now) for one in self._instances):
            work.excused += 1
        return work.tries < work.spec.retries + work.excused

    def put_back(
        self, old: Work, lo: int, hi: int, instance: int, now: float, *, away: bool
    ) -> None:
        """Queue the refused slice where it stood, with what is still queued of its primitive. away:
        its server is not there, and it is not the work that looks whether it is again."""
        self._line.remove(old, now)
        avoid = instance if away and self._instances.others(instance, now) else old.avoid
        elsewhere = old.home == instance and len(self._instances) > 1
        home = -1 if elsewhere else old.home
        self._again(
            replace(old, spans=[(lo, hi), *old.spans], home=home, avoid=avoid, queued=True), now
        )

    def rows_again(self, old: Work, spans: list[tuple[int, int]], avoid: int, now: float) -> None:
        """Queue a window of rows anew, with these of it to be sent. Its rows count their tries
        themselves, so it costs the window none."""
        self._line.remove(old, now)
        excused = old.excused + 1
        self._again(replace(old, spans=spans, avoid=avoid, queued=True, excused=excused), now)

    def unbind(self, i: int, now: float) -> None:
        """What should have gone to instance `i` may go elsewhere, and is computed anew there.

        That is another try, which costs none; fifo puts it before the others, hence the order.
        """
        for old in reversed(list(self._works.values())):
            if old.affinity == i and old.queued:
                self._elsewhere(old, -1 if old.home == i else old.home, now)

    def rebind(self, now: float, most: int | None = None) -> None:
        """Ask the routing again for those that are bound without a home and wait. most: how many of
        the oldest."""
        bound = (w for w in self._works.values() if w.queued and w.affinity >= 0 and w.home < 0)
        for old in list(islice(bound, most)):
            before, counted_hits = old.affinity, old.found
            self.bind(old, now)
            at, finds = old.affinity, old.found
            old.affinity, old.found = before, counted_hits  # as it was counted
            if at != before:
                self._elsewhere(old, -1, now)
            elif finds != counted_hits:
                self._asking.left(old)
                old.found = finds
                self._asking.queued(old)

    def _elsewhere(self, old: Work, home: int, now: float) -> None:
        self._line.remove(old, now)
        self._again(replace(old, home=home, queued=True, excused=old.excused + 1), now)

    def _again(self, work: Work, now: float) -> None:
        work.tries += 1
        if work.avoid >= 0:
            self._avoided.add(work.avoid)
        self._works[work.run, work.primitive] = work
        self.bind(work, now)
        self._line.add(work, now)

    # --- before a round ---------------------------------------------------------------------

    def reconsider(self, now: float) -> None:
        """Before a round: what is held may go, what waits for a busy instance to an idle one, and
        what failed on one to that again, if no other takes anything."""
        if self._avoided:
            self._no_longer_avoid(now)
        if self.early:
            if self._line.held:
                self._free_held(now)
            if self._asking.bound and self._instances.open(now).idle:
                self.rebind(now, FEW)
        if self._instances.slowness and self.learns and self._line.ready:
            prefers, waiting = self._asking.preference, self._asking.free_calls
            for i in list(self._instances.due(now)):
                if prefers is None or prefers.takes(i, waiting, now):
                    self._look(i, now)

    def _no_longer_avoid(self, now: float) -> None:
        """What failed on one instance may go there again, if no other takes anything."""
        for i in [i for i in self._avoided if not self._instances.others(i, now)]:
            self._avoided.discard(i)
            for work in self._works.values():
                work.avoid = -1 if work.avoid == i else work.avoid
            self._asking.forget()

    def _look(self, i: int, now: float) -> None:
        """Let a work go to instance `i`, to see whether that is as slow as it was: of the oldest
        the one that can wait longest. It keeps its query's objective even if the instance is as
        slow as before; where none does, the instance is looked at less often."""
        instance, slowness = self._instances[i], self._instances.slowness[i]
        most = instance.limits.max_batch
        least_s = -inf if now >= instance.sent_at + LOOKS_ANYWAY_S else 0.0
        able = (
            work
            for work in islice(self._works.values(), LOOKED_AT)
            if work.queued
            and (work.run, work.primitive) not in self._line.held
            and work.home < 0
            and not work.row_tokens
            and work.avoid != i
            and work.total <= most
            and work.spans == [(0, work.total)]
            and work.deadline > now + LOOKS_S
            and _spare_s(work, slowness, now) > least_s
        )
        old = max(able, key=lambda work: _can_wait(work, slowness, now), default=None)
        if old is None or old.affinity == i:
            return
        self._line.remove(old, now)
        self.left(old, now)
        work = replace(old, queued=True, tries=old.tries + 1, excused=old.excused + 1)
        self._works[work.run, work.primitive] = work
        self.send_to(work, i)
        self._line.add(work, now)

    def _free_held(self, now: float) -> None:
        """Ask the routing again for what it holds: what it names, and what waited long enough."""
        held = self._line.held
        again = list(takewhile(lambda work: not holdable(work, now), held.values()))
        for work in chain(again, self._no_longer_held(now)):
            if held.get((work.run, work.primitive)) is not work:
                continue
            if not self.bind(work, now, may_hold=True):
                self._line.release(work, now)

    def _no_longer_held(self, now: float) -> Sequence[Work]:
        """What the routing policy holds no longer."""
        try:
            return list(self.routing.free(now))
        except Exception as error:  # noqa: BLE001 - as above
            self._faults.of_routing(error)
            return ()

    def round_at(self, now: float) -> float | None:
        """When to begin a round though nothing has happened."""
        declined_until = self._asking.wake(now) if self._line.ready else None
        opens = self._instances.opens_at(now)
        if not self._line.held:
            return min((at for at in (declined_until, opens) if at is not None), default=None)
        wanted = self._frees_at(now)
        due = next(iter(self._line.held.values())).arrival + MOST_HELD_S
        times = (
            at for at in (due, declined_until, wanted) if at is not None and (at > now or at == due)
        )
        return min(times) if opens is None else min(*times, opens)

    def _frees_at(self, now: float) -> float | None:
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


def _spare_s(work: Work, slowness: float, now: float) -> float:
    """Seconds between the end of the query and its objective, if this call takes `slowness` times
    as long as expected and the rest does not."""
    estimate = work.spec.estimate
    takes_s = estimate.rest_s + work.behind_s + (slowness - 1) * estimate.call_s
    return work.asker.finish_by - now - takes_s


def _can_wait(work: Work, slowness: float, now: float) -> tuple[float, float, float]:
    """The more, the longer: seconds to spare until its objective, until when its query runs, and
    when the work is to begin."""
    begins = work.began + work.spec.estimate.latest_s
    return _spare_s(work, slowness, now), work.deadline, begins
