"""What becomes of calls when Ray says that an actor is gone; test_ray_actor.py kills real ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    RayActorError,
)

from teola.engine import QueryContext, Request
from teola.errors import EngineUnavailable
from teola.graph.ops import EmbeddingParams, Op
from teola.runtime.hosts.ray_actor import RayEngine
from teola.runtime.hosts.remote import Killed


class Gone:
    """An actor each of whose methods fails when its answer is waited for."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.ask = self.run = self.stream = self.cancel = self

    def options(self, **_: Any) -> Gone:
        return self

    def remote(self, *_: Any) -> Gone:
        return self

    def __aiter__(self) -> Gone:
        return self

    async def __anext__(self) -> Any:
        raise self.error

    def __await__(self) -> Any:
        raise self.error


class Engine(RayEngine):
    """An engine on such an actor. heard: what it told of its loss."""

    spec: Any = SimpleNamespace(name="e")

    def __init__(self, error: Exception) -> None:
        self.dead, self.on_lost = None, None
        self._actor, self._ids = Gone(error), iter(range(9))  # type: ignore[assignment]
        self.heard: list[Exception] = []

    def lost(self, error: Any) -> None:
        self.heard.append(error)


async def streamed(engine: Engine) -> None:
    async for _ in engine.stream("generate"):
        pass


WAYS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "ask": lambda engine: engine.ask("capacity"),
    "execute": lambda engine: engine.execute(
        [Request(Op.EMBEDDING, EmbeddingParams(), {}, QueryContext("q"), "k")]
    ),
    "stream": streamed,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [RayActorError(), ActorDiedError(), ActorUnavailableError("busy", None)],
    ids=["failed", "died", "unavailable"],
)
async def test_an_actor_that_is_gone_is_a_loss_whatever_it_was_asked(
    way: str, error: Exception
) -> None:
    engine = Engine(error)
    with pytest.raises(Killed, match="engine 'e': its Ray actor is gone"):
        await WAYS[way](engine)
    assert len(engine.heard) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_loss_of_the_one_before_is_not_told_of_its_successor(way: str) -> None:
    engine = Engine(ActorDiedError())
    actor: Any = engine._actor

    def replaced() -> Any:
        engine._actor = None
        return actor

    engine._alive = replaced  # type: ignore[method-assign]
    with pytest.raises(Killed):
        await WAYS[way](engine)
    assert engine.heard == []


@pytest.mark.parametrize("way", WAYS)
async def test_what_else_ray_says_leaves_the_engine_alone(way: str) -> None:
    engine = Engine(ObjectLostError("0" * 28, None, "here"))
    with pytest.raises(EngineUnavailable, match="engine 'e': Ray: ") as caught:
        await WAYS[way](engine)
    assert not isinstance(caught.value, Killed)
    assert engine.heard == []
