"""Which applications there are: installed ones by name (entry points `teola.apps`), own ones by
file. What another package installs may be broken; that harms nobody but who asks for it.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from teola.app import App
from teola.entry_points import offered
from teola.errors import InputError, UnknownName, whole

GROUP: Final = "teola.apps"


@dataclass(frozen=True, slots=True)
class Listing:
    """An installed application, or why it cannot be used. source: `module:variable`."""

    name: str
    source: str
    app: App | None
    error: str = ""


def names() -> list[str]:
    """Names of all installed applications, sorted."""
    return sorted(offered(GROUP))


def installed() -> list[Listing]:
    """All installed applications by name; a broken one carries its error."""
    found = []
    for name, point in sorted(offered(GROUP).items()):
        try:
            found.append(Listing(name, point.value, _load(point)))
        except InputError as error:
            found.append(Listing(name, point.value, None, str(error)))
    return found


def load_app(where: str) -> App:
    """The application called `where`, or that of a file: `path/to/file.py:variable`.

    The variable may be left out if the file declares one application. Raises UnknownName, and
    InputError if it cannot be imported.
    """
    path, _, variable = where.partition(":")
    if path.endswith(".py"):
        return _from_file(Path(path).expanduser(), variable)
    points = offered(GROUP)
    if where not in points:
        raise UnknownName("application", where, points)
    return _load(points[where])


def _load(point: EntryPoint) -> App:
    try:
        found = point.load()
    except Exception as error:  # another package's code may raise anything
        raise InputError(
            f"application {point.name!r} ({point.value}) cannot be imported: {_told(error)}"
        ) from error
    return _checked(found, f"{point.name!r} ({point.value})")


def _from_file(path: Path, variable: str) -> App:
    if not path.is_file():
        raise InputError(f"no such file: {str(path)!r}; check the path of the application")
    module = _run_file(path)
    if variable:
        if not hasattr(module, variable):
            declared = [name for name, value in vars(module).items() if isinstance(value, App)]
            raise UnknownName("variable", variable, declared, str(path))
        return _checked(getattr(module, variable), f"{path}:{variable}")
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


def _checked(found: Any, where: str) -> App:
    if not isinstance(found, App):
        raise InputError(f"{where} is no teola.App but {type(found).__name__}")
    return found


def _told(error: Exception) -> str:
    said = whole(error)
    return said if said == type(error).__name__ else f"{type(error).__name__}: {said}"
