"""Two readers of streams: ours, and that of the `openai` client with what it needs around it.

`python -m tests.servers.readers` says what each costs; decision 0008 says which one is taken.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import httpx
import openai

from experiments.common.scripted.kinds import Manners, manners
from experiments.common.scripted.server import KEY, Reply, Scripted
from experiments.common.scripted.streams import stream_events
from teola.errors import EngineError
from teola_engines.openai import wire
from teola_engines.openai.calls import CallPiece, CallsText
from tests.servers.behaviours import a_call, tools, tried
from tests.servers.odd_streams import ODD, Odd

Reads = Callable[[Odd], Awaitable[str]]
"""The text of an answer, calls as a list of them. Raises EngineError."""
Reader = Callable[[Scripted], AbstractAsyncContextManager[Reads]]


@asynccontextmanager
async def ours(server: Scripted) -> AsyncIterator[Reads]:
    """What the engine reads."""

    async def reads(odd: Odd) -> str:
        server.faults.append(odd.raw)
        offered = tools("weather") if odd.calls is not None else None
        text, _, _ = await it.answer(a_call(tools=offered))
        return text

    async with tried(server) as it:
        yield reads


@asynccontextmanager
async def the_clients(server: Scripted) -> AsyncIterator[Reads]:
    """What the client's stream reads, with what it has no word for done by us."""

    async def reads(odd: Odd) -> str:
        server.faults.append(odd.raw)
        calls = CallsText("it", typed=False) if odd.calls is not None else None
        reason, texts = None, []
        try:
            with wire.as_engine_errors("it", "m", lambda headers: None):
                stream = await client.chat.completions.create(
                    model=server.manners.model,
                    messages=[{"role": "user", "content": "x"}],
                    stream=True,
                    stream_options={"include_usage": True},
                )
                async for chunk in stream:
                    text, pieces, ends = _read(chunk)
                    reason = ends or reason
                    texts.append(calls.feed(text, pieces) if calls is not None else text)
            wire.finish_reason(reason, "it")
        except (openai.APIError, AttributeError, TypeError, KeyError) as error:
            raise EngineError(f"{type(error).__name__}: {error}", retryable=True) from error
        return "".join(texts) + (calls.end() if calls is not None else "")

    async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
        yield reads


def _read(chunk: Any) -> tuple[str, list[CallPiece], str | None]:
    if not chunk.choices:
        return "", [], None
    choice = chunk.choices[0]
    delta = choice.delta
    pieces = [
        CallPiece(one.index, one.id or "", one.function.name or "", one.function.arguments or "")
        for one in delta.tool_calls or ()
    ]
    content = delta.content
    return (content if isinstance(content, str) else ""), pieces, choice.finish_reason


async def failed(reader: Reader, odd: Sequence[Odd] = ODD) -> list[str]:
    """The names of those that a reader does not read as they are to be read."""
    async with Scripted(manners("OpenAI")) as server, reader(server) as reads:
        return [one.name for one in odd if not await _passes(reads, one)]


async def _passes(reads: Reads, odd: Odd) -> bool:
    try:
        text = await reads(odd)
    except EngineError as error:
        return odd.fails is not None and error.retryable is odd.fails
    except Exception:  # noqa: BLE001 -- it does not pass, whatever it is
        return False
    if odd.calls is not None:
        return bool(json.loads(text) == {"calls": odd.calls})
    return odd.fails is None and text == odd.text


# --- what they cost -------------------------------------------------------------------------------

TOKENS: Final = 200
TIMES: Final = 60


def _body(kind: Manners) -> list[bytes]:
    reply = Reply(tuple(f" token{k}" for k in range(TOKENS)))
    asked = {"messages": [], "stream_options": {"include_usage": True}}
    return [event for event, _ in stream_events(kind, reply, asked)]


async def _chunks(body: list[bytes]) -> AsyncIterator[bytes]:
    for one in body:
        yield one


async def _our_reading(body: list[bytes]) -> int:
    tokens = 0
    async for data in wire.events(_chunks(body)):
        if data not in (wire.DONE, wire.ALIVE):
            tokens += bool(wire.read_piece(data, "it", "m").text)
    return tokens


async def _clients_reading(body: list[bytes]) -> int:
    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for one in body:
                yield one

    request = httpx.Request("POST", "http://it")
    response = httpx.Response(200, request=request, stream=Body())
    stream = openai.AsyncStream[Any](
        cast_to=openai.types.chat.ChatCompletionChunk, client=CLIENT, response=response
    )
    tokens = 0
    async for chunk in stream:
        tokens += bool(_read(chunk)[0])
    return tokens


CLIENT: Final = openai.AsyncOpenAI(api_key=KEY, base_url="http://127.0.0.1:1")


async def costs() -> dict[str, float]:
    """Processor time of reading a stream of 200 tokens, in ms: the least of several."""
    body = _body(manners("OpenAI"))
    found = {}
    for name, reading in (("ours", _our_reading), ("the client's", _clients_reading)):
        least = float("inf")
        for _ in range(TIMES):
            begun = time.process_time()
            assert await reading(body) == TOKENS
            least = min(least, time.process_time() - begun)
        found[name] = least * 1000
    return found


async def whole_query_ms() -> float:
    """Processor time of a whole query of that length at a server on this machine, its reading by us
    included, and that of the server taken off: the least of several."""
    from teola import App, EngineConfig, Generate, Runtime

    kind = manners("OpenAI")
    async with Scripted(kind) as server:
        server.reply = Reply(tuple(f" token{k}" for k in range(TOKENS)))
        options = {"url": server.url, "api_key": KEY, "model": kind.model}
        with Runtime({"llm": EngineConfig("openai", options)}) as runtime:
            generate = Generate(instruction="", context_required=False, max_tokens=TOKENS + 1)
            app = App(
                "a",
                generate,
                inputs={"question": "text"},
                outputs={"answer": "answer"},
                runtime=runtime,
            )
            await app.arun(question="x")
            thread = runtime._thread
            assert thread is not None
            assert thread.ident is not None
            clock = time.pthread_getcpuclockid(thread.ident)
            least = float("inf")
            for _ in range(TIMES):
                begun = time.clock_gettime(clock)
                await app.arun(question="x")
                least = min(least, time.clock_gettime(clock) - begun)
    return least * 1000


async def main() -> None:
    for name, reader in (("ours", ours), ("the client's", the_clients)):
        names = await failed(reader)
        print(
            f"{name}: reads {len(ODD) - len(names)} of {len(ODD)}; not: {', '.join(names) or '-'}"
        )
    found, whole = await costs(), await whole_query_ms()
    for name, each in found.items():
        print(f"{name}: {each:.2f} ms for {TOKENS} tokens")
    more = found["the client's"] - found["ours"]
    print(f"a query: {whole:.2f} ms; with the client's reader {100 * more / whole:.0f} % more")


if __name__ == "__main__":
    asyncio.run(main())
