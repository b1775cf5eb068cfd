"""Who imports whom in a tree, and which modules and folders need each other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import networkx as nx

INSTALLED: Final = {"teola": "teola", "engines": "teola_engines", "apps": "teola_apps"}
"""Folder in the repository -> name of the package it is installed as."""
Sources = Mapping[str, tuple[str, str]]
"""Module -> (its package, its text)."""


def sources_of(root: Path, *folders: str) -> Sources:
    """All modules below some folders of the repository at `root`."""
    sources = {}
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            name = module_name(file.relative_to(root))
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            sources[name] = (package, file.read_text(encoding="utf-8"))
    return sources


def module_name(file: Path) -> str:
    """`teola_engines.llm.tokens` for engines/llm/tokens.py, and the package for its __init__.py.
    file: its path in the repository."""
    top, *rest = file.with_suffix("").parts
    parts = [INSTALLED.get(top, top), *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(sources: Sources) -> list[tuple[str, ...]]:
    """Modules that import each other."""
    return _knots(arrows(sources))


def folder_circles(sources: Sources) -> list[tuple[str, ...]]:
    """Folders whose modules import each other. What stands in a folder is put together by the files
    beside it, and uses those that all share: a folder and one inside it are no circle."""
    pairs = ((sources[a][0], sources[b][0]) for a, b in arrows(sources))
    return _knots((a, b) for a, b in pairs if not (_within(a, b) or _within(b, a)))


def arrows(sources: Sources) -> Iterator[tuple[str, str]]:
    """(module, another that it imports)."""
    for module, (package, source) in sources.items():
        for target, name in imported(source, package):
            found = f"{target}.{name}" if f"{target}.{name}" in sources else target
            while found and found not in sources:  # a name of the package itself
                found = found.rpartition(".")[0]
            if found and found != module:
                yield module, found


def imported(source: str, package: str) -> Iterator[tuple[str, str]]:
    """(module, name in it or "") of every import in a file of `package`, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def _within(inner: str, outer: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")


def _knots(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(pairs)
    return sorted(tuple(sorted(c)) for c in nx.strongly_connected_components(graph) if len(c) > 1)
