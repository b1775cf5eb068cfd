"""Which engines there are: their names, where their classes come from, how they are scheduled."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from teola.engine import BatchEngine, Engine, EngineKind, LanguageModel, Loader
from teola.errors import InputError, UnknownName
from teola.policies import batching, routing
from teola.registry import Factories
from teola.runtime.driver import queue_of
from teola.runtime.hosts.process import ProcessEngine
from teola.runtime.hosts.server import Recipe
from teola.runtime.python_engine import PythonEngine
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.instances import Limits

REGISTRY: Final = Factories[Engine](
    "engine type", "teola.engines", {}, [BatchEngine, LanguageModel, Loader]
)
HOSTS: Final = ("local", "process", "ray")
COMPUTES: Final = frozenset({EngineKind.LLM, EngineKind.EMBEDDING, EngineKind.RERANK})
"""Kinds that go to a cluster if there is one; the others are clients of something, or quick."""


@dataclass(frozen=True)
class EngineConfig:
    """How to make and schedule one engine.

    factory: an engine class (or function returning an engine), or the name of one that is installed
    (entry points `teola.engines`) or registered. options: its keyword arguments. instances: how
    many to run. batching / routing: policy names, with their options in `batching_options` and
    `routing_options`. host:
    where its instances run: `local` (in this process), `process` (each in a child process) or `ray`
    (each in an actor of the cluster that the runtime is given); None is local, or ray if the
    runtime has a cluster and the engine computes much. resources: what each asks of a Ray node:
    num_cpus, num_gpus, custom ones.
    """

    factory: str | Callable[..., Engine]
    options: Mapping[str, Any] = field(default_factory=dict)
    instances: int = 1
    batching: str = batching.DEFAULT
    routing: str = routing.DEFAULT
    batching_options: Mapping[str, Any] = field(default_factory=dict)
    routing_options: Mapping[str, Any] = field(default_factory=dict)
    host: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise InputError(f"an engine needs at least one instance, got {self.instances}")
        if self.host is not None and self.host not in HOSTS:
            raise UnknownName("host", self.host, HOSTS, "engine configuration")

    def make(self, name: str) -> Engine:
        """A fresh, unstarted instance in this process. Raises UnknownName, InputError."""
        return self.recipe(name).make()

    def recipe(self, name: str) -> Recipe:
        """How to make an instance, here or elsewhere. Raises UnknownName, InputError."""
        factory = REGISTRY.find(self.factory) if isinstance(self.factory, str) else self.factory
        options = dict(self.options)
        parameters = inspect.signature(factory).parameters
        if "name" in parameters:
            options.setdefault("name", name)
        accepts_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for option in options:
            if option not in parameters and not accepts_all:
                raise UnknownName("option", option, parameters, f"engine {name!r}")
        for parameter in parameters.values():
            if _is_needed(parameter) and parameter.name not in options:
                raise InputError(
                    f"engine {name!r} needs the option {parameter.name!r}: "
                    f"EngineConfig({self._called!r}, {{{parameter.name!r}: ...}})"
                )
        return Recipe(factory, options, name)

    @property
    def _called(self) -> str:
        """The type of engine, for a message."""
        factory = self.factory
        return factory if isinstance(factory, str) else getattr(factory, "__name__", repr(factory))

    def placed(self, name: str, on_ray: bool) -> Engine:
        """An unstarted instance where it is to run. on_ray: there is a cluster.

        Raises UnknownName, InputError.
        """
        host = self.host or "local"
        recipe = self.recipe(name)
        if self.host is None and on_ray and recipe.make().spec.kind in COMPUTES:
            host = "ray"
        if host == "local":
            return recipe.make()
        if host == "process":
            return ProcessEngine(recipe)
        if not on_ray:
            raise InputError(
                f"engine {name!r} is to run on Ray, but the runtime has no cluster: "
                "give --ray, or Runtime(ray=True)"
            )
        from teola.runtime.hosts.ray_actor import RayEngine

        return RayEngine(recipe, self.resources)


def described() -> list[dict[str, Any]]:
    """All engine types, installed and registered: `name`, `source`, `default` (whether it runs by
    default), `about` and, where it can be told without options, `kind`, `ops`, `max_batch`; `error`
    of a broken one.
    """
    running = {config.factory for config in DEFAULTS.values()}
    found: list[dict[str, Any]] = []
    registered, offered = REGISTRY.registered(), REGISTRY.offered()
    sources = {name: _source(named.thing) for name, named in registered.items()}
    sources |= {name: point.value for name, point in offered.items()}
    for name, source in sorted(sources.items()):
        entry = {"name": name, "source": source, "default": name in running}
        try:
            found.append({**entry, **_about(REGISTRY.find(name), name)})
        except Exception as error:  # noqa: BLE001 - another package's code may raise anything
            reason = f"broken: {type(error).__name__}: {error}"
            found.append({**entry, "about": "", "error": reason})
    return found


def _about(factory: Callable[..., Engine], name: str) -> dict[str, Any]:
    about = (inspect.getdoc(factory) or "").partition("\n")[0]
    needed = [p.name for p in inspect.signature(factory).parameters.values() if _is_needed(p)]
    if needed:
        return {"about": about, "needs": needed}
    spec = EngineConfig(factory).make(name).spec
    ops = sorted(op.value for op in spec.ops)
    about = spec.description or about
    return {"about": about, "kind": spec.kind.value, "ops": ops, "max_batch": spec.max_batch}


def _source(factory: Callable[..., Engine]) -> str:
    """`module:name`, as an entry point has it."""
    return f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__name__)}"


def _is_needed(parameter: inspect.Parameter) -> bool:
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not several


DEFAULTS: Final[Mapping[str, EngineConfig]] = {
    "documents": EngineConfig("documents"),
    "embedding": EngineConfig("embedding"),
    "rerank": EngineConfig("rerank"),
    "vectorstore": EngineConfig("vectorstore"),
    "llm": EngineConfig("extractive"),
    "websearch": EngineConfig("corpus"),
    "python": EngineConfig(PythonEngine),
}
"""What runs with nothing configured: all local, nothing from outside."""

LIKE_LLM: Final = ("proxy", "judge")
"""Engines that have the configuration of `llm` unless they are given one."""


def llm_config(where: str, **options: Any) -> EngineConfig:
    """The LLM engine for `--llm`: a server's URL, or a folder with a model. Raises InputError."""
    if where.startswith(("http://", "https://")):
        return EngineConfig("vllm", {"url": where, **options})
    if where == "extractive":
        return DEFAULTS["llm"]
    folder = os.path.expanduser(where)
    if os.path.isfile(os.path.join(folder, "config.json")):
        return EngineConfig("transformers", {"model": os.path.realpath(folder), **options})
    wanted = (
        "give the folder of a Hugging Face model, or the URL of an OpenAI-compatible server, such "
        "as http://localhost:8000/v1"
    )
    if os.path.exists(folder):
        raise InputError(f"--llm {where!r} holds no model (no config.json): {wanted}")
    if "/" in where or where.startswith((".", "~")):
        raise InputError(f"--llm: there is no folder {where!r}: {wanted}")
    raise InputError(f"--llm {where!r} is neither a URL nor a folder: {wanted}")


