"""Conversations on a real vLLM: about what is predicted of their prompts is found.

Long because a vLLM is started for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from teola import EngineConfig
from teola.runtime.hosts.model_server import BLOCK_TOKENS, ModelServer, ServerOptions
from tests.engines.llm.chatting import (
    TURNS,
    Prediction,
    at_once,
    chat,
    gaps,
    in_turns,
    make_chat_model,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(420)]

BLOCKS = 160
"""Room for four conversations."""
NEAR = 0.05
PAUSE_S = 0.2
"""Within which events are heard, mostly, on a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[ModelServer]:
    folder = make_chat_model(tmp_path_factory.mktemp("chat") / "model")
    options = ServerOptions(
        str(folder),
        port=0,
        python=Path(python),
        dtype="float32",
        kv_gib=1,
        window=2048,
        extra=("--num-gpu-blocks-override", str(BLOCKS)),
    )
    with ModelServer(options) as server:
        yield server


def engine(server: ModelServer) -> EngineConfig:
    """For blocks of its own on the server."""
    own = {"kv_events": server.kv_events, "salt_key": uuid4().hex}
    return EngineConfig("vllm", {"url": server.url, **own})


def off(found: Sequence[Prediction]) -> float:
    """By how much predictions and reports differ, in parts of what is reported."""
    assert len(found) % TURNS == 0
    wrong = sum(abs(turn.predicted - turn.cached) for turn in found)
    part = wrong / sum(turn.cached for turn in found)
    print(f"{part:.1%} of what {len(found)} turns find is predicted wrong")
    return part


async def test_turns_find_what_was_predicted_while_others_are_evicted(server: ModelServer) -> None:
    with chat(engine(server)) as (app, found):
        order = await in_turns(app, 6, PAUSE_S)
    assert off(found) <= NEAR
    more = gaps(order, found)
    assert sum(gap > BLOCK_TOKENS for as_text, gap in more if as_text) > TURNS // 2
    assert sum(gap < -200 for _, gap in more) > TURNS // 2, "much had to go"


async def test_turns_find_what_was_predicted_beside_others(server: ModelServer) -> None:
    with chat(engine(server)) as (app, found):
        await at_once(app, 4, PAUSE_S)
    assert off(found) <= NEAR
    assert sum(turn.cached for turn in found) > 0.7 * sum(turn.prompt for turn in found)
