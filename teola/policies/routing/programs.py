"""Who owns which part of the instances' KV memory, and will read it again.

A program (`Asker.program`) owns what its last call left: its KV lies where that ran. It is
*claimed* while the program has a call there, or is away and to be waited for (`Returns`), as far
as it is still kept. Who has come back and is held claims nothing: it finds hardly anything. What
others brought first, as a common system prompt, is nobody's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from teola.policies.routing.returns import FORGOTTEN_S, AwayTime, Returns
from teola.policies.work import Work

MOST_AWAY: Final = 50_000
"""Programs that are remembered while they make no call. Anybody can name programs, so there is a
limit; those that have been away longest are forgotten first."""


@dataclass(slots=True, eq=False)
class Program:
    """at: the instance of its last call. tokens: of KV that it owns there. common: of its prompts,
    tokens that were there before it. born: when its first call came. waiting: calls that have come
    and are held. works: calls that are on their way there; begun: those of them that have given no
    token. calls: so far.
    away: its pause, while it has no call. until: how long it is waited for.
    last_s: its last pause. claim: tokens that count on `at`. owner: it has come back, or is waited
    for. keys, blocks: of the prompt whose KV it claims while it is away, and how many of those
    blocks were kept when one last looked. left: how many blocks its last prompt had."""

    name: str
    born: float
    at: int = -1
    tokens: int = 0
    common: int = 0
    waiting: set[Hashable] = field(default_factory=set)
    works: set[Hashable] = field(default_factory=set)
    begun: set[Hashable] = field(default_factory=set)
    calls: int = 0
    category: Hashable = None
    away: AwayTime | None = None
    until: float = 0.0
    last_s: float | None = None
    claim: int = 0
    owner: bool = False
    keys: Sequence[Hashable] = ()
    blocks: int = 0
    left: int = 0

    @property
    def since(self) -> float | None:
        """When its last call ended; None while it has calls."""
        return None if self.away is None else self.away.since


class Programs:
    """The programs of one engine. By instance: claimed, tokens; owners, programs with a claim that
    have come back, or are waited for; settled, what those claim; away, those of them that have no
    call, the first that went first; running, programs that have calls there. depth: tells how many
    of a prompt's blocks an instance keeps (`EngineView.depth`)."""

    def __init__(
        self,
        instances: int,
        depth: Callable[[int, Sequence[Hashable], int], int] | None = None,
        block_tokens: Sequence[int] = (),
    ) -> None:
        self.claimed = [0] * instances
        self.owners = [0] * instances
        self.settled = [0] * instances
        self.away = [OrderedDict[str, Program]() for _ in range(instances)]
        self.running = [dict[str, Program]() for _ in range(instances)]
        self.returns = Returns()
        self._depth, self._block_tokens = depth, block_tokens
        self._all: dict[str, Program] = {}
        self._away: list[tuple[float, str]] = []
        self._since: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> Program | None:
        """The program, if it has called before."""
        return self._all.get(name)

    def has(self, work: Work, i: int) -> bool:
        """Whether a call is known to be on its way to instance `i`."""
        program = self._all.get(work.asker.program)
        return (
            program is not None and program.at == i and (work.run, work.primitive) in program.works
        )

    def claims(self, name: str, i: int) -> int:
        """What a program claims on instance `i`."""
        program = self._all.get(name)
        return program.claim if program is not None and program.at == i else 0

    def largest_beside(self, name: str, i: int) -> int:
        """The most that another program claims that has calls on instance `i`."""
        others = (p.claim for p in self.running[i].values() if p.name != name)
        return max(others, default=0)

    def came(self, work: Work) -> None:
        """A call has come, which may be held. Here a pause ends, and not where the call is sent:
        else what the gate holds would be learned as pauses, and be waited for."""
        program = self._all.get(work.asker.program)
        key = work.run, work.primitive
        if program is None or key in program.works or key in program.waiting:
            return
        self._unclaim(program)
        program.waiting.add(key)
        program.calls += 1
        self._back(program, work.arrival)
        self._claim(program)

    def joined(self, work: Work, i: int, hit_tokens: int, answer: int) -> None:
        """A call that has come goes to instance `i`, which keeps so many tokens of its prompt.
        answer: as many tokens as it is expected to have."""
        program = self._all.get(work.asker.program)
        if program is None:
            program = Program(work.asker.program, work.arrival, common=hit_tokens)
            self._all[work.asker.program] = program
        key = work.run, work.primitive
        self._unclaim(program)
        if key not in program.works:
            program.calls += key not in program.waiting
            program.waiting.discard(key)
            program.works.add(key)
            program.begun.add(key)
        tokens = max(0, work.tokens + answer - program.common)
        tokens = max(program.tokens, tokens) if program.at == i else tokens
        program.at, program.tokens = i, tokens
        program.category = work.asker.app, work.spec.component
        self._claim(program)

    def _back(self, program: Program, arrival: float) -> None:
        if program.away is None:
            return
        self._since.pop(program.name, None)
        away, program.away = program.away, None
        if arrival < away.since:  # tried again
            self.returns.ended(away)
            return
        program.last_s = arrival - away.since
        self.returns.back(away, program.last_s)

    def prefilled(self, work: Work) -> None:
        """A call has given its first token."""
        program = self._all.get(work.asker.program)
        if program is not None:
            program.begun.discard((work.run, work.primitive))

    def left(self, work: Work, now: float, generated: int | None = None) -> None:
        """A call has ended, or is not on its way any more. generated: tokens of its answer."""
        program = self._all.get(work.asker.program)
        key = work.run, work.primitive
        if program is None or (key not in program.works and key not in program.waiting):
            return
        self._unclaim(program)
        program.waiting.discard(key)
        program.works.discard(key)
        program.begun.discard(key)
        if generated is not None:
            program.tokens = max(0, work.tokens + generated - program.common)
        if not program.works and not program.waiting:
            program.keys = work.keys
            program.blocks = program.left = len(work.keys)
            self._pauses(program, now, "", now)
        self._claim(program)

    def _pauses(self, program: Program, since: float, reason: str, now: float) -> None:
        """Begin a program's pause at that time. reason: what it waits for."""
        if program.away is not None:
            self.returns.ended(program.away)
        kind = self.returns.kind(program.category, reason, program.last_s)
        program.until = since + self.returns.hope_s(kind, since - program.born, now)
        program.away = self.returns.away(kind, since)
        self._since[program.name] = since
        heappush(self._away, (program.until, program.name))
        if len(self._since) > MOST_AWAY:
            oldest, gone_at = next(iter(self._since.items()))
            self._forget(oldest, max(0.0, since - gone_at))
        if len(self._away) > 64 + 2 * len(self._since):
            self._away = [(self._all[name].until, name) for name in self._since]
            heapify(self._away)

    def _forget(self, name: str, away_s: float) -> None:
        """Whoever has been away for so long is not back, and nobody will know it if it comes."""
        program = self._all[name]
        assert program.away is not None
        self._unclaim(program)
        self.returns.gone(program.away, away_s)
        program.away = None
        self._drop(program)

    def paused(self, name: str, reason: str, ended: bool, now: float) -> None:
        """Note what a program says about its pause."""
        program = self._all.get(name)
        if program is None:
            return
        self._unclaim(program)
        if ended:
            self._drop(program)
            return
        if program.since is not None:
            self._pauses(program, program.since, reason, now)
        self._claim(program)

    def down(self, i: int) -> None:
        """Forget what instance `i` kept."""
        for program in self._all.values():
            if program.at == i:
                self._unclaim(program)
                program.at, program.tokens = -1, 0

    def expire(self, now: float) -> bool:
        """Give up programs that are not worth waiting for any more. Returns whether there was
        one."""
        until_when, changed = self._away, False
        while until_when and until_when[0][0] <= now:
            until, name = heappop(until_when)
            program = self._all.get(name)
            if program is not None and program.away is not None and program.until == until:
                self._unclaim(program)
                program.keys = ()
                if not program.away.given_up:
                    self.returns.give_up(program.away)
                changed = True
        while self._since and (oldest := next(iter(self._since.items())))[1] <= now - FORGOTTEN_S:
            self._forget(oldest[0], FORGOTTEN_S)
        return changed

    @property
    def next_expiry(self) -> float | None:
        """When `expire` may have something to do next."""
        return self._away[0][0] if self._away else None

    def _drop(self, program: Program) -> None:
        if program.away is not None:
            self.returns.ended(program.away)
        program.at, program.tokens = -1, 0
        self._since.pop(program.name, None)
        del self._all[program.name]

    def _claim(self, program: Program) -> None:
        away = program.since is not None
        hoped = away and program.since != program.until
        if program.at < 0 or not (program.works or hoped):
            return
        program.claim, program.owner = program.tokens, away or program.calls > 1
        self.claimed[program.at] += program.claim
        self.owners[program.at] += program.owner
        self.settled[program.at] += program.owner * program.claim
        there = self.away if away else self.running
        there[program.at][program.name] = program

    def _unclaim(self, program: Program) -> None:
        self.claimed[program.at] -= program.claim
        self.owners[program.at] -= program.owner
        self.settled[program.at] -= program.owner * program.claim
        program.claim, program.owner = 0, False
        if program.at >= 0:
            self.away[program.at].pop(program.name, None)
            self.running[program.at].pop(program.name, None)

    def kept(self, program: Program) -> int:
        """What a program that is away claims, now that one has looked what is kept of it. O(what
        has changed since one last looked)."""
        if self._depth is None or not program.keys:
            return program.claim
        blocks = self._depth(program.at, program.keys, program.blocks)
        if blocks < program.blocks:
            program.blocks = blocks
            tokens = max(0, blocks * self._block_tokens[program.at] - program.common)
            if tokens < program.claim:
                self._unclaim(program)
                program.tokens = tokens
                if tokens:
                    self._claim(program)
                    self.away[program.at].move_to_end(program.name, last=False)
        return program.claim
