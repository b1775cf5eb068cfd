"""Keys of calls to a model in this process: they find what its cache holds, exactly."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from teola.engine import Call, QueryContext, TextPart, Usage
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import TransformersModel, VLLMInProcess, local_keys, local_tokens
from tests.planted import catches, edited

TEXT = "the a of model if not class lambda tuple Zürich 日本 return 42 yields; and"
WORDS = TEXT.split(" ")
BLOCK = 16


@pytest.fixture(scope="module")
def engine(chat_model_folder: Path) -> Iterator[TransformersModel]:
    """With so few blocks that some have to go."""
    engine = TransformersModel(model=chat_model_folder, dtype="float32", kv_memory_gib=0.0005)
    engine.start()
    yield engine
    engine.close()


def a_call(parts: list[TextPart], tenant: str = "t", prefix: object = None) -> Call:
    decode = DecodeParams(max_tokens=4, ignore_eos=True)
    return Call(QueryContext("q", tenant=tenant), tuple(parts), decode, prefix)  # type: ignore[arg-type]


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words)) + " "


async def usage(engine: TransformersModel, call: Call) -> Usage:
    deltas = [delta async for delta in engine.generate(call)]
    assert deltas[-1].usage is not None
    return deltas[-1].usage


def found(engine: TransformersModel, call: Call) -> tuple[int, int]:
    """(tokens of the prompt, those that the cache holds); the last one is computed in any case."""
    keys = engine.keys(call)
    assert engine.kv is not None
    return keys.tokens, min(engine.kv.match(keys.blocks), (keys.tokens - 1) // BLOCK) * BLOCK


@catches(
    "local-keys-tenant",
    "keys are not the tenant's",
    edited(TransformersModel.keys, "call.context.tenant", '"t"'),
)
@catches(
    "local-keys-prefix",
    "what a handle holds is left out",
    edited(local_keys.of_call, "complete=complete).ids", "complete=complete).rest"),
)
async def test_they_find_what_the_cache_holds(engine: TransformersModel) -> None:
    """Chats of several tenants after a few instructions, in one piece or in two."""
    chance, hits = random.Random(3), 0
    instructions = [text(chance, 20) for _ in range(3)]
    chats: list[tuple[str, list[TextPart]]] = [
        (chance.choice("tu"), [TextPart(Role.INSTRUCTION, chance.choice(instructions))])
        for _ in range(8)
    ]
    for _ in range(60):
        tenant, parts = chance.choice(chats)
        if len(parts) < 5:
            parts.append(TextPart(Role.QUESTION, text(chance, chance.randrange(1, 15))))
        call = a_call(parts, tenant)
        if chance.random() < 0.3:
            handle = await engine.prefill(a_call(parts[:-1], tenant))
            call = a_call(parts[-1:], tenant, handle)
        expected = found(engine, call)
        told = await usage(engine, call)
        assert (told.prompt_tokens, told.cached_tokens) == expected
        hits += told.cached_tokens > 0
    assert hits > 30
    assert engine.kv is not None
    used = {key for tenant, parts in chats for key in engine.keys(a_call(parts, tenant)).blocks}
    assert engine.kv.cached < len(used), "some had to go"


def test_a_beginning_has_the_first_keys_of_the_whole(engine: TransformersModel) -> None:
    chance = random.Random(5)
    parts = [
        TextPart(Role.INSTRUCTION, text(chance, 40)),
        TextPart(Role.QUESTION, text(chance, 40)),
    ]
    whole = engine.keys(a_call(parts))
    begun = engine.keys(a_call(parts[:1]), complete=False)
    assert begun.blocks
    assert begun.blocks == whole.blocks[: len(begun.blocks)]
    assert begun.tokens < whole.tokens


async def test_from_several_threads_at_once(engine: TransformersModel) -> None:
    chance = random.Random(6)
    calls = [a_call([TextPart(Role.CONTEXT, text(chance, 300))]) for _ in range(20)]
    expected = [engine.keys(call) for call in calls]
    for _ in range(5):
        assert await asyncio.gather(*(asyncio.to_thread(engine.keys, c) for c in calls)) == expected


@catches(
    "literal-again",
    "an instruction is tokenised each time",
    edited(
        "teola_engines.llm.tokens:PromptTokens.ids",
        "self._literal(part.text) if",
        "self._plain(part.text) if",
    ),
)
def test_an_instruction_is_tokenised_once(chat_model_folder: Path) -> None:
    tokens = local_tokens.load_tokenizer(str(chat_model_folder), "llm")
    seen: list[str] = []
    plain = tokens.prompts._plain
    tokens.prompts._plain = lambda text: (seen.append(text), plain(text))[1]
    for question in ("one?", "two?", "three?"):
        parts = [TextPart(Role.INSTRUCTION, "Answer. "), TextPart(Role.QUESTION, question)]
        local_keys.of_call(tokens, "llm", a_call(parts), BLOCK, "", complete=True)
    assert seen == ["Answer. ", "one?", "two?", "three?"]


def test_what_has_no_ids_has_keys_of_its_text(engine: TransformersModel) -> None:
    unread = a_call([TextPart(Role.QUESTION, "x" * 640 + "\udc00")])
    assert len(engine.keys(unread).blocks) == 643 // 64
    early = TransformersModel(model="/nowhere").keys(unread)
    assert early == engine.keys(unread)
    assert early != VLLMInProcess(model="/nowhere", block_tokens=BLOCK).keys(unread), "other salts"
