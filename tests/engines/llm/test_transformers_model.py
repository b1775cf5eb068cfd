"""The engine against plain transformers: exact tokens, shared blocks, nothing held at the end."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from teola.engine import Call, Delta, QueryContext, SequenceHandle, TextPart, Usage
from teola.errors import EngineError, EngineUnavailable, OutputError, UnknownName
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import TransformersModel

BLOCK_BYTES = 16 * 2 * 2 * 2 * 32 * 4  # tokens, keys and values, layers, heads, head size, float32
TEXT = "the a of model if not class lambda tuple Zürich 日本 return 42 yields; and\n"
WORDS = TEXT.split(" ")


@pytest.fixture(scope="module")
def engine(model_folder: Path) -> Iterator[TransformersModel]:
    engine = TransformersModel(model=model_folder, dtype="float32")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def small(model_folder: Path) -> Iterator[TransformersModel]:
    """Only twelve blocks of KV."""
    engine = TransformersModel(
        model=model_folder, dtype="float32", kv_memory_gib=12 * BLOCK_BYTES / 2**30
    )
    engine.start()
    assert engine.kv is not None
    assert engine.kv.blocks == 12
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain(model_folder: Path) -> Any:
    """The same model, as transformers runs it; gives the text after a prompt's ids."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_folder)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(model_folder)

    def answer(ids: Sequence[int], count: int) -> str:
        cache, found, fed = None, list[int](), list(ids)
        with torch.inference_mode():
            for _ in range(count):
                output = model(
                    torch.tensor([fed]).to(model.device), past_key_values=cache, use_cache=True
                )
                cache, fed = output.past_key_values, [int(output.logits[0, -1].argmax())]
                found += fed
        return str(tokenizer.decode(found, skip_special_tokens=True))

    return answer


def text_of(chance: random.Random, longest: int = 40) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, longest))) + " "


def parts_of(chance: random.Random, longest: int = 40) -> tuple[TextPart, ...]:
    roles = [Role.INSTRUCTION, Role.QUESTION, Role.CONTEXT, Role.CONTEXT, Role.ANSWER]
    return tuple(
        TextPart(role, text_of(chance, longest)) for role in roles[: chance.randrange(2, 6)]
    )


def call(parts: Sequence[TextPart], prefix: SequenceHandle | None = None, **decode: Any) -> Call:
    settings = {"max_tokens": 8, "ignore_eos": True, **decode}
    return Call(QueryContext("q"), tuple(parts), DecodeParams(**settings), prefix)


def question(text: str, **decode: Any) -> Call:
    return call([TextPart(Role.QUESTION, text)], **decode)


async def answer(engine: TransformersModel, call: Call) -> tuple[str, str, Usage]:
    text, last = "", Delta("")
    async for last in engine.generate(call):
        text += last.text
    assert last.finish_reason is not None
    assert last.usage is not None
    return text, last.finish_reason, last.usage


async def settled(engine: TransformersModel) -> int:
    """Blocks that are free once all that was asked for is done."""
    gc.collect()
    await answer(engine, question("done", max_tokens=1))
    assert engine.kv is not None
    engine.kv.check()
    return engine.kv.available


def whole_ids(engine: TransformersModel, parts: Sequence[TextPart]) -> list[int]:
    assert engine._tokens is not None
    return engine._tokens.ids(parts, complete=True)


# --- exactness --------------------------------------------------------------------------------


async def split_answer(
    engine: TransformersModel, parts: Sequence[TextPart], chance: random.Random
) -> tuple[str, Usage]:
    """Partial prefillings cut at random, then the rest and the decoding."""
    cuts = sorted(chance.sample(range(1, len(parts)), chance.randrange(1, len(parts))))
    handle, done = None, 0
    for cut in cuts:
        handle = await engine.prefill(call(parts[done:cut], handle))
        done = cut
    text, _, usage = await answer(engine, call(parts[done:], handle))
    return text, usage


@pytest.mark.slow
async def test_split_prompts_give_exactly_the_greedy_tokens_of_the_whole(
    engine: TransformersModel, plain: Any
) -> None:
    chance, cached = random.Random(0), 0
    prompts = [parts_of(chance) for _ in range(200)]
    for start in range(0, len(prompts), 8):  # alone in the last, batched with others before
        group = prompts[start : start + 8] if start < 192 else prompts[start : start + 1]
        answers = await asyncio.gather(*(split_answer(engine, parts, chance) for parts in group))
        for parts, (text, usage) in zip(group, answers, strict=True):
            assert text == plain(whole_ids(engine, parts), 8)
            assert usage.completion_tokens == 8
            cached += usage.cached_tokens
    assert cached > 200 * 16


