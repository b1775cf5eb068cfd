"""The same behaviours on a real vLLM, whose model answers every prompt alike.

What a scripted server is told to do at will, such as refusing, a real one is not asked for. It runs
nightly, because a vLLM of its own is started for it, and vLLM's version is locked.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from experiments.common.scripted.kinds import manners
from experiments.common.scripted.server import Seen
from teola.engine import TextPart
from teola.graph.prompt import Role
from teola.runtime.hosts.model_server import ModelServer, ServerOptions
from teola_engines.llm import OpenAIServer
from teola_engines.openai.wire import TooLong
from tests.servers.behaviours import BEHAVIOURS, PARTS, SCHEMA, Tried, a_call
from tests.servers.page import read
from tests.servers.test_servers import PAGE

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.timeout(420)]
PIECES = ("<The>", "<answer>", "<is>", "<forty>", "<two>", "<.>")
ANSWER = "".join(PIECES)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[str]:
    from tests.scripted_model import make_scripted_model

    folder = make_scripted_model(tmp_path_factory.mktemp("it") / "it", PIECES, chat_template=True)
    options = ServerOptions(
        str(folder), port=0, python=Path(python), dtype="float32", kv_gib=1, window=1024
    )
    with ModelServer(options) as server:
        yield server.url


class Noted:
    """Stands where a scripted server does, and notes what a real one is asked."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.calls = url, list[Seen]()
        self.manners = replace(manners("vLLM"), model=model)

    async def note(self, request: httpx.Request) -> None:
        body = json.loads(request.content) if request.content else {}
        if request.url.path.endswith("completions"):
            self.calls.append(Seen(request.url.path, dict(request.headers), body, 0.0, status=200))


async def test_a_real_vllm_does_what_the_page_says_of_a_scripted_one(url: str) -> None:
    engine = OpenAIServer("it", url=url, connect_timeout_s=30.0)
    await engine.start()
    assert engine.served.is_vllm
    noted: Any = Noted(url, str(engine.model))
    engine.connection.client._client.event_hooks["request"].append(noted.note)
    it = Tried(noted, engine)
    column = read(PAGE.read_text())["vLLM"]
    try:
        text, last, texts = await it.answer(a_call())
        assert (text, last.finish_reason) == (ANSWER, "stop")
        assert texts > 1
        assert last.usage is not None
        assert last.usage.prompt_tokens > 10
        assert last.usage.completion_tokens in (len(PIECES), len(PIECES) + 1)
        text, last, _ = await it.answer(a_call(max_tokens=3))
        assert (text, last.finish_reason) == ("<The><answer><is>", "length")
        text, last, _ = await it.answer(a_call(stop=("<forty>",)))
        assert (text, last.finish_reason) == ("<The><answer><is>", "stop")
        for title in ("temperature 0", "seed"):
            assert await BEHAVIOURS[title](it) == column[title]
        text, _, _ = await it.answer(a_call(schema=SCHEMA, max_tokens=8))
        assert re.match(r"\s*\{", text), (
            "its grammar holds the model, which would say something else"
        )
        with pytest.raises(TooLong):
            await it.answer(a_call((*PARTS, TextPart(Role.CONTEXT, "word " * 5000))))
        await _cancel(it, url)
        wrong = OpenAIServer("it", url=url, model="nobody")
        await wrong.start()
        error = await Tried(noted, wrong).fails()
        await wrong.close()
        assert "has no model 'nobody'" in str(error)
    finally:
        await engine.close()


async def _cancel(it: Tried, url: str) -> None:
    """The server stops when the stream is closed."""
    async with aclosing(it.engine.generate(a_call(max_tokens=900, ignore_eos=True))) as answers:
        async for delta in answers:
            if delta.text:
                break
    async with httpx.AsyncClient() as client, asyncio.timeout(60.0):
        while True:
            told = (await client.get(f"{url.removesuffix('/v1')}/metrics")).text
            running = re.findall(
                r"^vllm:num_requests_running\{[^}]*\} ([\d.]+)", told, re.MULTILINE
            )
            if running and not any(map(float, running)):
                break
            await asyncio.sleep(0.05)
