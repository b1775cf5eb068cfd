"""A release that an engine's process hears of before the prefill that it is about."""

import time

from teola.engine import Call, QueryContext, TextPart
from teola.graph import DecodeParams, Role
from teola.runtime.hosts.server import EARLY, EngineServer, Recipe
from tests.planted import catches, edited
from tests.under_faults.engines import Model

A_CALL = Call(QueryContext("q"), (TextPart(Role.QUESTION, "why?"),), DecodeParams())


@catches(
    "release-too-early",
    "a release that overtook its prefill is forgotten",
    edited(EngineServer.release, "self._early[key] = None", "pass"),
)
async def test_what_was_released_before_it_came_is_not_kept() -> None:
    server = EngineServer(Recipe(Model, {}, "llm"))
    await server.start()
    server.release([1])
    await server.prefill(A_CALL, time.monotonic(), 1)
    await server.prefill(A_CALL, time.monotonic(), 2)
    assert list(server._kept) == [2]
    server.release([2, 2])
    assert not server._kept


async def test_what_never_comes_is_not_remembered_for_ever() -> None:
    server = EngineServer(Recipe(Model, {}, "llm"))
    await server.start()
    server.release(range(3 * EARLY))
    assert len(server._early) == EARLY
