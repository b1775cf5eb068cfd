"""A Hugging Face causal language model whose KV lies in numbered blocks.

The model's code is as it comes: it hands each layer's new keys and values to what it takes for its
cache and attends to what that returns. Here this is a `_View`: it writes them to their slots in the
pool and returns what the batch's sequences have there, gathered and padded. Batches are padded on
the left, so that the last position is everybody's last token.

Importing this module imports torch and transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import Cache

from teola.kv import Swap

PADDING_LIMIT = 1.25
CPU_BATCH_TOKENS = 512
"""A larger prefill batch only pads on a CPU: its cores are busy with one sequence already."""

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All ways but cuDNN's, which compiles a plan for each length of a sequence: on an H200 that took
75 ms at nearly every step of a decoding."""


class BatchRow(NamedTuple):
    """What to compute of one sequence: `ids` after `past` tokens; `blocks` hold all of it."""

    ids: Sequence[int]
    past: int
    blocks: Sequence[int]

    @property
    def length(self) -> int:
        return self.past + len(self.ids)


def load(model: str, dtype: str, device: str) -> Any:
    """The model, ready to be run. Raises OSError or ValueError: not there, or not one of these;
    NotImplementedError: its attention needs more than one KV per position."""
    config = AutoConfig.from_pretrained(model)
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ()) - {"full_attention"}
    if layers:
        raise NotImplementedError(f"layers of type {', '.join(sorted(layers))}")
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    )
    return cast("Any", loaded).to(device).eval()


class PagedModel:
    """`model` with a pool of KV blocks. memory: bytes for the pool; max_tokens: no more than these.
    host_memory: bytes for the blocks of a tier below, in the memory of the host.

    Not thread-safe.
    """

    def __init__(
        self, model: Any, block_tokens: int, memory: int, max_tokens: int, host_memory: int = 0
    ) -> None:
        self.model, self.block_tokens = model, block_tokens
        self.device: torch.device = model.device
        self._on_cpu = self.device.type == "cpu"
        shapes = self._probe()
        token_bytes = sum(k.numel() + v.numel() for k, v in shapes) * model.dtype.itemsize
        self.blocks = max(
            1, min(memory // (token_bytes * block_tokens), max_tokens // block_tokens)
        )
        slots = self.blocks * block_tokens
        # Zeros, not empty: masked slots are multiplied by 0, which does not make up for a NaN.
        self.pool = [
            tuple(torch.zeros(slots, *x.shape, dtype=x.dtype, device=self.device) for x in pair)
            for pair in shapes
        ]
        self.host_blocks = host_memory // (token_bytes * block_tokens)
        self.host = [
            tuple(self._below(x.shape, x.dtype) for x in pair)
            for pair in shapes
            if self.host_blocks
        ]

    def _below(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = self.host_blocks, self.block_tokens, *shape
        return torch.zeros(size, dtype=dtype, pin_memory=not self._on_cpu)

    @torch.inference_mode()
    def swap(self, swaps: Sequence[Swap]) -> None:
        """Copy blocks between the pool and the host, before what needs them is computed."""
        for back, down in swaps:
            slots, blocks = ([pair[k] for pair in back] for k in (0, 1))
            leaving, into = ([pair[k] for pair in down] for k in (0, 1))
            for pools, tiers in zip(self.pool, self.host, strict=True):
                for pool, tier in zip(pools, tiers, strict=True):
                    near = pool.view(-1, *tier.shape[1:])
                    coming = tier[slots].to(pool.device)
                    tier[into] = near[leaving].to(tier.device)
                    near[blocks] = coming

    @torch.inference_mode()
    def _probe(self) -> list[tuple[Tensor, Tensor]]:
        """One token's keys and values of each layer, (heads, size), as the model makes them."""
        probe = _Probe()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.model(input_ids=ids, past_key_values=probe, use_cache=True)
        return probe.seen

    @torch.inference_mode()
    def forward(self, rows: Sequence[BatchRow]) -> Tensor:
        """Logits after the last token of each row, (rows, vocabulary), float32; their KV is in
        their blocks. Rows of about equal length are computed together."""
        found: list[Tensor | None] = [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), rows[i].length))
        while order:
            group = [order.pop()]
            longest = len(rows[group[0]].ids)
            limit = max(1, CPU_BATCH_TOKENS // longest) if self._on_cpu else len(rows)
            while order and len(group) < limit:
                if longest > PADDING_LIMIT * len(rows[order[-1]].ids):
                    break
                group.append(order.pop())
            logits = self._batch([rows[i] for i in group])
            for i, row in zip(group, logits, strict=True):
                found[i] = row
        return torch.stack([row for row in found if row is not None])

    def _batch(self, rows: Sequence[BatchRow]) -> Tensor:
        width = max(len(row.ids) for row in rows)
        pads = [width - len(row.ids) for row in rows]
        ids = torch.tensor([[0] * pad + list(row.ids) for row, pad in zip(rows, pads, strict=True)])
        positions = torch.tensor(
            [
                [0] * pad + list(range(row.past, row.length))
                for row, pad in zip(rows, pads, strict=True)
            ]
        )
        view = _View(self, rows, width, any(pads))
        with sdpa_kernel(ATTENTION):
            output = self.model(
                input_ids=ids.to(self.device),
                position_ids=positions.to(self.device),
                attention_mask=view.mask(positions),
                past_key_values=view,
                use_cache=True,
                logits_to_keep=1,
            )
        return cast("Tensor", output.logits[:, -1].float())


class _View(Cache):
    """The pool as one batch sees it."""

    def __init__(
        self, paged: PagedModel, rows: Sequence[BatchRow], width: int, padded: bool
    ) -> None:
        super().__init__(layers=[])
        self.pool, self.size = paged.pool, paged.block_tokens
        device = paged.device
        self.lengths = [row.length for row in rows]
        self.longest = max(self.lengths)
        self.alone = not padded and not any(row.past for row in rows)
        self.slots = torch.tensor(self._slots(rows), device=device)
        self.real = None
        if padded:
            columns = torch.arange(width)
            starts = torch.tensor([[width - len(row.ids)] for row in rows])
            self.real = (columns >= starts).to(device)
        used = -(-self.longest // self.size)
        tables = [[*row.blocks[:used], *[0] * (used - len(row.blocks))] for row in rows]
        first = tables[0][0]
        self.first = first if tables == [list(range(first, first + used))] else None
        self.tables = torch.tensor(tables, device=device)

    def _slots(self, rows: Sequence[BatchRow]) -> list[int]:
        size = self.size
        return [
            row.blocks[at // size] * size + at % size
            for row in rows
            for at in range(row.past, row.length)
        ]

    def mask(self, positions: Tensor) -> Tensor | None:
        """Which keys each token sees, (rows, 1, width, longest); None: all that came before."""
        single = positions.shape[1] == 1 and min(self.lengths) == self.longest
        if self.alone or single:
            return None
        keys = torch.arange(self.longest, device=self.slots.device)
        return keys <= positions.to(self.slots.device)[:, None, :, None]

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


class _Probe(Cache):
    """Notes the shapes of what each layer would keep."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.seen: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.seen.append((key_states[0, :, 0], value_states[0, :, 0]))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0
