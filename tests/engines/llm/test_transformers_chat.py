"""Conversations on the transformers engine: just what is predicted of a prompt is found.

The same on a vLLM: `test_vllm_chat.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from teola import EngineConfig
from teola.schedule.prefix_index import PrefixIndex
from teola_engines.llm import TransformersModel
from tests.engines.llm.chatting import TURNS, at_once, chat, gaps, in_turns, make_chat_model
from tests.planted import catches, edited

BLOCK = 16
BLOCK_BYTES = BLOCK * 2 * 2 * 128 * 4
"""Of tokens, keys and values, layers, width and float32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("chat"))


def engine(folder: Path, blocks: int) -> EngineConfig:
    room = {"block_tokens": BLOCK, "kv_memory_gib": blocks * BLOCK_BYTES / 2**30}
    return EngineConfig("transformers", {"model": folder, "dtype": "float32", **room})


@pytest.mark.slow
@catches(
    "answers-untold",
    "what the engine keeps is not told, so it is guessed from prompts",
    edited(TransformersModel.prefix_changes, "if loop is None:", "if loop is not None:"),
)
@catches(
    "evicted-kept",
    "what was evicted counts as kept",
    edited(PrefixIndex.told, "if evicted:", "if False:"),
)
async def test_each_turn_finds_what_was_predicted_while_others_are_evicted(folder: Path) -> None:
    """There is room for a little more than two of the six conversations."""
    with chat(engine(folder, 200)) as (app, found):
        order = await in_turns(app, 6)
    assert len(found) == 6 * TURNS
    assert [turn.predicted for turn in found] == [turn.cached for turn in found]
    more = gaps(order, found)
    assert sum(gap > BLOCK for as_text, gap in more if as_text) > TURNS // 2, "answers are found"
    assert sum(gap < -200 for _, gap in more) > TURNS, "much had to go"


async def test_each_turn_finds_what_was_predicted_beside_others(folder: Path) -> None:
    with chat(engine(folder, 400)) as (app, found):
        await at_once(app, 4)
    assert len(found) == 4 * TURNS
    assert [turn.predicted for turn in found] == [turn.cached for turn in found]
    assert sum(turn.cached for turn in found) > 0.8 * sum(turn.prompt for turn in found)
