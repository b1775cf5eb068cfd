"""Steps whose new tokens stand one behind another compute what padded ones do, and so do decoding
steps of fixed shapes. The kernel is tested where there is a GPU; elsewhere torch attends for it."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from teola_engines.llm.decode_graphs import DecodeGraphs, DecodeStep, blocks_bucket, rows_bucket
from teola_engines.llm.packed_steps import PackedModel, Tiles
from teola_engines.llm.paged_model import BatchRow, PagedModel, load
from tests.planted import catches, edited

BLOCK, BLOCKS, SPARE = 16, 40, 39


def attend(
    query: Any, keys: Any, values: Any, tiles: Tiles, block_tokens: int, scale: float
) -> Any:
    """What the kernel does, tile by tile."""
    import torch

    found = torch.empty_like(query)
    group = query.shape[1] // keys.shape[1]
    lines = zip(*(one.tolist() for one in tiles[:4]), strict=True)
    for row, at, count, past in lines:
        assert count <= tiles.tokens
        places = torch.arange(past + count)
        slots = tiles.tables[row][places // block_tokens] * block_tokens + places % block_tokens
        near, brought = (x[slots].repeat_interleave(group, 1) for x in (keys, values))
        score = torch.einsum("qhd,khd->hqk", query[at : at + count], near) * scale
        later = places[None, :] > past + torch.arange(count)[:, None]
        weight = score.masked_fill(later, float("-inf")).softmax(-1)
        found[at : at + count] = torch.einsum("hqk,khd->qhd", weight, brought)
    return found


@pytest.fixture(scope="module")
def paged(model_folder: Path) -> PagedModel:
    """With room for 40 blocks, the last of which no sequence has."""
    model = load(str(model_folder), "float32", "cpu")
    return PagedModel(model, BLOCK, 2**30, BLOCKS * BLOCK)


@pytest.fixture(scope="module")
def packed(model_folder: Path) -> PackedModel:
    """The same with a pool of its own."""
    model = load(str(model_folder), "float32", "cpu")
    pool = PagedModel(model, BLOCK, 2**30, BLOCKS * BLOCK).pool
    return PackedModel(model, pool, BLOCK, attend)


def logits_of(packed: PackedModel, rows: Sequence[BatchRow]) -> Any:
    import torch

    with torch.inference_mode():
        return packed.logits(rows)


def rows_of(chance: random.Random, lengths: Sequence[int]) -> list[BatchRow]:
    """Prompts of these lengths, each with room for more, in blocks that lie anywhere; the first of
    the first one is block 0."""
    free = [*range(1, SPARE)]
    chance.shuffle(free)
    free.append(0)
    rows = []
    for length in lengths:
        blocks = [free.pop() for _ in range((length + 3) // BLOCK + 1)]
        rows.append(BatchRow([chance.randrange(5, 1000) for _ in range(length)], 0, blocks))
    return rows


def close(first: Any, second: Any) -> bool:
    import torch

    return first.shape == second.shape and torch.allclose(first, second, atol=1e-3)


@catches(
    "tile-without-its-past",
    "a prompt's second tile is taken for its first",
    edited(PackedModel.logits, "row.past + start)", "row.past)"),
)
@catches(
    "last-of-all",
    "each row gets the logits of the next row's first token",
    edited(PackedModel.logits, "ends.append(at - 1)", "ends.append(at)"),
)
def test_a_packed_step_gives_the_logits_of_padded_ones(
    paged: PagedModel, packed: PackedModel
) -> None:
    """Prompts as they come, then one that goes on beside two that decode."""
    chance = random.Random(1)
    rows = rows_of(chance, [70, 16, 150, 1, 33])
    begun = [BatchRow(row.ids[:40], 0, row.blocks) for row in rows]
    assert close(logits_of(packed, begun), paged.forward(begun))
    rest = [BatchRow(row.ids[40:], 40, row.blocks) for row in rows if len(row.ids) > 40]
    rest += [BatchRow([7], 33, rows[4].blocks), BatchRow([9], 16, rows[1].blocks)]
    assert close(logits_of(packed, rest), paged.forward(rest))


@catches(
    "padded-row-writes",
    "a row that only pads writes to the first block",
    edited(DecodeStep.fill, "0, 0, self._spare", "0, 0, 0"),
)
@catches(
    "past-of-another",
    "rows that were there before are not taken out",
    edited(DecodeStep.fill, "host[len(rows) :, :3] = 0, 0, self._spare", "pass"),
)
def test_a_step_of_fixed_shapes_gives_the_logits_of_any(
    paged: PagedModel, packed: PackedModel
) -> None:
    import torch

    chance = random.Random(2)
    rows = rows_of(chance, [70, 16, 15, 1, 33])
    paged.forward(rows)
    logits_of(packed, rows)
    step = DecodeStep(packed, 8, 32, SPARE)
    for turn, count in enumerate((5, 3, 3)):
        fed = [
            BatchRow([chance.randrange(5, 1000)], len(row.ids) + turn, row.blocks)
            for row in rows[:count]
        ]
        with torch.inference_mode():
            assert close(step.replay(fed), paged.forward(fed))
    whole = [BatchRow([8], 33, rows[4].blocks)]  # those who ended were left as they were
    assert close(logits_of(packed, whole), paged.forward(whole))


def test_buckets() -> None:
    assert [rows_bucket(n) for n in (1, 2, 3, 5, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 16, 16, 24]
    assert [blocks_bucket(n) for n in (1, 32, 33, 128, 129)] == [32, 32, 128, 128, 512]


def test_what_cannot_be_recorded_is_computed_as_other_steps_are(
    packed: PackedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(DecodeStep, "record", refuse)
    graphs = DecodeGraphs(packed, spare=SPARE)
    with caplog.at_level(logging.WARNING):
        assert graphs.logits([BatchRow([7], 20, [1, 2])]) is None
        assert graphs.logits([BatchRow([7], 20, [1, 2])]) is None
    assert len(caplog.records) == 1
    assert "not permitted" in caplog.text


def test_attention_that_has_more_than_the_kernel_is_refused(packed: PackedModel) -> None:
    layer = packed.model.model.layers[0].self_attn
    forward = layer.forward
    layer.forward = lambda *given, **options: forward(*given, **options, softcap=30.0)
    try:
        with pytest.raises(RuntimeError, match="its attention has softcap"):
            logits_of(packed, [BatchRow([7], 0, [1])])
    finally:
        del layer.forward


def _fails(*_: Any) -> Any:
    raise KeyError("no such target")


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (attend, ""),
        (lambda query, *_: query, "it gives other tokens"),
        (_fails, "KeyError: 'no such target'"),
    ],
    ids=["sound", "wrong", "fails"],
)
def test_a_kernel_is_taken_if_it_gives_what_torch_gives(
    model_folder: Path,
    paged: PagedModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kernel: Any,
    told: str,
) -> None:
    module = SimpleNamespace(attend=kernel)
    monkeypatch.setitem(sys.modules, "teola_engines.llm.paged_attention", module)
    model = load(str(model_folder), "float32", "cpu")
    tried = PagedModel(model, BLOCK, 2**30, BLOCKS * BLOCK)
    tried._try_kernel(SPARE, graphs=False)
    assert (tried._packed is None) == bool(told)
    assert told in caplog.text
    rows = rows_of(random.Random(5), [40, 20, 3])
    assert close(tried.forward(rows), paged.forward(rows))


@pytest.mark.gpu
def test_the_kernel_attends_as_torch_does() -> None:
    """Heads that share keys and that do not, sizes that are no power of two, prompts and splits."""
    import torch

    device = "cuda"
    if not torch.cuda.is_available():
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("needs a GPU, or Triton and TRITON_INTERPRET=1")
        device = "cpu"
    from teola_engines.llm import paged_attention

    torch.manual_seed(0)
    for heads, key_heads, size, block in ((8, 2, 64, 16), (4, 4, 48, 16), (14, 2, 128, 32)):
        pool = [torch.randn(BLOCKS * block, key_heads, size) for _ in range(2)]
        for spans in ([(37, 0), (1, 50), (20, 30), (1, 0)], [(1, 400), (1, 3), (1, 64)]):
            free = random.Random(0).sample(range(BLOCKS), BLOCKS)
            width = max((count + past) // block + 1 for count, past in spans)
            tables = torch.zeros(len(spans), width, dtype=torch.int32)
            tiles, at = list[tuple[int, int, int, int]](), 0
            most = 1 if all(count == 1 for count, _ in spans) else 8
            for row, (count, past) in enumerate(spans):
                for k in range((count + past) // block + 1):
                    tables[row, k] = free.pop()
                starts = range(0, count, most)
                tiles += [(row, at + s, min(most, count - s), past + s) for s in starts]
                at += count
            query = torch.randn(at, heads, size)
            of = torch.tensor(tiles, dtype=torch.int32).T  # strided, as columns of a table are
            there = Tiles(*of.to(device), tables.to(device), most)
            pools = (x.to(device) for x in pool)
            found = paged_attention.attend(query.to(device), *pools, there, block, 0.2).cpu()
            wanted = attend(query, *pool, Tiles(*of, tables, most), block, 0.2)
            assert torch.allclose(found, wanted, atol=1e-4)
