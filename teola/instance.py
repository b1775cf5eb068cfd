"""The sans-I/O model of an LLM's instance: what it works on next, never how long or with what.

Long because a step, its memory and its queue decide about one another.

`StepServer` does continuous batching with chunked prefill over a BlockCache. A step decodes one
token of every sequence that has its prompt, and computes as many prompt tokens as the budget allows
of those that have not; a prefill thus stretches the decodings beside it. The simulator drives it
with a profile's times, an engine of our own with a model.

Memory is given as vLLM gives it. A sequence is admitted with the blocks of its prompt and takes
more as it decodes. Where there are none left, the sequence that was admitted last is preempted: it
gives up its blocks, waits at the head of the queue, and computes anew, once it is admitted again,
what cannot be found any more of its prompt and of what it had generated.

Decodings cost nothing while they go on: all of them move with one clock, which counts decoding
steps, and each knows at which clock it stops next. Blocks that they take meanwhile are counted
(`DecodingBlocks`, `BlockCache.reserve`), and get their numbers when somebody asks, or at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from teola.errors import EngineError
from teola.kv import Access, BlockCache, DecodingBlocks, Swap, Table

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

    The server's own: cached, prompt tokens that were found when it was first admitted; length,
    tokens to be there before it decodes: its prompt, after a preemption with what it had generated;
    computed, those that are there, found ones included; generated, output tokens at its last stop;
    passed, marks behind it; joined, what the clock was when it had no output; stop, what the clock
    is when it stops next; reserved, blocks that it holds without a number when it stops to decode.
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
    length: int = 0
    computed: int = 0
    generated: int = 0
    passed: int = 0
    joined: int = 0
    stop: int = 0
    number: int = 0
    reserved: int = 0
    table: Table | None = None

    def __post_init__(self) -> None:
        self.length = self.prompt

    @property
    def offset(self) -> int:
        """Tokens that it attends to, less the clock."""
        return self.prompt - self.joined


class Prefill(NamedTuple):
    """A chunk: so many tokens of the sequence behind the `computed` ones. It may be empty: all of a
    prefix was found."""

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

    A sequence is admitted, in order of arrival, once the cache has blocks for its prompt.
    kept: tables of ended sequences that asked for it, by id, oldest first; they take room, and are
    given up when nothing runs and the next sequence would not fit, so that they never block it, and
    before a sequence is preempted. preemptions: how many there were.
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
        self.preemptions = 0
        self._begun = DecodingBlocks(cache.block_tokens) if cache.bounded else None
        self._paid = 0
        """The clock until which the decodings have blocks for their steps."""

    @property
    def running(self) -> int:
        """Sequences that have been admitted and have not ended."""
        return len(self.prefilling) + len(self.decoding)

    def add(self, sequence: TokenSequence) -> None:
        """Queue a sequence. Raises EngineError if it needs more blocks than the cache has."""
        # The last token is not fed to the model: nothing is computed from it.
        blocks = self._blocks(sequence.prompt + max(0, sequence.output - 1))
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
        self._grow(now)
        while budget > 0 and (waiting or len(prefilling) > len(chunks)):
            sequence = self._next(len(chunks), pending, now)
            if sequence is None:
                break
            computed = sequence.computed
            tokens = min(sequence.length - computed, budget)
            budget -= tokens
            pairs += tokens * (2 * computed + tokens + 1) // 2
            chunks.append(Prefill(sequence, tokens))
            if waiting:
                pending.update(sequence.keys[computed // self.cache.block_tokens :])
        decodes = len(self.decoding)
        if not chunks and not decodes:
            return None
        repeat = 1 if chunks else self._repeats()
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

    def evicts(self, step: Step) -> bool:
        """Whether its repetitions take blocks in which something can still be found."""
        if self._begun is None or step.repeat == 1:
            return False
        return self._begun.blocks(self._paid, step.repeat - 1) > self.cache.free

    def finish(self, step: Step, now: float = 0.0, repeats: int = 1) -> list[StepEvent]:
        """The step was computed (`repeats` of its repetitions); what became of it, in order."""
        found: list[StepEvent] = []
        if step.decodes:
            self._clock += repeats
            paid = self._pay(self._clock, now)
            assert paid, "a step was repeated beyond the blocks that there were"
            self._stopped(found, now)
        for sequence, tokens in step.prefills:
            if self.prefilling.get(sequence.id) is not sequence:
                continue  # aborted meanwhile
            sequence.computed += tokens
            assert sequence.table is not None
            full = sequence.computed // self.cache.block_tokens
            self.cache.commit(sequence.table, sequence.keys[:full], now)
            if sequence.computed < sequence.length:
                continue
            del self.prefilling[sequence.id]
            if sequence.output > 0:
                if not sequence.generated:
                    found.append(StepEvent(sequence.id, "first"))
                sequence.generated += 1
                self._join(sequence)
            self._events(sequence, found, now)
        return found

    def _stopped(self, found: list[StepEvent], now: float) -> None:
        stops = self._stops
        while stops and stops[0][0] <= self._clock:
            _, number, sequence = heappop(stops)
            if self.decoding.get(sequence.id) is sequence and number == sequence.number:
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

    def _repeats(self) -> int:
        """How many steps there are until a decoding stops, or until no block is left for one."""
        stops = self._stops
        while True:
            stop, number, sequence = stops[0]
            if self.decoding.get(sequence.id) is sequence and number == sequence.number:
                break
            heappop(stops)  # aborted, or preempted
        repeats = max(1, stop - self._clock)
        if self._begun is None or repeats == 1:
            return repeats
        # The first one has its blocks.
        return 1 + self._begun.steps(self._clock + 1, self.cache.available, repeats - 1)

    def _join(self, sequence: TokenSequence) -> None:
        sequence.joined = self._clock - sequence.generated
        self.decoding[sequence.id] = sequence
        self._offset += sequence.offset
        if self._begun is not None:
            self._begun.join(sequence.offset)

    def _leave(self, sequence: TokenSequence) -> None:
        sequence.generated = self._clock - sequence.joined
        del self.decoding[sequence.id]
        self._offset -= sequence.offset
        if self._begun is not None:
            self._begun.leave(sequence.offset)
            assert sequence.table is not None
            held = self._blocks(sequence.offset + self._paid - 1)
            sequence.reserved = held - len(sequence.table.blocks)

    # --- blocks -------------------------------------------------------------------------------

    def blocks(self, sequence: TokenSequence) -> list[int]:
        """The blocks of a sequence that runs, those included that its next step fills."""
        table = sequence.table
        assert table is not None
        if self.decoding.get(sequence.id) is sequence:
            fed = sequence.offset + self._clock
            missing = self._blocks(fed) - len(table.blocks)
            if missing > 0:
                self.cache.extend(table, missing)
        return table.blocks

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.cache.block_tokens)

    def _grow(self, now: float) -> None:
        """Reserve the blocks that decodings begin in the next step. Where there are none, what is
        kept goes first, then who was admitted last."""
        while not self._pay(self._clock + 1, now):
            if self.kept:
                self.release(next(iter(self.kept)), now)
            else:
                self._preempt(now)

    def _pay(self, clock: int, now: float) -> bool:
        """Reserve the blocks that decodings begin before the clock is so much; whether there
        were enough."""
        begun = self._begun
        if begun is None:
            return True
        if not begun.count:  # whoever joins pays from then on
            self._paid = self._clock
            return True
        if clock > self._paid:
            blocks = begun.blocks(self._paid, clock - self._paid)
            if blocks and not self.cache.reserve(blocks, now):
                return False
            self._paid = clock
        return True

    def _preempt(self, now: float) -> None:
        """Whoever was admitted last gives up its blocks and waits at the head of the queue. It does
        not fit again in the same step, so nobody is admitted in it, as in vLLM."""
        running = self.prefilling or self.decoding
        sequence = running[next(reversed(running))]
        if running is self.decoding:
            self._leave(sequence)
        else:
            del self.prefilling[sequence.id]
        self._free(sequence, now)
        sequence.length, sequence.computed = sequence.prompt + sequence.generated, 0
        if sequence.grown is not None:
            sequence.keys = tuple(sequence.grown(sequence.length))
        self.waiting[sequence.id] = sequence
        self.waiting.move_to_end(sequence.id, last=False)
        self.preemptions += 1

    def _admit(self, sequence: TokenSequence, pending: set[Hashable], now: float) -> bool:
        """Give it its blocks, with what is cached of its prompt. False: there is no room, or at
        least half of what is missing is just being computed, to be shared after this step."""
        cache = self.cache
        # To generate, the last token has to be computed.
        keys = sequence.keys[: (sequence.length - (sequence.output > 0)) // cache.block_tokens]
        if pending:
            hits = cache.match(keys)
            coming = next((k for k in range(hits, len(keys)) if keys[k] not in pending), len(keys))
            missing = sequence.length - hits * cache.block_tokens
            if coming > hits and 2 * (coming - hits) * cache.block_tokens >= missing:
                return False
        blocks = self._blocks(sequence.length)
        table = cache.acquire(keys, blocks, sequence.access, now)
        while table is None and not self.running and self.kept:
            self.release(next(iter(self.kept)), now)
            table = cache.acquire(keys, blocks, sequence.access, now)
        if table is None:
            return False
        sequence.table = table
        sequence.computed = table.found * cache.block_tokens
        if not sequence.number:
            sequence.cached = sequence.computed
        return True

    def _keep(self, sequence: TokenSequence, now: float) -> None:
        keys = sequence.keys[: sequence.prompt // self.cache.block_tokens]
        table = self.cache.acquire(keys, len(keys), sequence.access, now)
        if table is not None:
            self.kept[sequence.id] = table

    def _free(self, sequence: TokenSequence, now: float) -> None:
        """Let others find what it computed, and give up its blocks."""
        table, sequence.table = sequence.table, None
        assert table is not None
        cache, reserved = self.cache, sequence.reserved
        if sequence.grown is not None:
            # The last token has not been fed to the model, so there is no KV of it.
            whole = sequence.computed == sequence.length
            tokens = sequence.prompt + sequence.generated - 1 if whole else sequence.computed
            if tokens // cache.block_tokens > len(sequence.keys):
                keys = sequence.grown(tokens)
                missing = len(keys) - len(table.blocks)
                if missing > 0:
                    cache.extend(table, missing, now)
                    reserved -= missing
                cache.commit(table, keys, now)
        if self._begun is not None:
            cache.unreserve(reserved)
        sequence.reserved = 0
        cache.release(table, now)
