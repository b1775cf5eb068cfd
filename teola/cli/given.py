"""From what was typed to what applications take: inputs, overrides, and the runtime's engines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from teola.app import App
from teola.cli.named_engines import embedding_config, llm_config, web_config
from teola.cli.options import EmbeddingDtype
from teola.config import Configuration
from teola.engine import check_metadata
from teola.errors import DocumentError, InputError, UnknownName
from teola.plain_number import is_number
from teola.price import Price
from teola.runtime.engines import DEFAULTS, LIKE_LLM, EngineConfig
from teola.runtime.fitting import Fitting
from teola.runtime.objectives import SLO_SCALE
from teola.runtime.observe.noting import note
from teola.runtime.remembering import default_folder, unusable
from teola.runtime.runtime import Runtime
from teola.workflow.kinds import Kind

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Engines:
    """The options about engines; None where one was not given."""

    llm: Sequence[str] | None = None
    dsn: str | None = None
    data_dir: Path | None = None
    dtype: EmbeddingDtype | None = None
    batching: str | None = None
    profile: str | None = None
    debug: bool = False
    web_search: str | None = None
    ray: str | None = None
    embedding: Sequence[str] | None = None
    dimensions: int | None = None
    learn: str | None = None
    price: str | None = None

    def configs(self, base: Mapping[str, EngineConfig]) -> dict[str, EngineConfig]:
        """`base` with the options put over it. Raises InputError."""
        configs = dict(base)
        if self.llm:
            like = [
                name for name in LIKE_LLM if name in configs and configs[name] == configs["llm"]
            ]
            llm = _in_place_of(configs["llm"], llm_config(self.llm))
            configs |= dict.fromkeys(["llm", *like], llm)
        if self.embedding:
            config = embedding_config(self.embedding)
            configs["embedding"] = _in_place_of(configs["embedding"], config)
        if self.web_search is not None:
            config = web_config(self.web_search)
            configs["websearch"] = _in_place_of(configs["websearch"], config)
        if self.dsn is not None or self.data_dir is not None:
            place = {"dsn": self.dsn, "data_dir": self.data_dir}
            options = {key: value for key, value in place.items() if value is not None}
            store = configs["vectorstore"]
            if store.factory != "vectorstore":
                store = _in_place_of(store, EngineConfig("vectorstore"))
            configs["vectorstore"] = _with(store, options, instead_of=tuple(place))
            _give(configs, ("corpus",), options, instead_of=tuple(place))
        if self.dimensions is not None:
            _give(configs, ("vectorstore",), {"dimensions": self.dimensions})
        if self.dtype is not None:
            models = ("embedding", "rerank", "extractive", "corpus")
            _give(configs, models, {"dtype": self.dtype.value})
        return configs

    def runtime(self, own: Runtime | None = None) -> Runtime:
        """A runtime with these engines; `own`: of an application that brings one along."""
        runtime = Runtime(
            self.configs(own.configs if own else DEFAULTS),
            batching=self.batching,
            profile=self.profile or (own.profile if own else None),
            debug=self.debug,
            ray=self._cluster(own),
            learn=self._learn(_learning(own)),
            tools=own.tools.own if own else None,
            objectives=own.objectives.by_app if own else None,
            slo_scale=own.objectives.scale if own else SLO_SCALE,
            prices=self._prices(own.prices if own else {}),
            budgets=own.budgets if own else None,
        )
        if own is not None:
            runtime.fitting = Fitting(own.fitting)
        return runtime

    def configured(self, base: Configuration, apps: Iterable[App]) -> Runtime:
        """A runtime for `apps` and the engines that they bring along, configured as a file says,
        with the options put over it. Raises InputError."""
        policies, apps = base.policies, list(apps)
        configs = self.configs(base.engine_configs(brought(apps, base.engines)))
        learn = self._learn(policies.learn)
        prices = base.model_prices()
        # An application's price is for its own engine, not for one that a file or an option names.
        named = {*base.engines, *prices, *(("llm", *LIKE_LLM) if self.llm else ())}
        runtime = Runtime(
            configs,
            batching=self.batching,
            profile=self.profile or policies.profile,
            max_queries=base.server.max_queries,
            keep_values=base.server.keep_values,
            debug=self.debug,
            ray=base.ray if self.ray is None else self._cluster(None),
            learn=kept_with_data(configs) if learn is True else learn,
            tools=_brought("tools", apps, lambda own: own.tools.own, base.tool_servers()),
            objectives=_brought(
                "objectives", apps, lambda own: own.objectives.by_app, base.objectives
            ),
            slo_scale=policies.slo_scale,
            prices=self._prices({**_own("prices", apps, lambda own: own.prices, named), **prices}),
            budgets=_brought("budgets", apps, lambda own: own.budgets, base.day_budgets()),
        )
        runtime.fitting = Fitting(*(app.runtime.fitting for app in apps if app.runtime))
        return runtime

    def _prices(self, prices: Mapping[str, Price]) -> Mapping[str, Price]:
        """The prices that are known, with that of --price for the LLM. Raises InputError."""
        if self.price is None:
            return prices
        return {**prices, **dict.fromkeys(("llm", *LIKE_LLM), Price.parse(self.price))}

    def _cluster(self, own: Runtime | None) -> bool | str:
        if self.ray is None:
            return own.ray if own else False
        return True if self.ray == "local" else self.ray

    def _learn(self, otherwise: bool | str | Path) -> bool | str | Path:
        """What `Runtime` takes as `learn`. otherwise: what it is without the option."""
        if self.learn is None:
            return otherwise
        return False if self.learn == "off" else self.learn


def _learning(own: Runtime | None) -> bool | Path:
    """How an application's own runtime learns; in memory only, if it has none."""
    if own is None or own.memory is None:
        return own is None or own.learner is not None
    return own.memory.folder


