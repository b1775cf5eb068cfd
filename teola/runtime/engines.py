"""Which engines there are: their names, where their classes come from, how they are scheduled.

Long because a configuration and the queue that is made of it are told together.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from teola.engine import (
    BatchEngine,
    CallsServer,
    Engine,
    EngineKind,
    LanguageModel,
    Loader,
    near,
)
from teola.errors import InputError, UnknownName
from teola.learning import Learner
from teola.plain_number import is_number
from teola.policies import batching, routing
from teola.policies.preferring import preferring, ranks
from teola.price import Price
from teola.profile import EngineProfile
from teola.registry import Factories
from teola.runtime.hosts.process import ProcessEngine
from teola.runtime.hosts.server import Recipe
from teola.runtime.hosts.text_keys import TEXT_BLOCK
from teola.runtime.pools import (
    Member,
    entries_of,
    member_of,
    picked,
    profile_of,
    profiles_of,
)
from teola.runtime.python_engine import PythonEngine
from teola.runtime.queue_setup import queue_of
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.hedging import Hedging
from teola.schedule.instances import Limits
from teola.schedule.overdue import Overdue
from teola.schedule.quota import ApiAccount, MinuteLimits

ENGINE_TYPES: Final = Factories[Engine](
    "engine type", "teola.engines", {}, [BatchEngine, LanguageModel, Loader]
)
AS_POOLED: Final = -1
"""Instances of an engine whose configuration names no number."""
_CHANGES: Final = frozenset({"api_key", "salt_key"})
"""Options that an instance may be given anew without being another."""
HOSTS: Final = ("local", "process", "ray")
TOKENS: Final = "tokens"
TEXT: Final = "text"
ALIKE: Final = (TOKENS, TEXT)
COMPUTES: Final = frozenset({EngineKind.LLM, EngineKind.EMBEDDING, EngineKind.RERANK})
"""Kinds that go to a cluster if there is one; the others are clients of something, or quick."""


@dataclass(frozen=True)
class EngineConfig:
    """How to make and schedule one engine.

    factory: an engine class (or function returning an engine), or the name of one that is installed
        (entry points `teola.engines`) or registered.
    options: its keyword arguments.
    instances: how many to run; by default as many as `pool` has entries, or one.
    batching, routing: policy names, with their options in `batching_options` and `routing_options`.
    host: where its instances run: `local` (in this process), `process` (each in a child process) or
        `ray` (each in an actor of the cluster that the runtime is given); None is local, or ray if
        the runtime has a cluster and the engine computes much.
    resources: what each asks of a Ray node: num_cpus, num_gpus, custom ones.
    pool: for instances that are not equal: the options of each, over `options`. `resources` among
        them go over `resources`; `profile` is the instance's own, a name, a file, or an engine's
        part of one; `price` is that of its model. What instances must share is checked when they
        start.
    alike: what instances of a pool have in common. `tokens`: model, tokenizer, chat template, so
        that token ids of one are those of another. `text` (language models only): that any of them
        may answer, so no token ids are shared, and prompts are known by their texts.
    probe: whether it is measured when it starts, where what is learned is kept and nothing is known
        of it; by default (None) if it runs on this machine: calls of others cost money.
    tuner: whether an option of its policies is tuned by replaying what came lately, in a process of
        its own; True, or options (docs/scheduling.md).
    overdue, overdue_s: of language models, when a call without a first token is ended there and
        goes elsewhere: after so many times what was expected (by default 8, then twice what one in
        a hundred needs), and not before so many seconds (5).
    hedge: of language models, a call without a first token when 95 of 100 have had theirs runs a
        second time on an idle instance, and the first token wins. At most so many more calls, as a
        part of all; None: never.
    """

    factory: str | Callable[..., Engine]
    options: Mapping[str, Any] = field(default_factory=dict)
    instances: int = AS_POOLED
    batching: str = batching.DEFAULT
    routing: str = routing.DEFAULT
    batching_options: Mapping[str, Any] = field(default_factory=dict)
    routing_options: Mapping[str, Any] = field(default_factory=dict)
    host: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    pool: Sequence[Mapping[str, Any]] = ()
    alike: str = TOKENS
    probe: bool | None = None
    tuner: Mapping[str, Any] | bool | None = None
    overdue: float | None = None
    overdue_s: float | None = None
    hedge: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool", entries_of(self.pool))
        if self.instances == AS_POOLED:
            object.__setattr__(self, "instances", len(self.pool) or 1)
        if self.pool and self.instances != len(self.pool):
            raise InputError(
                f"instances = {self.instances}, but a pool with {len(self.pool)} entries: leave "
                "`instances` out, or give the pool an entry for each"
            )
        if self.instances < 1:
            raise InputError(f"an engine needs at least one instance, got {self.instances}")
        for option, least in (("overdue", 1.0), ("overdue_s", 0.1)):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and least <= value < inf):
                raise InputError(f"{option} must be a number from {least:g} on, got {value!r}")
        if self.hedge is not None:
            if not (is_number(self.hedge) and 0 < self.hedge <= 1):
                raise InputError(
                    f"hedge must be a part of all calls, above 0 and at most 1, got {self.hedge!r}"
                )
            if self.instances < 2:
                raise InputError("hedge needs another instance: give a pool, or leave hedge out")
        if self.alike not in ALIKE:
            raise UnknownName("alike", self.alike, ALIKE, "engine configuration")
        if self.host is not None and self.host not in HOSTS:
            raise UnknownName("host", self.host, HOSTS, "engine configuration")

    def make(self, name: str) -> Engine:
        """A fresh, unstarted instance in this process. Raises UnknownName, InputError."""
        return self.recipe(name).make()

    def recipe(self, name: str, instance: int = 0) -> Recipe:
        """How to make an instance, here or elsewhere. Raises UnknownName, InputError."""
        factory = ENGINE_TYPES.find(self.factory) if isinstance(self.factory, str) else self.factory
        where = self._where(name, instance)
        options = {**self.options, **self.member(name, instance).options}
        parameters = inspect.signature(factory).parameters
        if "name" in parameters:
            options.setdefault("name", name)
        accepts_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for option in options:
            if option not in parameters and not accepts_all:
                raise UnknownName("option", option, parameters, where)
        for parameter in parameters.values():
            if _is_needed(parameter) and parameter.name not in options:
                raise InputError(
                    f"{where} needs the option {parameter.name!r}: "
                    f"EngineConfig({self._called!r}, {{{parameter.name!r}: ...}})"
                )
        return Recipe(factory, options, name)

    def instance_names(self, name: str) -> list[str]:
        """What its instances are, as names that tell nothing: of servers by url and model, else by
        options. The number does not count, nor what may change on the same machine, such as keys.
        Equal ones are numbered."""
        names, seen = [], Counter[str]()
        for instance in range(self.instances):
            options = {**self.options, **self.member(name, instance).options}
            telling = ("url", "model") if "url" in options else options.keys() - _CHANGES
            digested = json.dumps(
                {key: options.get(key) for key in telling}, sort_keys=True, default=repr
            )
            digest = hashlib.blake2b(digested.encode(), digest_size=8).hexdigest()
            names.append(f"{digest}-{seen[digest]}" if seen[digest] else digest)
            seen[digest] += 1
        return names

    def member(self, name: str, instance: int) -> Member:
        """What instance `instance` of engine `name` has for itself. Raises InputError."""
        if not self.pool:
            return Member()
        return member_of(self.pool[instance], self._where(name, instance))

    def check(self, name: str) -> None:
        """All that can be known without making an instance. Raises UnknownName, InputError."""
        self.recipe(name)
        for instance in range(len(self.pool)):
            self.recipe(name, instance)
            profile_of(self.member(name, instance), self._where(name, instance))

    def profiled(
        self, name: str, entry: EngineProfile, engines: Sequence[Engine], structure: bool
    ) -> EngineProfile:
        """The profile `entry` of engine `name` with the instances that it has here.

        structure: whether the profile decides limits, or the instances. Raises UnknownName,
        InputError.
        """
        entry = replace(entry, instances=self.instances)
        if not self.pool:
            return entry
        profiles, kind = [], engines[0].spec.kind
        for instance in range(self.instances):
            where = self._where(name, instance)
            profile = profile_of(self.member(name, instance), where)
            profiles.append(picked(profile, name, kind, where))
        specs = None if structure else [engine.spec for engine in engines]
        return replace(entry, pool=profiles_of(entry, profiles, specs))

    def prices(self, name: str, known: Mapping[str, Price]) -> list[Price | None]:
        """Prices of the instances, as far as they can be told before these are started: each one's
        own, else that of the model that it names, else that of the engine. known: prices by model,
        or by engine."""
        prices = []
        for instance in range(self.instances):
            member = self.member(name, instance)
            model = {**self.options, **member.options}.get("model")
            prices.append(member.price or known.get(model or name, known.get(name)))
        return prices

    def check_prices(self, name: str, known: Mapping[str, Price]) -> None:
        """Raises InputError where cheaper instances are to come first and a price is missing."""
        prefer, _ = preferring(self.routing_options)
        if prefer is None:
            return
        if not self.pool:
            raise InputError(f"engine {name!r}: prefer is between the entries of a pool: give one")
        ranks(self.prices(name, known), f"engine {name!r}")

    def _where(self, name: str, instance: int) -> str:
        """What an error is about."""
        return f"engine {name!r}, entry {instance} of its pool" if self.pool else f"engine {name!r}"

    @property
    def names_models(self) -> bool:
        """Whether the pool names a model for each instance, which are one model under two names."""
        return bool(self.pool) and all("model" in entry for entry in self.pool)

    @property
    def by_text(self) -> bool:
        """Whether its instances have nothing in common but that they take the same texts."""
        return self.alike == TEXT

    @property
    def elsewhere(self) -> bool:
        """Whether it is a client of a server: its type takes a URL, or it is given a DSN."""
        factory = ENGINE_TYPES.find(self.factory) if isinstance(self.factory, str) else self.factory
        given = self.options.keys() | {key for entry in self.pool for key in entry}
        return "url" in {*inspect.signature(factory).parameters, *given} or "dsn" in given

    @property
    def source(self) -> str:
        """The type of engine: its name, or where its class comes from."""
        return self.factory if isinstance(self.factory, str) else _source(self.factory)

    @property
    def _called(self) -> str:
        """The type of engine, for a message."""
        factory = self.factory
        return factory if isinstance(factory, str) else getattr(factory, "__name__", repr(factory))

    def placed(self, name: str, on_ray: bool, instance: int = 0) -> Engine:
        """An unstarted instance where it is to run. on_ray: there is a cluster.

        Raises UnknownName, InputError.
        """
        recipe = self.recipe(name, instance)
        near = recipe.make()
        kind, member = near.spec.kind, self.member(name, instance)
        if kind is EngineKind.VECTORSTORE and member.options:
            raise InputError(
                f"engine {name!r} keeps documents, which each instance has to find, so it can have "
                "no pool: give `options` for all of them, and how many as `instances`"
            )
        if kind is not EngineKind.LLM and self.by_text:
            raise InputError(
                f'engine {name!r}: alike = "text" is for language models, since '
                f"{kind.value} instances have to give the same for the same input: leave it out"
            )
        if kind is not EngineKind.LLM and self.hedge is not None:
            raise InputError(
                f"engine {name!r}: hedge is for calls of language models: leave it out"
            )
        if kind is not EngineKind.LLM and preferring(self.routing_options)[0] is not None:
            raise InputError(
                f"engine {name!r}: prefer is for calls of language models: leave it out"
            )
        host = self.host or ("ray" if on_ray and kind in COMPUTES else "local")
        if host == "local":
            return near
        if host == "process":
            return ProcessEngine(recipe)
        if not on_ray:
            raise InputError(
                f"engine {name!r} is to run on Ray, but the runtime has no cluster: "
                "give --ray, or Runtime(ray=True)"
            )
        from teola.runtime.hosts.ray_actor import RayEngine

        return RayEngine(
            recipe, {**self.resources, **member.resources}, self._where(name, instance)
        )


def engine_types() -> list[dict[str, Any]]:
    """All engine types, installed and registered: `name`, `source`, `default` (whether it runs by
    default), `about` and, where it can be told without options, `kind`, `ops`, `max_batch`; `error`
    of a broken one.
    """
    running = {config.factory for config in DEFAULTS.values()}
    descriptions: list[dict[str, Any]] = []
    registered, offered = ENGINE_TYPES.registered(), ENGINE_TYPES.offered()
    sources = {name: _source(named.thing) for name, named in registered.items()}
    sources |= {name: point.value for name, point in offered.items()}
    for name, source in sorted(sources.items()):
        entry = {"name": name, "source": source, "default": name in running}
        try:
            descriptions.append({**entry, **_about(ENGINE_TYPES.find(name), name)})
        except Exception as error:  # noqa: BLE001 - another package's code may raise anything
            reason = f"broken: {type(error).__name__}: {error}"
            descriptions.append({**entry, "about": "", "error": reason})
    return descriptions


def _about(factory: Callable[..., Engine], name: str) -> dict[str, Any]:
    about = (inspect.getdoc(factory) or "").partition("\n")[0]
    needed = [p.name for p in inspect.signature(factory).parameters.values() if _is_needed(p)]
    if needed:
        return {"about": about, "needs": needed}
    try:
        spec = EngineConfig(factory).make(name).spec
    except InputError:  # it wants one of several options, of which none is needed by itself
        return {"about": about}
    ops = sorted(op.value for op in spec.ops)
    about = spec.description or about
    return {"about": about, "kind": spec.kind.value, "ops": ops, "max_batch": spec.max_batch}


def _source(factory: Callable[..., Engine]) -> str:
    """`module:name`, as an entry point has it."""
    return f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__name__)}"


def _is_needed(parameter: inspect.Parameter) -> bool:
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not several


DATABASES: Final = "databases"
"""The engine that reads SQL databases by name, by path and by secret."""
EMBEDDING: Final = "embedding"
"""The engine that embeds what no component names another one for."""

DEFAULTS: Final[Mapping[str, EngineConfig]] = {
    "documents": EngineConfig("documents"),
    EMBEDDING: EngineConfig("embedding"),
    "rerank": EngineConfig("rerank"),
    "vectorstore": EngineConfig("vectorstore"),
    "llm": EngineConfig("extractive"),
    "websearch": EngineConfig("corpus"),
    DATABASES: EngineConfig("sql-databases"),
    "python": EngineConfig(PythonEngine),
}
"""What runs with nothing configured: all local, nothing from outside."""

LIKE_LLM: Final = ("proxy", "judge")
"""Engines that have the configuration of `llm` unless they are given one."""


def queue_for(
    name: str,
    engines: Sequence[Engine],
    config: EngineConfig,
    profile: EngineProfile | None = None,
    learner: Learner | None = None,
    accounts: dict[str, ApiAccount] | None = None,
    prices: Mapping[str, Price] | None = None,
) -> EngineQueue:
    """The scheduler's queue of an engine with these instances; complete when they have been
    started. profile: the engine's, if it is known. learner: is told what they do. accounts: of
    servers that others run, by name; what is new is added. prices: by model, or by engine. It says
    why LLM calls go where they go, for traces are always recorded."""
    limits = [Limits.of(engine.spec, engine.spec.kind) for engine in engines]
    limits = [
        limit._replace(independent=engine.spec.independent)
        for limit, engine in zip(limits, engines, strict=True)
    ]
    if config.by_text:
        limits = [limit.by_text(TEXT_BLOCK) for limit in limits]
    policies = config.batching, config.batching_options, config.routing, config.routing_options
    names = config.instance_names(name)
    costs = config.prices(name, prices or {})
    queue = queue_of(
        name, limits, profile, *policies, learner, explains=True, names=names, prices=costs
    )
    if queue.continuous:
        queue.overdue = Overdue(config.overdue, config.overdue_s)
        queue.rows.overdue = Overdue(config.overdue, config.overdue_s, queue.overdue.signs)
        queue.hedging = Hedging(config.hedge) if config.hedge is not None else None
    accounts = {} if accounts is None else accounts
    for i, engine in enumerate(map(near, engines)):
        if isinstance(engine, CallsServer):
            of = engine.account_limits
            limited = MinuteLimits(of.requests_per_minute, of.tokens_per_minute)
            account = accounts.setdefault(of.account, ApiAccount())
            account.also(limited)
            queue.instances.limit(i, name, account)
    return queue


def merged(
    configs: Mapping[str, EngineConfig | str | Callable[..., Engine]],
) -> dict[str, EngineConfig]:
    """The defaults with `configs` put over them; a bare name or class stands for its config.

    The small models of an application, `proxy` and `judge`, are like `llm` unless configured.
    """
    by_name = dict(DEFAULTS)
    for name, config in configs.items():
        if not isinstance(config, EngineConfig):
            config = EngineConfig(config)
        by_name[name] = config
    return {**dict.fromkeys(LIKE_LLM, by_name["llm"]), **by_name}


def with_policies(
    configs: Mapping[str, EngineConfig], batching_name: str | None, routing_name: str | None
) -> dict[str, EngineConfig]:
    """All engines with other policies; options stay with the policy that they were for.

    Raises UnknownName at once.
    """
    if batching_name:
        batching.make(batching_name)
    if routing_name:
        routing.make(routing_name)
    return {
        name: replace(
            config,
            batching=batching_name or config.batching,
            batching_options=config.batching_options
            if batching_name in (None, config.batching)
            else {},
            routing=routing_name or config.routing,
            routing_options=config.routing_options
            if routing_name in (None, config.routing)
            else {},
        )
        for name, config in configs.items()
    }


def fair_to_tenants(
    configs: Mapping[str, EngineConfig], weights: Mapping[str, float]
) -> dict[str, EngineConfig]:
    """All engines shared by tenants (policy `fair`), each with its own policy within a tenant.

    weights: 1 for a tenant that is not named. An engine that is fair already stays as it is, but
    for weights if it names none; InputError where tenants would not have their shares there.
    """
    return {name: _shared(name, config, weights) for name, config in configs.items()}


def _shared(name: str, config: EngineConfig, weights: Mapping[str, float]) -> EngineConfig:
    if config.batching == config.routing:
        raise InputError(
            f"engine {name!r}: policy {config.batching!r} is order and routing in one and has no "
            "shares of tenants, which an engine has as soon as there are keys or tenant_weights: "
            'take batching = "urgency" with routing = "workload_balanced", or leave keys out'
        )
    if config.batching != "fair":
        inner = {"inner": config.batching, "inner_options": dict(config.batching_options)}
        options = {"by": "tenant", "weights": dict(weights), **inner}
        return replace(config, batching="fair", batching_options=options)
    by = config.batching_options.get("by", "both")
    own_weights = config.batching_options.get("weights") or {}
    if by == "app":
        raise InputError(
            f"engine {name!r} is shared by application, so tenants have no shares there: take "
            '`by` out of its batching_options, or say by = "tenant"'
        )
    if not weights or own_weights == weights:
        return config
    if by != "tenant":
        raise InputError(
            f"engine {name!r} is shared by tenant and application, where tenant_weights say "
            'nothing: say by = "tenant" in its batching_options, or take tenant_weights out'
        )
    if own_weights:
        raise InputError(
            f"engine {name!r} has weights of its own, which are not tenant_weights: take one of "
            "them out"
        )
    return replace(config, batching_options={**config.batching_options, "weights": dict(weights)})