def embedding_config(where: str) -> EngineConfig:
    """The embedding engine for `--embedding`: a server's URL, or a sentence-transformers model."""
    if where.startswith(("http://", "https://")):
        return EngineConfig("openai-embedding", {"url": where})
    return EngineConfig("embedding", {"model": where})


def web_config(where: str) -> EngineConfig:
    """The web search engine for `--web-search`: an engine type's name, the URL of a SearXNG server,
    or a folder of documents. Raises InputError.
    """
    if where.startswith(("http://", "https://")):
        return EngineConfig("searxng", {"url": where})
    if where in REGISTRY.names():
        kind = EngineConfig(where).make("websearch").spec.kind
        if kind is not EngineKind.WEBSEARCH:
            raise InputError(f"--web-search {where!r}: that engine is for {kind.value}")
        return EngineConfig(where)
    folder = os.path.expanduser(where)
    if os.path.isdir(folder):
        return EngineConfig("corpus", {"folder": os.path.realpath(folder)})
    raise InputError(
        f"--web-search {where!r} is none of google, tavily, searxng and corpus, no URL of a "
        "SearXNG server, and no folder of documents"
    )


def queue_for(name: str, engine: Engine, config: EngineConfig) -> EngineQueue:
    """The scheduler's queue of an engine."""
    spec = engine.spec
    limits = Limits(
        spec.max_batch,
        spec.max_sequences,
        spec.concurrency,
        spec.kind is EngineKind.LLM,
        block_tokens=spec.block_tokens,
    )
    policies = config.batching, config.batching_options, config.routing, config.routing_options
    return queue_of(name, limits, config.instances, *policies)


def merged(
    configs: Mapping[str, EngineConfig | str | Callable[..., Engine]],
) -> dict[str, EngineConfig]:
    """The defaults with `configs` put over them; a bare name or class stands for its config.

    The small models of an application, `proxy` and `judge`, are like `llm` unless configured.
    """
    found = dict(DEFAULTS)
    for name, config in configs.items():
        if not isinstance(config, EngineConfig):
            config = EngineConfig(config)
        found[name] = config
    return {**dict.fromkeys(LIKE_LLM, found["llm"]), **found}


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
    if config.batching != "fair":
        inner = {"inner": config.batching, "inner_options": dict(config.batching_options)}
        options = {"by": "tenant", "weights": dict(weights), **inner}
        return replace(config, batching="fair", batching_options=options)
    by = config.batching_options.get("by", "both")
    own = config.batching_options.get("weights") or {}
    if by == "app":
        raise InputError(
            f"engine {name!r} is shared by application, so tenants have no shares there: take "
            '`by` out of its batching_options, or say by = "tenant"'
        )
    if not weights or own == weights:
        return config
    if by != "tenant":
        raise InputError(
            f"engine {name!r} is shared by tenant and application, where tenant_weights say "
            'nothing: say by = "tenant" in its batching_options, or take tenant_weights out'
        )
    if own:
        raise InputError(
            f"engine {name!r} has weights of its own, which are not tenant_weights: take one of "
            "them out"
        )
    return replace(config, batching_options={**config.batching_options, "weights": dict(weights)})
