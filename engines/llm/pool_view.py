"""The pool of KV blocks as one batch sees it: what a model takes for its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend
from transformers.cache_utils import Cache

Pool = Sequence[tuple[Tensor, ...]]
"""Keys and values of each layer, (slots, heads, size)."""

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All ways but cuDNN's, which compiles a plan for each length of a sequence: on an H200 that took
75 ms at nearly every step of a decoding."""


class PoolView(Cache):
    """Writes a batch's new keys and values to `slots`, and returns the `longest` first tokens of
    the blocks of `tables`, (rows, blocks).

    size: tokens of a block. real: which of (rows, width) new tokens do not only pad; None: all.
    alone: nothing came before the new tokens, which have all they attend to. first: the only row
    lies in consecutive blocks from this one on.
    """

    def __init__(
        self,
        pool: Pool,
        size: int,
        longest: int,
        slots: Tensor,
        tables: Tensor,
        *,
        real: Tensor | None = None,
        alone: bool = False,
        first: int | None = None,
    ) -> None:
        super().__init__(layers=[])
        self.pool, self.size, self.longest = pool, size, longest
        self.slots, self.tables = slots, tables
        self.real, self.alone, self.first = real, alone, first

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by the model's attention: (rows, heads, width, size) in; all there is out."""
        for pool, states in zip(self.pool[layer_idx], (key_states, value_states), strict=True):
            fresh = states.transpose(1, 2)
            pool[self.slots] = fresh.flatten(0, 1) if self.real is None else fresh[self.real]
        if self.alone:
            return key_states, value_states
        keys, values = (self._gather(pool) for pool in self.pool[layer_idx])
        return keys, values

    def _gather(self, pool: Tensor) -> Tensor:
        if self.first is not None:  # one sequence in consecutive blocks: no need to copy
            start = self.first * self.size
            return pool[start : start + self.longest].unsqueeze(0).transpose(1, 2)
        rows, used = self.tables.shape
        # Whole blocks as rows: index_select copies each at once, indexing goes by elements.
        blocks = pool.view(len(pool) // self.size, -1).index_select(0, self.tables.flatten())
        gathered = blocks.view(rows, used * self.size, *pool.shape[1:])
        return gathered[:, : self.longest].transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if self.alone else self.longest - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.longest, 0
