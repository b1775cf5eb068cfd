"""RayEngine: an engine in a Ray actor, placed by the resources that it asks for.

The engine's class knows nothing of Ray, and nothing here is imported unless Ray is asked for. Large
outputs that only other engines read stay in Ray's object store: what comes back is a RemoteList of
references, which another actor takes as they are, so they never pass through the scheduler. They
are what methods return, because what an actor puts there itself dies with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from itertools import count
from typing import Any, Final, NamedTuple, cast

from teola.engine import EngineResult, Request
from teola.errors import EngineUnavailable
from teola.extras import needs
from teola.runtime.hosts.remote import Killed, RemoteEngine
from teola.runtime.hosts.server import EngineServer, Recipe, now, portable
from teola.runtime.values import RemoteList

LARGE_BYTES: Final = 32 * 1024
"""Smaller outputs come back as they are: a reference costs a message of its own."""
CLOSE_LIMIT_S: Final = 10.0
REACH_LIMIT_S: Final = 5.0
JOIN_LIMIT_S: Final = 20.0
RESOURCES: Final = ("num_cpus", "num_gpus")


class SentItems(NamedTuple):
    """Stands in a request for items lo..hi of the n-th object sent along."""

    n: int
    lo: int
    hi: int


class EngineActor:
    """What Ray runs: an EngineServer, with streams and large outputs made fit for Ray."""

    def __init__(self, recipe: Recipe) -> None:
        self._server = EngineServer(recipe)
        self._pumps: dict[int, asyncio.Task[None]] = {}

    async def ask(self, method: str, arguments: Sequence[Any]) -> tuple[str, Any]:
        """Call a method of the EngineServer: its value, or the error that it raised."""
        try:
            found = getattr(self._server, method)(*arguments)
            return "value", await found if asyncio.iscoroutine(found) else found
        except Exception as error:  # noqa: BLE001 - the process's edge: told to the other side
            return "error", portable(error)

    async def run(
        self, requests: Sequence[Request], sent: float, *objects: Sequence[Any]
    ) -> AsyncIterator[Any]:
        """Run a batch: first the results, with a SentItems for each large output, then those."""
        try:
            results = await self._server.execute(
                [_with_objects(request, objects) for request in requests], sent
            )
        except Exception as error:  # noqa: BLE001 - the process's edge: told to the other side
            yield portable(error)
            return
        large: list[Any] = []
        yield [
            result if isinstance(result, Exception) else _without_large(result, request.keep, large)
            for result, request in zip(results, requests, strict=True)
        ]
        for value in large:
            yield value

    async def stream(
        self, id: int, method: str, arguments: Sequence[Any]
    ) -> AsyncIterator[tuple[str, Any]]:
        """What one of the EngineServer's `STREAMS` yields; `cancel` ends it."""
        inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._pumps[id] = asyncio.create_task(self._pump(inbox, method, arguments))
        try:
            kind = "item"
            while kind == "item":
                kind, value = await inbox.get()
                yield kind, value
        finally:
            self._pumps.pop(id).cancel()

    async def _pump(
        self, inbox: asyncio.Queue[tuple[str, Any]], method: str, arguments: Sequence[Any]
    ) -> None:
        end: tuple[str, Any] = ("end", None)
        try:
            async with aclosing(getattr(self._server, method)(*arguments)) as stream:
                async for item in stream:
                    inbox.put_nowait(("item", item))
        except Exception as error:  # noqa: BLE001 - the process's edge: told to the other side
            end = ("error", portable(error))
        finally:
            inbox.put_nowait(end)

    async def cancel(self, id: int) -> None:
        """Stop a stream."""
        if id in self._pumps:
            self._pumps[id].cancel()


def _with_objects(request: Request, objects: Sequence[Sequence[Any]]) -> Request:
    inputs = {
        name: [x for held in value for x in objects[held.n][held.lo : held.hi]]
        if isinstance(value, tuple) and value and isinstance(value[0], SentItems)
        else value
        for name, value in request.inputs.items()
    }
    return request._replace(inputs=inputs)


def _without_large(result: EngineResult, keep: frozenset[str], large: list[Any]) -> EngineResult:
    found: dict[str, Any] = {}
    for port, value in result.items():
        if port in keep and type(value) is list and len(pickle.dumps(value)) > LARGE_BYTES:
            found[port] = SentItems(len(large), 0, len(value))
            large.append(value)
        else:
            found[port] = value
    return found


