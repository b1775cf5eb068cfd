"""Which applications there are: installed ones (entry points `teola.apps`) and registered ones by
name, own ones by file. A broken application of another package fails when it is asked for, and
harms no other."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from teola.app import App
from teola.errors import InputError, UnknownName, error_text
from teola.registry import Registry


def _check(called: str, thing: Any) -> None:
    if not isinstance(thing, App):
        raise InputError(f"{called} is no teola.App but {type(thing).__name__}")


REGISTRY: Final[Registry[App]] = Registry("application", "teola.apps", {}, _check)
REGISTERED: Final = "registered"


@dataclass(frozen=True, slots=True)
class Listing:
    """An application, or why it cannot be used. source: `module:variable`, or REGISTERED."""

    name: str
    source: str
    app: App | None
    error: str = ""


def names() -> list[str]:
    """Names of all applications, sorted."""
    return sorted(REGISTRY.names())


def installed() -> list[Listing]:
    """All applications by name; a broken one carries its error."""
    listings = [
        Listing(name, REGISTERED, named.thing) for name, named in REGISTRY.registered().items()
    ]
    for name, point in REGISTRY.offered().items():
        try:
            listings.append(Listing(name, point.value, _load(point)))
        except InputError as error:
            listings.append(Listing(name, point.value, None, str(error)))
    return sorted(listings, key=lambda listing: listing.name)


def load_app(where: str) -> App:
    """The application called `where`, or that of a file: `path/to/file.py:variable`.

    The variable may be left out if the file declares one application. Raises UnknownName, and
    InputError if it cannot be imported.
    """
    path, _, variable = where.partition(":")
    if path.endswith(".py"):
        return _from_file(Path(path).expanduser(), variable)
    point = REGISTRY.offered().get(where)
    return _load(point) if point is not None else REGISTRY.find(where)


def _load(point: EntryPoint) -> App:
    try:
        loaded = point.load()
    except Exception as error:  # another package's code may raise anything
        raise InputError(
            f"application {point.name!r} ({point.value}) cannot be imported: {_told(error)}"
        ) from error
    return _checked(f"{point.name!r} ({point.value})", loaded)


def _from_file(path: Path, variable: str) -> App:
    if not path.is_file():
        raise InputError(f"no such file: {str(path)!r}; check the path of the application")
    module = _run_file(path)
    if variable:
        if not hasattr(module, variable):
            declared = [name for name, value in vars(module).items() if isinstance(value, App)]
            raise UnknownName("variable", variable, declared, str(path))
        return _checked(f"{path}:{variable}", getattr(module, variable))
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if len({id(app) for app in apps.values()}) != 1:
        listed = ", ".join(sorted(apps)) or "none"
        raise InputError(
            f"say which application of {path} is meant, {path}:VARIABLE (it declares: {listed})"
        )
    return next(iter(apps.values()))


def _run_file(path: Path) -> ModuleType:
    """The file as a module; like a script, it may import what lies beside it."""
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"teola_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        del sys.modules[name]
        raise InputError(f"{path} cannot be imported: {_told(error)}") from error
    return module


def _checked(where: str, loaded: Any) -> App:
    _check(where, loaded)
    app: App = loaded
    return app


def _told(error: Exception) -> str:
    message = error_text(error)
    return message if message == type(error).__name__ else f"{type(error).__name__}: {message}"
