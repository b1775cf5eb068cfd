"""Calls for the tests of OpenAIServer, and how they run them."""

from contextlib import asynccontextmanager

from teola.engine import Call, QueryContext, TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import OpenAIServer

SECRET = "zebra-canary"
INSTRUCTION = TextPart(Role.INSTRUCTION, "Answer the question from the context. " * 10)
PROMPT = (
    INSTRUCTION,
    TextPart(Role.QUESTION, f"What does the {SECRET} eat?"),
    TextPart(Role.INSTRUCTION, "\n\nContext:\n"),
    TextPart(Role.CONTEXT, "Nothing. " * 40),
)


def a_call(
    parts=PROMPT, *, deadline=float("inf"), tenant="default", prefix=None, priority=0, **decode
):
    context = QueryContext("q1", tenant=tenant, deadline=deadline)
    return Call(context, tuple(parts), DecodeParams(**decode), prefix, priority)


@asynccontextmanager
async def started(server, **options):
    options = {"connect_timeout_s": 30.0, **options}  # the machine may be busy with other tests
    engine = OpenAIServer(url=server.url, **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


async def answer(engine, call):
    """(text, the last Delta)."""
    deltas = [delta async for delta in engine.generate(call)]
    assert all(delta.finish_reason is None for delta in deltas[:-1])
    return "".join(delta.text for delta in deltas), deltas[-1]
