"""StepServer gives memory as vLLM's scheduler does: against one that looks at every sequence and
counts every block, step by step."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import pytest

from teola.instance import StepServer, TokenSequence
from teola.kv import BlockCache, DecodingBlocks, make_policy, token_keys
from tests.planted import catches, edited

BLOCK = 4


@dataclass
class Counted:
    """A sequence whose blocks are counted. computed: tokens that are there of its prompt, and of
    what it had generated when it was preempted."""

    id: int
    prompt: int
    output: int
    generated: int = 0
    computed: int = 0
    blocks: int = 0


class Scheduler:
    """vLLM's, without a cache: those that run, in the order of their admission, each of which gets
    its blocks in turn; where there is none, the last one is preempted."""

    def __init__(self, budget: int, sequences: int, blocks: int) -> None:
        self.budget, self.sequences, self.free = budget, sequences, blocks
        self.waiting: deque[Counted] = deque()
        self.running: list[Counted] = []
        self.lengths: dict[int, int] = {}
        """Tokens that are there before it decodes, of each that runs."""
        self.preempted: list[int] = []

    def step(self) -> None:
        """Schedule a step and compute it."""
        decodes, i, preempted = list[Counted](), 0, False
        while i < len(self.running):
            one = self.running[i]
            if not self._decodes(one):
                i += 1
                continue
            needed = -(-(one.prompt + one.generated) // BLOCK) - one.blocks
            while needed > self.free:
                self._preempt(self.running.pop())
                preempted = True
                if one not in self.running:
                    break
            else:
                self._take(one, needed)
                decodes.append(one)
                i += 1
        left, chunks = self.budget, list[tuple[Counted, int]]()
        for one in self.running:
            if not self._decodes(one):
                chunks.append((one, min(left, self.lengths[one.id] - one.computed)))
                left -= chunks[-1][1]
        while self.waiting and not preempted and left and len(self.running) < self.sequences:
            one = self.waiting[0]
            length = one.prompt + one.generated
            if -(-length // BLOCK) > self.free:
                break
            self.running.append(self.waiting.popleft())
            self._take(one, -(-length // BLOCK))
            self.lengths[one.id] = length
            chunks.append((one, min(left, length)))
            left -= chunks[-1][1]
        for one in decodes:
            one.generated += 1
        for one, tokens in chunks:
            one.computed += tokens
            one.generated += self._decodes(one)
        for one in [one for one in self.running if one.generated == one.output]:
            self.running.remove(one)
            self.free += one.blocks

    def _decodes(self, one: Counted) -> bool:
        return one.computed == self.lengths.get(one.id, -1)

    def _take(self, one: Counted, blocks: int) -> None:
        one.blocks += blocks
        self.free -= blocks

    def _preempt(self, one: Counted) -> None:
        self.free += one.blocks
        one.blocks = one.computed = 0
        self.lengths.pop(one.id)
        self.preempted.append(one.id)
        self.waiting.appendleft(one)


@catches(
    "begun-a-step-late",
    "a block is begun a step late",
    edited(DecodingBlocks.join, "(1 - offset)", "(2 - offset)"),
    edited(DecodingBlocks.leave, "(1 - offset)", "(2 - offset)"),
)
@catches(
    "preempted-to-the-end",
    "who is preempted waits behind all others",
    edited(StepServer._preempt, "self.waiting.move_to_end(sequence.id, last=False)", "pass"),
)
@catches(
    "stretch-beyond-memory",
    "decodings go on although there is no block for them",
    edited(StepServer._repeats, "self._begun is None or repeats == 1", "True"),
)
@pytest.mark.parametrize("seed", range(8))
def test_memory_is_given_as_by_a_scheduler_that_counts_every_block(seed: int) -> None:
    chance = random.Random(seed)
    blocks, budget, sequences = chance.randint(20, 40), chance.choice([9, 30, 100]), 6
    at = StepServer(budget, sequences, BlockCache(blocks, BLOCK, make_policy("lru")))
    naive = Scheduler(budget, sequences, blocks)
    everyone: dict[int, tuple[TokenSequence, Counted]] = {}
    for turn in range(150):
        if chance.random() < 0.3:
            prompt, output = chance.randint(1, 40), chance.randint(1, 40)
            everyone[turn] = TokenSequence(turn, prompt, output), Counted(turn, prompt, output)
            at.add(everyone[turn][0])
            naive.waiting.append(everyone[turn][1])
        step = at.plan()
        if step is None:
            assert not naive.running
            assert not naive.waiting
            continue
        repeats = chance.randint(1, step.repeat)
        at.finish(step, repeats=repeats)
        for _ in range(repeats):
            naive.step()
        at.cache.check()
        assert [*at.waiting] == [one.id for one in naive.waiting]
        assert {*at.prefilling, *at.decoding} == {one.id for one in naive.running}
        assert at.preemptions == len(naive.preempted)
        assert at.cache.available == naive.free
        for id in at.prefilling:
            assert at.prefilling[id].computed == everyone[id][1].computed
    if seed == 0:
        assert len(naive.preempted) > 3


def test_who_was_preempted_finds_its_own_prompt_and_answer_again() -> None:
    """As far as nobody needed the room: 11 of its tokens had been computed, in two full blocks and
    one that was not."""
    at = StepServer(100, 8, BlockCache(7, BLOCK, make_policy("lru")))
    ids, said = [*range(9)], [*range(50, 60)]
    at.add(TokenSequence("a", 14, 4, keys=token_keys(range(100, 114), BLOCK)))
    keys = token_keys(ids, BLOCK)
    b = TokenSequence("b", 9, 10, keys=keys, grown=lambda n: token_keys([*ids, *said][:n], BLOCK))
    at.add(b)
    events = list[tuple[object, str]]()
    while (step := at.plan()) is not None:
        if at.preemptions and not at.decoding and b.generated:
            break
        events += [(event.id, event.kind) for event in at.finish(step, repeats=step.repeat)]
    assert step is not None
    assert at.preemptions == 1
    assert (b.length, b.generated, step.tokens) == (12, 3, 4)
    assert b.cached == 0, "nothing was found when it was first admitted"
    at.finish(step)
    while (step := at.plan()) is not None:
        events += [(event.id, event.kind) for event in at.finish(step, repeats=step.repeat)]
    assert events.count(("b", "first")) == 1
    assert events[-1] == ("b", "end")
    assert at.cache.available == 7
    at.cache.check()


@pytest.mark.parametrize("offsets", [(), (0,), (1,), (3, 3), (0, 5, 6, 13), (1, 2, 3, 4)])
def test_blocks_of_any_stretch_are_counted_as_token_by_token(offsets: tuple[int, ...]) -> None:
    """Nobody decodes, one does, two begin their blocks together, all apart; one has left again."""
    made = DecodingBlocks(BLOCK)
    for offset in (*offsets, 2):
        made.join(offset)
    made.leave(2)
    assert made.count == len(offsets)

    def begun(clock: int, steps: int) -> int:
        """Each token is counted from 1, and the first of each four begins a block."""
        times = range(clock, clock + steps)
        return sum((offset + at) % BLOCK == 1 for offset in offsets for at in times)

    for clock in range(1, 10):
        for most in range(10):
            assert made.blocks(clock, most) == begun(clock, most)
            for blocks in range(12):
                enough = [n for n in range(most + 1) if begun(clock, n) <= blocks]
                assert made.steps(clock, blocks, most) == enough[-1], (clock, blocks, most)
