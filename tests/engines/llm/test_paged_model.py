"""How large the KV blocks of a model are, and so how many of them a memory holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

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
