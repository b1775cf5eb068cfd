"""What every model server is tried with, whichever kind it is.

Each behaviour runs against one server and says in a word or two how it went; it raises
AssertionError or EngineError where it does not work. `tried` runs it without options first, and
then, where that fails, with the options that its kind needs. docs/servers.md has the table.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from experiments.common.scripted.kinds import Manners, manners
from experiments.common.scripted.server import KEY, Breaks, Refuse, Reply, Scripted, Seen
from teola.engine import Call, Delta, LeftOfMinute, QueryContext, TextPart, Usage
from teola.errors import EngineBusy, EngineError
from teola.graph import DecodeParams, OfferedTools
from teola.graph.prompt import Role
from teola_engines.llm import OpenAIServer
from teola_engines.openai.wire import TooLong

PARTS: Final = (
    TextPart(Role.INSTRUCTION, "Answer the question."),
    TextPart(Role.QUESTION, "What is six times seven?"),
)
SCHEMA: Final = json.dumps(
    {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
)
PIECES: Final = ("The", " answer", " is", " forty", "-two", ".")
TEXT: Final = "".join(PIECES)
OPTIONS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "OpenAI, reasoning": {"": {"omit": ["temperature"]}},
    "Mistral": {"seed": {"omit": ["seed"], "body": {"random_seed": 7}}},
}
"""Kind -> behaviour (or "", for all of them) -> the options of the engine that it takes."""


def tools(*names: str) -> OfferedTools:
    """Tools of one text each."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    functions = [
        {
            "type": "function",
            "function": {"name": name, "description": name, "parameters": parameters},
        }
        for name in names
    ]
    return OfferedTools(json.dumps(functions), "IN WORDS", "BRIEF")


def a_call(parts: tuple[TextPart, ...] = PARTS, **decode: Any) -> Call:
    """A call of the engine, of a query without a deadline."""
    return Call(QueryContext("q"), parts, DecodeParams(**decode))


@dataclass
class Tried:
    """One server and the engine that asks it. told: what it said of its budgets."""

    server: Scripted
    engine: OpenAIServer
    told: list[LeftOfMinute] = field(default_factory=list)

    @property
    def kind(self) -> Manners:
        return self.server.manners

    @property
    def last(self) -> Seen:
        return self.server.calls[-1]

    def has(self, situation: str) -> bool:
        """Whether the kind ever refuses so."""
        return situation in self.kind.refuses

    async def answer(self, call: Call) -> tuple[str, Delta, int]:
        """The text, the last delta, and how many deltas had text."""
        deltas = [delta async for delta in self.engine.generate(call)]
        assert all(delta.finish_reason is None for delta in deltas[:-1])
        assert deltas[-1].usage is not None
        text = "".join(delta.text for delta in deltas)
        return text, deltas[-1], sum(bool(delta.text) for delta in deltas)

    async def fails(self, call: Call | None = None) -> EngineError:
        """The error that a call ends with; one is expected."""
        try:
            await self.answer(call or a_call())
        except EngineError as error:
            return error
        raise AssertionError("it was answered")


@asynccontextmanager
async def tried(server: Scripted, **options: Any) -> AsyncIterator[Tried]:
    """The server, started, and an engine that has found out who it is."""
    options = {"url": server.url, "model": server.manners.model, "api_key": KEY, **options}
    engine = OpenAIServer("it", connect_timeout_s=30.0, **options)
    found = Tried(server, engine)
    engine.on_left(found.told.append)
    await engine.start()
    try:
        yield found
    finally:
        await engine.close()


# --- the behaviours -------------------------------------------------------------------------------


async def start(it: Tried) -> str:
    assert it.engine.served.is_vllm is (it.kind.version is not None)
    (listed,) = it.engine.served.models
    assert listed.name == it.kind.model
    unnamed = OpenAIServer("it", url=it.server.url, api_key=KEY)
    await unnamed.start()
    assert unnamed.model == it.kind.model
    await unnamed.close()
    return "yes"


async def stream(it: Tried) -> str:
    text, last, texts = await it.answer(a_call())
    assert (text, last.finish_reason, texts) == (TEXT, "stop", len(PIECES))
    return "yes"


