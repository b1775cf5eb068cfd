"""Runtime: engines, the live driver and its loop, shared by every application that names it.

All of it lives on one event loop in a thread of its own, so an application can be called from
anywhere: plain code, a running event loop, a notebook cell. Long because it is one object with one
life, from the first engine that starts to the last that is closed.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar, get_args

from teola.engine import Engine, EngineSpec, FindsByMeaning, NamesModel, near
from teola.errors import EngineUnavailable, InputError, Overloaded, UnknownName
from teola.learning import AtWork, Learner
from teola.policies.ledger import Ledger
from teola.price import Price
from teola.profile import Profile, default, load_profile
from teola.runtime.day_accounts import DayAccounts, DayBudget
from teola.runtime.documents import Preparer
from teola.runtime.engines import (
    DEFAULTS,
    LIKE_LLM,
    EngineConfig,
    merged,
    queue_for,
    with_policies,
)
from teola.runtime.fitting import Fitting
from teola.runtime.hosts.local import LocalHost, close_all, keeps
from teola.runtime.hosts.remote import RemoteEngine
from teola.runtime.hosts.supervisor import Supervisor
from teola.runtime.likeness import check_alike
from teola.runtime.live.live import Live
from teola.runtime.live.rows_task import RowsTask
from teola.runtime.objectives import SLO_SCALE, Objectives
from teola.runtime.observe.kept_values import KeepValues
from teola.runtime.observe.noting import note
from teola.runtime.pools import joint
from teola.runtime.probing import like, probe_engine
from teola.runtime.remembering import Memory
from teola.runtime.rows import OnAnswers, Row, RowPriority, RowsCall, RowsHandle, check_rows
from teola.runtime.tasks import LoopThread, cancel_all, in_vain
from teola.runtime.text_vectors import EmbeddedTexts
from teola.runtime.tuning.live_tuning import LiveTuning, check_tuner
from teola.runtime.tuning.tuner_process import TunerProcess
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceUp
from teola.schedule.quota import ApiAccount
from teola.tools.named_tools import NamedTool, ToolsByName

log = logging.getLogger(__name__)

T = TypeVar("T")
GRACE_S: Final = 2.0
"""How long closing waits for tasks that neither a query nor an engine answers for."""
AGAIN_S: Final = 30.0
"""How long nobody waits for an engine that they can do without, after it did not start."""


class Runtime:
    """Runs applications.

    engines: name -> EngineConfig, entry-point name or engine class, over the defaults (embedding,
    rerank, vectorstore, llm, documents, python). batching / routing: policy names for all engines.
    profile: a Profile, its name or file; by default passes go by what the engines declare. ray:
    True starts Ray on this machine, an address (or "auto") joins a cluster; engines that compute
    much then run there. max_queries: more at once are refused with Overloaded. keep_values: how
    much of what primitives read and gave is in traces: "off", "small" (2 KiB of each value) or
    "all" (64 KiB); 8 MiB a query. debug: verify every pass's result. learn: whether to learn how
    long engines take and how much components write; a folder is where that is kept, and an engine
    of which it holds nothing is probed when it starts. tools: by name, besides registered ones.
    journal: where queries that wait for people are kept when the process ends: a DSN; True: with
    the engine vectorstore. journal_key: to encrypt them. objectives: by application, seconds by
    which answers are wanted. slo_scale: the objective of other queries, in times what their
    primitives take one after another. prices: of models, by their names (of one
    without a name by its engine's), in any currency. budgets: what applications may take in a day,
    by their names.

    Use it as a context manager, or call `close`; a process that ends closes what is left. Raises
    UnknownName and InputError where an engine cannot be made as it is configured.
    """

    def __init__(
        self,
        engines: Mapping[str, EngineConfig | str | Callable[..., Engine]] | None = None,
        *,
        batching: str | None = None,
        routing: str | None = None,
        profile: Profile | str | None = None,
        ray: bool | str = False,
        max_queries: int = 1024,
        keep_values: KeepValues = "small",
        debug: bool = False,
        learn: bool | str | Path = True,
        tools: Mapping[str, NamedTool] | None = None,
        journal: bool | str = False,
        journal_key: str | None = None,
        objectives: Mapping[str, float] | None = None,
        slo_scale: float = SLO_SCALE,
        prices: Mapping[str, Price] | None = None,
        budgets: Mapping[str, DayBudget] | None = None,
    ) -> None:
        self.objectives = Objectives(objectives or {}, slo_scale)
        self.journal, self.journal_key = journal, journal_key
        self.prices, self.budgets, self.days = prices or {}, budgets or {}, DayAccounts()
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """What is called before the engines are closed."""
        self.tools = ToolsByName(tools or {})
        self.learner = Learner(AtWork()) if learn else None
        self.memory = Memory.of(learn, self.learner)
        self.configs = with_policies(merged(engines or {}), batching, routing)
        self.text_vectors = EmbeddedTexts(self)
        for name, config in self.configs.items():
            check_tuner(name, config)
            config.check_prices(name, self.prices)
        self.own_prices = {
            (name, i): price
            for name, config in self.configs.items()
            for i in range(len(config.pool))
            if (price := config.member(name, i).price) is not None
        }
        """Prices of instances that have their own, by engine and number."""
        self._tuning: TunerProcess | None = None
        self._tuned: list[LiveTuning] = []
        self.fitting = Fitting()
        """Which applications run here."""
        for name in engines or ():
            if self.configs[name] != DEFAULTS.get(name):
                self.configs[name].check(name)
        self.profile = load_profile(profile) if isinstance(profile, str) else profile
        self.ray, self.max_queries, self.debug = ray, max_queries, debug
        if keep_values not in (levels := get_args(KeepValues)):
            raise UnknownName("level of keep_values", keep_values, levels)
        self.keep_values: KeepValues = keep_values
        self.new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
        """Makes the loop when it is first needed."""
        self._joined: asyncio.Task[bool] | None = None
        self._engines: dict[str, list[Engine]] = {}
        self._started: dict[str, asyncio.Task[None]] = {}
        self._refusing: dict[str, float] = {}
        self._accounts: dict[str, ApiAccount] = {}
        self._work: weakref.WeakSet[Coroutine[Any, Any, Any]] = weakref.WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._live: Live | None = None
        self._lock = threading.Lock()
        self.closed = False

    # --- the loop -------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The runtime's event loop, started when first needed."""
        with self._lock:
            if self.closed:
                raise InputError("this runtime is closed; make a new one")
            if self._loop is None:
                self._loop = self.new_loop()
                self._live = Live(self._loop, self.learner)
                self._live.paying.prices, self._live.paying.own = self.prices, self.own_prices
                self._supervisor = Supervisor(self._live.post)
                self._thread = LoopThread(self._loop)
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    @property
    def live(self) -> Live:
        """The live driver (use it on the loop only)."""
        _ = self.loop
        assert self._live is not None
        return self._live

    def start(self, work: Coroutine[Any, Any, T], *, blocks: bool = True) -> Future[T]:
        """Run a coroutine on the loop, from any thread. blocks: the caller's thread is to wait for
        it, which InputError refuses where that is a runtime's loop."""
        try:
            loop = self.loop
        except InputError:
            work.close()
            raise
        if blocks and isinstance(threading.current_thread(), LoopThread):
            work.close()
            raise InputError(
                "called on the event loop, which it would stop: in an async function use "
                "`await app.arun(...)`, or `async for` with `app.astream(...)`"
            )
        self._work.add(work)
        return asyncio.run_coroutine_threadsafe(work, loop)

    def task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on the loop, from the loop, until it ends or the runtime is closed."""
        self._work.add(work)
        return self.loop.create_task(work)

    # --- engines --------------------------------------------------------------------------

    def engines(self, name: str) -> list[Engine]:
        """The (perhaps unstarted) instances of engine `name`. Raises UnknownName, InputError."""
        if name not in self._engines:
            config = self.configs.get(name)
            if config is None:
                raise UnknownName("engine", name, self.configs)
            on_ray, count = bool(self.ray), config.instances
            self._engines[name] = [config.placed(name, on_ray, i) for i in range(count)]
            for engine in self._engines[name]:
                if isinstance(engine, FindsByMeaning):
                    engine.find_by_meaning(self.text_vectors)
        return self._engines[name]

    def spec(self, name: str) -> EngineSpec:
        """What engine `name` declares; of unequal instances, what holds of each."""
        engines = self.engines(name)
        if not self.configs[name].pool:
            return engines[0].spec
        return joint([engine.spec for engine in engines])

    @property
    def priced(self) -> bool:
        """Whether any price is known."""
        return bool(self.prices or self.own_prices)

    def price_of(self, name: str) -> Price | None:
        """Price of a million tokens of the model of engine `name`, the dearest of its instances'
        (None: one of them has no price)."""
        dearest: Price | None = None
        for i, engine in enumerate(self.engines(name) if self.priced else ()):
            plain_engine = near(engine)
            model = plain_engine.model if isinstance(plain_engine, NamesModel) else None
            price = self.own_prices.get((name, i))
            price = price or self.prices.get(model or name, self.prices.get(name))
            if price is None:
                return None
            if dearest is None or (price.answer, price.prompt) > (dearest.answer, dearest.prompt):
                dearest = price
        return dearest

    def declared_for(self, names: Iterable[str]) -> Profile:
        """What is known of the engines `names` before they have worked: this runtime's profile, or
        what they declare."""
        specs = [self.spec(name) for name in names]
        declared = self.profile.for_engines(specs) if self.profile else default(specs)
        running = {
            name: self.configs[name].profiled(name, entry, self.engines(name), bool(self.profile))
            for name, entry in declared.engines.items()
            if name in self.configs
        }
        return replace(declared, engines={**declared.engines, **running})

    def profile_for(self, names: Iterable[str], *, newest: bool = False) -> Profile:
        """The profile that passes go by now, with an entry for each of the engines `names`.
        newest: with all that is known by now, also what has moved so little that plans stay."""
        declared = self.declared_for(names := list(names))
        if self.memory:
            for name in names:
                self.memory.recall(name, self.configs[name])
        if self.learner is None:
            return declared
        lessons = self.learner.snapshot() if newest else self.learner.lessons
        return lessons.over(declared)

    def _profile_by_instance(self, name: str) -> Profile:
        """The same of engine `name`, with each instance as fast as its own calls were."""
        profile = self.profile_for([name])
        each = tuple(replace(one, pool=()) for one in self.live.core.queues[name].placing.profiles)
        whole = replace(profile.engines[name], pool=each, instances=len(each))
        return replace(profile, engines={**profile.engines, name: whole})

    def runs(self, names: Iterable[str]) -> bool:
        """Whether the engines `names` have all been started."""
        tasks = map(self._started.get, names)
        return all(task is not None and task.done() and not in_vain(task) for task in tasks)

    async def ensure(self, names: Iterable[str], optional: Collection[str] = ()) -> None:
        """Start the engines `names` that are not yet running, side by side. Of the `optional` ones
        among them, those that are not available refuse what they are asked, for a while.

        Raises EngineUnavailable; a later call tries again.
        """
        tasks = {}
        for name in names:
            task = self._started.get(name)
            if name in optional and self.loop.time() < self._refusing.get(name, 0.0):
                continue
            if task is None or (task.done() and in_vain(task)):
                task = self._started[name] = self.loop.create_task(self._start(name))
            if not task.done():
                tasks[name] = task
        if tasks:
            shielded = map(asyncio.shield, tasks.values())
            done = await asyncio.gather(*shielded, return_exceptions=True)
            for name, error in zip(tasks, done, strict=True):
                if isinstance(error, EngineUnavailable) and name in optional:
                    self._refuse(name, error)
                elif isinstance(error, BaseException):
                    raise error

    def _refuse(self, name: str, error: EngineUnavailable) -> None:
        """Engine `name` does not start, so what it is sent fails for that reason."""
        self._refusing[name] = self.loop.time() + AGAIN_S
        self._queue(name, self.engines(name)).refuse(error)

    def _queue(self, name: str, engines: Sequence[Engine]) -> EngineQueue:
        """The core's queue of engine `name`: a new one, or one that refused what it was sent."""
        queues = self.live.core.queues
        if name not in queues:
            own = self.profile_for([name]).engine(self.spec(name).name)
            queues[name] = queue_for(
                name, engines, self.configs[name], own, self.learner, self._accounts, self.prices
            )
        return queues[name]

    async def _start(self, name: str) -> None:
        began, engines, config = self.loop.time(), self.engines(name), self.configs[name]
        if name in LIKE_LLM and config == self.configs["llm"]:
            await self.ensure(["llm"])
            hosts = [self.live.hosts["llm", i] for i in range(len(engines))]
            if not any(isinstance(host.engine, RemoteEngine) for host in hosts):
                # one model in memory, queues of their own
                like(name, "llm", config, self.memory)
                self._serve(name, hosts, began)
                return
        await self._join(engines)
        hosts = [LocalHost(engine, i, by_text=config.by_text) for i, engine in enumerate(engines)]
        try:
            done = await asyncio.gather(*(host.start() for host in hosts), return_exceptions=True)
            for error in done:
                if isinstance(error, BaseException):
                    raise error
            if config.pool:
                await check_alike(name, engines, named=config.names_models, by_text=config.by_text)
            await probe_engine(name, hosts[0], config, self.memory)
        except BaseException:
            for host in hosts:
                await host.close()
            del self._engines[name]
            raise
        finally:
            self._go_first()
        self._serve(name, hosts, began)
        for host in hosts:
            if isinstance(host.engine, RemoteEngine):
                self._supervisor.watch(name, host.instance, host.engine)

    def _serve(self, name: str, hosts: Collection[LocalHost], began: float) -> None:
        """Let the core send work for engine `name` to these instances, which began to start."""
        self._refusing.pop(name, None)
        self._queue(name, [host.engine for host in hosts]).refuse(None)
        self._tune(name)
        for host in hosts:
            self.live.hosts[name, host.instance] = host
            self.live.prefixes.watch(self.live.core.queues[name], host.instance, host)
            self.live.accounts.watch(name, host.instance, host)
        message, count = "engine %(engine)s runs, after %(start_s).1f s", len(hosts)
        took = round(self.loop.time() - began, 3)
        note(
            log, logging.INFO, "engine_started", message, engine=name, instances=count, start_s=took
        )

    def _tune(self, name: str) -> None:
        """Begin to tune the policies of engine `name`, if that is configured."""
        config = self.configs[name]
        if not config.tuner or any(running.engine == name for running in self._tuned):
            return
        if self._tuning is None:
            self._tuning = TunerProcess()
            self.closing.append(self._tuning.close)
        tuning = LiveTuning(
            name,
            (config.batching, config.batching_options, config.routing, config.routing_options),
            {} if config.tuner is True else config.tuner,
            self._tuning,
            self.live.post,
            lambda: self._profile_by_instance(name),
            self.loop.time(),
            lambda id: query.trace if (query := self.live.queries.get(id)) else None,
        )
        self._tuned.append(tuning)
        self.live.listeners.append(tuning)
        self.task(tuning.run())

    async def _join(self, engines: Iterable[Engine]) -> None:
        """Before the first engine on Ray: start it, or join the cluster. Raises as `connect`."""
        if not self.ray or not any(map(keeps, engines)):
            return
        if self._joined is None:
            from teola.runtime.hosts import ray_actor

            address = self.ray if isinstance(self.ray, str) else None
            self._joined = self.loop.create_task(asyncio.to_thread(ray_actor.connect, address))
        await asyncio.shield(self._joined)

    async def replace(self, name: str, instance: int) -> None:
        """Drain an instance of a running engine, close it, start it anew, and let it work again.

        Raises EngineUnavailable if it does not start; the other instances serve on, and one that
        runs elsewhere is tried again.
        """
        host = self.live.hosts[name, instance]
        await self.live.drain(name, instance)
        if isinstance(host.engine, RemoteEngine):
            await self._restart(name, instance, host.engine)
        else:
            await host.close()
            await host.start()
        self.live.post(InstanceUp(name, instance))
        if isinstance(host.engine, RemoteEngine):
            self._supervisor.watch(name, instance, host.engine)

    async def _restart(self, name: str, instance: int, engine: RemoteEngine) -> None:
        self._supervisor.leave(name, instance, engine)
        await engine.close()
        try:
            await engine.start()
        except EngineUnavailable:
            self._supervisor.heal(name, instance, engine)
            raise

    def _go_first(self) -> None:
        """At the process's exit, close before the engines' own libraries shut themselves down: what
        was registered last runs first, and they register when they are imported or started."""
        if not self.closed:
            atexit.unregister(self.close)
            atexit.register(self.close)

    def host(self, name: str) -> LocalHost:
        """The first instance of a running engine."""
        return self.live.hosts[name, 0]

    def preparer(self, embedding: str, store: str) -> Preparer:
        """Prepares documents for these engines, which must be running."""
        return Preparer(self.host("documents"), self.host(embedding), self.host(store))

    def admit(self) -> None:
        """Raise Overloaded if as many queries are in flight as may be, besides those inside others,
        which were admitted with them."""
        if self.live.busy >= self.max_queries:
            told = f"{self.max_queries} queries are already running; try again in a moment"
            raise Overloaded(told)

    def ask_rows(
        self,
        call: RowsCall,
        rows: Iterator[Row],
        on_answers: OnAnswers,
        *,
        tenant: str = "",
        app: str = "tables",
        program: str = "",
        deadline_s: float | None = None,
        priority: RowPriority = "rows",
        budget: Ledger | None = None,
        price: Price | None = None,
    ) -> RowsHandle:
        """Ask an LLM engine each of these rows, beside all that runs; see teola.runtime.rows.

        rows: read in a thread of its own as far as there is room, so it may block. on_answers: see
        OnAnswers. tenant, app, program: on whose behalf ("": the default tenant; a program of its
        own). deadline_s: when it ends at the latest, from now. priority: `rows` go behind all calls
        that are none, and leave an eighth of an instance's places to them while they come;
        `interactive` ones are like any other query. budget: what the run may take (Asker.budget).
        price: of the model's tokens, where it is another than `prices` say.

        Raises UnknownName and InputError at once; what happens later is in `RowsEnd`.
        """
        spec = self.spec(call.engine)
        check_rows(call, spec, priority, deadline_s)
        if not spec.prefix_reuse:
            call = replace(call, shared=0.0)
        asking = RowsTask(
            self, call, rows, on_answers, tenant, app, program, priority, budget, price
        )
        work = asking.run(deadline_s)
        return RowsHandle(self.start(work, blocks=False), asking.cancel)

    # --- the end --------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel what runs, close all engines, stop the loop. Calling it again does nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        atexit.unregister(self.close)
        asyncio.run_coroutine_threadsafe(self._shut(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    async def _shut(self) -> None:
        """Queries and tools first, to their end: a cancelled query deletes what it half stored.

        What engines run in the background is theirs to end, so they are closed before what is left
        is cancelled (a database pool's workers would not even survive that in good order).
        """
        assert self._live is not None
        this_task = asyncio.current_task()
        work = (t for t in asyncio.all_tasks() if t.get_coro() in self._work and t is not this_task)
        await cancel_all(work)
        await cancel_all(self._started.values())
        await self._supervisor.close()
        await self._live.stop()
        for close in self.closing:
            await close()
        await self.tools.close()
        if self.memory:
            self.memory.keep()
        await close_all(self._live.hosts.values())
        if self._joined is not None and not self._joined.exception() and self._joined.result():
            from teola.runtime.hosts import ray_actor

            ray_actor.disconnect()  # at the exit of the process no thread may be started
        rest = asyncio.all_tasks() - {this_task}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=GRACE_S)
        with suppress(RuntimeError):  # a process that is about to exit may start no more threads
            await asyncio.get_running_loop().shutdown_default_executor()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
