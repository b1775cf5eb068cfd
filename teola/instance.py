"""Sans-I/O models of an engine's instance: what it works on next, never how long or with what.

`BatchServer` runs a batch at a time (embedding, reranking, database). `StepServer` does continuous
batching (an LLM): each step is either one prefill batch or one decoding step of all running
sequences; an admitted prefill therefore stretches the running decodings by its own time, as in the
paper's testbed. The simulator drives them with profile times, an engine of our own with a model.

What a sequence needs of the KV is either a count of blocks (the simulator's mode: cheap) or, where
its blocks' keys are given, a table of a BlockCache, in which its prefix may be found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from teola.errors import EngineError
from teola.kv import Access, BlockCache, Table

NO_ACCESS = Access()


class BatchServer:
    """Runs `concurrency` batches at once, others wait in order of arrival."""

    def __init__(self, concurrency: int = 1) -> None:
        self._free_at = [float("-inf")] * concurrency

    def finish(self, seconds: float, now: float) -> float:
        """When a batch that arrives `now` and takes `seconds` is done."""
        lane = min(range(len(self._free_at)), key=self._free_at.__getitem__)
        self._free_at[lane] = max(now, self._free_at[lane]) + seconds
        return self._free_at[lane]


@dataclass(slots=True)
class TokenSequence:
    """One sequence on a StepServer.

    prompt: tokens to prefill. cached: tokens of its context computed before. output: tokens to
    generate, the first of which comes with the prefill (0: a partial prefilling). marks: output
    lengths at which something downstream is waiting, ascending. With a BlockCache, `prompt` is the
    whole prompt until what is found there is moved to `cached`; keys: of the prompt's full blocks,
    which the sequence's table then has; keep: leave them referenced at its end (`StepServer.kept`).
    """

    id: Hashable
    prompt: int
    cached: int = 0
    output: int = 1
    marks: tuple[int, ...] = ()
    generated: int = 0
    passed: int = 0
    keys: tuple[Hashable, ...] = ()
    access: Access = NO_ACCESS
    keep: bool = False
    table: Table | None = None

    @property
    def next_stop(self) -> int:
        """Decoding steps until its next mark or its end."""
        mark = self.marks[self.passed] if self.passed < len(self.marks) else self.output
        return min(mark, self.output) - self.generated


class Step(NamedTuple):
    """What the instance computes next: a prefill batch, or `repeat` equal decoding steps."""

    prefills: tuple[TokenSequence, ...]
    decodes: tuple[TokenSequence, ...]
    repeat: int

    @property
    def tokens(self) -> int:
        """Prompt tokens of the prefill batch."""
        return sum(sequence.prompt for sequence in self.prefills)


class StepEvent(NamedTuple):
    """What a step brought about. kind: first, mark (number `mark`) or end."""

    id: Hashable
    kind: str
    mark: int = 0


class StepServer:
    """Continuous batching with a token budget for prefills, a bound on sequences, and KV blocks.

    kv_blocks: None for no bound; else a sequence is admitted once blocks for its whole length (of
    `block_tokens` tokens each) are free. cache: where the blocks are, instead of a count of them.
    kept: tables of ended sequences that asked for it, by id, oldest first; they are given up when
    nothing runs and the next sequence would not fit, so keeping them never blocks anybody.
    """

    def __init__(
        self,
        token_budget: int,
        max_sequences: int,
        kv_blocks: int | None = None,
        block_tokens: int = 16,
        cache: BlockCache | None = None,
    ) -> None:
        self.token_budget, self.max_sequences = token_budget, max_sequences
        self.block_tokens = cache.block_tokens if cache else block_tokens
        self.free_blocks, self.cache = kv_blocks, cache
        self.kept: dict[Hashable, Table] = {}
        self.waiting: deque[TokenSequence] = deque()
        self.running: dict[Hashable, TokenSequence] = {}

    def add(self, sequence: TokenSequence) -> None:
        """Queue a sequence. Raises EngineError if it needs more blocks than the cache has."""
        if self.cache is not None and self._blocks(sequence) > self.cache.blocks:
            raise EngineError(
                f"the prompt and its answer need {self._blocks(sequence)} KV blocks and there are "
                f"{self.cache.blocks}; shorten them or give the engine more memory for KV"
            )
        self.waiting.append(sequence)

    def release(self, id: Hashable) -> None:
        """Give up what was kept of an ended sequence, if it still is."""
        table = self.kept.pop(id, None)
        if table is not None and self.cache is not None:
            self.cache.release(table)

    def abort(self, id: Hashable) -> bool:
        """Drop a sequence between steps; whether it was there."""
        for sequence in self.waiting:
            if sequence.id == id:
                self.waiting.remove(sequence)
                return True
        gone = self.running.pop(id, None)
        if gone is not None:
            self._free(gone)
        return gone is not None

    def plan(self) -> Step | None:
        """The next step; None if there is nothing to do. Admitted prefills count as running."""
        admitted: list[TokenSequence] = []
        budget = self.token_budget
        while self.waiting and len(self.running) < self.max_sequences:
            sequence = self.waiting[0]
            if self.cache is not None and not self._find_prefix(self.cache, sequence, admitted):
                break
            if (sequence.prompt > budget and admitted) or not self._reserve(sequence):
                break
            budget -= sequence.prompt
            self.running[sequence.id] = sequence
            admitted.append(self.waiting.popleft())
            if budget <= 0:
                break
        if admitted:
            return Step(tuple(admitted), (), 1)
        if not self.running:
            return None
        decodes = tuple(self.running.values())
        return Step((), decodes, max(1, min([s.next_stop for s in decodes])))

    def finish(self, step: Step, repeats: int = 1) -> list[StepEvent]:
        """The step was computed (`repeats` of its repetitions); what became of it, in order."""
        found: list[StepEvent] = []
        for sequence in step.prefills or step.decodes:
            if self.running.get(sequence.id) is not sequence:
                continue  # aborted meanwhile
            if step.prefills:
                if self.cache is not None and sequence.table is not None:
                    self.cache.commit(sequence.table, sequence.keys)
                if sequence.output > 0:
                    sequence.generated = 1
                    found.append(StepEvent(sequence.id, "first"))
            else:
                sequence.generated += repeats
            self._events(sequence, found)
        return found

    def _events(self, sequence: TokenSequence, found: list[StepEvent]) -> None:
        marks = sequence.marks
        while sequence.passed < len(marks) and marks[sequence.passed] <= sequence.generated:
            found.append(StepEvent(sequence.id, "mark", sequence.passed))
            sequence.passed += 1
        if sequence.generated >= sequence.output:
            del self.running[sequence.id]
            if sequence.keep:
                self._keep(sequence)
            self._free(sequence)
            found.append(StepEvent(sequence.id, "end"))

    def _blocks(self, sequence: TokenSequence) -> int:
        return -(-(sequence.prompt + sequence.cached + sequence.output) // self.block_tokens)

    def _reserve(self, sequence: TokenSequence) -> bool:
        if self.cache is not None:
            return self._acquire(self.cache, sequence)
        if self.free_blocks is None:
            return True
        blocks = self._blocks(sequence)
        if blocks > self.free_blocks and self.running:
            return False
        self.free_blocks -= blocks
        return True

    def _free(self, sequence: TokenSequence) -> None:
        if self.cache is not None and sequence.table is not None:
            self.cache.release(sequence.table)
            sequence.table = None
        elif self.free_blocks is not None:
            self.free_blocks += self._blocks(sequence)

    # --- with a block cache -----------------------------------------------------------------

    def _usable(self, sequence: TokenSequence) -> tuple[Hashable, ...]:
        """Keys of the blocks that need not be computed: to generate, the last token has to be."""
        length = sequence.prompt + sequence.cached - (sequence.output > 0)
        return sequence.keys[: length // self.block_tokens]

    def _find_prefix(
        self, cache: BlockCache, sequence: TokenSequence, admitted: list[TokenSequence]
    ) -> bool:
        """Move what is cached now from `prompt` to `cached`. False: the next block is just being
        computed for a sequence of this batch, so it is there to be shared after this step."""
        keys = self._usable(sequence)
        hits = cache.match(keys)
        if hits < len(keys):
            for other in admitted:
                if len(other.keys) > hits and other.keys[hits] == keys[hits]:
                    return False
        length = sequence.prompt + sequence.cached
        sequence.cached = hits * self.block_tokens
        sequence.prompt = length - sequence.cached
        return True

    def _acquire(self, cache: BlockCache, sequence: TokenSequence) -> bool:
        keys, blocks = self._usable(sequence), self._blocks(sequence)
        table = cache.acquire(keys, blocks, sequence.access)
        while table is None and not self.running and self.kept:
            self.release(next(iter(self.kept)))
            table = cache.acquire(keys, blocks, sequence.access)
        sequence.table = table
        return table is not None

    def _keep(self, sequence: TokenSequence) -> None:
        if self.cache is not None:
            table = self.cache.acquire(sequence.keys, len(sequence.keys), sequence.access)
            if table is not None:
                self.kept[sequence.id] = table
