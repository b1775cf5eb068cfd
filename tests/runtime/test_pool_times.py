"""Two servers whose speeds differ: what one learns of each is kept by its url, not by its place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from teola import App, EngineConfig, Generate, Runtime
from teola.runtime.remembering import mementos_in
from tests.fake_openai import FakeOpenAI

FASTER = 6.0
CLEARLY = 2.0
"""Sockets and a busy machine blur it; what is exact is in tests/schedule/test_speeds.py."""
TOKEN_S = 0.01


def runtime_of(folder: Path, *servers: FakeOpenAI) -> Runtime:
    pool = [{"url": server.url, "max_sequences": 2} for server in servers]
    config = EngineConfig("openai", {"model": "fake-model"}, pool=pool)
    return Runtime({"llm": config}, learn=folder)


def ask(runtime: Runtime, number: int) -> None:
    app = App(
        "asked",
        Generate(instruction="Answer."),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        runtime=runtime,
    )

    async def together() -> None:
        places = asyncio.Semaphore(8)

        async def one(k: int) -> None:
            async with places:
                await app.arun(question=f"What is {k}?")

        await asyncio.gather(*map(one, range(number)))

    asyncio.run(together())


def slowness(runtime: Runtime) -> list[float]:
    """Of each instance, against its engine on average."""
    queue = runtime.live.core.queues["llm"]
    return [profile.slowness or 1.0 for profile in queue.placing.profiles]


def kept(folder: Path) -> list[float]:
    """The same, as it is on disk, the fast one first."""
    (memento,) = [one for one in mementos_in(folder) if one.engine == "llm"]
    return sorted(one.factor for one in memento.lessons.engines["llm"].instances.values())


@pytest.mark.slow
def test_times_of_each_are_there_after_a_restart_with_the_pool_turned_round(
    tmp_path: Path,
) -> None:
    text = "a b c d e f g h"
    with (
        FakeOpenAI(text, token_delay_s=TOKEN_S) as fast,
        FakeOpenAI(text, token_delay_s=FASTER * TOKEN_S) as slow,
    ):
        with runtime_of(tmp_path, fast, slow) as runtime:
            ask(runtime, 40)
            first, second = slowness(runtime)
            assert second / first > CLEARLY
        assert len(fast.calls) / len(slow.calls) > CLEARLY
        assert kept(tmp_path)[1] / kept(tmp_path)[0] > CLEARLY
        told = next(tmp_path.glob("llm-*.json")).read_text()
        assert fast.url not in told, "no option is written"
        with runtime_of(tmp_path, slow, fast) as runtime:
            runtime.start(runtime.ensure(["llm"])).result()
            assert slowness(runtime) == pytest.approx(kept(tmp_path)[::-1])
            assert len(list(tmp_path.glob("llm-*.json"))) == 1
