"""graph_aware: marginal_cost, by one who knows what comes next.

Routers see calls. An orchestrator sees programs: queries whose graphs have more calls, sessions
that come back (`programs.py`). Five switches, each of which can be left out:

    gate      a call that finds hardly anything may not push out what programs will read again,
              while a second for which it is held saves more than a second (`_gain`): it waits for
              room where it costs least, and never where nothing runs. Two programs that do not fit
              beside each other where both left their KV take turns there (`_turn_s`)
    hits      such a call is held, too, while others are being computed there: what is found goes
              first. Of those held, the one that is computed soonest goes first, for which one that
              has waited `ageing` seconds counts as a second shorter. It is not sent elsewhere
              instead: there it would cost more, and drive out what others find
    home      a program's call goes where its last one left its KV, if all of that is still there,
              unless the wait there is longer than the wait elsewhere and twice what would be
              computed again. Calls that a program makes at the same time go where they cost least
    siblings  of a program's calls that share what nobody keeps yet one leads; the others are held
              until it is there, and placed then. Where it stands in a long line, those that would
              go there stand behind it
    ahead     a piece of a prompt is computed ahead when the rest comes within the time that it
              takes, and not earlier, on an instance that has other work

What is held goes after `held_s` at the latest, which bounds the time to the first token. Calls
whose programs have no other are placed as marginal_cost does, and never held.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice, takewhile
from math import inf
from typing import Any, Final, NamedTuple

from teola.errors import InputError
from teola.graph import Op
from teola.plain_number import is_number
from teola.policies.reason import Because, Reason
from teola.policies.routing.base import (
    HELD,
    MOST_HELD_S,
    CameUp,
    EngineView,
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
from teola.policies.routing.destinations import bound, compared, prefill_s, times_of, wait_s
from teola.policies.routing.marginal_cost import STALLED, MarginalCost, Offers
from teola.policies.routing.programs import Program, Programs
from teola.policies.routing.returns import ALL
from teola.policies.work import Work

FEW: Final = 4
"""Held calls that are asked about at a time."""
TWICE: Final = 2.0
"""How often one counts what is computed again for a program that leaves its home: there it pushes
out as much, which has to be computed again, too."""
PUSHED_ON: Final = 2.0
"""How often one counts each held call that waits behind what is computed again: that pushes out
what others have to compute again, too."""
TURNS: Final = 3.0
"""How often what a program would push out of another one's KV could be computed, with everyone who
waits behind that, for as long as it waits for its turn."""
SWITCHES: Final = ("gate", "hits", "home", "siblings", "ahead")


class Waiting(NamedTuple):
    """A call that is held. rank: the lowest goes first; of a piece, when it goes. at: the instance
    for which it waits."""

    rank: float
    seq: int
    work: Work
    at: int = -1


class GraphAware(RoutingPolicy):
    """See above. held_s: nothing is held for longer. ageing: seconds that a wait of one second
    makes a prefill shorter by."""

    wants_keys = True
    observes = (Prefilled, Finished, Left, Paused, WentDown, CameUp)

    def __init__(
        self,
        gate: bool = True,
        hits: bool = True,
        home: bool = True,
        siblings: bool = True,
        ahead: bool = True,
        held_s: float = MOST_HELD_S,
        ageing: float = 0.05,
    ) -> None:
        for name, value in zip(SWITCHES, (gate, hits, home, siblings, ahead), strict=True):
            if not isinstance(value, bool):
                raise _wrong(name, "true or false", value)
        _check("held_s", held_s, 0.0, MOST_HELD_S, f"seconds from 0 to {MOST_HELD_S:g}")
        _check("ageing", ageing, 0.0, inf, "a number from 0 on")
        self.gate, self.hits, self.home = gate, hits, home
        self.siblings, self.ahead = siblings, ahead
        self.held_s, self.ageing = held_s, ageing
        self._costs = MarginalCost()
        self._held: dict[Hashable, Waiting] = {}
        self._line: list[Waiting] = []
        self._oldest: list[tuple[float, int, Hashable]] = []
        self._following: dict[str, dict[Hashable, Work]] = {}
        self._early: dict[Hashable, Waiting] = {}
        self._dues: list[Waiting] = []
        self._again: dict[Hashable, Work] = {}
        self._changed = False
        self._look_at = inf
        """When holding is to be judged anew, even if nothing happens."""
        self._by: tuple[Because, Sequence[int]] = (Because.POLICY, ())
        """Why the last call went where it went, and the instances that were compared."""
        self._reason = Reason(Because.POLICY)

    def attach(self, view: EngineView) -> None:
        super().attach(view)
        self._costs.attach(view)
        blocks = [limits.block_tokens for limits in view.limits]
        self.programs = Programs(len(view), view.depth, blocks)
        self._room = [
            inf if limits.kv_blocks is None else limits.kv_blocks * limits.block_tokens
            for limits in view.limits
        ]

    # --- where ------------------------------------------------------------------------------

    def place(self, work: Work, now: float) -> int:
        if work.spec.lane is not None:
            return self._costs.place(work, now)
        self._forget(work)
        self.programs.expire(now)
        at = bound(self.view, work, now)
        if at >= 0 and self.programs.has(work, at):
            return at
        self.programs.came(work)
        offers = self._costs.offers(work, now)
        if at < 0:
            at = self._choose(work, offers, now)
            if self.explains:
                self._reason = self._told(at, offers)
        if at >= 0:
            self.programs.joined(work, at, work.tokens - offers.missing[at], self._answer)
        return at

    def why(self, work: Work, at: int, now: float) -> Reason:
        return self._reason

    def _told(self, at: int, offers: Offers) -> Reason:
        because, instances = self._by
        costs = {i: offers.costs[i] for i in instances if offers.costs[i] < inf}
        return compared(because, at, "s", costs)

    @property
    def _answer(self) -> int:
        return round(self._costs.answer)

    def _choose(self, work: Work, offers: Offers, now: float) -> int:
        program = self.programs.get(work.asker.program)
        may_hold = holdable(work, now) and now < work.arrival + self.held_s
        best = self._best(work, program, offers)
        if best < 0 or not may_hold:
            return best
        if (
            self.siblings
            and program is not None
            and self._follows(work, program, best, offers, now)
        ):
            self._following.setdefault(work.asker.program, {})[_key(work)] = work
            self._by = Because.SIBLINGS, ()
            return HELD
        if self.ahead and (due := self._due(work, best, offers)) > now:
            early = self._early[_key(work)] = Waiting(due, work.seq, work)
            heappush(self._dues, early)
            self._by = Because.AHEAD, ()
            return HELD
        if (turn := work.arrival + self._turn_s(work, program, best, offers)) > now:
            self._look_at = min(self._look_at, turn)
            self._by = Because.GATE, ()
        elif not self._long(work, best, offers) or self._open(work, best, offers, now):
            return best
        else:
            hits = self.hits and offers.seen[best].pending
            self._by = Because.HITS if hits else Because.GATE, ()
        candidates = (i for i, cost in enumerate(offers.costs) if cost < inf)
        shortest = min(self._prefill_s(work, i, offers) for i in candidates)
        waiting = Waiting(shortest + self.ageing * work.arrival, work.seq, work, best)
        self._held[_key(work)] = waiting
        insort(self._line, waiting)
        insort(self._oldest, (work.arrival, work.seq, _key(work)))
        return HELD

    def _best(self, work: Work, program: Program | None, offers: Offers) -> int:
        best, missing = offers.best, offers.missing
        self._by = Because.COST, range(len(missing))
        if not self.home or program is None or program.works or program.at in (best, -1):
            return best
        at = program.at
        if offers.costs[at] == inf or not self._whole(work, program, offers):
            return best
        here, other = (wait_s(self.view.profiles[i], offers.seen[i].pending) for i in (at, best))
        again = TWICE * self._prefill_s(work, best, offers)
        if here + self._prefill_s(work, at, offers) > other + again:
            return best
        self._by = Because.PROGRAM, range(len(missing))
        return at

    def _whole(self, work: Work, program: Program, offers: Offers) -> bool:
        """Whether a call finds at home all that its program's last prompt left. Where a part was
        pushed out, more programs live than fit, and each turn pushes out more of the others."""
        home = program.at
        left = found_tokens(work, program.left, self.view.limits[home].block_tokens)
        return 0 < left <= work.tokens - offers.missing[home]

    def _prefill_s(self, work: Work, i: int, offers: Offers) -> float:
        return prefill_s(self.view.profiles[i], offers.missing[i], work.tokens)

    # --- when -------------------------------------------------------------------------------

    def _long(self, work: Work, i: int, offers: Offers) -> bool:
        """Whether a call finds hardly anything, and takes more than a step to compute."""
        missing = offers.missing[i]
        return missing > self.view.limits[i].max_batch and 2 * missing > work.tokens

    def _turn_s(self, work: Work, program: Program | None, i: int, offers: Offers) -> float:
        """For how long after it came a call waits until another program has no call where its own
        left its KV, because both do not fit there: else each call would push out what the next one
        of the other is to find. 0: it does not wait."""
        if not self.gate or program is None or program.at != i or self._excess(work, i) <= 0:
            return 0.0
        other = self.programs.largest_beside(program.name, i)
        out = min(other, other + work.tokens + self._answer - self._room[i])
        if out <= 0:
            return 0.0
        behind = PUSHED_ON * len(self._held) + STALLED * offers.seen[i].calls
        return TURNS * (1 + behind) * prefill_s(self.view.profiles[i], out, other)

    def _open(self, work: Work, i: int, offers: Offers, now: float) -> bool:
        """Whether a call that finds hardly anything may go there now."""
        seen = offers.seen[i]
        if not self.programs.owners[i] or not seen.calls:
            return True
        if self.hits and seen.pending:
            return False
        if not self.gate:
            return True
        return self._gain(work, i, offers, now) < 1.0

    def _gain(self, work: Work, i: int, offers: Offers, now: float) -> float:
        """Seconds that each second saves for which a call is held: of those who will come back for
        what it pushes out there, and of everyone who waits behind their prefills."""
        programs, profile, returns = self.programs, self.view.profiles[i], self.programs.returns
        seen, name = offers.seen[i], work.asker.program
        gain, pushed, look_at = 0.0, 0.0, inf
        for program in [*programs.away[i].values()]:
            kept_tokens, away = programs.kept(program), program.away
            excess = self._excess(work, i) - pushed
            if excess <= 0 or away is None:
                break
            if program.name == name or not kept_tokens:
                continue
            out = min(float(kept_tokens), excess)
            pushed += out
            age_s = now - away.since
            rate = returns.rate(away.kind, age_s, now)
            gain += rate * prefill_s(profile, out, out + program.common)
            if look_at == inf:  # who has been away longest is the first to be given up
                look_at = away.since + returns.changes_at(age_s)
        excess = min(self._excess(work, i) - pushed, programs.settled[i] - pushed)
        if excess > 0:
            # These run. They will be away, and come back, when they have had their answers.
            step = times_of(profile)
            answer_s = self._costs.answer * (step.base_s + step.per_context_s * seen.context)
            pause_s = 1.0 / max(returns.rate(ALL, 0.0, now), 1e-9)
            gain += prefill_s(profile, excess, excess) / (answer_s / 2 + pause_s)
        gain *= 1 + PUSHED_ON * len(self._held) + STALLED * seen.calls
        if gain >= 1.0:
            self._look_at = min(self._look_at, look_at)
        return gain

    def _excess(self, work: Work, i: int) -> float:
        """Tokens that others claim on an instance, and that have no room beside a call."""
        others = self.programs.claimed[i] - self.programs.claims(work.asker.program, i)
        return others + work.tokens + self._answer - self._room[i]

    def _follows(self, work: Work, program: Program, best: int, offers: Offers, now: float) -> bool:
        """Whether most of what a call finds nowhere is being computed for one of its program. Where
        that one stands in a line that takes several steps, the call does not wait for it but stands
        behind it, if it would go there: held, it would be overtaken by whoever comes later."""
        if not program.begun:
            return False
        hits, limits = self.view.hits(work.keys, now).items(), self.view.limits
        hit_tokens = (found_tokens(work, blocks, limits[i].block_tokens) for i, blocks in hits)
        missing = work.tokens - max(hit_tokens, default=0)
        offered = zip(offers.costs, offers.missing, strict=True)
        least = min(left for cost, left in offered if cost < inf)
        coming = missing - least
        if offers.missing[best] == least and offers.seen[best].pending > limits[best].max_batch:
            return False
        return 2 * coming > missing

    def _due(self, work: Work, i: int, offers: Offers) -> float:
        """When a piece of a prompt is to be sent, of which the rest comes later."""
        if work.spec.op is not Op.PARTIAL_PREFILLING or not offers.seen[i].calls:
            return -inf
        latest = work.began + work.spec.estimate.latest_s
        return latest - self._prefill_s(work, i, offers)

    def free(self, now: float) -> Iterator[Work]:
        self._changed |= self.programs.expire(now)
        again, self._again = self._again, {}
        yield from again.values()
        while self._dues and self._dues[0].rank <= now:
            early = heappop(self._dues)
            if self._early.get(_key(early.work)) is early:
                yield early.work
        late = takewhile(lambda waiting: waiting[0] + self.held_s <= now, self._oldest)
        yield from [self._held[key].work for _, _, key in late]
        if not self._changed and now < self._look_at:
            return
        self._changed, self._look_at = False, inf
        yield from [waiting.work for waiting in self._line[:FEW]]
        idle = {i for i, seen in enumerate(self.view.instances(now)) if not seen.calls}
        if idle and len(self._line) > FEW:
            yield from [
                *islice((waiting.work for waiting in self._line if waiting.at in idle), FEW)
            ]

    def wake_at(self, now: float) -> float | None:
        times = [self._dues[0].rank] if self._dues else []
        if self._line:
            times += [self._oldest[0][0] + self.held_s]
            expiry = self.programs.next_expiry
            times += [self._look_at] + ([] if expiry is None else [expiry])
        return min((at for at in times if now < at < inf), default=None)

    def _forget(self, work: Work) -> None:
        """Drop a call from all lists of held calls."""
        if not (self._held or self._early or self._following):
            return
        key = _key(work)
        waiting = self._held.pop(key, None)
        if waiting is not None:
            del self._line[bisect_left(self._line, waiting)]
            del self._oldest[bisect_left(self._oldest, (work.arrival, work.seq))]
        self._early.pop(key, None)
        self._again.pop(key, None)
        followers = self._following.get(work.asker.program)
        if followers is not None and followers.pop(key, None) is not None and not followers:
            del self._following[work.asker.program]

    # --- what happens -----------------------------------------------------------------------

    def observe(self, event: Happening, now: float) -> None:
        self._changed = True
        if isinstance(event, Prefilled):
            self.programs.prefilled(event.work)
            self._led(event.work)
        elif isinstance(event, Finished):
            self._costs.observe(event, now)
            self._led(event.work)
            self.programs.left(event.work, now, event.generated)
        elif isinstance(event, Left):
            self._forget(event.work)
            self._led(event.work)
            self.programs.left(event.work, now)
        elif isinstance(event, Paused):
            self.programs.paused(*event, now)
        elif isinstance(event, WentDown):
            self.programs.down(event.instance)
            for followers in self._following.values():
                self._again |= followers

    def _led(self, work: Work) -> None:
        """Free the calls that waited for this call."""
        followers = self._following.get(work.asker.program) if self._following else None
        if followers:
            self._again |= followers


def _key(work: Work) -> Hashable:
    return work.run, work.primitive


def _check(name: str, value: Any, least: float, most: float, needed: str) -> None:
    if not is_number(value) or not least <= value <= most:
        raise _wrong(name, needed, value)


def _wrong(name: str, needed: str, value: Any) -> InputError:
    return InputError(f"routing policy 'graph_aware': {name} must be {needed}, got {value!r}")
