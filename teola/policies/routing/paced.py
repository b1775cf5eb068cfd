"""paced: order and routing in one, for queries that are to end by a time on unequal instances.

An engine that computes prompts in chunks makes each decoding step as long as its budget of prompt
tokens takes, while prompts wait there: for all calls at once, so that none ends. So no instance is
sent more calls than leave its steps short, and what waits, waits here, where its order is known:

    order   by the objective of its query; then the longest expected rest; then arrival
    bound   u_i = max(LEAST, 1 - s_i / tau);  K_i = max(2, round(u_i (p_i + d_i / (1 - u_i)) / p_i))
    send    while fewer than K_i calls are in flight on i and less than a step's budget is pending
    where   the open instance on which it is predicted to end first:
            (pending + missing tokens) x s a token + answer x (s_i + (tau - s_i) min(1, n_i / K_i))

s_i: a step of one sequence; p_i: a prompt of mean length; d_i: an answer of mean length, alone.
tau: how long a decoding step may become, one time for all instances, so that none is the slow one:
in steps of the fastest instance. u_i is the part of the time that is left for prompts. A call is
always sent to an instance that has none. Where times are not known there is no bound.

One object is both policies of its queue: `order(loads, now)` is told no work, and puts the
instances in order for the work that `choose` will give next (decision 0057).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import compress
from math import ceil, inf
from operator import is_not
from typing import ClassVar, Final

from teola.errors import InputError
from teola.plain_number import is_number
from teola.policies.lane_heaps import ANYWHERE
from teola.policies.ordered import FEW, KeyEntry, Ordered, PolicyKey
from teola.policies.reason import Because
from teola.policies.routing.base import (
    EngineView,
    Finished,
    Happening,
    InstanceView,
    Loads,
    RoutingPolicy,
)
from teola.policies.routing.call_seconds import InstanceKinds, prompt_alone_s, step_s
from teola.policies.work import Slice, Slots, Taker, Work
from teola.profile import EngineProfile

LEAST: Final = 0.3
"""Share of the time for prompts that an instance gets even if its steps are longer than tau."""
LAST: Final = 1000
"""Mean lengths are over about this many of the last calls."""
AGAIN: Final = 64
"""After so many calls at the latest, bounds are computed again."""
NOWHERE: Final = -1


def calls_at_once(profile: EngineProfile, prompt: float, answer: float, tau_s: float) -> float:
    """K: the calls of mean lengths that an instance may have in flight."""
    prompt_s, step = prompt_alone_s(profile, prompt), step_s(profile, prompt)
    if prompt_s <= 0 or tau_s <= 0:
        return inf
    share = min(max(LEAST, 1 - step / tau_s), 0.99)
    return max(2, round(share * (prompt_s + answer * step / (1 - share)) / prompt_s))


class Paced(Ordered, RoutingPolicy):
    """tau: how long a decoding step may become, in steps of the fastest instance, above 1."""

    eager = True
    whole: ClassVar[bool] = True
    overfills: ClassVar[bool] = True
    observes = (Finished,)
    ordered = Because.SOONEST
    tunable: ClassVar[Mapping[str, tuple[float, ...]]] = {"tau": (5.0, 7.0, 10.0, 15.0)}

    def __init__(self, tau: float = 7.0) -> None:
        super().__init__()
        self.tau = _tau_of(tau)
        self._prompt = self._answer = 0.0
        self._came = self._ended = self._due = 0
        self._aim: tuple[Work, int] | None = None
        self._kinds: InstanceKinds | None = None

    def attach(self, view: EngineView) -> None:
        self.view = view
        self._kinds = InstanceKinds(view)
        self._bound()

    def tune(self, tau: float) -> None:
        """Change the policy's options, from the next call on."""
        self.tau = _tau_of(tau)
        self._bound()

    # --- what waits -------------------------------------------------------------------------

    def key(self, work: Work, now: float) -> PolicyKey:
        finish_by = work.asker.finish_by
        age = work.admitted if finish_by == inf else 0.0
        return finish_by, age, -work.spec.estimate.rest_s - work.behind_s

    def priority(self, work: Work, now: float) -> int:
        """The server's priority: it takes calls in the order in which they are sent."""
        finish_by = work.asker.finish_by
        return -round(1000 * finish_by) if finish_by < inf else -(10**13)

    def add(self, work: Work, now: float) -> None:
        super().add(work, now)
        if work.spec.lane is None and not work.tries:
            self._came += 1
            self._prompt += (work.tokens - self._prompt) / min(self._came, LAST)
            if not self._ended:
                self._answer += (work.spec.answer_tokens - self._answer) / min(self._came, LAST)
            if self._came >= self._due:
                self._bound()

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, Finished) and event.generated and event.work.spec.lane is None:
            self._ended += 1
            before = self._answer if self._ended > 1 else event.generated
            self._answer = before + (event.generated - before) / min(self._ended, LAST)

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        kinds = self._kinds
        if kinds is None or slots.lane is not None or None not in self.waiting.by_lane:
            return super().choose(slots, now)
        i = slots.instance
        seen = self.view.instances(now)[i]
        if self._score_of(i, seen) == inf:
            return []
        passed: list[tuple[list[KeyEntry], KeyEntry]] = []
        slices: list[Slice] = []
        while not slices and len(passed) < FEW:
            heap = self._head(i, after=bool(passed))
            if heap is None:
                break
            work = heap[0][-1]
            if work.avoid != i:
                slices = self._slices(work, slots, seen)
                if not work.row_tokens:
                    break
            passed.append((heap, heappop(heap)))
        for heap, entry in passed:
            heappush(heap, entry)
        return slices

    def _head(self, i: int, *, after: bool) -> list[KeyEntry] | None:
        """The heap whose first work may go to instance `i`. after: look also at works that were
        chosen for others, since those that were chosen for it have no place there."""
        heaps = self.waiting.by_lane[None]
        best: list[KeyEntry] | None = None
        for heap in (heaps.get(i), heaps.get(ANYWHERE)):
            if heap and self.waiting.first([heap]) and (after or self._for(heap[0], i)):
                best = heap if best is None or heap[0] < best[0] else best
        return best

    def _slices(self, work: Work, slots: Slots, seen: InstanceView) -> list[Slice]:
        """The slices of a work that are sent now. Rows get the places that the bound leaves, less
        those that are kept for calls that may come later."""
        if work.row_tokens:
            kind = self._kinds.of[slots.instance]  # type: ignore[union-attr]
            places, bound = slots.entries, self.bounds[kind]
            kept_places = slots.kept if work.spec.yields else 0
            if bound < inf:
                kept_places = min(kept_places, ceil(kept_places * bound / (places + seen.running)))
                places = min(places, int(bound) - seen.running)
            taker = Taker(slots._replace(entries=max(0, places - kept_places), kept=0))
            taker.take(work)
            return taker.slices
        lo, hi = work.spans[0]
        if slots.running and seen.free is not None and hi - lo - work.found > seen.free:
            return []  # its KV memory has no room
        return [Slice(work, lo, hi)]

    def _for(self, entry: KeyEntry, i: int) -> bool:
        """Whether instance `i` is the right place for the work if it goes now."""
        work = entry[-1]
        if work.affinity >= 0 or len(self.view) == 1:
            return True
        if self._aim is None:  # times are not known
            return True
        return self._aim[0] is work and self._aim[1] == i

    # --- where it goes ----------------------------------------------------------------------

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        kinds = self._kinds
        heaps = self.waiting.by_lane.get(None, {})
        heap = self.waiting.first([heap for heap in (heaps.get(ANYWHERE),) if heap])
        if kinds is None or heap is None or not kinds.timed:
            self._aim = None
            return loads.instances
        work = heap[0][-1]
        best = self._best(work, loads, now)
        self._aim = work, best
        return () if best == NOWHERE else (best,)

    def _best(self, work: Work, loads: Loads, now: float) -> int:
        """The open instance on which a call is predicted to end first."""
        kinds = self._kinds
        assert kinds is not None
        if kinds.renew() or self._came >= self._due:
            self._bound()
        instances = self.view.instances(now)
        for i in compress(range(len(instances)), map(is_not, instances, self._seen)):
            self._stand(i, instances[i])
        best = (inf, NOWHERE)
        answer = kinds.answer(work) or self._answer
        for heap in self._heaps:
            i = self._free_of(heap, loads, instances, work) if heap else NOWHERE
            if i >= 0:
                best = min(best, (self._ends_s(i, instances[i], work, answer), i))
        return best[1]

    def _free_of(
        self,
        heap: list[tuple[float, int]],
        loads: Loads,
        instances: Sequence[InstanceView],
        work: Work,
    ) -> int:
        """The first instance of a kind whose KV memory has room for a work."""
        aside: list[tuple[float, int]] = []
        instance = NOWHERE
        while heap:
            score, i = heap[0]
            seen = instances[i]
            roomy = not seen.running or seen.free is None or work.missing <= seen.free
            if self._score[i] != score:
                heappop(heap)
            elif roomy and i in loads and i != work.avoid:
                instance = i
                break
            else:
                aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        return instance

    def _ends_s(self, i: int, seen: InstanceView, work: Work, answer: float) -> float:
        kind = self._kinds.of[i]  # type: ignore[union-attr]
        waits_s = (seen.prefilling + work.missing) * self._token_s[kind]
        return waits_s + answer * self._step_s(kind, seen.running)

    def _step_s(self, kind: int, running: int) -> float:
        """Seconds of a decoding step with so many calls in it."""
        alone = self._alone_s[kind]
        filled = min(1.0, running / self.bounds[kind])
        return alone + max(0.0, self._tau_s - alone) * filled

    # --- bounds -----------------------------------------------------------------------------

    def _bound(self) -> None:
        """Work out how many calls each kind of instance may have, and put them in order anew."""
        kinds = self._kinds
        if kinds is None:
            return
        kinds.renew()
        self._due = self._came + min(AGAIN, max(1, self._came // 8))
        prompt, answer = max(1.0, self._prompt), max(1.0, self._answer)
        self._alone_s = [step_s(profile, prompt) for profile in kinds.profiles]
        self._token_s = [prompt_alone_s(profile, prompt) / prompt for profile in kinds.profiles]
        self._tau_s = self.tau * min(self._alone_s)
        timed = kinds.timed and self._came > 0
        self.bounds = [
            calls_at_once(profile, prompt, answer, self._tau_s) if timed else inf
            for profile in kinds.profiles
        ]
        self._budget = [limits.max_batch for limits in self.view.limits]
        count = len(kinds.of)
        self._score = [inf] * count
        self._heaps: list[list[tuple[float, int]]] = [[] for _ in kinds.profiles]
        self._seen: list[InstanceView | None] = [None] * count

    def _stand(self, i: int, seen: InstanceView) -> None:
        """Take over the present state of instance `i`."""
        self._seen[i] = seen
        score = self._score_of(i, seen)
        self._score[i] = score
        if score < inf:
            kind = self._kinds.of[i]  # type: ignore[union-attr]
            heap = self._heaps[kind]
            heappush(heap, (score, i))
            if len(heap) > 64 + 4 * len(self._kinds.members[kind]):  # type: ignore[union-attr]
                self._heaps[kind] = sorted(
                    {entry for entry in heap if self._score[entry[1]] == entry[0]}
                )

    def _score_of(self, i: int, seen: InstanceView) -> float:
        """When a call of mean length would end there (inf: the instance is sent none)."""
        if not seen.usable:
            return inf
        kind = self._kinds.of[i]  # type: ignore[union-attr]
        if seen.running and (
            seen.running >= self.bounds[kind] or seen.prefilling >= self._budget[i]
        ):
            return inf
        waits_s = seen.prefilling * self._token_s[kind]
        return waits_s + self._answer * self._step_s(kind, seen.running)


def _tau_of(tau: object) -> float:
    if not is_number(tau) or not 1 < tau < inf:
        raise InputError(
            "policy 'paced': tau must be a number above 1, in steps of the fastest instance, "
            f"got {tau!r}"
        )
    return float(tau)
