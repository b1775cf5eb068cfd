"""Secrets: what tools of a run may know by name, and nobody else may read, print or store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from teola.errors import InputError

LEAST_CHARACTERS: Final = 6
"""Shorter values are not looked for in texts, of which too much would be hidden."""


class Secrets(Mapping[str, str]):
    """Secrets of a run, and behind them those of the environment. Only their names are printed, and
    no copy leaves the process. Raises InputError for what is none."""

    __slots__ = ("_own",)

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        for name, value in (own or {}).items():
            if not isinstance(name, str) or not isinstance(value, str) or not value:
                raise InputError(f"the secret {name!r} must be a text that is not empty")
        self._own = dict(own or {})

    def __getitem__(self, name: str) -> str:
        value = self._own.get(name)
        return value if value is not None else os.environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def hidden(self, value: Any) -> Any:
        """A JSON value without those that the run was given: their names stand there instead."""
        long = _long(self._own)
        return _hidden(value, long) if long else value

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self._own))})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets stay in the process that their run began in")


OF_NONE: Final = Secrets()
"""Of a run that was given none: those of the environment."""


class ReadSecrets(Mapping[str, str]):
    """Secrets as one call reads them, so that they can be kept out of what it returns."""

    def __init__(self, of: Mapping[str, str]) -> None:
        self._of = of
        self._read: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        value = self._read[name] = self._of[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __repr__(self) -> str:
        return repr(self._of)

    def hidden(self, value: Any) -> Any:
        """A JSON value without the secrets that were read: their names stand there instead."""
        long = _long(self._read)
        return _hidden(value, long) if long else value


def _long(secrets: Mapping[str, str]) -> dict[str, str]:
    """Those that are looked for. The longest come first: of one that begins with another one, the
    rest would be left."""
    found = sorted(secrets.items(), key=lambda item: len(item[1]), reverse=True)
    return {name: value for name, value in found if len(value) >= LEAST_CHARACTERS}


def _hidden(value: Any, secrets: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, secret in secrets.items():
            value = value.replace(secret, f"[{name}]")
        return value
    if isinstance(value, Mapping):
        return {_hidden(key, secrets): _hidden(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, secrets) for item in value]
    return value
