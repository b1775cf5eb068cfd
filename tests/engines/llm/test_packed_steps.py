"""Steps whose new tokens stand one behind another compute what padded ones do, and so do steps of
fixed sizes. The kernel is tested where there is a GPU, or Triton's interpreter; elsewhere torch
attends for it."""

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

from teola_engines.llm import packed_steps, step_graphs
from teola_engines.llm.packed_steps import PackedModel, StepSize, Tiles, pack
from teola_engines.llm.paged_model import BatchRow, PagedModel, _tried, load
from teola_engines.llm.step_graphs import (
    MOST_TOKENS,
    Padding,
    StepGraphs,
    decodings_bucket,
    size_of,
    tokens_bucket,
)
from tests.planted import catches, edited

BLOCK, BLOCKS, SPARE = 16, 40, 39


def attend(
    query: Any, keys: Any, values: Any, tiles: Tiles, block_tokens: int, scale: float
) -> Any:
    """What the kernel does, tile by tile."""
    import torch

    found = torch.full_like(query, float("nan"))
    group = query.shape[1] // keys.shape[1]
    for table, at, count, past in tiles.pieces.tolist():
        assert count <= tiles.tokens
        places = torch.arange(past + count)
        blocks = tiles.tables[table + places // block_tokens].long()
        slots = blocks * block_tokens + places % block_tokens
        near, brought = (x[slots].repeat_interleave(group, 1) for x in (keys, values))
        score = torch.einsum("qhd,khd->hqk", query[at : at + count], near) * scale
        later = places[None, :] > past + torch.arange(count)[:, None]
        weight = score.masked_fill(later, float("-inf")).softmax(-1)
        found[at : at + count] = torch.einsum("hqk,khd->qhd", weight, brought)
    assert not found.isnan().any(), "a token is in no tile"
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
    edited(pack, "np.repeat(pasts, cut) + first", "np.repeat(pasts, cut)"),
)
@catches(
    "last-of-all",
    "each row gets the logits of the next row's first token",
    edited(pack, "starts + counts - 1", "starts + counts"),
)
@catches(
    "table-of-the-first",
    "every row attends to the blocks of the first one",
    edited(pack, "pieces[:, 0] = np.repeat(tables, cut)", "pass"),
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


def as_it_is(compute: Any, rows: int) -> Any:
    """In place of a CUDA graph."""
    return compute


@catches(
    "padding-writes",
    "what only pads is written to the first block",
    edited(Padding.of, "[block] *", "[0] *"),
)
@catches(
    "row-of-another-step",
    "a step has the rows of the one before",
    edited(StepGraphs.logits, ".copy_(torch.from_numpy(numbers))", ".sum()"),
)
@catches(
    "too-few-tiles",
    "there is no room for the tile of a row that is not full",
    edited(size_of, "count + 1 + room", "room"),
)
def test_a_step_of_fixed_size_gives_the_logits_of_any(
    paged: PagedModel, packed: PackedModel
) -> None:
    """Prompts, two that go on beside three that decode, and decodings, of ever other sizes; those
    who ended are left as they were."""
    import torch

    chance = random.Random(2)
    graphs = StepGraphs(packed, spare=SPARE, record=as_it_is)
    rows = rows_of(chance, [70, 16, 150, 1, 33, 20])

    def compare(step: Sequence[BatchRow]) -> None:
        with torch.inference_mode():
            logits = graphs.logits(step)
        assert logits is not None
        assert close(logits, paged.forward(step))

    compare([BatchRow(row.ids[:40], 0, row.blocks) for row in rows])
    rest = [BatchRow(row.ids[40:], 40, row.blocks) for row in rows if len(row.ids) > 40]
    compare([*rest, *(BatchRow([7], len(row.ids), row.blocks) for row in rows[3:])])
    for turn, count in enumerate((5, 3, 3)):
        compare(
            [
                BatchRow([chance.randrange(5, 1000)], len(row.ids) + turn, row.blocks)
                for row in rows[:count]
            ]
        )
    compare([BatchRow([8], 34, rows[4].blocks)])
    assert sorted({size.tokens for size in graphs._steps}) == [1, 4, 8, 192]


def test_steps_have_as_many_tiles_as_their_rows_may_need() -> None:
    """At random: each row, the one of padding too, has one that is not full."""
    chance = random.Random(3)
    for _ in range(300):
        most = chance.choice([1, 8, 21, 64])
        counts = [chance.choice([1, 1, 1, most, chance.randint(1, 200)]) for _ in range(20)]
        del counts[chance.randint(1, 20) :]
        size = size_of(sum(counts), len(counts), most)
        rows = [BatchRow([5] * count, chance.randint(0, 50), [1] * 16) for count in counts]
        padding = Padding.of(size.tokens - sum(counts), SPARE, BLOCK)
        assert len(padding.blocks) == -(-len(padding.ids) // BLOCK)
        parts = packed_steps.parts_of(pack([*rows, padding], size, BLOCK), size)
        pieces = parts.pieces.reshape(-1, 4)
        assert len(pieces) == size.tiles
        assert pieces[:, 2].sum() == size.tokens == len(parts.ids)
        assert pieces[:, 2].max() <= size.tile_tokens
        assert parts.ends[len(counts) - 1] == sum(counts) - 1


def test_buckets() -> None:
    rows = (1, 2, 3, 5, 8, 9, 16, 17)
    assert [decodings_bucket(n) for n in rows] == [1, 2, 4, 8, 8, 16, 16, 24]
    assert [tokens_bucket(n) for n in (2, 64, 65, 256, 257)] == [64, 64, 128, 256, 320]
    assert [tokens_bucket(n) for n in (512, 513, 2049, 4096)] == [512, 640, 2560, 4096]
    assert size_of(3, 3, 16) == StepSize(4, 4, 4, 1)
    assert size_of(100, 3, 16) == StepSize(128, 64, 73, 16)


@catches(
    "graphs-of-any-size",
    "a step is recorded that is computed once in a long while",
    edited(StepGraphs.logits, "tokens > MOST_TOKENS", "False"),
)
def test_large_steps_are_not_recorded(packed: PackedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = list[int]()
    graphs = StepGraphs(packed, spare=SPARE, record=lambda compute, rows: recorded.append(rows))
    prompt = BatchRow([7] * (MOST_TOKENS + 1), 0, [1] * (MOST_TOKENS // BLOCK + 1))
    assert graphs.logits([prompt]) is None
    monkeypatch.setattr(step_graphs, "ROOM", 300)
    assert graphs.logits([BatchRow([7], 299 * BLOCK, [1] * 300)]) is None
    assert not recorded


def test_a_step_of_exactly_the_most_tokens_is_recorded(
    packed: PackedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one row or of several, and of one more it is not."""
    import torch

    monkeypatch.setattr(step_graphs, "MOST_TOKENS", 64)
    graphs = StepGraphs(packed, spare=SPARE, record=lambda _, rows: lambda: torch.zeros(rows, 1))
    for lengths, recorded in (([63], True), ([64], True), ([60, 4], True), ([65], False)):
        rows = [BatchRow([7] * length, 0, [1] * 5) for length in lengths]
        logits = graphs.logits(rows)
        assert (logits is not None) is recorded, lengths
        assert logits is None or len(logits) == len(lengths)


@pytest.mark.parametrize("error", [RuntimeError, KeyError])
def test_what_cannot_be_recorded_is_computed_as_other_steps_are(
    packed: PackedModel, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    def refuse(*_: Any) -> Any:
        raise error("operation not permitted when stream is capturing")

    graphs = StepGraphs(packed, spare=SPARE, record=refuse)
    with caplog.at_level(logging.WARNING):
        assert graphs.logits([BatchRow([7], 20, [1, 2])]) is None
        assert graphs.logits([BatchRow([7], 20, [1, 2])]) is None
    assert len(caplog.records) == 1
    assert "not permitted" in caplog.text


@pytest.mark.parametrize("times", [0.2, 3.0])
def test_scores_are_scaled_as_the_model_says(
    times: float, paged: PagedModel, packed: PackedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some models have a scale of their own, which is not that of the size of a head."""
    rows = rows_of(random.Random(2), [20, 40])
    before = logits_of(packed, rows)
    for model in (paged.model, packed.model):
        for layer in model.model.layers:
            monkeypatch.setattr(layer.self_attn, "scaling", layer.self_attn.scaling * times)
    scaled = logits_of(packed, rows)
    assert close(scaled, paged.forward(rows))
    assert not close(scaled, before)


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
        (lambda query, *_: query, "no kernel for this model's attention: other logits"),
        (_fails, "KeyError: 'no such target'"),
    ],
    ids=["sound", "wrong", "fails"],
)
@pytest.mark.parametrize("graphs", [False, True])
def test_a_kernel_is_taken_if_it_gives_what_torch_gives(
    model_folder: Path,
    paged: PagedModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kernel: Any,
    told: str,
    graphs: bool,
) -> None:
    module = SimpleNamespace(attend=kernel)
    monkeypatch.setitem(sys.modules, "teola_engines.llm.paged_attention", module)
    monkeypatch.setattr(step_graphs, "CudaRecorder", lambda: as_it_is)
    tried = tried_model(model_folder)
    tried._try_kernel(SPARE, graphs=graphs)
    assert (tried._packed is None) == bool(told)
    assert (tried._graphs is None) == (bool(told) or not graphs)
    assert told in caplog.text
    rows = rows_of(random.Random(5), [40, 20, 3])
    assert close(tried.forward(rows), paged.forward(rows))


def tried_model(folder: Path) -> PagedModel:
    """A model that has not tried a kernel yet."""
    return PagedModel(load(str(folder), "float32", "cpu"), BLOCK, 2**30, BLOCKS * BLOCK)


def _stale() -> Any:
    """Records a step that gives what it gave when it was recorded."""

    def record(compute: Any, rows: int) -> Any:
        import torch

        found = torch.zeros_like(compute())
        return lambda: found

    return record


def _none() -> Any:
    """Records nothing."""

    def record(compute: Any, rows: int) -> Any:
        raise RuntimeError("no graphs here")

    return record


@catches(
    "graphs-untried",
    "graphs are replayed whatever they give",
    edited(_tried, "_near(way.logits(rows), near)", "(way.logits(rows), near)"),
)
@pytest.mark.parametrize("recorder", [_stale, _none])
def test_graphs_are_replayed_if_they_give_what_torch_gives(
    model_folder: Path,
    paged: PagedModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    recorder: Any,
) -> None:
    module = SimpleNamespace(attend=attend)
    monkeypatch.setitem(sys.modules, "teola_engines.llm.paged_attention", module)
    monkeypatch.setattr(step_graphs, "CudaRecorder", recorder)
    tried = tried_model(model_folder)
    tried._try_kernel(SPARE, graphs=True)
    assert tried._packed is not None
    assert tried._graphs is None
    assert "no graphs of this model's steps: other logits" in caplog.text
    rows = rows_of(random.Random(5), [40, 20, 3])
    assert close(tried.forward(rows), paged.forward(rows))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of tiles that nobody reads
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
            rows = []
            for count, past in spans:
                blocks = [free.pop() for _ in range((count + past) // block + 1)]
                rows.append(BatchRow([0] * count, past, blocks))
            tokens, most = sum(count for count, _ in spans), 8
            for step in (
                StepSize(tokens, len(rows), 12, 1 if tokens == len(rows) else most),
                size_of(tokens, len(rows), most),
            ):
                fill = Padding.of(step.tokens - tokens, free[0], block)
                numbers = torch.from_numpy(pack([*rows, fill], step, block))
                parts = packed_steps.parts_of(numbers, step)
                tiles = Tiles(parts.pieces.view(-1, 4), parts.tables, step.tile_tokens)
                there = Tiles(tiles.pieces.to(device), tiles.tables.to(device), tiles.tokens)
                query = torch.randn(step.tokens, heads, size)
                pools = (x.to(device) for x in pool)
                found = paged_attention.attend(query.to(device), *pools, there, block, 0.2).cpu()
                wanted = attend(query, *pool, tiles, block, 0.2)
                assert torch.allclose(found, wanted, atol=1e-4)
