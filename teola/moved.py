"""Modules and names that are called otherwise now: the old names go on for a release, with a
warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """The `__getattr__` of module `old`, whose names are those of `new`."""

    def get(name: str) -> Any:
        value = getattr(import_module(new), name)  # whoever asks for what is not there is told so
        if not name.startswith("__"):
            warnings.warn(f"{old} is now {new}: import {name} from there", DeprecationWarning, 2)
        return value

    return get


def renamed(module: str, new_names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module. new_names: by their old ones, which it has no more."""

    def get(name: str) -> Any:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = new_names[name]
        warnings.warn(f"{module}.{name} is now {module}.{new}", DeprecationWarning, 2)
        return getattr(import_module(module), new)

    return get
