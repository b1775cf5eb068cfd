"""Decoding steps of a GPU as CUDA graphs.

A step that decodes a token of each sequence reads the weights once, which takes a GPU a millisecond
for a model of a billion parameters. Launching its kernels one by one from Python takes fifteen
times as long. A CUDA graph is recorded once and launched as a whole.

    [id, past, blocks ...] of each row  --one copy-->  inputs  --replay-->  logits

A graph has fixed shapes. So each bucket of rows, and of blocks that a row may have, has a graph of
its own, recorded when it is first needed. Rows that only pad write to a spare block.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import numpy
import torch
from torch import Tensor

from .packed_steps import PackedModel, PackedRow, Tiles

log = logging.getLogger(__name__)

ROWS_STEP: Final = 8
"""Buckets of rows are powers of two up to this one, and then its multiples."""
LEAST_BLOCKS: Final = 32
BLOCKS_FACTOR: Final = 4
"""Wider tables cost little: what is not used of them is not looked at."""


class DecodeGraphs:
    """Graphs of one model. spare: a block that no sequence has.

    Not thread-safe; other threads may use the GPU meanwhile.
    """

    def __init__(self, packed: PackedModel, *, spare: int) -> None:
        self._packed, self._spare = packed, spare
        self._steps: dict[tuple[int, int], DecodeStep] = {}
        self._memory: Any = None
        self._outputs: dict[int, Tensor] = {}
        self._usable = True

    def logits(self, rows: Sequence[PackedRow]) -> Tensor | None:
        """Logits after the only token of each row, (rows, vocabulary), float32, until the next
        call. None: this model's steps cannot be recorded."""
        if not self._usable:
            return None
        width = max(row.past for row in rows) // self._packed.block_tokens + 1
        bucket = rows_bucket(len(rows)), blocks_bucket(width)
        step = self._steps.get(bucket)
        if step is None and (step := self._recorded(*bucket)) is None:
            return None
        return step.replay(rows)

    def _recorded(self, rows: int, blocks: int) -> DecodeStep | None:
        step = DecodeStep(self._packed, rows, blocks, self._spare)
        try:
            self._memory = step.record(self._memory, self._outputs)
        except RuntimeError as error:
            # Such as rotary embeddings that look at a position's value to choose their base.
            reason = " ".join(str(error).split())[:200]
            log.warning("decoding steps of this model are not recorded as CUDA graphs: %s", reason)
            self._usable = False
            return None
        self._steps[rows, blocks] = step
        return step


class DecodeStep:
    """One decoding step of `count` rows with at most `blocks` blocks each, always of the same
    shapes."""

    def __init__(self, packed: PackedModel, count: int, blocks: int, spare: int) -> None:
        self._packed, self._count, self._spare = packed, count, spare
        self._host = numpy.zeros((count, 2 + blocks), numpy.int32)
        self._inputs = torch.zeros(count, 2 + blocks, dtype=torch.int32, device=packed.device)
        self._each = torch.arange(count, dtype=torch.int32, device=packed.device)
        self._one = torch.ones_like(self._each)
        self._logits: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def record(self, memory: Any, outputs: dict[int, Tensor]) -> Any:
        """Record the graph. memory: that all graphs share; returns it. outputs: where logits are
        left, by the number of rows. Raises RuntimeError: the model does what no graph can."""
        self.fill(())
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            logits = self.compute()  # what is made on first use is made now
        torch.cuda.current_stream().wait_stream(stream)
        output = outputs.setdefault(self._count, torch.empty_like(logits))
        graph, mode = torch.cuda.CUDAGraph(), "thread_local"  # others may allocate meanwhile
        with torch.cuda.graph(graph, pool=memory, stream=stream, capture_error_mode=mode):
            output.copy_(self.compute())
        self._graph, self._logits = graph, output
        return graph.pool()

    def replay(self, rows: Sequence[PackedRow]) -> Tensor:
        """As `DecodeGraphs.logits`; without a graph where none was recorded."""
        self.fill(rows)
        if self._graph is None:
            return self.compute()[: len(rows)]
        self._graph.replay()
        assert self._logits is not None
        return self._logits[: len(rows)]

    def fill(self, rows: Sequence[PackedRow]) -> None:
        """Copy what is to be computed to where the step looks for it."""
        host, width = self._host, self._host.shape[1] - 2
        for line, row in zip(host, rows, strict=False):
            blocks = row.blocks[:width]
            line[0], line[1], line[2 : 2 + len(blocks)] = row.ids[0], row.past, blocks
        host[len(rows) :, :3] = 0, 0, self._spare
        self._inputs.copy_(torch.from_numpy(host))

    def compute(self) -> Tensor:
        """Logits, (count, vocabulary), float32, of what was filled in."""
        size = self._packed.block_tokens
        ids, past = self._inputs[:, :2].T.contiguous()
        tables = self._inputs[:, 2:]
        block = tables.gather(1, (past // size).long()[:, None])[:, 0]
        slots = block.long() * size + past % size
        tiles = Tiles(self._each, self._each, self._one, past, tables, tokens=1)
        return self._packed.compute(ids, past, slots, tiles)


def rows_bucket(rows: int) -> int:
    """How many rows the graph has that computes so many."""
    if rows > ROWS_STEP:
        return -(-rows // ROWS_STEP) * ROWS_STEP
    return 1 << (rows - 1).bit_length()


def blocks_bucket(blocks: int) -> int:
    """How many blocks a row of the graph may have."""
    bucket = LEAST_BLOCKS
    while bucket < blocks:
        bucket *= BLOCKS_FACTOR
    return bucket