async def test_whole_prompts_of_many_lengths_batched_give_the_same_as_alone(
    engine: TransformersModel, plain: Any
) -> None:
    chance = random.Random(1)
    prompts = [parts_of(chance, 10 * i + 2) for i in range(20)]
    answers = await asyncio.gather(*(answer(engine, call(parts)) for parts in prompts))
    for parts, (text, reason, _) in zip(prompts, answers, strict=True):
        assert text == plain(whole_ids(engine, parts), 8)
        assert reason == "length"


async def test_a_chat_template_is_split_exactly(chat_model_folder: Path, plain: Any) -> None:
    chat = TransformersModel(
        model=chat_model_folder, dtype="float32"
    )  # with the weights of the other
    chat.start()
    chance = random.Random(2)
    try:
        for _ in range(10):
            parts = parts_of(chance)
            assert whole_ids(chat, parts) != whole_ids(chat, parts[1:])
            text, _ = await split_answer(chat, parts, chance)
            assert text == plain(whole_ids(chat, parts), 8)
    finally:
        chat.close()


def test_bfloat16_differs_only_where_two_tokens_are_nearly_tied(model_folder: Path) -> None:
    from teola_engines.llm.paged_model import BatchRow, PagedModel, load

    paged = PagedModel(load(str(model_folder), "bfloat16", "cpu"), 16, 1 << 26, 4096)
    chance, differ = random.Random(3), 0
    for _ in range(50):
        prompts = [
            [chance.randrange(5, 1000) for _ in range(chance.randrange(40, 90))] for _ in "abcd"
        ]
        tables = [range(8 * i, 8 * i + 8) for i in range(4)]
        whole = [paged.forward([BatchRow(ids, 0, tables[0])])[0] for ids in prompts]
        paged.forward([BatchRow(ids[:32], 0, t) for ids, t in zip(prompts, tables, strict=True)])
        rows = [BatchRow(ids[32:], 32, table) for ids, table in zip(prompts, tables, strict=True)]
        for alone, split in zip(whole, paged.forward(rows), strict=True):
            if alone.argmax() != split.argmax():
                differ += 1
                best, second = alone.topk(2).values
                assert best - second <= best.abs() * 2**-5  # eight units in the last place
    assert differ <= 10


# --- sampling and stopping ---------------------------------------------------------------------


async def test_sampling_is_a_function_of_the_request(engine: TransformersModel) -> None:
    hot = question("Tell me more", temperature=1.5, max_tokens=12)
    other = Call(QueryContext("other"), hot.parts, hot.decode)
    first, busy, different = await asyncio.gather(
        answer(engine, hot), answer(engine, hot), answer(engine, other)
    )
    assert first[0] == busy[0]
    assert first[0] != different[0]
    greedy = await answer(engine, question("Tell me more", max_tokens=12))
    assert greedy[0] != first[0]


async def test_a_stop_string_ends_the_answer_before_it(engine: TransformersModel) -> None:
    whole, _, _ = await answer(engine, question("Tell me more", max_tokens=20))
    stop = whole[len(whole) // 2 :][:3]
    text, reason, usage = await answer(
        engine, question("Tell me more", max_tokens=20, stop=(stop,))
    )
    assert text == whole[: whole.index(stop)]
    assert reason == "stop"
    assert usage.completion_tokens < 20


async def test_the_end_of_sequence_ends_the_answer_unless_ignored(model_folder: Path) -> None:
    engine = TransformersModel(model=model_folder, dtype="float32")
    engine.start()
    assert engine._loop is not None
    try:
        found = await answer(engine, question("Tell me more", max_tokens=6))
        assert found[1:2] == ("length",)
        engine._loop._eos = frozenset(range(1024))
        text, reason, usage = await answer(engine, question("x", ignore_eos=False))
        assert (text, reason, usage.completion_tokens) == ("", "stop", 1)
        assert (await answer(engine, question("x")))[1] == "length"
    finally:
        engine.close()


# --- refusals ---------------------------------------------------------------------------------


async def test_what_cannot_be_asked_is_refused_before_anything_runs(
    engine: TransformersModel,
) -> None:
    with pytest.raises(EngineError, match=r"the prompt for llm is empty"):
        await answer(engine, call([]))
    with pytest.raises(EngineError, match=r"the prompt for llm is empty"):
        await answer(engine, question(""))
    assert engine.spec.window == 8192
    with pytest.raises(EngineError, match=r"has \d+ tokens and the window 8192; shorten"):
        await answer(engine, question("word " * 9000))
    with pytest.raises(EngineError, match=r"the window 8192"):
        await engine.prefill(question("word " * 9000))
    with pytest.raises(OutputError, match="JSON schema"):
        await answer(engine, question("x", schema="{}"))


async def test_an_answer_ends_where_the_window_does(small: TransformersModel) -> None:
    _, reason, usage = await answer(small, question("word " * 40, max_tokens=500))
    assert reason == "length"
    assert usage.prompt_tokens + usage.completion_tokens == 12 * 16


def test_a_model_that_is_not_there_says_so(tmp_path: Path) -> None:
    engine = TransformersModel(model=tmp_path / "absent")
    with pytest.raises(EngineUnavailable, match="absent"):
        engine.start()
    engine.close()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="dtype"):
        TransformersModel(model="m", dtype="float31")
    with pytest.raises(UnknownName, match="eviction"):
        TransformersModel(model="m", eviction="random")


