"""KV that was evicted lies in the memory of the host until it is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from teola.errors import InputError
from teola_engines.llm import TransformersModel
from tests.engines.llm.test_transformers_model import BLOCK_BYTES, TEXT, answer, question
from tests.planted import catches, edited


@catches(
    "not-copied-back",
    "blocks that come back from the host hold what was there before",
    edited("teola_engines.llm.model_loop:ModelLoop._compute", "if step.swaps:", "if False:"),
)
async def test_kv_that_went_to_the_host_gives_the_same_answers(model_folder: Path) -> None:
    small = TransformersModel(
        model=model_folder,
        dtype="float32",
        kv_memory_gib=12 * BLOCK_BYTES / 2**30,
        host_memory_gib=40 * BLOCK_BYTES / 2**30,
        eviction="workload_aware",
        eviction_options={"min_samples": 2},
    )
    small.start()
    try:
        asked = [question(f"{k} " * 40, max_tokens=12) for k in range(5)]
        first = [await answer(small, call) for call in asked]
        again = [await answer(small, call) for call in asked]
        for (text, _, usage), (other, _, cached) in zip(first, again, strict=True):
            assert text == other
            assert usage.cached_tokens == 0 or usage.cached_tokens < cached.cached_tokens
            assert cached.cached_tokens >= cached.prompt_tokens - 16
        assert small.kv is not None
        small.kv.check()
        assert small.kv.cached > 12
    finally:
        small.close()


def test_options_are_checked_when_the_engine_is_made() -> None:
    with pytest.raises(InputError, match="life_s"):
        TransformersModel(model="m", eviction="workload_aware", eviction_options={"life_s": "long"})
    with pytest.raises(InputError, match="host_memory_gib must be a number from 0 on"):
        TransformersModel(model="m", host_memory_gib=-1.0)


async def test_without_a_prefix_cache_nothing_is_found_and_nothing_kept(model_folder: Path) -> None:
    engine = TransformersModel(
        model=model_folder, dtype="float32", prefix_cache=False, kv_blocks=20
    )
    engine.start()
    try:
        assert engine.kv is not None
        assert (engine.kv.blocks, engine.spec.prefix_reuse) == (20, False)
        texts = set()
        for _ in range(2):
            text, _, usage = await answer(engine, question(TEXT * 3))
            texts.add(text)
            assert usage.cached_tokens == 0
        assert (len(texts), engine.kv.cached) == (1, 0)
    finally:
        engine.close()
    with pytest.raises(InputError, match="kv_blocks must be at least 1, got 0"):
        TransformersModel(model="m", kv_blocks=0)