class RayEngine(RemoteEngine):
    """See the module.

    resources: `num_cpus`, `num_gpus`, and custom ones by name.
    where: what an error about them names.
    """

    keeps = True
    """Whether its host may be sent RemoteLists, and may answer with some."""

    def __init__(self, recipe: Recipe, resources: Mapping[str, float], where: str) -> None:
        super().__init__(recipe)
        self._where = where
        self.recipe.packed()  # raises if it cannot be sent
        custom = {name: n for name, n in resources.items() if name not in RESOURCES}
        self._wanted = {"num_cpus": 0.0, "num_gpus": 0.0, **resources}
        own = {name: self._wanted[name] for name in RESOURCES}
        self._options: dict[str, Any] = {**own, "resources": custom}
        self._actor: Any = None
        self._ids = count()

    async def start(self) -> None:
        import ray

        self._loop, self.dead = asyncio.get_running_loop(), None
        check_feasible(self._where, self._wanted)
        self._actor = ray.remote(EngineActor).options(**self._options).remote(self.recipe)
        try:
            await self._start()
        except BaseException:
            self.kill()
            raise

    async def close(self) -> None:
        if self._actor is None:
            return
        self.on_lost = None
        with contextlib.suppress(Exception):  # whatever its end is, it ends
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self.ask("close")
        self.kill()

    def kill(self) -> None:
        import ray

        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    async def ask(self, method: str, *arguments: Any) -> Any:
        actor = self._alive()
        with self._deaths(actor):
            kind, value = await actor.ask.remote(method, arguments)
        if kind == "error":
            raise value
        return value

    def tell(self, method: str, *arguments: Any) -> None:
        if self._actor is not None and self.dead is None:
            self._actor.ask.remote(method, arguments)

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        actor = self._alive()
        objects: list[Any] = []
        held = [_held(request, objects) for request in requests]
        with self._deaths(actor):
            replies = actor.run.options(num_returns="streaming").remote(held, now(), *objects)
            results = await (await anext(replies))
            if isinstance(results, Exception):
                raise results
            large = [ref async for ref in replies]
        return [
            result if isinstance(result, Exception) else _listed(result, large)
            for result in results
        ]

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any]:
        actor, id, ended = self._alive(), next(self._ids), False
        try:
            with self._deaths(actor):
                streaming = actor.stream.options(num_returns="streaming")
                async for ref in streaming.remote(id, method, arguments):
                    kind, value = await ref
                    ended = kind != "item"
                    if kind == "error":
                        raise value
                    if kind == "item":
                        yield value
        finally:
            if not ended and self._actor is not None:
                self._actor.cancel.remote(id)

    def _alive(self) -> Any:
        if self._actor is None or self.dead is not None:
            raise EngineUnavailable(str(self.dead or f"engine {self.spec.name!r} is closed"))
        return self._actor

    @contextlib.contextmanager
    def _deaths(self, actor: Any) -> Any:
        """Ray's ways to say that an actor is gone, as ours. It may say so when its successor is
        there already, which lives."""
        from ray.exceptions import ActorUnavailableError, RayActorError, RayError

        try:
            yield
        except (RayActorError, ActorUnavailableError) as error:
            reason = str(error).strip().partition("\n")[0]
            lost = Killed(f"engine {self.spec.name!r}: its Ray actor is gone: {reason}")
            if actor is self._actor:
                self.lost(lost)
            raise Killed(str(lost)) from error
        except RayError as error:
            reason = str(error).strip().partition("\n")[0]
            raise EngineUnavailable(f"engine {self.spec.name!r}: Ray: {reason}") from error


def _held(request: Request, objects: list[Any]) -> Request:
    """The request with every RemoteList replaced by what says which of `objects` it is made of."""
    inputs: dict[str, Any] = {}
    for name, value in request.inputs.items():
        if type(value) is RemoteList:
            places = []
            for source, lo, hi in value.pieces:
                places.append(SentItems(len(objects), lo, hi))
                objects.append(source)
            value = tuple(places)
        inputs[name] = value
    return request._replace(inputs=inputs)


def _listed(result: EngineResult, large: Sequence[Any]) -> EngineResult:
    return {
        port: RemoteList([(large[value.n], 0, value.hi)]) if type(value) is SentItems else value
        for port, value in result.items()
    }


def check_feasible(where: str, wanted: Mapping[str, float]) -> None:
    """Raises EngineUnavailable if no node has as much: Ray would wait for one for ever."""
    import ray

    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    wanted = {names.get(name, name): amount for name, amount in wanted.items()}
    nodes = [node["Resources"] for node in cast("Any", ray).nodes() if node["Alive"]]
    if any(all(node.get(k, 0) >= n for k, n in wanted.items()) for node in nodes):
        return
    listed = ", ".join(f"{k} {n:g}" for k, n in wanted.items() if n)
    raise EngineUnavailable(
        f"{where}: no node of the Ray cluster has {listed}: add one, or ask for less",
        retryable=False,
    )


def connect(address: str | None) -> bool:
    """Join a cluster ("auto" or an address), or start a local one (None). Whether that was needed.

    Raises MissingExtra without Ray, EngineUnavailable if the cluster cannot be reached, within
    `REACH_LIMIT_S` + `JOIN_LIMIT_S`.
    """
    with needs("ray", "a runtime with a cluster"):
        import ray
    if ray.is_initialized():
        return False
    try:
        if address is not None:
            _reach(address)
        _join(address)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise EngineUnavailable(
            f"no Ray cluster at {address or 'this machine'}: {reason}; start one with `ray start "
            "--head` and give its address, or give none to use this machine alone"
        ) from error
    return True


def _init(address: str | None) -> None:
    import ray

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    # without an address Ray would join the last cluster that anybody started on this machine, and
    # end this process together with that one
    ray.init(address=address or "local", **quiet)  # type: ignore[arg-type]


def _reach(address: str) -> None:
    """Raises OSError if nothing listens there: Ray itself would go on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), REACH_LIMIT_S).close()


_left = threading.Event()
"""Set when the cluster has been left."""


def _join(address: str | None) -> None:
    """Join or start a cluster. Raises what Ray raises, and TimeoutError if one does not answer.

    It takes a thread of its own, which stays: Ray's processes die with the thread that started
    them. It is a daemon, because Ray may never come back from where nobody answers.
    """
    outcome: Future[None] = Future()

    def join() -> None:
        try:
            _init(address)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            outcome.set_exception(error)
            return
        outcome.set_result(None)
        _left.wait()

    _left.clear()
    threading.Thread(target=join, name="ray", daemon=True).start()
    try:
        outcome.result(None if address is None else JOIN_LIMIT_S)
    except TimeoutError:
        raise TimeoutError(f"what is there did not answer in {JOIN_LIMIT_S:.0f} s") from None


def disconnect() -> None:
    """Leave the cluster; one that `connect` started ends."""
    import ray

    cast("Any", ray).shutdown()
    _left.set()
