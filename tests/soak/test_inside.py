"""What cannot be seen of a server from outside: its tasks one by one, and a model's memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from experiments.common.tiny_model import make_model
from teola import App, EngineConfig, Generate, Runtime
from teola_engines.llm import TransformersModel
from tests.serve.conftest import Served, serving
from tests.soak.clients import chat, text, until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
CLIENTS = 8


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return make_model(folder, hidden=64, layers=2, heads=2, vocabulary=1024)


@pytest.fixture(scope="module")
def scribe(model_folder: Path) -> Iterator[Served]:
    app = App(
        "scribe",
        template=Generate(max_tokens=4000, ignore_eos=True),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
    )
    llm = EngineConfig("transformers", {"model": model_folder, "max_sequences": 4})
    with Runtime({"llm": llm}) as runtime, serving(runtime, {"scribe": app}) as found:
        yield found


def model(served: Served) -> TransformersModel:
    engine = served.runtime.host("llm").engine
    assert isinstance(engine, TransformersModel)
    return engine


def tasks(served: Served) -> set[str]:
    """What runs on the server's loop, but for its connections."""
    found = asyncio.all_tasks(served.runtime.loop)
    names = {str(task.get_coro().__qualname__) for task in found}  # type: ignore[union-attr]
    return {name for name in names if not name.startswith("RequestResponseCycle")}


def kept(served: Served) -> list[str]:
    """What is held for queries, in the words of who holds it."""
    live, engine = served.runtime.live, model(served)
    assert engine.kv is not None
    assert engine._loop is not None
    return [
        *(f"board: {id}" for id in served.board.running),
        *(f"driver: {id}" for id in live.queries),
        *(f"core: {id}" for id in live.core.runs),
        *(f"task: {key}" for key in live._tasks),
        *(f"queue: {name}" for name, queue in live.core.queues.items() if not queue.idle),
        *(f"model: {id}" for id in engine._loop._jobs),
        *(f"blocks: {n}" for n in [engine.kv.blocks - engine.kv.available] if n),
    ]


async def test_of_a_stream_that_was_left_nothing_is_kept(scribe: Served) -> None:
    """Of eight clients four wait, and the others are at different tokens, when they leave."""
    rng, before = random.Random(5), tasks(scribe)
    ask = chat("scribe", text(rng, 300))

    async def one() -> None:
        async with (
            httpx.AsyncClient(base_url=scribe.url, timeout=None) as client,
            asyncio.timeout(rng.uniform(0.3, 1.0)),
        ):
            await client.post(ask.path, json=ask.body)

    ends = await asyncio.gather(*(one() for _ in range(CLIENTS)), return_exceptions=True)
    assert [type(end) for end in ends] == [TimeoutError] * CLIENTS, "all have left"

    async def free() -> bool:
        return not kept(scribe) and tasks(scribe) <= before

    try:
        await until(free, "free", 20)
    except AssertionError:
        raise AssertionError(f"{kept(scribe)}, {tasks(scribe) - before}") from None
    states = {entry.state for entry in scribe.board.past.values()}
    assert states == {"cancelled"}
