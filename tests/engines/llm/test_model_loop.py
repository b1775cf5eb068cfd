"""The loop over a real model: prompts in chunks, answers that can be found again, and who is told
what can be found."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import pytest

from teola.engine import Delta, TextPart
from teola.errors import EngineError
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola.kv import token_keys
from teola_engines.llm import TransformersModel
from teola_engines.llm.model_loop import DRAW_BITS, ModelJob, ModelLoop
from teola_engines.llm.paged_model import PagedModel
from tests.engines.llm.listening import Listener
from tests.engines.llm.test_transformers_model import (
    BLOCK_BYTES,
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
    engine = TransformersModel(model=model_folder, dtype="float32")
    engine.start()
    yield engine
    engine.close()


@catches(
    "chunk-without-its-past",
    "a chunk is computed as if nothing stood before it",
    edited(
        "teola_engines.llm.model_loop:ModelLoop._compute",
        "rows.append(BatchRow(ids[past : past + chunk], past, self.server.blocks(sequence)))",
        "rows.append(BatchRow(ids[past : past + chunk], 0, self.server.blocks(sequence)))",
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
    engine = TransformersModel(model=model_folder, dtype="float32", max_batch=24, max_sequences=4)
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


async def test_each_token_is_told_when_it_gives_text_and_the_first_one_in_any_case(
    whole: TransformersModel,
) -> None:
    """Which may be a part of a character: the time to the first token is known by it."""
    empty = 0
    for seed in range(24):
        asked = question(TEXT, max_tokens=4, temperature=2.0, seed=seed, ignore_eos=True)
        ids = whole._call_ids(asked, complete=True)
        job, again = (whole._job(asked, ids, asked.decode) for _ in range(2))
        whole._started().submit(job)
        told: list[str] = []
        async with asyncio.timeout(20):
            reason = None
            while reason is None:
                outcome = await job.queue.get()
                assert isinstance(outcome, Delta), outcome
                reason = outcome.finish_reason
                told.append(outcome.text)
        pieces = [again.text.feed((token,), last=k == 3) for k, token in enumerate(job.produced)]
        assert told == [piece for k, piece in enumerate(pieces) if piece or k in (0, 3)]
        empty += not pieces[0]
    assert 0 < empty < 24


async def test_who_has_closed_its_loop_takes_no_answer_of_others_along(
    whole: TransformersModel,
) -> None:
    """Three jobs side by side, the first and the last of a loop that is no more."""
    gone = asyncio.new_event_loop()
    gone.close()
    asked = question(TEXT, max_tokens=6)
    ids = whole._call_ids(asked, complete=True)
    jobs = [whole._job(asked, ids, asked.decode) for _ in range(3)]
    jobs[0].loop = jobs[2].loop = gone
    for job in jobs:
        whole._started().submit(job)
    text, reason = "", None
    async with asyncio.timeout(20):
        while reason is None:
            outcome = await jobs[1].queue.get()
            assert isinstance(outcome, Delta), outcome
            text, reason = text + outcome.text, outcome.finish_reason
    assert text == (await answer(whole, asked))[0]


@catches(
    "stop-seen-late",
    "an answer goes on behind a stop string that it has reached",
    edited(ModelLoop._advance, "if job.stops.strings:", "if False:"),
)
@catches(
    "untold-at-the-end",
    "what the last step brought is told when the next call comes",
    edited(
        ModelLoop.step,
        "if step is None:\n        self._report()\n    else:",
        "if step is not None:",
    ),
)
async def test_answers_are_the_same_where_steps_are_told_while_the_next_is_computed(
    model_folder: Path, whole: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: answers of all lengths, that stop and that are given up, and prefixes."""
    monkeypatch.setattr(PagedModel, "asynchronous", True)
    chance = random.Random(8)
    engine = TransformersModel(model=model_folder, dtype="float32", max_batch=64, max_sequences=4)
    engine.start()

    async def one(number: int, parts: Sequence[TextPart], length: int) -> None:
        if number % 5 == 0:
            engine.release(await engine.prefill(call(parts)))
        if number % 7 == 0:
            async for _ in engine.generate(call(parts, max_tokens=40)):
                break
        asked = call(parts, max_tokens=length)
        text, _, usage = await answer(whole, asked)
        assert usage.completion_tokens == length
        if number % 3 == 0:
            stop = text[len(text) // 2 :][:2]
            asked = call(parts, max_tokens=length, stop=(stop,))
            text, _, usage = await answer(whole, asked)
        found, reason, told = await answer(engine, asked)
        assert (found, reason) == (text, "stop" if number % 3 == 0 else "length")
        assert told.completion_tokens == usage.completion_tokens
        assert told.prompt_tokens == usage.prompt_tokens

    try:
        async with asyncio.timeout(15), asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(one(number, parts_of(chance), chance.randint(1, 20)))
        assert engine.kv is not None
        engine.kv.check()
        assert engine.kv.available == engine.kv.blocks
    finally:
        engine.close()


def found(engine: TransformersModel) -> set[Hashable]:
    assert engine.kv is not None
    return set(engine.kv.keys())


@catches(
    "told-too-late",
    "an answer is delivered and what it has changed in the cache is not",
    edited(ModelLoop._report, "if self._listeners:", "if not self._outbox:"),
)
@catches(
    "late-listener",
    "who listens late is not told what is kept already",
    edited(ModelLoop._listen, "tuple(self.server.cache.keys())", "()"),
)
@catches(
    "evictions-untold",
    "what has to go is not told",
    edited(ModelLoop._report_changes, "tuple(evicted)", "()"),
)
async def test_what_the_cache_keeps_is_told_before_the_answers_that_changed_it(
    model_folder: Path,
) -> None:
    """Prompts, answers and prefixes, and with so little room that some have to go."""
    chance, kept = random.Random(4), set[Hashable]()
    engine = TransformersModel(
        model=model_folder, dtype="float32", kv_memory_gib=24 * BLOCK_BYTES / 2**30
    )
    engine.start()
    try:
        early = Listener(engine)
        await early.until(lambda: early.clearings)
        for _ in range(30):
            if chance.random() < 0.3:
                parts = [TextPart(Role.INSTRUCTION, text_of(chance))]
                handle = await engine.prefill(call(parts))
                await early.caught_up()
                assert early.kept == found(engine)
                engine.release(handle)
            await answer(engine, call(parts_of(chance, 20), max_tokens=20))
            await early.caught_up()
            assert early.kept == found(engine)
            kept |= early.kept
        assert len(kept) > 3 * len(early.kept), "much had to go"
        late = Listener(engine)
        await late.until(lambda: late.clearings)
        assert late.kept == early.kept
        await early.stop()
        await asyncio.gather(*(answer(engine, call(parts_of(chance))) for _ in range(8)))
        await late.caught_up()
        assert late.kept == found(engine) != early.kept
        assert len(engine._started()._listeners) == 1
    finally:
        engine.close()
    await late.ended()
    assert [change async for change in engine.prefix_changes()] == []


async def test_tokens_are_drawn_by_their_chances_and_else_the_likeliest(
    whole: TransformersModel,
) -> None:
    """By a job's own seed, whoever is beside it; what is only computed, the likeliest, too."""
    import torch

    loop, asked = whole._started(), question(TEXT, max_tokens=6)
    ids = whole._call_ids(asked, complete=True)
    for seed in range(30):
        chance = random.Random(seed)
        heats = [chance.choice([None, 0.0, 0.3, 1.0, 5.0]) for _ in range(4)]
        jobs: list[ModelJob | None] = []
        for k, heat in enumerate(heats):
            job = whole._job(asked, ids, DecodeParams(temperature=heat or 0.0))
            job.seed = seed + k
            jobs.append(None if heat is None else job)
        draws = [random.Random(seed + k) for k in range(4)]
        for _ in range(3):
            logits = torch.tensor([[chance.gauss(0, 2) for _ in range(9)] for _ in range(4)])
            expected = []
            for k, heat in enumerate(heats):
                row = logits[k].tolist()
                if not heat:
                    expected.append(max(range(9), key=row.__getitem__))
                    continue
                weights = [math.exp((each - max(row)) / heat) for each in row]
                drawn = draws[k].getrandbits(DRAW_BITS) / 2**DRAW_BITS * sum(weights)
                expected.append(next(t for t in range(9) if sum(weights[: t + 1]) > drawn))
            assert loop._choose(jobs, logits.clone()).tolist() == expected
    last = loop._choose(jobs[:1], torch.tensor([[0.0, 1.0, 7.0]]))
    assert last.shape == (1,)


async def test_a_step_that_cannot_be_computed_fails_its_calls_and_no_others(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersModel(name="big", model=model_folder, dtype="float32")
    engine.start()
    try:
        first, _, _ = await answer(engine, question(TEXT, max_tokens=6))
        with monkeypatch.context() as broken:
            broken.setattr(PagedModel, "forward", lambda self, rows: 1 / 0)
            with pytest.raises(EngineError) as caught:
                await answer(engine, question(TEXT, max_tokens=6))
        assert str(caught.value) == (
            "big could not compute a step: ZeroDivisionError: division by zero"
        )
        assert caught.value.retryable
        assert (await answer(engine, question(TEXT, max_tokens=6)))[0] == first
        assert engine.kv is not None
        assert engine.kv.available == engine.kv.blocks
        loop = engine._started()
    finally:
        engine.close()
    assert loop._stopped
    assert not loop._jobs


async def test_what_a_loop_that_is_closed_cannot_do_may_be_tried_elsewhere(
    model_folder: Path,
) -> None:
    """What it is at when it is closed, what waits there, and what comes too late."""
    engine = TransformersModel(name="big", model=model_folder, dtype="float32", max_sequences=1)
    engine.start()
    loop, asked = engine._started(), question(TEXT, max_tokens=400)
    ids = engine._call_ids(asked, complete=True)
    jobs = [engine._job(asked, ids, asked.decode) for _ in range(3)]
    try:
        loop.submit(jobs[0])
        loop.submit(jobs[1])
        assert isinstance(await jobs[0].queue.get(), Delta)
    finally:
        engine.close()
    loop.submit(jobs[2])
    async with asyncio.timeout(20):
        for job in jobs:
            outcome = await job.queue.get()
            while isinstance(outcome, Delta):
                outcome = await job.queue.get()
            assert isinstance(outcome, EngineError)
            assert (str(outcome), outcome.retryable) == ("big was closed", True)
