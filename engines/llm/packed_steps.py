"""Steps of a GPU whose new tokens stand one behind another, of prompts and decodings alike.

The model's code is as it comes: it takes all new tokens for one long text and hands them to its
attention, which here is a kernel that knows whose they are (`paged_attention`) and attends to the
blocks of each sequence where they lie. So a step launches the model's kernels once, whatever it
computes, and nothing is padded or copied.

    rows of (ids, past, blocks) --pack--> one array of integers --compute--> logits of each row

The array goes to the GPU as one copy. A step may be larger than its rows need: what computes it has
fixed shapes then (`step_graphs`), and a row that belongs to nobody fills the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
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
ALIGNED: Final = 4
"""Parts of an array begin at multiples of 16 bytes: Triton compiles a kernel anew for a tensor that
does not."""

_running = threading.local()


class Tiles(NamedTuple):
    """Pieces of the new tokens, each of one row.

    pieces: (tiles, 4), of each tile where the blocks of its row begin in `tables`, where its first
    token stands among the new ones, how many tokens it has (0: it is empty), and how many tokens of
    its row come before them. tables: the blocks of all rows, one row behind another. tokens: that a
    tile has at most.
    """

    pieces: Tensor
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


class StepSize(NamedTuple):
    """How many new tokens, rows and tiles a step has room for, and a tile for tokens."""

    tokens: int
    rows: int
    tiles: int
    tile_tokens: int


class StepParts(NamedTuple):
    """What a step computes from, each part a view of one array or tensor of 32-bit integers.

    ids, positions, slots: (tokens). ends: the last token of each row, (rows). pieces: see `Tiles`,
    (4 * tiles). tables: the rest of the array.
    """

    ids: Any
    positions: Any
    slots: Any
    ends: Any
    pieces: Any
    tables: Any


def parts_of(numbers: Any, size: StepSize) -> StepParts:
    """The parts of an array, or of its copy on a GPU."""
    parts, at = list[Any](), 0
    for length in _lengths(size):
        parts.append(numbers[at : at + length])
        at += _aligned(length)
    return StepParts._make([*parts, numbers[at:]])


def pack(rows: Sequence[PackedRow], size: StepSize, block_tokens: int) -> NDArray[np.int32]:
    """The array of a step that computes `rows`."""
    counts = np.fromiter((len(row.ids) for row in rows), np.int64, len(rows))
    pasts = np.fromiter((row.past for row in rows), np.int64, len(rows))
    held = -(-(pasts + counts) // block_tokens)
    before = sum(map(_aligned, _lengths(size)))
    numbers = np.zeros(before + int(held.sum()), np.int32)
    parts = parts_of(numbers, size)
    blocks = (row.blocks[:used] for row, used in zip(rows, held.tolist(), strict=True))
    parts.tables[:] = [*chain.from_iterable(blocks)]
    tables, starts = held.cumsum() - held, counts.cumsum() - counts
    tokens = int(counts.sum())
    parts.ids[:tokens] = [*chain.from_iterable(row.ids for row in rows)]
    places = np.arange(tokens) + np.repeat(pasts - starts, counts)
    parts.positions[:tokens] = places
    within = parts.tables[np.repeat(tables, counts) + places // block_tokens]
    parts.slots[:tokens] = within * block_tokens + places % block_tokens
    parts.ends[: len(rows)] = (starts + counts - 1)[: size.rows]
    cut = -(-counts // size.tile_tokens)
    first = (np.arange(cut.sum()) - np.repeat(cut.cumsum() - cut, cut)) * size.tile_tokens
    pieces = parts.pieces.reshape(-1, 4)[: len(first)]
    pieces[:, 0] = np.repeat(tables, cut)
    pieces[:, 1] = np.repeat(starts, cut) + first
    pieces[:, 2] = np.minimum(np.repeat(counts, cut) - first, size.tile_tokens)
    pieces[:, 3] = np.repeat(pasts, cut) + first
    return numbers


def _lengths(size: StepSize) -> tuple[int, ...]:
    return (*[size.tokens] * 3, size.rows, 4 * size.tiles)


def _aligned(length: int) -> int:
    return -(-length // ALIGNED) * ALIGNED


class PackedModel:
    """`model` with its KV in `pool`, computed by packed steps.

    tile_tokens: of a tile at most, where a step has a prompt. Raises RuntimeError in `compute` if
    the model's attention is not one that can be replaced.
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
        counts = [len(row.ids) for row in rows]
        longest = self.tile_tokens if max(counts) > 1 else 1
        tiles = sum(-(-count // longest) for count in counts)
        size = StepSize(sum(counts), len(rows), tiles, longest)
        numbers = torch.from_numpy(pack(rows, size, self.block_tokens))
        return self.compute(numbers.to(self.device), size)

    def compute(self, numbers: Tensor, size: StepSize) -> Tensor:
        """Logits after the last token of each row, (rows, vocabulary), float32. numbers: of a step
        of this size, as `pack` gives them."""
        parts = parts_of(numbers, size)
        tiles = Tiles(parts.pieces.view(-1, 4), parts.tables, size.tile_tokens)

        def attend(query: Tensor, layer: int, scale: float) -> Tensor:
            return self._attend(query, layer, scale, tiles)

        view = PackedView(self.pool, parts.slots.long(), attend)  # cast once, not in each layer
        _running.view = view
        try:
            output = self.model(
                input_ids=parts.ids[None],
                position_ids=parts.positions[None],
                past_key_values=view,
                use_cache=True,
                logits_to_keep=parts.ends.long(),
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