async def at_once(it: Tried) -> str:
    """A request that is answered in one piece, as a beginning of a prompt is sent ahead."""
    body = it.engine.body(
        a_call(), {"messages": [{"role": "user", "content": "x"}]}, complete=False
    )
    await it.engine.connection.send(QueryContext("q"), body)
    assert it.last.status == 200
    assert it.last.pieces == 1
    return "yes"


async def limit(it: Tried) -> str:
    text, last, _ = await it.answer(a_call(max_tokens=3))
    assert (text, last.finish_reason) == ("The answer is", "length")
    return "yes"


async def temperature(it: Tried) -> str:
    await it.answer(a_call(temperature=0.0))
    return "yes" if it.last.body.get("temperature") == 0 else "left out"


async def stop(it: Tried) -> str:
    text, last, _ = await it.answer(a_call(stop=(" forty",)))
    assert (text, last.finish_reason) == ("The answer is", "stop")
    return "yes"


async def seed(it: Tried) -> str:
    await it.answer(a_call(seed=7))
    if "random_seed" in it.last.body:
        return "yes"
    if "seed" not in it.last.body:
        return "left out"
    return "ignored" if "seed" in it.kind.ignored else "yes"


async def schema(it: Tried) -> str:
    text, _, _ = await it.answer(a_call(schema=SCHEMA))
    if text == it.server.reply.value:
        return "yes"
    assert text == TEXT
    return "in words"


async def tool(it: Tried) -> str:
    it.server.reply = Reply(PIECES, calls=(("weather", '{"city": "Oslo"}'),))
    return await _calls(it, [{"tool": "weather", "args": {"city": "Oslo"}}])


