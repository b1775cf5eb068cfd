"""What is registered once more: a notebook's cell replaces what it registered, a module what it
defined; nothing replaces what somebody else registered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import teola
from teola.errors import InputError
from teola.registering import REGISTRIES

CELL = """
import teola
from teola import App, Search, component
from teola.policies.batching import Fifo
from teola.policies.routing import RoundRobin
from teola.tools import tool
"""
DEFINED: dict[Any, str] = {
    "batching": """
@teola.register("batching", "cell")
class mine(Fifo):
    pass
""",
    "routing": """
@teola.register("routing", "cell")
def mine():
    return RoundRobin()
""",
    "component": """
@teola.register("component", "cell")
@component(outputs="said")
def mine(question: str) -> str:
    return question
""",
    "tool": """
@teola.register("tool", "cell")
@tool
def mine() -> str:
    "Acts."
    return "done"
""",
}
"""Classes and functions, of which a module has one by a name."""
MADE: dict[Any, str] = {
    "batching": """
mine = lambda: Fifo(max_wait_s=0.1)
teola.register("batching", "cell", mine)
""",
    "component": """
class Mine(Search):
    pass

mine = Mine("mine", top_k=2)
teola.register("component", "cell", mine)
""",
    "app": """
say = component(lambda question: question, name="say", outputs="said")
mine = App("echo", say, inputs={"question": "text"}, outputs={"said": "said"})
teola.register("app", "cell", mine)
""",
}
"""Things, of which a module may have several that look alike."""


def run(cell: str, module: str = "__main__") -> Any:
    """What a cell of a notebook registers, or a module."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(CELL + cell, namespace)
    return namespace["mine"]


@pytest.fixture
def cell_is_forgotten() -> Iterator[None]:
    yield
    for kind, registry in REGISTRIES.items():
        if "cell" in registry.registered():
            teola.unregister(kind, "cell")  # type: ignore[arg-type]


@pytest.mark.usefixtures("cell_is_forgotten")
@pytest.mark.parametrize(("kind", "cell"), [*DEFINED.items(), *MADE.items()])
def test_a_cell_that_runs_again_replaces_what_it_registered(kind: Any, cell: str) -> None:
    first, second = run(cell), run(cell)
    assert REGISTRIES[kind].find("cell") is second is not first
    with pytest.raises(InputError, match="registered already"):
        run(cell, "another_module")


@pytest.mark.usefixtures("cell_is_forgotten")
@pytest.mark.parametrize(("kind", "other"), [*DEFINED.items(), *MADE.items()])
def test_another_cell_does_not(kind: Any, other: str) -> None:
    first = run((DEFINED if other in MADE.values() else MADE).get(kind, other))
    renamed = other.replace("mine", "other").replace("Mine", "Other").replace("echo", "other")
    with pytest.raises(InputError, match="registered already"):
        run(renamed)
    assert REGISTRIES[kind].find("cell") is first


@pytest.mark.usefixtures("cell_is_forgotten")
@pytest.mark.parametrize("kind", DEFINED)
def test_a_module_that_is_loaded_again_replaces_its_definitions(kind: Any) -> None:
    first, second = run(DEFINED[kind], "a_module"), run(DEFINED[kind], "a_module")
    assert REGISTRIES[kind].find("cell") is second is not first


@pytest.mark.usefixtures("cell_is_forgotten")
@pytest.mark.parametrize("kind", MADE)
def test_a_module_that_registers_two_things_is_refused(kind: Any) -> None:
    first = run(MADE[kind], "a_module")
    with pytest.raises(InputError, match="registered already"):
        run(MADE[kind], "a_module")
    assert REGISTRIES[kind].find("cell") is first


@pytest.mark.usefixtures("cell_is_forgotten")
@pytest.mark.parametrize("kind", MADE)
def test_a_cell_does_not_replace_what_a_module_registered(kind: Any) -> None:
    """Though it looks the same, as does what a module registers after a cell."""
    for first, second in (("a_module", "__main__"), ("__main__", "a_module")):
        thing = run(MADE[kind], first)
        with pytest.raises(InputError, match="registered already"):
            run(MADE[kind], second)
        assert REGISTRIES[kind].find("cell") is thing
        teola.unregister(kind, "cell")
