"""The sans-I/O model of an LLM's instance: what it works on next, never how long or with what.

`StepServer` does continuous batching with chunked prefill over a BlockCache. A step decodes one
token of every sequence that has its prompt, and computes as many prompt tokens as the budget allows
of those that have not; a prefill thus stretches the decodings beside it. The simulator drives it
with a profile's times, an engine of our own with a model.

Decodings cost nothing while they go on: all of them move with one clock, which counts decoding
steps, and each knows at which clock it stops next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from teola.errors import EngineError
from teola.kv import Access, BlockCache, Swap, Table

NO_ACCESS = Access()


@dataclass(slots=True, eq=False)
class TokenSequence:
    """One sequence on a StepServer.

    prompt: tokens of the whole prompt.
    output: tokens to generate, the first of which comes with the prefill (0: prefill only).
    marks: output lengths at which something downstream is waiting, ascending.
    keys: of the prompt's full blocks; none where nothing is to be found or kept.
    grown: the keys of all full blocks of its first n tokens, prompt and output; None: output is
        not kept.
    keep: hold the prompt's blocks after its end (`StepServer.kept`).

    The server's own: cached, prompt tokens that were found; computed, prompt tokens that are there,
    those included; generated, output tokens at its last stop; passed, marks behind it; joined, what
    the clock was when it had no output; stop, what the clock is when it stops next.
    """

    id: Hashable
    prompt: int
    output: int = 1
    marks: tuple[int, ...] = ()
    keys: tuple[Hashable, ...] = ()
    grown: Callable[[int], Sequence[Hashable]] | None = None
    access: Access = NO_ACCESS
    keep: bool = False
    cached: int = 0
    computed: int = 0
    generated: int = 0
    passed: int = 0
    joined: int = 0
    stop: int = 0
    number: int = 0
    table: Table | None = None


class Prefill(NamedTuple):
    """A chunk: so many tokens of the sequence's prompt behind the `computed` ones. It may be empty:
    all of a prefix was found."""

    sequence: TokenSequence
    tokens: int


@dataclass(slots=True)
class Step:
    """What the instance computes next.

    prefills: chunks of prompts, computed once. decodes: sequences that decode one token in each of
    `repeat` equal steps (1 beside chunks). tokens: of the chunks. pairs: of a prompt token and one
    that it attends to. context: tokens that the decodings attend to, in the first of the steps.
    """

    prefills: tuple[Prefill, ...]
    decodes: int
    repeat: int
    tokens: int
    pairs: int
    context: int
    swaps: tuple[Swap, ...] = ()

    @property
    def swapped(self) -> int:
        """Blocks that come back from the host's tier."""
        return sum(len(swap.back) for swap in self.swaps)


@dataclass(slots=True)
class StepEvent:
    """What a step brought about. kind: first, mark (number `mark`) or end."""

    id: Hashable
    kind: str
    mark: int = 0


