"""Decoding steps of a GPU as CUDA graphs.

A step that decodes a token of each sequence reads the weights once, which takes a GPU a millisecond
for a model of a billion parameters. Launching its kernels one by one from Python takes twenty times
as long. A CUDA graph is recorded once and launched as a whole.

    [id, past, blocks ...] of each row  --one copy-->  inputs  --replay-->  logits

A graph has fixed shapes. So a step is padded to a bucket of rows and one of tokens, and each pair
of buckets has a graph of its own, recorded when it is first needed. What a row's tokens do not fill
is masked; rows that only pad write to a spare block.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from .pool_view import ATTENTION, Pool, PoolView

log = logging.getLogger(__name__)

ROWS_STEP: Final = 8
"""Buckets of rows are powers of two up to this one, and then its multiples."""
LEAST_TOKENS: Final = 256
GATHERED_BYTES: Final = 2**30
"""Keys and values of a layer that a graph gathers at most: with more, copying them takes longer
than launching kernels, and graphs would keep much memory."""

DecodingRow = tuple[int, int, Sequence[int]]
"""The token that is fed, how many came before it, and the sequence's blocks."""


class DecodeGraphs:
    """Graphs of one model over one pool. spare: a block that no sequence has.

    Not thread-safe; other threads may use the GPU meanwhile.
    """

    def __init__(self, model: Any, pool: Pool, block_tokens: int, *, spare: int) -> None:
        self._model, self._pool, self._block_tokens, self._spare = model, pool, block_tokens, spare
        self._steps: dict[tuple[int, int], PaddedStep] = {}
        self._memory: Any = None
        self._outputs: dict[int, Tensor] = {}
        self._token_bytes = max(sum(x[0].numel() * x.itemsize for x in pair) for pair in pool)
        self._usable = True

    def logits(self, rows: Sequence[DecodingRow]) -> Tensor | None:
        """Logits after each row's token, (rows, vocabulary), float32, until the next call. None:
        this step has to be computed without a graph."""
        if not self._usable:
            return None
        count = rows_bucket(len(rows))
        tokens = tokens_bucket(max(past for _, past, _ in rows) + 1, self._block_tokens)
        if count * tokens * self._token_bytes > GATHERED_BYTES:
            return None
        step = self._steps.get((count, tokens))
        if step is None and (step := self._recorded(count, tokens)) is None:
            return None
        return step.replay(rows)

    def _recorded(self, count: int, tokens: int) -> PaddedStep | None:
        step = PaddedStep(self._model, self._pool, self._block_tokens, count, tokens, self._spare)
        try:
            self._memory = step.record(self._memory, self._outputs)
        except RuntimeError as error:
            # Such as rotary embeddings that look at a position's value to choose their base.
            reason = " ".join(str(error).split())[:200]
            log.warning("decoding steps of this model are not recorded as CUDA graphs: %s", reason)
            self._usable = False
            return None
        self._steps[count, tokens] = step
        return step


class PaddedStep:
    """One decoding step of `count` rows that attend to `tokens` tokens at most, always of the same
    shapes."""

    def __init__(
        self, model: Any, pool: Pool, block_tokens: int, count: int, tokens: int, spare: int
    ) -> None:
        self._model, self._pool, self._size, self._tokens = model, pool, block_tokens, tokens
        self._padding = [0, 0, *[spare] * (tokens // block_tokens)]
        self._count = count
        self._inputs = torch.tensor([self._padding] * count, device=model.device)
        self._logits: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def record(self, memory: Any, outputs: dict[int, Tensor]) -> Any:
        """Record the graph. memory: that all graphs share; returns it. outputs: where logits are
        left, by the number of rows. Raises RuntimeError: the model does what no graph can."""
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

    def replay(self, rows: Sequence[DecodingRow]) -> Tensor:
        """As `DecodeGraphs.logits`; without a graph where none was recorded."""
        self.fill(rows)
        if self._graph is None:
            return self.compute()[: len(rows)]
        self._graph.replay()
        assert self._logits is not None
        return self._logits[: len(rows)]

    def fill(self, rows: Sequence[DecodingRow]) -> None:
        """Copy what is to be computed to where the step looks for it."""
        padding, width = self._padding, len(self._padding) - 2
        lines = [
            [id, past, *blocks[:width], *padding[2 + len(blocks) :]] for id, past, blocks in rows
        ]
        lines += [padding] * (self._count - len(rows))
        self._inputs.copy_(torch.tensor(lines))

    def compute(self) -> Tensor:
        """Logits, (count, vocabulary), float32, of what was filled in."""
        past, tables = self._inputs[:, 1:2], self._inputs[:, 2:]
        slots = tables.gather(1, past // self._size) * self._size + past % self._size
        keys = torch.arange(self._tokens, device=past.device)
        # As numbers: a mask of booleans would be turned into these in each layer.
        mask = torch.zeros(self._count, self._tokens, dtype=self._model.dtype, device=past.device)
        mask.masked_fill_(keys > past, float("-inf"))
        with sdpa_kernel(ATTENTION):
            output = self._model(
                input_ids=self._inputs[:, :1],
                position_ids=past,
                attention_mask=mask[:, None, None],
                past_key_values=PoolView(
                    self._pool, self._size, self._tokens, slots.flatten(), tables
                ),
                use_cache=True,
                logits_to_keep=1,
            )
        logits: Tensor = output.logits[:, -1].float()
        return logits


def rows_bucket(rows: int) -> int:
    """How many rows the graph has that computes so many."""
    if rows > ROWS_STEP:
        return -(-rows // ROWS_STEP) * ROWS_STEP
    return 1 << (rows - 1).bit_length()


def tokens_bucket(tokens: int, block_tokens: int) -> int:
    """How many tokens the graph's rows attend to at most: a power of two or one and a half of it,
    in whole blocks."""
    power = max(LEAST_TOKENS, 1 << (tokens - 1).bit_length())
    bucket = power * 3 // 4 if tokens <= power * 3 // 4 and power > LEAST_TOKENS else power
    return -(-bucket // block_tokens) * block_tokens
