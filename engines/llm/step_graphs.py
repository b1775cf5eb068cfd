"""Steps of a GPU as CUDA graphs.

A step that decodes a token of each sequence reads the weights once, which takes a GPU a millisecond
for a model of a billion parameters. Launching its kernels one by one from Python takes fifteen
times as long, and longer where other threads run Python meanwhile. A CUDA graph is recorded once
and launched as a whole.

    rows, and one of padding --pack, one copy--> numbers --replay--> logits

A graph has a fixed size, so each bucket of tokens and rows has a graph of its own, recorded when it
is first needed. What a step has too few of is a row that belongs to nobody: all of its blocks are a
spare one. Of blocks a row may have any number: their table is read where it ends, so it is no part
of the size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from .packed_steps import PackedModel, PackedRow, StepSize, pack

log = logging.getLogger(__name__)

ROWS_STEP: Final = 8
"""Buckets of decodings are powers of two up to this one, and then its multiples."""
MIXED_ROWS_STEP: Final = 64
"""Buckets of rows beside prompts are its multiples: what is not there costs nearly nothing."""
LEAST_TOKENS: Final = 64
MOST_TOKENS: Final = 4096
"""A step with more keeps a GPU busy for longer than its launches take."""
TOKENS_STEPS: Final = 4
"""Buckets of tokens between a power of two and the next."""
ROOM: Final = 2**20
"""Numbers of a step, nearly all of them blocks: those of 16 million tokens."""

Compute = Callable[[], Tensor]
Record = Callable[[Compute, int], Compute]
"""What makes a step that is called again and again, from one and its number of rows."""


class StepGraphs:
    """Graphs of one model. spare: a block that no sequence has. record: None records CUDA graphs.

    Not thread-safe; other threads may use the GPU meanwhile.
    """

    def __init__(self, packed: PackedModel, *, spare: int, record: Record | None = None) -> None:
        self._packed, self._spare = packed, spare
        self._record = record or CudaRecorder()
        self._numbers = torch.zeros(ROOM, dtype=torch.int32, device=packed.device)
        self._steps: dict[StepSize, Compute] = {}
        self._usable = True

    def logits(self, rows: Sequence[PackedRow]) -> Tensor | None:
        """Logits after the last token of each row, (rows, vocabulary), float32, until the next
        call. None: such a step is not recorded, or no step of this model can be."""
        tokens = sum(len(row.ids) for row in rows)
        if not self._usable or tokens > MOST_TOKENS:
            return None
        size = size_of(tokens, len(rows), self._packed.tile_tokens)
        padding = Padding.of(size.tokens - tokens, self._spare, self._packed.block_tokens)
        numbers = pack([*rows, padding], size, self._packed.block_tokens)
        if len(numbers) > ROOM:
            return None
        self._numbers[: len(numbers)].copy_(torch.from_numpy(numbers))
        step = self._steps.get(size)
        if step is None and (step := self._recorded(size)) is None:
            return None
        return step()[: len(rows)]

    def _recorded(self, size: StepSize) -> Compute | None:
        def compute() -> Tensor:
            return self._packed.compute(self._numbers, size)

        try:
            step = self._record(compute, size.rows)
        except Exception as error:  # noqa: BLE001 - a model's code and a compiler fail in many ways
            # Such as rotary embeddings that look at a position's value to choose their base.
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            log.warning("steps of this model are not recorded as CUDA graphs: %s", reason)
            self._usable = False
            self._steps.clear()
            return None
        self._steps[size] = step
        return step


class CudaRecorder:
    """Records graphs, which share the memory that they compute in."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._outputs: dict[int, Tensor] = {}
        """Where logits are left, by the number of rows."""

    def __call__(self, compute: Compute, rows: int) -> Compute:
        """Raises RuntimeError: the model does what no graph can."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            logits = compute()  # what is made on first use is made now
        torch.cuda.current_stream().wait_stream(stream)
        if rows not in self._outputs:
            self._outputs[rows] = torch.empty_like(logits)
        output = self._outputs[rows]
        graph, mode = torch.cuda.CUDAGraph(), "thread_local"  # others may allocate meanwhile
        with torch.cuda.graph(graph, pool=self._memory, stream=stream, capture_error_mode=mode):
            output.copy_(compute())
        self._memory = graph.pool()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


class Padding(NamedTuple):
    """A row that belongs to nobody."""

    ids: Sequence[int]
    past: int
    blocks: Sequence[int]

    @classmethod
    def of(cls, tokens: int, block: int, block_tokens: int) -> Padding:
        return cls([0] * tokens, 0, [block] * -(-tokens // block_tokens))


def size_of(tokens: int, rows: int, tile_tokens: int) -> StepSize:
    """The size of the graph that computes so many new tokens of so many rows."""
    if tokens == rows:
        count = decodings_bucket(rows)
        return StepSize(count, count, count, 1)
    room, count = tokens_bucket(tokens), _multiple(rows, MIXED_ROWS_STEP)
    # Each row, the one of padding too, has at most one tile that is not full.
    return StepSize(room, count, count + 1 + room // tile_tokens, tile_tokens)


def decodings_bucket(rows: int) -> int:
    """How many rows the graph has that decodes so many."""
    if rows > ROWS_STEP:
        return _multiple(rows, ROWS_STEP)
    return 1 << (rows - 1).bit_length()


def tokens_bucket(tokens: int) -> int:
    """How many tokens the graph has that computes so many beside others' decodings."""
    power = 1 << (tokens - 1).bit_length()
    return _multiple(tokens, max(LEAST_TOKENS, power // (2 * TOKENS_STEPS)))


def _multiple(number: int, step: int) -> int:
    return -(-number // step) * step