class StepServer:
    """Continuous batching with a budget of prompt tokens a step and a bound on sequences.

    A sequence is admitted, in order of arrival, once the cache has blocks for its whole length.
    kept: tables of ended sequences that asked for it, by id, oldest first; they take room, and are
    given up when nothing runs and the next sequence would not fit, so that they never block it.
    """

    def __init__(self, token_budget: int, max_sequences: int, cache: BlockCache) -> None:
        self.token_budget, self.max_sequences, self.cache = token_budget, max_sequences, cache
        self.kept: OrderedDict[Hashable, Table] = OrderedDict()
        self.waiting: OrderedDict[Hashable, TokenSequence] = OrderedDict()
        self.prefilling: OrderedDict[Hashable, TokenSequence] = OrderedDict()
        self.decoding: dict[Hashable, TokenSequence] = {}
        self._clock = self._admitted = 0
        self._stops: list[tuple[int, int, TokenSequence]] = []
        self._offset = 0
        """Tokens that the decodings attend to, less the clock for each of them."""

    @property
    def running(self) -> int:
        """Sequences that have been admitted and have not ended."""
        return len(self.prefilling) + len(self.decoding)

    def add(self, sequence: TokenSequence) -> None:
        """Queue a sequence. Raises EngineError if it needs more blocks than the cache has."""
        blocks = self._blocks(sequence)
        if blocks > self.cache.blocks:
            raise EngineError(
                f"the prompt and its answer need {blocks} KV blocks and there are "
                f"{self.cache.blocks}; shorten them or give the engine more memory for KV"
            )
        self.waiting[sequence.id] = sequence

    def release(self, id: Hashable, now: float = 0.0) -> None:
        """Give up what was kept of an ended sequence, if it still is."""
        table = self.kept.pop(id, None)
        if table is not None:
            self.cache.release(table, now)

    def abort(self, id: Hashable, now: float = 0.0) -> bool:
        """Drop a sequence between steps; whether it was there. What it computed can be found."""
        if self.waiting.pop(id, None) is not None:
            return True
        gone = self.prefilling.pop(id, None)
        if gone is None and (gone := self.decoding.get(id)) is not None:
            self._leave(gone)
        if gone is not None:
            self._free(gone, now)
        return gone is not None

    # --- steps --------------------------------------------------------------------------------

    def plan(self, now: float = 0.0) -> Step | None:
        """The next step; None if there is nothing to do. What it begins with counts as running."""
        chunks: list[Prefill] = []
        budget, pairs = self.token_budget, 0
        pending = set[Hashable]()  # keys of blocks that this step computes
        waiting, prefilling = self.waiting, self.prefilling
        while budget > 0 and (waiting or len(prefilling) > len(chunks)):
            sequence = self._next(len(chunks), pending, now)
            if sequence is None:
                break
            computed = sequence.computed
            tokens = min(sequence.prompt - computed, budget)
            budget -= tokens
            pairs += tokens * (2 * computed + tokens + 1) // 2
            chunks.append(Prefill(sequence, tokens))
            if waiting:
                pending.update(sequence.keys[computed // self.cache.block_tokens :])
        decodes = len(self.decoding)
        if not chunks and not decodes:
            return None
        repeat = 1 if chunks else max(1, self._next_stop() - self._clock)
        context = self._offset + decodes * self._clock
        tokens, swaps = self.token_budget - budget, tuple(self.cache.swaps())
        return Step(tuple(chunks), decodes, repeat, tokens, pairs, context, swaps)

    def _next(self, begun: int, pending: set[Hashable], now: float) -> TokenSequence | None:
        """The sequence that prefills next, when `begun` others do: one that was begun in an earlier
        step, else one that waits."""
        if begun < len(self.prefilling):  # at most one: it took all of its step's budget
            return next(islice(self.prefilling.values(), begun, None))
        if not self.waiting or self.running >= self.max_sequences:
            return None
        sequence = next(iter(self.waiting.values()))
        if not self._admit(sequence, pending, now):
            return None
        del self.waiting[sequence.id]
        self.prefilling[sequence.id] = sequence
        self._admitted += 1
        sequence.number = self._admitted
        return sequence

    def finish(self, step: Step, now: float = 0.0, repeats: int = 1) -> list[StepEvent]:
        """The step was computed (`repeats` of its repetitions); what became of it, in order."""
        found: list[StepEvent] = []
        if step.decodes:
            self._clock += repeats
            self._stopped(found, now)
        for sequence, tokens in step.prefills:
            if self.prefilling.get(sequence.id) is not sequence:
                continue  # aborted meanwhile
            sequence.computed += tokens
            assert sequence.table is not None
            full = sequence.computed // self.cache.block_tokens
            self.cache.commit(sequence.table, sequence.keys[:full], now)
            if sequence.computed < sequence.prompt:
                continue
            del self.prefilling[sequence.id]
            if sequence.output > 0:
                sequence.generated = 1
                found.append(StepEvent(sequence.id, "first"))
                self._join(sequence)
            self._events(sequence, found, now)
        return found

    def _stopped(self, found: list[StepEvent], now: float) -> None:
        stops = self._stops
        while stops and stops[0][0] <= self._clock:
            _, _, sequence = heappop(stops)
            if self.decoding.get(sequence.id) is sequence:
                sequence.generated = sequence.stop - sequence.joined
                self._events(sequence, found, now)

    def _events(self, sequence: TokenSequence, found: list[StepEvent], now: float) -> None:
        """Its marks and its end, as far as it has come, and when it stops next."""
        marks = sequence.marks
        while sequence.passed < len(marks) and marks[sequence.passed] <= sequence.generated:
            found.append(StepEvent(sequence.id, "mark", sequence.passed))
            sequence.passed += 1
        if sequence.generated < sequence.output:
            mark = marks[sequence.passed] if sequence.passed < len(marks) else sequence.output
            sequence.stop = sequence.joined + min(mark, sequence.output)
            heappush(self._stops, (sequence.stop, sequence.number, sequence))
            return
        if sequence.output > 0:
            self._leave(sequence)
        if sequence.keep:
            self._keep(sequence, now)
        self._free(sequence, now)
        found.append(StepEvent(sequence.id, "end"))

    def _next_stop(self) -> int:
        """The clock when the first decoding stops."""
        stops = self._stops
        while self.decoding.get(stops[0][2].id) is not stops[0][2]:
            heappop(stops)  # aborted
        return stops[0][0]

    def _join(self, sequence: TokenSequence) -> None:
        sequence.joined = self._clock - sequence.generated
        self.decoding[sequence.id] = sequence
        self._offset += sequence.prompt - sequence.joined

    def _leave(self, sequence: TokenSequence) -> None:
        sequence.generated = self._clock - sequence.joined
        del self.decoding[sequence.id]
        self._offset -= sequence.prompt - sequence.joined

    # --- blocks -------------------------------------------------------------------------------

    def _blocks(self, sequence: TokenSequence) -> int:
        return -(-(sequence.prompt + sequence.output) // self.cache.block_tokens)

    def _admit(self, sequence: TokenSequence, pending: set[Hashable], now: float) -> bool:
        """Give it its blocks, with what is cached of its prompt. False: there is no room, or at
        least half of what is missing is just being computed, to be shared after this step."""
        cache = self.cache
        # To generate, the last token has to be computed.
        keys = sequence.keys[: (sequence.prompt - (sequence.output > 0)) // cache.block_tokens]
        if pending:
            hits = cache.match(keys)
            coming = next((k for k in range(hits, len(keys)) if keys[k] not in pending), len(keys))
            missing = sequence.prompt - hits * cache.block_tokens
            if coming > hits and 2 * (coming - hits) * cache.block_tokens >= missing:
                return False
        blocks = self._blocks(sequence)
        table = cache.acquire(keys, blocks, sequence.access, now)
        while table is None and not self.running and self.kept:
            self.release(next(iter(self.kept)), now)
            table = cache.acquire(keys, blocks, sequence.access, now)
        if table is None:
            return False
        sequence.table = table
        sequence.cached = sequence.computed = table.found * cache.block_tokens
        return True

    def _keep(self, sequence: TokenSequence, now: float) -> None:
        table = self.cache.acquire(sequence.keys, len(sequence.keys), sequence.access, now)
        if table is not None:
            self.kept[sequence.id] = table

    def _free(self, sequence: TokenSequence, now: float) -> None:
        """Let others find what it generated, and give up its blocks."""
        table, sequence.table = sequence.table, None
        assert table is not None
        if sequence.grown is not None:
            # The last token has not been fed to the model, so there is no KV of it.
            tokens = sequence.prompt + sequence.generated - 1
            if tokens // self.cache.block_tokens > len(sequence.keys):
                self.cache.commit(table, sequence.grown(tokens), now)
        self.cache.release(table, now)
