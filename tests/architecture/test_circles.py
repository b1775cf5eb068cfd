"""No two modules need each other, not even for a type checker or inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx
import pytest

from tests.architecture.tree import INSTALLED, ROOT, python_files


def module_name(file: Path) -> str:
    """`teola_engines.llm.tokens` for engines/llm/tokens.py, and the package for its __init__.py."""
    top, *rest = file.relative_to(ROOT).with_suffix("").parts
    parts = [INSTALLED.get(top, top), *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, package: str) -> Iterator[tuple[str, str]]:
    """(module, name in it or "") of every import in a file of `package`, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def circles(sources: Mapping[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    """Modules that import each other. sources: module -> (its package, its text)."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, (package, source) in sources.items():
        for target, name in imported(source, package):
            found = f"{target}.{name}" if f"{target}.{name}" in sources else target
            while found and found not in sources:  # a name of the package itself
                found = found.rpartition(".")[0]
            if found and found != module:
                graph.add_edge(module, found)
    return sorted(tuple(sorted(c)) for c in nx.strongly_connected_components(graph) if len(c) > 1)


def test_imports_have_no_circles() -> None:
    sources = {}
    for file in python_files(*INSTALLED, "experiments"):
        name = module_name(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        sources[name] = (package, file.read_text())
    assert {"teola", "teola_engines.llm", "teola_apps.naive_rag", "experiments"} <= sources.keys()
    assert circles(sources) == []


@pytest.mark.parametrize(
    "line",
    [
        "import x.b",
        "import x.b as b",
        "from x import b",
        "from x.b import Name",
        "from . import b",
        "from .b import Name",
        "from ..x import b",
        "def f():\n    from x.b import Name",
        "if TYPE_CHECKING:\n    from x.b import Name",
    ],
)
def test_every_form_of_import_is_seen(line: str) -> None:
    sources = {"x": ("x", ""), "x.a": ("x", line), "x.b": ("x", "import x.a")}
    if line.startswith("from .."):
        sources = {f"y.{name}": (f"y.{package}", text) for name, (package, text) in sources.items()}
        sources["y.x.b"] = ("y.x", "import y.x.a")
        assert circles(sources) == [("y.x.a", "y.x.b")]
    else:
        assert circles(sources) == [("x.a", "x.b")]


def test_a_line_is_no_circle() -> None:
    assert circles({"a": ("", "import b"), "b": ("", "import c"), "c": ("", "import os")}) == []
