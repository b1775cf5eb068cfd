"""Conversations on a real vLLM: just what is predicted of their prompts is found.

They run nightly, because a vLLM of their own is started for them. `make test` has the same of a
model in this process (test_transformers_chat.py), and what a real vLLM tells of its blocks
(test_vllm_server.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from teola import App, EngineConfig
from teola.engine import PrefixChange
from teola.runtime.hosts.model_server import BLOCK_TOKENS, ModelServer, ServerOptions
from teola_engines.llm import vllm_server
from teola_engines.llm.vllm_events import StoredBlocks
from tests.engines.llm.chatting import (
    TURNS,
    Heard,
    Prediction,
    at_once,
    chat,
    gaps,
    in_turns,
    make_chat_model,
)

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.timeout(420)]

BLOCKS = 160
"""Room for four conversations."""


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


class Counted(StoredBlocks):
    """Counts the blocks that a server says it has stored, once it is listened to."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connected, self.stored = False, 0

    def clear(self) -> PrefixChange:
        self.connected = True
        return super().clear()

    def _store(self, event: Mapping[str, Any], change: Any) -> None:
        self.stored += len(event["block_hashes"])
        super()._store(event, change)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "StoredBlocks", Counted)


async def until(app: App, holds: Callable[[Counted], bool]) -> None:
    """Waits on the loop of the runtime: what is counted there is known to the routing."""

    async def wait() -> None:
        engine: Any = app.runtime.host("llm").engine
        async with asyncio.timeout(240):
            while engine._kept is None or not holds(engine._kept):
                await asyncio.sleep(0.01)

    await asyncio.wrap_future(app.runtime.start(wait()))


async def hearing(app: App, found: Sequence[Prediction]) -> Heard:
    """Starts the engine; what is returned waits until the routing knows all blocks of the turns
    that have ended, while no other runs: on a busy machine their events are late.

    A turn stores the full blocks of its prompt and of its answer, without those that it found. Of
    the answer's last token nothing is computed.
    """

    def blocks(turn: Prediction) -> int:
        return (turn.prompt + turn.answer - 1) // BLOCK_TOKENS - turn.cached // BLOCK_TOKENS

    async def heard() -> None:
        wanted = sum(map(blocks, found))
        await until(app, lambda kept: kept.stored >= wanted)

    await asyncio.wrap_future(app.runtime.start(app.runtime.ensure(["llm"])))
    await until(app, lambda kept: kept.connected)
    return heard


async def test_each_turn_finds_what_was_predicted_while_others_are_evicted(
    server: ModelServer,
) -> None:
    with chat(engine(server)) as (app, found):
        order = await in_turns(app, 6, await hearing(app, found))
    assert len(found) == 6 * TURNS
    assert [turn.predicted for turn in found] == [turn.cached for turn in found]
    more = gaps(order, found)
    assert sum(gap > BLOCK_TOKENS for as_text, gap in more if as_text) > TURNS // 2
    assert sum(gap < -200 for _, gap in more) > TURNS // 2, "much had to go"


async def test_each_turn_finds_what_was_predicted_beside_others(server: ModelServer) -> None:
    with chat(engine(server)) as (app, found):
        await at_once(app, 4, await hearing(app, found))
    assert len(found) == 4 * TURNS
    assert [turn.predicted for turn in found] == [turn.cached for turn in found]
    assert sum(turn.cached for turn in found) > 0.7 * sum(turn.prompt for turn in found)
