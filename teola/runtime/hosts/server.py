"""EngineServer: an engine instance in another process, whatever carries the messages there.

A child process (`process`, `child`) and a Ray actor (`ray_actor`) both hold one. Requests come with
the sender's clock, because deadlines are absolute and clocks of two machines are not the same one.
What an engine keeps of a sequence never leaves it: handles travel with a `RemoteState` instead.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

from teola.engine import (
    Call,
    Delta,
    Engine,
    EngineResult,
    EngineSpec,
    Keys,
    LanguageModel,
    MakesKeys,
    PrefixChange,
    QueryContext,
    Request,
    SequenceHandle,
    TellsPrefixes,
    Travels,
)
from teola.errors import EngineError, InputError, TeolaError
from teola.kv.policies import REGISTRY, Policy
from teola.registry import Named
from teola.runtime.hosts.local import LocalHost
from teola.runtime.hosts.shapes import check_shape
from teola.runtime.likeness import Likeness, likeness
from teola.runtime.observe.noting import queries_of, working_for


class Recipe(NamedTuple):
    """How to make the engine over there. factory: importable there; name: the engine's own.
    policies: eviction policies that it needs and that only this program has registered."""

    factory: Callable[..., Engine]
    options: Mapping[str, Any]
    name: str
    policies: tuple[tuple[str, Callable[..., Policy]], ...] = ()

    def make(self) -> Engine:
        """A fresh, unstarted engine. Raises InputError if what the factory makes is none."""
        for name, policy in self.policies:
            if name not in REGISTRY.registered():
                REGISTRY.put(Named(name, policy))
        made = self.factory(**self.options)
        check_shape(made, self.name)
        return made

    def travelling(self) -> Recipe:
        """The recipe with the registered eviction policies that its options name."""
        named = {option for option in self.options.values() if isinstance(option, str)}
        found = REGISTRY.registered()
        policies = [(name, found[name].thing) for name in sorted(named & found.keys())]
        return self._replace(policies=tuple(policies))

    def packed(self) -> bytes:
        """For sending. Raises InputError if another process could not make it."""
        for maker in (self.factory, *(policy for _, policy in self.policies)):
            if getattr(maker, "__module__", "") == "__main__":
                raise InputError(
                    f"engine {self.name!r}: {getattr(maker, '__qualname__', maker)} stands in the "
                    "program itself, where other processes cannot find it: put it into a module"
                )
        try:
            return pickle.dumps(self)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InputError(
                f"engine {self.name!r} cannot run in another process: {error}"
            ) from None


@dataclass(frozen=True, slots=True)
class RemoteState:
    """Names what an engine elsewhere keeps of a sequence. server: which one, until it dies."""

    server: str
    key: int


STREAMS: Final = frozenset({"generate", "prefix_changes"})
"""Methods of an EngineServer that are streams."""
EARLY: Final = 1024
"""Handles that are remembered as released before they came, or were never known."""


@dataclass(slots=True)
class EngineServer:
    """Serves one engine; use from one event loop."""

    recipe: Recipe
    id: str = field(default_factory=lambda: uuid4().hex)
    _host: LocalHost | None = None
    _kept: dict[int, SequenceHandle] = field(default_factory=dict)
    _coming: set[int] = field(default_factory=set)
    _early: dict[int, None] = field(default_factory=dict)

    @property
    def host(self) -> LocalHost:
        assert self._host is not None, "start first"
        return self._host

    async def start(self) -> tuple[EngineSpec, dict[str, Any]]:
        """Make and start the engine; what it declares, and what of it travels. Raises
        EngineUnavailable."""
        engine = self.recipe.make()
        self._host = LocalHost(engine, 0)
        await self._host.start()
        return engine.spec, {name: getattr(engine, name) for name in _travelling(engine)}

    async def close(self) -> None:
        """Close the engine."""
        if self._host is not None:
            await self._host.close()

    async def execute(
        self, requests: Sequence[Request], sent: float
    ) -> list[EngineResult | Exception]:
        """Run a batch. sent: the sender's clock."""
        here = [r._replace(context=_shifted(r.context, sent)) for r in requests]
        working_for.set(queries_of(here))
        found = await self.host.execute(here)
        return [portable(one) if isinstance(one, Exception) else one for one in found]

    async def prefill(self, call: Call, sent: float, key: int) -> SequenceHandle:
        """Compute a prefix; the handle names what is kept of it here. key: the sender's name for
        it, who may `release` it before the end, and even be heard of that first."""
        model = cast("LanguageModel", self.host.engine)
        if key in self._early:
            del self._early[key]
        else:
            self._coming.add(key)
        try:
            handle = await model.prefill(self._received(call, sent))
            if handle.state is None:
                return handle
            if key in self._coming:
                self._kept[key] = handle
            else:
                self.host.release(handle)
            return replace(handle, state=RemoteState(self.id, key))
        finally:
            self._coming.discard(key)

    async def generate(self, call: Call, sent: float) -> AsyncIterator[Delta]:
        """Stream an answer; closing it aborts the call."""
        model = cast("LanguageModel", self.host.engine)
        async with aclosing(model.generate(self._received(call, sent))) as stream:  # type: ignore[type-var]
            async for delta in stream:
                yield delta

    async def keys(self, call: Call, sent: float, complete: bool) -> Keys:
        """What the engine's prefix cache would find the call by."""
        make = partial(cast("MakesKeys", self.host.engine).keys, complete=complete)
        found: Keys = await self.host.call(make, self._received(call, sent))
        return found

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        """What the engine's prefix cache keeps, from now on."""
        model = cast("TellsPrefixes", self.host.engine)
        async with aclosing(model.prefix_changes()) as changes:  # type: ignore[type-var]
            async for change in changes:
                yield change

    async def call(self, method: str, arguments: Sequence[Any]) -> Any:
        """Call any other method of the engine."""
        return await self.host.call(getattr(self.host.engine, method), *arguments)

    def likeness(self) -> Likeness:
        """What the engine has to share with others of its pool."""
        return likeness(self.host.engine)

    def ping(self) -> None:
        """It is there."""

    def release(self, keys: Sequence[int]) -> None:
        """Nobody holds these handles any more."""
        for key in keys:
            if key in self._kept:
                self.host.release(self._kept.pop(key))
            elif key in self._coming:
                self._coming.discard(key)
            else:
                self._early[key] = None
        while len(self._early) > EARLY:
            del self._early[next(iter(self._early))]

    def _received(self, call: Call, sent: float) -> Call:
        """The call with what its prefix's handle names, if that is still here (else it is computed
        anew)."""
        prefix = call.prefix
        if prefix is not None and prefix.state is not None:
            named = prefix.state
            mine = isinstance(named, RemoteState) and named.server == self.id
            kept = self._kept.get(named.key) if mine else None
            prefix = replace(prefix, state=kept and kept.state)
        return replace(call, context=_shifted(call.context, sent), prefix=prefix)


def _travelling(engine: Engine) -> Sequence[str]:
    return engine.travels if isinstance(engine, Travels) else ()


def _shifted(context: QueryContext, sent: float) -> QueryContext:
    """The context with its deadline on this machine's clock."""
    if context.deadline == float("inf"):
        return context
    return replace(context, deadline=context.deadline - sent + now())


def now() -> float:
    """The clock of deadlines: that of asyncio's loops."""
    return time.monotonic()


def portable(error: BaseException) -> Exception:
    """`error` as something that can be sent: itself if it can, else its text."""
    if isinstance(error, asyncio.CancelledError):
        return EngineError("the call was cancelled at the engine")
    if isinstance(error, TeolaError):
        error.__cause__ = error.__context__ = None
        error.__traceback__ = None
        return error
    return EngineError(f"{type(error).__name__}: {error}")
