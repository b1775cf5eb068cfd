"""What the class of a component declares, checked when the class is made.

A slip in a declaration would else be met where its graph is built, or nowhere: Python takes
`need = {...}` as well as `needs = {...}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from teola.errors import TemplateError
from teola.workflow.kinds import Kind

PORTS: Final = ("needs", "may_use", "gives")
TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "default_name": (str, "a text"),
    "default_engine": (str, "a text"),
    "effect": (bool, "True or False"),
    "lenient": (bool, "True or False"),
}
INSTEAD: Final = {
    "name": "default_name",
    "engine": "default_engine",
    "config": "config_type",
    "inputs": "needs",
    "outputs": "gives",
}
"""Attributes that each instance has of its own, so that the class's would say nothing."""
DECLARATIONS: Final = (*PORTS, *TYPES, "config_type", "bodies")
METHODS: Final = ("decompose", "configure")
LIKE: Final = 0.81
"""How like a declaration's name another name is that was meant to be it, in 0..1. `given` and
`gives` are two words."""


def check_class(class_: type, base: type, config: type) -> None:
    """Raise TemplateError where the class `class_` of components declares something wrong. base:
    the class of all components. config: that of all configurations."""
    for name, value in vars(class_).items():
        if name.startswith("_"):
            continue
        if name in PORTS:
            _check_ports(class_, name, value)
        elif name in TYPES:
            expected, words = TYPES[name]
            if not isinstance(value, expected) and not hasattr(value, "__get__"):
                raise _wrong(class_, f"{name} must be {words}, not {value!r}")
        elif name == "config_type":
            if not (isinstance(value, type) and issubclass(value, config)):
                raise _wrong(
                    class_,
                    f"config_type must be a class that inherits from "
                    f"teola.workflow.component.Config, not {value!r}",
                )
        elif not hasattr(base, name):
            _check_name(class_, name, value)


def _check_ports(class_: type, name: str, ports: Any) -> None:
    if hasattr(ports, "__get__"):  # a property: each instance has its own
        return
    if not isinstance(ports, Mapping):
        raise _wrong(class_, f'{name} must map names to kinds, such as {{"text": Kind.TEXT}}')
    words = {kind.value: kind for kind in Kind}
    for port, kind in ports.items():
        if not isinstance(port, str):
            raise _wrong(class_, f"{name} must map names to kinds, but {port!r} is no name")
        if isinstance(kind, Kind):
            continue
        way = ""
        if isinstance(kind, str):
            near = get_close_matches(kind, words, n=1)
            way = f"; write Kind.{words[near[0]].name}" if near else ""
        raise _wrong(
            class_,
            f"{name}[{port!r}] must be a Kind (teola.workflow.kinds), not {kind!r}{way}",
        )


def _check_name(class_: type, name: str, value: Any) -> None:
    """Refuse a name that is nearly a declaration's. Methods and what behaves like them may be
    called anything that is not nearly `decompose`."""
    method = hasattr(value, "__get__")
    if not method and name in INSTEAD:
        raise _wrong(class_, f"{name!r} says nothing on a class; declare {INSTEAD[name]!r}")
    near = get_close_matches(name, METHODS if method else DECLARATIONS, n=1, cutoff=LIKE)
    if near and near[0] not in vars(class_):
        raise _wrong(class_, f"it declares {name!r}; did you mean {near[0]!r}?")


def _wrong(class_: type, what: str) -> TemplateError:
    return TemplateError(f"component class {class_.__name__}: {what}")
