"""Databases that clients may name: those of the configuration that are open to their tenant.

A path, a DSN or the name of a secret is refused before a query begins, and the engine opens none on
a server: either would be enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from teola.app import App
from teola.errors import LONGEST_NAME, InputError
from teola.runtime.engines import DATABASES, EngineConfig

ENGINE_TYPE: Final = "sql-databases"


class NamedDatabases:
    """Those of a server. configs: its engines."""

    def __init__(self, configs: Mapping[str, EngineConfig]) -> None:
        config = configs.get(DATABASES)
        named = config.options.get("named") if config is not None else None
        self._tenants: dict[str, frozenset[str]] = {
            name: frozenset(options.get("tenants") or ()) for name, options in (named or {}).items()
        }

    def open_to(self, tenant: str | None) -> list[str]:
        """Names of those that a tenant may ask."""
        return [name for name, whose in self._tenants.items() if not whose or tenant in whose]

    def check(self, app: App, given: Mapping[str, Any], tenant: str | None) -> None:
        """Raise InputError if an input of a query names any other."""
        for name, declared in app.declared.items():
            if not declared.names:
                continue
            value, mine = given.get(name), self.open_to(tenant)
            if declared.left_out(value):
                if declared.names == DATABASES and len(mine) != 1:
                    raise InputError(_which(name, mine))
            elif not isinstance(value, str) or value not in mine:
                raise InputError(_unknown(name, str(value), mine))


def _which(name: str, mine: list[str]) -> str:
    if not mine:
        return "no database is open to you here: whoever runs this server configures them"
    return f"say by the input {name!r} which database is meant: {', '.join(sorted(mine))}"


def _unknown(name: str, value: str, mine: list[str]) -> str:
    near = get_close_matches(value[:LONGEST_NAME], mine, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    shown = "of that address" if "://" in value else repr(value[:LONGEST_NAME])  # it has passwords
    listed = ", ".join(sorted(mine)) or "none"
    return f"input {name!r}: there is no database {shown} open to you{hint} (there are: {listed})"


def paths_closed(configs: Mapping[str, EngineConfig]) -> dict[str, EngineConfig]:
    """Engines of a server: databases are opened by name only."""
    closed = dict(configs)
    config = closed.get(DATABASES)
    if config is not None and config.factory == ENGINE_TYPE:
        closed[DATABASES] = replace(config, options={**config.options, "paths": False})
    return closed
