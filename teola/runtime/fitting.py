"""Where applications and a runtime meet: has it the engines that they name, and are its own named?

An engine's name is only a word until something uses it, so a wrong one shows here at the earliest:
an application names an engine that the runtime has not, or the runtime was given an engine that no
application names while one with nearly that name runs as it does by default.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final
from weakref import WeakKeyDictionary

from teola.errors import InputError, UnknownName
from teola.runtime.engines import DEFAULTS, LIKE_LLM, EngineConfig
from teola.runtime.observe.noting import note

log = logging.getLogger(__name__)

USUAL: Final = frozenset({*DEFAULTS, *LIKE_LLM})
"""Names of engines that every runtime has."""

Users = Mapping[str, str]
"""Engine -> a component that uses it ("" for the step before the graph)."""


class Fitting:
    """The applications of one runtime, by what they use. known: of those whose engines it has."""

    def __init__(self, *known: Fitting) -> None:
        self._users: WeakKeyDictionary[object, Users] = WeakKeyDictionary()
        for one in known:
            self._users.update(one._users)
        self._looked = False

    def add(
        self, app: object, name: str, users: Users, configs: Mapping[str, EngineConfig]
    ) -> None:
        """`app`, called `name`, is to run here. Raises UnknownName for an engine that is not."""
        if app in self._users:
            return
        for engine, component in users.items():
            if engine not in configs:
                where = f"component {component!r} of application {name!r}"
                raise UnknownName("engine", engine, configs, where)
        self._users[app] = users
        self._looked = False

    def look(self, configs: Mapping[str, EngineConfig]) -> None:
        """Before a query: raise InputError for an engine that seems to have a misspelt name, and
        log those that nothing uses. Looks again only when there is another application."""
        if self._looked:
            return
        used = {engine for users in self._users.values() for engine in users}
        check_names(configs, used)
        self._looked = True


def check_names(configs: Mapping[str, EngineConfig], used: Collection[str]) -> None:
    """Raise InputError for a configured engine that is not used while one of nearly that name is,
    as it runs by default; log others that are not used."""
    for name in configs:
        if name in USUAL or name in used:
            continue
        candidates = [usual for usual in used if usual in USUAL and _as_by_default(usual, configs)]
        if near := get_close_matches(name, candidates, n=1):
            raise InputError(
                f"engine {name!r} is configured, but no application here uses it, and {near[0]!r} "
                f"runs as by default: did you mean {near[0]!r}? (What uses {name!r} must be "
                "declared with this runtime before the first query.)"
            )
        note(
            log,
            logging.WARNING,
            "engine_unused",
            "engine %(engine)s is configured, but no application here uses it",
            engine=name,
        )


def _as_by_default(name: str, configs: Mapping[str, EngineConfig]) -> bool:
    """Whether an engine is what runs with nothing configured, whatever its policies."""
    usual, config = DEFAULTS["llm" if name in LIKE_LLM else name], configs[name]
    made = config.factory, config.options, config.pool
    return made == (usual.factory, usual.options, usual.pool)
