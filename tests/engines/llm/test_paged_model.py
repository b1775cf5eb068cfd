"""How large the KV blocks of a model are, and so how many of them a memory holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from teola.kv import Swap
from teola_engines.llm.paged_model import BatchRow, PagedModel
from tests.planted import catches, edited

BLOCK_BYTES = 28 * 4 * 128 * 2 * 2 * 16
"""Layers, KV heads, head, bytes, keys and values, tokens: those of Qwen2-7B in 16 bits."""


@pytest.fixture(scope="module")
def model() -> Any:
    """With the layers and heads of Qwen2-7B, and nearly nothing between them."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=56,
        intermediate_size=16,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        head_dim=128,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


@catches(
    "keys-only",
    "the values of a block are taken to need no memory",
    edited(PagedModel.__init__, "k.numel() + v.numel()", "k.numel()"),
)
def test_a_block_of_16_tokens_of_qwen2_7b_takes_seven_eighths_of_a_mebibyte(model: Any) -> None:
    assert BLOCK_BYTES == 917_504 == 0.875 * 2**20
    for bytes, blocks in ((10 * BLOCK_BYTES, 10), (10 * BLOCK_BYTES - 1, 9), (1, 1)):
        made = PagedModel(model, 16, bytes, 10**6, 3 * BLOCK_BYTES)
        taken = sum(pool.numel() * pool.itemsize for pair in made.pool for pool in pair)
        assert (made.blocks, taken) == (blocks, blocks * BLOCK_BYTES)
        taken = sum(tier.numel() * tier.itemsize for pair in made.host for tier in pair)
        assert (made.host_blocks, taken) == (3, 3 * BLOCK_BYTES)


def test_no_more_blocks_than_all_sequences_could_fill(model: Any) -> None:
    assert PagedModel(model, 16, 10 * BLOCK_BYTES, 100).blocks == 6


@pytest.mark.parametrize(
    ("rows", "alone", "masked", "padded"),
    [
        ([BatchRow([1, 2, 3], 0, [0])], True, False, False),
        ([BatchRow([1, 2], 0, [0]), BatchRow([3], 0, [1])], False, True, True),
        ([BatchRow([1], 16, [2, 0])], False, False, False),
        ([BatchRow([1], 16, [2, 0]), BatchRow([2], 3, [1])], False, True, False),
        ([BatchRow([1, 2], 15, [2, 1])], False, True, False),
    ],
    ids=["alone", "padded", "one token", "two lengths", "goes on"],
)
def test_all_that_a_model_is_given_is_where_the_model_is(
    model: Any, rows: list[BatchRow], alone: bool, masked: bool, padded: bool
) -> None:
    """And as it needs it: padded on the left, each token at its place, in the slots of its row."""
    import torch

    elsewhere, given = torch.device("meta"), {}
    made = PagedModel(model, 16, 10 * BLOCK_BYTES, 48)
    made.device = elsewhere

    def run(**what: Any) -> Any:
        given.update(what)
        return SimpleNamespace(logits=torch.zeros(len(rows), 1, 64, device=elsewhere))

    made.model = run
    logits = made._batch(rows)
    assert (logits.device, logits.shape, logits.dtype) == (
        elsewhere, (len(rows), 64), torch.float32,
    )  # fmt: skip
    view, mask = given.pop("past_key_values"), given.pop("attention_mask")
    tensors = [given.pop("input_ids"), given.pop("position_ids"), view.slots, view.tables]
    tensors += [mask] if masked else []
    tensors += [view.real] if padded else []
    assert {tensor.device for tensor in tensors} == {elsewhere}
    assert (mask is None, view.real is None) == (not masked, not padded)
    assert view.alone is alone
    width = max(len(row.ids) for row in rows)
    assert tensors[0].shape == tensors[1].shape == (len(rows), width)
    assert view.slots.shape == (sum(len(row.ids) for row in rows),)
    assert view.longest == max(row.length for row in rows)
    assert given == {"use_cache": True, "logits_to_keep": 1}


def bare(**fields: Any) -> PagedModel:
    """Without a model: only what a test gives it."""
    made = object.__new__(PagedModel)
    for name, value in {"_packed": None, "_graphs": None, **fields}.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("lengths", "on_cpu", "groups"),
    [
        ([1, 1, 1], True, [[0, 1, 2]]),
        ([4, 5, 4], True, [[0, 1, 2]]),
        ([4, 6, 5], True, [[1, 2], [0]]),
        ([256, 256, 256], True, [[1, 2], [0]]),
        ([256, 256, 256], False, [[0, 1, 2]]),
        ([512, 511, 1], True, [[0], [1], [2]]),
        ([600, 1, 600], True, [[2], [0], [1]]),
        ([7], True, [[0]]),
    ],
)
def test_rows_of_about_equal_length_are_computed_together(
    lengths: list[int], on_cpu: bool, groups: list[list[int]]
) -> None:
    """On a CPU not many long ones; and each row gets its own logits, whatever it is beside."""
    import torch

    seen: list[list[int]] = []

    def batch(rows: list[BatchRow]) -> torch.Tensor:
        seen.append([row.blocks[0] for row in rows])
        return torch.tensor([[float(row.blocks[0])] for row in rows])

    rows = [BatchRow(range(length), 0, [k]) for k, length in enumerate(lengths)]
    logits = bare(_on_cpu=on_cpu, _batch=batch).forward(rows)
    assert seen == groups
    assert logits[:, 0].tolist() == [*range(len(rows))]


def test_blocks_change_places_with_those_of_the_host() -> None:
    """What comes back is read before its place there is written anew, and the other way round."""
    import torch

    def numbered(first: int, blocks: int) -> torch.Tensor:
        return torch.arange(first, first + blocks).repeat_interleave(2).view(-1, 1, 1).float()

    pool, tier = numbered(10, 4), numbered(20, 3).view(3, 2, 1, 1)
    made = bare(pool=[(pool,)], host=[(tier,)])
    made.swap([Swap(((0, 1),), ((1, 0),)), Swap(((2, 3),), ((0, 1),)), Swap((), ())])
    assert pool.view(4, 2).tolist() == [[10, 10], [20, 20], [12, 12], [22, 22]]
    assert tier.view(3, 2).tolist() == [[11, 11], [10, 10], [22, 22]]
