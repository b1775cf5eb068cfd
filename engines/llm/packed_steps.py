"""Steps of a GPU whose new tokens stand one behind another, of prompts and decodings alike.

The model's code is as it comes: it takes all new tokens for one long text and hands them to its
attention, which here is a kernel that knows whose they are (`paged_attention`) and attends to the
blocks of each sequence where they lie. So a step launches the model's kernels once, whatever it
computes, and nothing is padded or copied.

    rows of (ids, past, blocks) --> ids, positions, slots of all --> model --> last of each row
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .pool_view import Pool

NAME: Final = "teola_paged"
"""Of the attention, among those of transformers."""
UNKNOWN: Final = ("softcap", "s_aux", "position_bias", "sliding_window")
"""What attention of some models has besides, and the kernel has not."""
TILE_ROWS: Final = 64
"""Rows of the matrix of queries in a tile: tokens times the heads that share a head of keys."""

_running = threading.local()


class Tiles(NamedTuple):
    """Pieces of the new tokens, each of one row. row, at, count, past: of each tile its row, where
    its first token stands among the new ones, how many it has, and how many of its row came before
    them. tables: blocks of each row, (rows, blocks). tokens: that a tile has at most."""

    row: Tensor
    at: Tensor
    count: Tensor
    past: Tensor
    tables: Tensor
    tokens: int


class Attend(Protocol):
    """query: (tokens, heads, size). keys, values: the pool of a layer, (slots, key heads, size).
    Returns what the query attends to, (tokens, heads, size)."""

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        tiles: Tiles,
        block_tokens: int,
        scale: float,
    ) -> Tensor: ...


class PackedRow(Protocol):
    """What to compute of one sequence: `ids` after `past` tokens; `blocks` hold all of it."""

    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def past(self) -> int: ...
    @property
    def blocks(self) -> Sequence[int]: ...


class PackedModel:
    """`model` with its KV in `pool`, computed by packed steps.

    Raises RuntimeError in `compute` if the model's attention is not one that can be replaced.
    """

    def __init__(self, model: Any, pool: Pool, block_tokens: int, attend: Attend) -> None:
        self.model, self.pool, self.block_tokens = model, pool, block_tokens
        self.device: torch.device = model.device
        self.attend = attend
        heads = model.config.get_text_config().num_attention_heads
        self.tile_tokens = max(1, TILE_ROWS // (heads // pool[0][0].shape[1]))
        AttentionInterface.register(NAME, _attention)
        model.set_attn_implementation(NAME)

    def logits(self, rows: Sequence[PackedRow]) -> Tensor:
        """After the last token of each row, (rows, vocabulary), float32."""
        size, spans = self.block_tokens, list[NDArray[Any]]()
        tiles = list[tuple[int, int, int, int]]()
        ends, at = list[int](), 0
        width = max(-(-(row.past + len(row.ids)) // size) for row in rows)
        tables = numpy.zeros((len(rows), width), numpy.int32)
        for number, row in enumerate(rows):
            count, used = len(row.ids), min(width, len(row.blocks))
            tables[number, :used] = row.blocks[:used]
            places = numpy.arange(row.past, row.past + count)
            slots = tables[number, places // size] * size + places % size
            spans.append(numpy.stack([numpy.asarray(row.ids), places, slots]))
            for start in range(0, count, self.tile_tokens):
                some = min(self.tile_tokens, count - start)
                tiles.append((number, at + start, some, row.past + start))
            at += count
            ends.append(at - 1)
        ids, positions, into = self._there(numpy.concatenate(spans, axis=1))
        of = self._there(numpy.array(tiles, numpy.int32).T)
        longest = self.tile_tokens if at > len(rows) else 1
        return self.compute(
            ids,
            positions,
            into,
            Tiles(of[0], of[1], of[2], of[3], self._there(tables), longest),
            self._there(numpy.array(ends)),
        )

    def _there(self, numbers: NDArray[Any]) -> Tensor:
        return torch.from_numpy(numpy.ascontiguousarray(numbers)).to(self.device)

    def compute(
        self, ids: Tensor, positions: Tensor, slots: Tensor, tiles: Tiles, ends: Tensor | int = 0
    ) -> Tensor:
        """Logits of the tokens at `ends` (0: of all), (tokens, vocabulary), float32. ids,
        positions, slots: of the new tokens, (tokens)."""
        view = PackedView(self.pool, slots, lambda *found: self._attend(*found, tiles))
        _running.view = view
        try:
            output = self.model(
                input_ids=ids[None],
                position_ids=positions[None],
                past_key_values=view,
                use_cache=True,
                logits_to_keep=ends,
            )
        finally:
            _running.view = None
        if view.attended != len(self.pool):
            raise RuntimeError("its attention cannot be replaced")
        logits: Tensor = output.logits[0].float()
        return logits

    def _attend(self, query: Tensor, layer: int, scale: float, tiles: Tiles) -> Tensor:
        keys, values = self.pool[layer]
        return self.attend(query, keys, values, tiles, self.block_tokens, scale)


class PackedView(Cache):
    """What the model takes for its cache while it computes a packed step. attended: layers whose
    attention was computed here."""

    def __init__(
        self, pool: Pool, slots: Tensor, attend: Callable[[Tensor, int, float], Tensor]
    ) -> None:
        super().__init__(layers=[])
        self._pool, self._slots, self._attend = pool, slots, attend
        self._layer = self.attended = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by the model's attention, before `attend`: (1, heads, tokens, size)."""
        for pool, states in zip(self._pool[layer_idx], (key_states, value_states), strict=True):
            pool[self._slots] = states[0].transpose(0, 1)
        self._layer = layer_idx
        return key_states, value_states

    def attend(self, query: Tensor, scale: float) -> Tensor:
        """(1, heads, tokens, size) in; (1, tokens, heads, size) out."""
        self.attended += 1
        return self._attend(query[0].transpose(0, 1), self._layer, scale)[None]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, Any]:
    """Attention as transformers calls it; that of torch where no packed step is being computed."""
    view: PackedView | None = getattr(_running, "view", None)
    if view is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    for name in UNKNOWN:
        if options.get(name) is not None:
            raise RuntimeError(f"its attention has {name}")
    scale = options.get("scaling")
    return view.attend(query, query.shape[-1] ** -0.5 if scale is None else scale), None
