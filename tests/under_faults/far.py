"""A wire to an engine in another process, which is not one: here faults are injected.

It carries the messages that a child process or a Ray actor would be sent, to the same EngineServer,
and takes time for each. What dies with a process dies here: its calls, its streams, what it kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol, cast

from teola.engine import Call, Delta, EngineResult, Keys, MakesKeys, Request
from teola.errors import EngineAway, EngineBusy, EngineUnavailable
from teola.runtime.hosts.process import CLOSE_LIMIT_S
from teola.runtime.hosts.remote import Killed, RemoteEngine
from teola.runtime.hosts.server import EngineServer, Recipe
from tests.under_faults.engines import TOKEN_S
from tests.under_faults.faults import ARMED, Fault, Kind

LATENCY_S: Final = 0.001
ITEM_S: Final = 0.01
BOOT_S: Final = 0.3
SLOWER: Final = 100.0


class Observer(Protocol):
    """Who is told what is sent there, and what runs there."""

    def batch(self, far: FarEngine, requests: Sequence[Request]) -> None: ...

    def call(self, far: FarEngine, call: Call) -> None: ...

    def stopped(self, query: str, at: float) -> None: ...


class Process:
    """One life of the far end. server: what it runs. gone: set when it is no more."""

    def __init__(self, server: EngineServer) -> None:
        self.server = server
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def end(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
            for task in self.tasks:
                task.cancel()


class FarEngine(RemoteEngine):
    """An instance of an engine, and what is to happen to it.

    faults: those of the kinds that strike a request, in order of time. batches, streams: how many
    are in progress, as the near end sees it.
    """

    def __init__(self, recipe: Recipe, instance: int, observer: Observer) -> None:
        super().__init__(recipe)
        self.instance, self.observer = instance, observer
        self.armed: list[Fault] = []
        self.slow_until = self.down_until = -1.0
        self.batches = self.streams = self.lives = 0
        self.process: Process | None = None
        self.telling: set[asyncio.Task[Any]] = set()
        """What it is being told, and has not heard yet."""
        self._hangs: tuple[Process, float] | None = None
        self._requests = 0
        self._killed = False
        self._refuses = -1.0, Kind.REFUSE

    # --- life and death -------------------------------------------------------------------

    async def start(self) -> None:
        self.dead, self._killed = None, False
        await asyncio.sleep(BOOT_S)
        if self._killed:
            raise Killed(f"engine {self.spec.name!r}: its process was killed")
        if self.down_until > self._now():
            raise EngineUnavailable(f"engine {self.spec.name!r}: no room for it: wait")
        self.lives += 1
        id = f"{self.spec.name}/{self.instance}/{self.lives}"
        self.process = Process(EngineServer(self.recipe, id))
        await self._start()

    async def close(self) -> None:
        self.on_lost = None
        with suppress(EngineUnavailable, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self.ask("close")
        self.kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.end()

    def die(self, reason: str) -> None:
        """The process dies, also while it starts."""
        if self.process is not None and not self.process.gone.done():
            self.process.end()
            self.lost(EngineUnavailable(f"engine {self.spec.name!r}: its process {reason}"))
        self._killed = True

    def hang(self, until: float) -> None:
        """Nothing happens there until then, unless it is killed before."""
        process = self.process
        if process is not None:
            before = self._hangs[1] if self._hangs and self._hangs[0] is process else until
            self._hangs = process, max(before, until)

    def refuse(self, until: float, kind: Kind) -> None:
        """It takes nothing until then: it says so, or nobody is there."""
        self._refuses = max(until, self._refuses[0]), kind

    async def _taken(self) -> None:
        """Raises what a server says that takes nothing."""
        until, kind = self._refuses
        if self._now() >= until:
            return
        await asyncio.sleep(LATENCY_S)
        if kind is Kind.AWAY:
            raise EngineAway(f"nobody is there for {self.spec.name!r}")
        says = until - self._now() if self._requests % 2 else None
        raise EngineBusy(f"{self.spec.name!r} takes no more calls now", after_s=says)

    # --- messages -------------------------------------------------------------------------

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        self.batches += 1
        try:
            self.observer.batch(self, requests)
            return await super().execute(requests)
        finally:
            self.batches -= 1

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.streams += 1
        try:
            self.observer.call(self, call)
            async with aclosing(super().generate(call)) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    yield delta
        finally:
            self.streams -= 1

    async def ask(self, method: str, *arguments: Any) -> Any:
        process = self._alive()
        if method in ("execute", "prefill"):
            await self._taken()
        task = process.run(self._there(process, method, arguments))
        try:
            await asyncio.wait({task, process.gone}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done() and not task.cancelled():
            return task.result()
        raise EngineUnavailable(f"engine {self.spec.name!r}: its process is gone")

    def tell(self, method: str, *arguments: Any) -> None:
        if self.dead is None and self.process is not None and not self.process.gone.done():
            task = self.process.run(self._there(self.process, method, arguments))
            self.telling.add(task)
            task.add_done_callback(self.telling.discard)

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """As the near one makes them, which are the same: no thread is here that could wait."""
        return cast("MakesKeys", self.near).keys(call)

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Delta]:
        assert method == "generate", "no engine here tells what it keeps"
        process = self._alive()
        await self._taken()
        inbox: asyncio.Queue[Delta | Exception | None] = asyncio.Queue()
        pump = process.run(self._pump(process, inbox, arguments))
        lost = EngineUnavailable(f"engine {self.spec.name!r}: its process is gone")
        process.gone.add_done_callback(tell := lambda _: inbox.put_nowait(lost))
        try:
            while (found := await inbox.get()) is not None:
                if isinstance(found, Exception):
                    raise found
                yield found
        finally:
            process.gone.remove_done_callback(tell)
            pump.cancel()

    def _alive(self) -> Process:
        if self.dead is not None or self.process is None or self.process.gone.done():
            raise EngineUnavailable(f"engine {self.spec.name!r}: its process is gone")
        return self.process

    # --- over there -----------------------------------------------------------------------

    async def _there(self, process: Process, method: str, arguments: Sequence[Any]) -> Any:
        await asyncio.sleep(LATENCY_S)
        await self._awake(process)
        fault = self._strikes(Kind.RESET) if method in ("execute", "prefill") else None
        if fault is Kind.CRASH_BEFORE:
            self.die("crashed")
        late = method == "execute" and self._requests % 2 == 0
        if late:  # what kills it meanwhile leaves nothing done
            await self._takes(arguments[0])
        found = getattr(process.server, method)(*arguments)
        found = await found if asyncio.iscoroutine(found) else found
        if fault is Kind.CRASH_AFTER:
            self.die("crashed")
        elif fault is Kind.LOST_ACK:
            raise EngineUnavailable(f"engine {self.spec.name!r}: connection reset")
        if method == "execute" and not late:
            await self._takes(arguments[0])
        await self._awake(process)
        return [_garbage(one) for one in found] if fault is Kind.GARBAGE else found

    async def _takes(self, requests: Sequence[Request]) -> None:
        items = sum(len(v) for r in requests for v in r.inputs.values() if type(v) is list)
        await asyncio.sleep(ITEM_S * (1 + items) * self._slowness())

    async def _pump(self, process: Process, inbox: Any, arguments: Sequence[Any]) -> None:
        try:
            await asyncio.sleep(LATENCY_S)
            fault, sent = self._strikes(Kind.LOST_ACK, Kind.GARBAGE), 0
            if fault is Kind.CRASH_BEFORE:
                self.die("crashed")
            async with aclosing(process.server.generate(*arguments)) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    await asyncio.sleep(TOKEN_S * (self._slowness() - 1))
                    await self._awake(process)
                    inbox.put_nowait(delta)
                    sent += 1
                    if fault is Kind.RESET and sent == 2:
                        inbox.put_nowait(EngineUnavailable("connection reset in mid-stream"))
                        return
            if fault is Kind.CRASH_AFTER:
                self.die("crashed")
            inbox.put_nowait(None)
        finally:
            self.observer.stopped(arguments[0].context.query_id, self._now())

    def _strikes(self, *but: Kind) -> Kind | None:
        """The fault that befalls the request which comes now, if one does."""
        self._requests += 1
        now = self._now()
        for fault in self.armed:
            if fault.at <= now and fault.kind in ARMED and fault.kind not in but:
                self.armed.remove(fault)
                return fault.kind
        return None

    async def _awake(self, process: Process) -> None:
        if self._hangs is not None and self._hangs[0] is process:
            until = self._hangs[1]
            if until == float("inf"):
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(until - self._now())

    def _slowness(self) -> float:
        return SLOWER if self._now() < self.slow_until else 1.0

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _garbage(result: EngineResult | Exception) -> EngineResult | Exception:
    """Half of each list, and nothing of what is none."""
    if isinstance(result, Exception):
        return result
    return {port: v[: len(v) // 2] for port, v in result.items() if isinstance(v, list)}
