"""No two modules need each other, not even for a type checker or inside a function; nor do two
folders."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
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


Sources = Mapping[str, tuple[str, str]]
"""Module -> (its package, its text)."""


def arrows(sources: Sources) -> Iterator[tuple[str, str]]:
    """(module, another that it imports)."""
    for module, (package, source) in sources.items():
        for target, name in imported(source, package):
            found = f"{target}.{name}" if f"{target}.{name}" in sources else target
            while found and found not in sources:  # a name of the package itself
                found = found.rpartition(".")[0]
            if found and found != module:
                yield module, found


def circles(sources: Sources) -> list[tuple[str, ...]]:
    """Modules that import each other."""
    return _knots(arrows(sources))


def folder_circles(sources: Sources) -> list[tuple[str, ...]]:
    """Folders whose modules import each other. What stands in a folder is put together by the files
    beside it, and uses those that all share: a folder and one inside it are no circle."""
    pairs = ((sources[a][0], sources[b][0]) for a, b in arrows(sources))
    return _knots((a, b) for a, b in pairs if not (_within(a, b) or _within(b, a)))


def _within(inner: str, outer: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")


def _knots(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(pairs)
    return sorted(tuple(sorted(c)) for c in nx.strongly_connected_components(graph) if len(c) > 1)


def sources_of(*trees: str) -> Sources:
    """All modules of some trees."""
    sources = {}
    for file in python_files(*trees):
        name = module_name(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        sources[name] = (package, file.read_text())
    return sources


def test_imports_have_no_circles() -> None:
    sources = sources_of(*INSTALLED, "experiments")
    assert {"teola", "teola_engines.llm", "teola_apps.naive_rag", "experiments"} <= sources.keys()
    assert circles(sources) == []


def test_folders_have_no_circles() -> None:
    """Files of `teola/serve` and of folders in it need each other both ways, which this does not
    look at."""
    assert folder_circles(sources_of(*INSTALLED)) == []


def test_a_circle_of_folders_is_found() -> None:
    sources = {
        "x": ("x", ""),
        "x.a": ("x.a", ""),
        "x.a.one": ("x.a", "import x.b.two"),
        "x.a.other": ("x.a", ""),
        "x.b": ("x.b", ""),
        "x.b.two": ("x.b", ""),
        "x.b.three": ("x.b", "import x.a.other\nimport x.shared"),
        "x.shared": ("x", "import x.b.two"),
    }
    assert circles(sources) == []
    assert folder_circles(sources) == [("x.a", "x.b")]


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