async def test_a_closed_engine_fails_its_calls(model_folder: Path) -> None:
    engine = TransformersModel(model=model_folder, dtype="float32")
    engine.start()
    stream = engine.generate(question("x", max_tokens=5000))
    await anext(stream)
    await asyncio.to_thread(engine.close)
    with pytest.raises(EngineError, match="was closed"):
        async for _ in stream:
            pass
    with pytest.raises(EngineError, match="not started"):
        await answer(engine, question("x"))


async def test_a_step_that_fails_takes_only_its_own_calls(
    engine: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine._loop is not None

    def out_of_memory(rows: object) -> None:
        raise RuntimeError("out of memory\non this device")

    free = await settled(engine)
    with monkeypatch.context() as patched:
        patched.setattr(engine._loop._paged, "forward", out_of_memory)
        with pytest.raises(EngineError, match="RuntimeError: out of memory on this") as caught:
            await answer(engine, question("x"))
    assert caught.value.retryable
    assert await settled(engine) == free


# --- blocks -----------------------------------------------------------------------------------


async def take(stream: AsyncIterator[Delta], count: int) -> None:
    for _ in range(count):
        await anext(stream)


async def test_cancelling_frees_all_blocks(engine: TransformersModel) -> None:
    free = await settled(engine)
    chance = random.Random(4)
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(cancelled(engine, parts_of(chance), chance))
    assert await settled(engine) == free
    assert engine._loop is not None
    assert not engine._loop._jobs


async def cancelled(
    engine: TransformersModel, parts: Sequence[TextPart], chance: random.Random
) -> None:
    """One that goes away while waiting, prefilling or decoding."""
    handle = None
    if chance.random() < 0.5:
        prefill = asyncio.create_task(engine.prefill(call(parts[:1])))
        await asyncio.sleep(chance.random() * 0.05)
        if chance.random() < 0.5:
            prefill.cancel()
        handle = next(iter(await asyncio.gather(prefill, return_exceptions=True)))
        handle = handle if isinstance(handle, SequenceHandle) else None
    rest = parts[1:] if handle else parts
    async with aclosing(engine.generate(call(rest, handle, max_tokens=300))) as stream:  # type: ignore[type-var]
        if chance.random() < 0.7:
            await take(stream, chance.randrange(1, 4))


async def test_a_prefix_is_kept_until_its_handle_is_gone(small: TransformersModel) -> None:
    free = await settled(small)
    prefix = [TextPart(Role.INSTRUCTION, text_of(random.Random(5), 60))]
    handle = await small.prefill(call(prefix))
    held = len(handle.token_ids) // 16
    assert held > 1
    assert await settled(small) == free - held
    _, _, usage = await answer(small, call([TextPart(Role.QUESTION, "Why?")], handle))
    assert usage.cached_tokens == held * 16
    small.release(handle)
    assert await settled(small) == free
    other = await small.prefill(call(prefix))
    assert await settled(small) == free - held
    del other
    assert await settled(small) == free


async def test_a_prefix_that_had_to_go_is_computed_again(
    small: TransformersModel, plain: Any
) -> None:
    chance = random.Random(6)
    handles = [
        await small.prefill(call([TextPart(Role.INSTRUCTION, text_of(chance, 60) + str(i))]))
        for i in range(12)
    ]
    large = question("word " * 50, max_tokens=16)
    await asyncio.gather(*(answer(small, large) for _ in range(3)))
    for handle in handles:
        rest = [TextPart(Role.QUESTION, "Why?")]
        text, _, _ = await answer(small, call(rest, handle))
        assert text == plain(whole_ids(small, [*handle.parts, *rest]), 8)


async def test_with_little_kv_everybody_waits_and_everybody_is_answered(
    small: TransformersModel, plain: Any
) -> None:
    """Every query keeps a prefix while it waits for room for the rest of it."""
    chance = random.Random(7)
    prompts = [parts_of(chance, 20) for _ in range(20)]
    answers = await asyncio.gather(*(split_answer(small, parts, chance) for parts in prompts))
    for parts, (text, _) in zip(prompts, answers, strict=True):
        assert text == plain(whole_ids(small, parts), 8)
    assert await settled(small) == 12


async def test_tenants_share_no_blocks(engine: TransformersModel) -> None:
    part = TextPart(Role.QUESTION, text_of(random.Random(8), 80))
    decode = DecodeParams(max_tokens=2, ignore_eos=True)
    used = []
    for tenant in ("a", "b", "a"):
        context = QueryContext("q", tenant=tenant)
        used.append((await answer(engine, Call(context, (part,), decode)))[2].cached_tokens)
    assert used[:2] == [0, 0]
    assert used[2] > 0