async def tools_together(it: Tried) -> str:
    it.server.reply = Reply(
        PIECES,
        calls=(("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Bergen (Hordaland)"}')),
    )
    cities = ("Oslo", "Bergen (Hordaland)")
    return await _calls(it, [{"tool": "weather", "args": {"city": city}} for city in cities])


async def _calls(it: Tried, expected: list[dict[str, Any]]) -> str:
    call = a_call((TextPart(Role.INSTRUCTION, "IN WORDS"), *PARTS), tools=tools("weather", "time"))
    text, _, _ = await it.answer(call)
    if "tools" not in it.last.body:  # the model is told in words, and writes the list itself
        assert "IN WORDS" in it.last.prompt
        return "in words"
    assert json.loads(text) == {"calls": expected}
    return "yes"


async def no_tools(it: Tried) -> str:
    """The model knows no tools: they are asked for in words, in the same call."""
    if it.has("tools") and not it.engine.served.is_vllm:  # which is held to a schema instead
        it.server.faults.append(Refuse("tools"))
    text, _, _ = await it.answer(a_call(tools=tools("weather")))
    if "tools" not in it.last.body:
        assert text == TEXT
        return "in words"
    assert json.loads(text) == {"answer": TEXT}
    return "no refusal"


async def usage(it: Tried) -> str:
    _, last, _ = await it.answer(a_call())
    assert last.usage is not None
    prompt = sum(len(one["content"]) for one in it.last.body["messages"]) // 4 + 1
    told = Usage(prompt, len(PIECES), prompt // 8)
    return "yes" if last.usage == told else "estimated"


async def thoughts(it: Tried) -> str:
    """Thoughts are no part of the answer, and the first one shows that the call is alive."""
    it.server.reply = Reply(PIECES, thoughts=("Hm", "m."))
    deltas = [delta async for delta in it.engine.generate(a_call())]
    assert "".join(delta.text for delta in deltas) == TEXT
    if it.kind.thoughts is None:
        return "not told"
    assert deltas[0].text == ""
    return "yes"


async def cancel(it: Tried) -> str:
    it.server.reply = Reply(PIECES * 50, each_s=0.005)
    async with aclosing(it.engine.generate(a_call(max_tokens=400))) as answers:
        async for delta in answers:
            if delta.text:
                break
    async with asyncio.timeout(60.0):
        while not it.last.left:
            await asyncio.sleep(0.005)
    assert it.last.pieces < len(PIECES) * 50
    return "yes"


async def busy(it: Tried) -> str:
    if not it.has("busy"):
        return "never"
    it.server.faults.append(Refuse("busy", seconds=7))
    error = await it.fails()
    assert isinstance(error, EngineBusy), error
    return "yes" if error.after_s == 7 else "does not say when"


async def budgets(it: Tried) -> str:
    it.server.budgets = {"requests": 5, "tokens": 900, "reset": 30}
    await it.answer(a_call())
    if it.kind.budgets == "none":
        assert not it.told
        return "not told"
    if it.kind.budgets in ("azure", "mistral"):  # without a time, they say little
        assert not it.told
        return "not used"
    assert it.told[-1].requests == 5
    assert it.told[-1].tokens == 900
    return "yes"


async def used_up(it: Tried) -> str:
    if not it.has("used_up"):
        return "never"
    it.server.faults.append(Refuse("used_up"))
    error = await it.fails()
    assert not error.retryable, error
    assert "used up" in str(error)
    return "yes"


async def too_long(it: Tried) -> str:
    call = a_call((*PARTS, TextPart(Role.CONTEXT, "word " * 5000)))
    if not it.has("long"):
        await it.answer(call)
        return "cut without a word"
    error = await it.fails(call)
    assert isinstance(error, TooLong), error
    return "yes"


async def wrong_names(it: Tried) -> str:
    """A wrong key and a wrong model are told as such."""
    told = 0
    for situation, options in (("key", {"api_key": "no"}), ("model", {"model": "nobody"})):
        if not it.has(situation):
            continue
        engine = OpenAIServer("it", **{"url": it.server.url, "model": it.kind.model, **options})
        if situation == "model":
            engine = OpenAIServer("it", url=it.server.url, model="nobody", api_key=KEY)
            await engine.start()
        else:
            await engine.connection.open()
        try:
            error = await Tried(it.server, engine).fails()
        finally:
            await engine.close()
        expected = "refuses the API key" if situation == "key" else "has no model"
        assert expected in str(error), error
        assert not error.retryable
        told += 1
    return "yes" if told else "not checked"


async def broken(it: Tried) -> str:
    """An error within a stream that began well is no end of an answer, and may be tried again."""
    for how in (Breaks("stream", 2), Breaks("end", 2), Breaks("cut", 2), Breaks("reset", 2)):
        it.server.faults.append(how)
        error = await it.fails()
        assert error.retryable, (how, error)
    return "yes"


BEHAVIOURS: Final[Mapping[str, Callable[[Tried], Awaitable[str]]]] = {
    "is asked who it is": start,
    "streams": stream,
    "answers at once": at_once,
    "`max_tokens`": limit,
    "temperature 0": temperature,
    "stop": stop,
    "seed": seed,
    "schema": schema,
    "a tool": tool,
    "tools together": tools_together,
    "a model without tools": no_tools,
    "usage": usage,
    "thoughts": thoughts,
    "cancelling": cancel,
    "refuses for now": busy,
    "tells its budgets": budgets,
    "used up": used_up,
    "too long": too_long,
    "wrong key, wrong model": wrong_names,
    "breaks off": broken,
}
"""Their titles in the table, in its order."""


async def column(kind: str) -> dict[str, str]:
    """How each behaviour goes on a server of this kind, which is started for it.

    Raises AssertionError where one does not work, with or without options.
    """
    found: dict[str, str] = {}
    known = OPTIONS.get(kind, {})
    async with Scripted(manners(kind)) as server, tried(server, **known.get("", {})) as plain:
        for title, behaviour in BEHAVIOURS.items():
            options = known.get(title)
            if options is None:
                found[title] = await _one(kind, title, behaviour, plain)
            else:
                async with tried(server, **options) as other:
                    word = await _one(kind, title, behaviour, other)
                found[title] = f"{word}, with {shown(options)}"
        if "" in known:
            found["temperature 0"] += f", with {shown(known[''])}"
    return found


async def _one(
    kind: str, title: str, behaviour: Callable[[Tried], Awaitable[str]], it: Tried
) -> str:
    it.server.reply, it.server.budgets = Reply(PIECES), {}
    it.server.faults.clear()
    it.told.clear()
    try:
        return await behaviour(it)
    except (AssertionError, EngineError) as error:
        raise AssertionError(f"{kind}: {title}: {error!r}") from error


def shown(options: Mapping[str, Any]) -> str:
    """Options as a configuration has them."""
    return ", ".join(f"`{name} = {json.dumps(value)}`" for name, value in options.items())
