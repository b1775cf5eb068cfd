"""The loop over a real model: prompts in chunks, and answers that can be found again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from teola.engine import Delta, TextPart
from teola.graph.prompt import Role
from teola.kv import token_keys
from teola_engines.llm import TransformersModel
from tests.engines.llm.test_transformers_model import (
    TEXT,
    answer,
    call,
    parts_of,
    question,
    text_of,
    whole_ids,
)
from tests.planted import catches, edited


@pytest.fixture(scope="module")
def whole(model_folder: Path) -> Iterator[TransformersModel]:
    """Computes each of these prompts in one step."""
    engine = TransformersModel(model=model_folder)
    engine.start()
    yield engine
    engine.close()


@catches(
    "chunk-without-its-past",
    "a chunk is computed as if nothing stood before it",
    edited(
        "teola_engines.llm.model_loop:ModelLoop._compute",
        "rows.append(Row(job.ids[past : past + chunk], past, _blocks(sequence)))",
        "rows.append(Row(job.ids[past : past + chunk], 0, _blocks(sequence)))",
    ),
)
async def test_prompts_in_chunks_beside_decodings_give_the_tokens_of_the_whole(
    model_folder: Path, whole: TransformersModel
) -> None:
    """Steps of 24 prompt tokens, 16 tokens a block: chunks begin and end within blocks."""
    chance = random.Random(3)
    prompts = [parts_of(chance) for _ in range(8)]
    prompts += [(*prompts[0], TextPart(Role.CONTEXT, text_of(chance)))]
    assert max(len(whole_ids(whole, parts)) for parts in prompts) > 3 * 24
    engine = TransformersModel(model=model_folder, max_batch=24, max_sequences=4)
    engine.start()
    try:
        answers = await asyncio.gather(*(answer(engine, call(parts)) for parts in prompts))
        assert engine.kv is not None
        engine.kv.check()
        assert engine.kv.available == engine.kv.blocks
    finally:
        engine.close()
    for parts, (text, _, usage) in zip(prompts, answers, strict=True):
        assert text == (await answer(whole, call(parts)))[0]
        assert usage.completion_tokens == 8


@pytest.mark.parametrize("ended", ["by its length", "by a stop"])
async def test_what_was_generated_can_be_found(whole: TransformersModel, ended: str) -> None:
    """All but the last token, which is never fed to the model; of a conversation's next turn."""
    asked = question(TEXT, max_tokens=40)
    if ended == "by a stop":
        text, _, _ = await answer(whole, asked)
        asked = question(TEXT, max_tokens=40, stop=(text[30:33],))
    ids = whole._call_ids(asked, complete=True)
    job = whole._job(asked, ids, asked.decode)
    whole._started().submit(job)
    outcome = await job.queue.get()
    while isinstance(outcome, Delta) and outcome.finish_reason is None:
        outcome = await job.queue.get()
    assert (len(job.produced) < 40) is (ended == "by a stop")
    keys = token_keys([*ids, *job.produced], 16, asked.context.tenant)
    assert whole.kv is not None
    assert len(keys) > len(ids) // 16
    assert whole.kv.match(keys) == (len(ids) + len(job.produced) - 1) // 16
