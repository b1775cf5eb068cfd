"""Attention over KV blocks where they lie, for any mixture of prompts and decodings, on a GPU.

    all new tokens of a step, one behind another            (tokens, heads, size)
    tiles: so many tokens of one row  --attend-->  the blocks of their row, up to each token

Nothing is padded or copied. A step that only decodes has few tiles, so the keys of each are cut
into splits that are computed side by side and put together afterwards, as in Flash-Decoding (Dao et
al., 2023). The tiles themselves are FlashAttention's (Dao et al., 2022) over a table of blocks, as
in PagedAttention (Kwon et al., 2023).

Importing this module imports Triton.
"""

# ruff: noqa: N803 - capitals are Triton's way to write what is known when a kernel is compiled
from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from .packed_steps import Tiles

KEYS: Final = 64
"""Keys that a program looks at in one turn."""
LEAST_ROWS: Final = 16
"""The units of a GPU that multiply matrices take no fewer."""
PROGRAMS: Final = 128
"""About one for each multiprocessor of a large GPU; with fewer, keys are split."""
SPLITS: Final = (1, 4, 16)
"""Few: each is a kernel that is compiled when it is first needed."""


def splits_of(tiles: int, key_heads: int) -> int:
    """Into how many splits the keys of so many tiles are cut."""
    enough = (splits for splits in SPLITS if tiles * key_heads * splits >= PROGRAMS)
    return next(enough, SPLITS[-1])


def attend(
    query: Tensor, keys: Tensor, values: Tensor, tiles: Tiles, block_tokens: int, scale: float
) -> Tensor:
    """See `packed_steps.Attend`. The pool and the tiles are contiguous."""
    tokens, heads, size = query.shape
    key_heads = keys.shape[1]
    group, count = heads // key_heads, len(tiles.pieces)
    splits = splits_of(count, key_heads) if tiles.tokens == 1 else 1
    query = query if query.stride(-1) == 1 else query.contiguous()
    wide = triton.next_power_of_2(size)
    rows = max(LEAST_ROWS, triton.next_power_of_2(tiles.tokens * group))
    out = torch.empty(tokens, heads, size, dtype=query.dtype, device=query.device)
    parts, sums = out, out
    if splits > 1:
        parts = query.new_empty(tokens, heads, splits, wide, dtype=torch.float32)
        sums = query.new_empty(tokens, heads, splits, 2, dtype=torch.float32)
    _tile[(count, key_heads, splits)](
        query, keys, values, parts, sums, tiles.tables, tiles.pieces,
        scale, query.stride(0), query.stride(1),
        HEADS=heads, KEY_HEADS=key_heads, GROUP=group, ROWS=rows, SIZE=size,
        WIDE=wide, BLOCK=block_tokens, KEYS=KEYS, SPLITS=splits,
    )  # fmt: skip
    if splits > 1:
        _together[(tokens, heads)](
            parts, sums, out, HEADS=heads, SIZE=size, WIDE=wide, SPLITS=splits
        )
    return out


@triton.jit(do_not_specialize=["query_stride", "head_stride"])
def _tile(
    query, keys, values, out, sums, tables, pieces, scale, query_stride, head_stride,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
    KEYS: tl.constexpr, SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    tile, key_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    table, at = tl.load(pieces + tile * 4), tl.load(pieces + tile * 4 + 1)
    count, past = tl.load(pieces + tile * 4 + 2), tl.load(pieces + tile * 4 + 3)
    lane, column = tl.arange(0, ROWS), tl.arange(0, WIDE)
    token, head = lane // GROUP, key_head * GROUP + lane % GROUP
    real = token < count
    inside = column[None, :] < SIZE
    where = (at + token)[:, None] * query_stride + head[:, None] * head_stride + column[None, :]
    asked = tl.load(query + where, mask=real[:, None] & inside, other=0.0)
    end = past + count
    first = end * 0
    if SPLITS > 1:
        each = tl.cdiv(tl.cdiv(end, SPLITS), KEYS) * KEYS
        first = split * each
        end = tl.minimum(first + each, end)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(first, end, KEYS):
        key = start + tl.arange(0, KEYS)
        there = key < end
        block = tl.load(tables + table + key // BLOCK, mask=there, other=0)
        slot = (block * BLOCK + key % BLOCK).to(tl.int64) * (KEY_HEADS * SIZE) + key_head * SIZE
        near = there[:, None] & inside
        found = tl.load(keys + slot[:, None] + column[None, :], mask=near, other=0.0)
        score = tl.dot(asked, tl.trans(found), input_precision="ieee") * scale
        seen = there[None, :] & (key[None, :] <= (past + token)[:, None])
        score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        fade = tl.exp(best - higher)
        weight = tl.exp(score - higher[:, None])
        total = total * fade + tl.sum(weight, 1)
        brought = tl.load(values + slot[:, None] + column[None, :], mask=near, other=0.0)
        mixed = mixed * fade[:, None]
        mixed += tl.dot(weight.to(brought.dtype), brought, input_precision="ieee")
        best = higher
    if SPLITS == 1:
        result = mixed / total[:, None]
        into = (at + token)[:, None] * (HEADS * SIZE) + head[:, None] * SIZE + column[None, :]
        tl.store(out + into, result.to(out.dtype.element_ty), mask=real[:, None] & inside)
    else:
        part = ((at + token) * HEADS + head) * SPLITS + split
        tl.store(out + part[:, None] * WIDE + column[None, :], mixed, mask=real[:, None])
        tl.store(sums + part * 2, best, mask=real)
        tl.store(sums + part * 2 + 1, total, mask=real)


@triton.jit
def _together(
    parts, sums, out, HEADS: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr,
    SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    part = tl.program_id(0) * HEADS + tl.program_id(1)
    split, column = tl.arange(0, SPLITS), tl.arange(0, WIDE)
    best = tl.load(sums + (part * SPLITS + split) * 2)
    total = tl.load(sums + (part * SPLITS + split) * 2 + 1)
    mixed = tl.load(parts + (part * SPLITS + split)[:, None] * WIDE + column[None, :])
    weight = tl.exp(best - tl.max(best, 0))
    result = tl.sum(mixed * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + part * SIZE + column, result.to(out.dtype.element_ty), mask=column < SIZE)