def kept_with_data(configs: Mapping[str, EngineConfig]) -> Path | bool:
    """The folder in which a server keeps what it learns, if no option names one; True (in memory)
    where that folder cannot be used."""
    folder = default_folder(configs["vectorstore"].options.get("data_dir"))
    reason = unusable(folder)
    if not reason:
        return folder
    message = "what is learned is not kept: %(error)s (--learn names another folder)"
    note(log, logging.WARNING, "lessons_unkept", message, error=reason)
    return True


def _in_place_of(before: EngineConfig, config: EngineConfig) -> EngineConfig:
    """An engine that an option names, scheduled as the one before it."""
    return replace(
        config,
        batching=before.batching,
        batching_options=before.batching_options,
        routing=before.routing,
        routing_options=before.routing_options,
    )


def _give(
    configs: dict[str, EngineConfig],
    types: Sequence[str],
    options: Mapping[str, Any],
    instead_of: Sequence[str] = (),
) -> None:
    """Give engines of these types more options, instead of some that they had."""
    for name, config in configs.items():
        if config.factory in types:
            configs[name] = _with(config, options, instead_of)


def _with(
    config: EngineConfig, options: Mapping[str, Any], instead_of: Sequence[str]
) -> EngineConfig:
    """The engine with more options, also instead of those of its pool."""
    gone = {*instead_of, *options}
    kept, *pool = [
        {key: value for key, value in own.items() if key not in gone}
        for own in (config.options, *config.pool)
    ]
    return replace(config, options={**kept, **options}, pool=pool)


def brought(apps: Iterable[App], configured: Container[str] = ()) -> dict[str, EngineConfig]:
    """The engines of applications that have a runtime of their own, over the defaults. configured:
    names of those that a file has, which go before these.

    Raises InputError if two of them mean different engines by one name.
    """
    return {**DEFAULTS, **_own("engines", apps, _own_engines, configured)}


def _own_engines(runtime: Runtime) -> dict[str, EngineConfig]:
    """Those that are not as they are by default, or as its `llm` is."""
    usual = {**DEFAULTS, **dict.fromkeys(LIKE_LLM, runtime.configs["llm"])}
    return {name: config for name, config in runtime.configs.items() if config != usual.get(name)}


