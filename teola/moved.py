"""Modules that stand elsewhere now: their old names go on for a release, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """The `__getattr__` of module `old`, whose names are those of `new`."""

    def get(name: str) -> Any:
        found = getattr(import_module(new), name)  # whoever asks for what is not there is told so
        if not name.startswith("__"):
            warnings.warn(f"{old} is now {new}: import {name} from there", DeprecationWarning, 2)
        return found

    return get