def _brought(
    what: str,
    apps: Iterable[App],
    of: Callable[[Runtime], Mapping[str, T]],
    configured: Mapping[str, T],
) -> dict[str, T]:
    """What is configured, and what else the runtimes of applications have, by name."""
    return {**_own(what, apps, of, configured), **configured}


def _own(
    what: str,
    apps: Iterable[App],
    of: Callable[[Runtime], Mapping[str, T]],
    configured: Container[str],
) -> dict[str, T]:
    """What the runtimes of applications have, by name, without what is configured. Raises
    InputError."""
    found: dict[str, T] = {}
    own = (
        (app, name, thing)
        for app in apps
        for name, thing in (of(app.runtime).items() if app.runtime else ())
    )
    for app, name, thing in own:
        if name not in configured and found.setdefault(name, thing) != thing:
            raise InputError(
                f"application {app.name!r} and another one bring different {what} called "
                f"{name!r}: configure it in the file for --config, or serve them apart"
            )
    return found


def check_budgets(configuration: Configuration, apps: Iterable[App]) -> None:
    """Raise UnknownName for a budget of an application that is not among `apps`."""
    names = [app.name for app in apps]
    for name in configuration.budgets:
        if name not in names:
            raise UnknownName("application", name, names, "`budgets`")


@contextmanager
def at_home(app: App, engines: Engines) -> Iterator[Runtime]:
    """A runtime with these engines, which is `app`'s own meanwhile; closed at the end."""
    own = app.runtime
    with engines.runtime(own) as runtime:
        app.runtime = runtime
        try:
            yield runtime
        finally:
            app.runtime = own


def parse_inputs(app: App, typed: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` by the kinds of the application's inputs. Raises InputError."""
    texts: dict[str, list[str]] = {}
    for argument in typed:
        name, equals, value = argument.partition("=")
        if not equals:
            raise InputError(f"--input {argument!r} must be NAME=VALUE, such as question='Why?'")
        texts.setdefault(name, []).append(value)
    documents = Kind.DOCUMENTS in app.inputs.values()
    kinds = {**app.inputs}
    if documents:
        kinds |= {"collection": Kind.TEXT, "filters": Kind.ANY}
    parsed = {}
    for name, values in texts.items():
        if name not in kinds:
            raise UnknownName("input", name, kinds, f"application {app.name!r}")
        parsed[name] = _value(name, kinds[name], values)
    if "filters" in parsed and documents and not isinstance(parsed["filters"], dict):
        raise InputError("""--input filters must be a JSON object, such as '{"year": 2024}'""")
    return parsed


def _value(name: str, kind: Kind, values: list[str]) -> Any:
    if kind is Kind.DOCUMENTS:
        for value in values:
            if not Path(value).expanduser().exists():
                raise DocumentError(f"no such file: {value!r}; check the path in --input {name}")
        return values
    if kind is Kind.TEXTS:
        return values
    if len(values) > 1:
        raise InputError(f"--input {name} was given {len(values)} times; give it once")
    return values[0] if kind is Kind.TEXT else _json_or_text(values[0])


def parse_overrides(typed: Sequence[str]) -> dict[str, Any]:
    """`COMPONENT.PARAMETER=VALUE`; a value is JSON if it can be, else text. Raises InputError."""
    overrides = {}
    for argument in typed:
        name, equals, value = argument.partition("=")
        if not equals:
            raise InputError(
                f"--set {argument!r} must be COMPONENT.PARAMETER=VALUE, such as search.top_k=8"
            )
        overrides[name] = _json_or_text(value)
    return overrides


def parse_metadata(typed: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE`; numbers, true, false and lists of JSON as such, all else is a text. Raises
    InputError."""
    metadata: dict[str, Any] = {}
    for argument in typed:
        key, equals, text = argument.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--metadata {argument!r} must be KEY=VALUE, such as year=2026")
        if key in metadata:
            raise InputError(f"--metadata {key!r} was given twice; give a list: {key}='[1, 2]'")
        value = _json_or_text(text)
        number = is_number(value) and isfinite(value)
        metadata[key] = value if number or isinstance(value, (bool, list)) else text
    check_metadata(metadata)
    return metadata


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
