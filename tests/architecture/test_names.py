"""A public class name means one thing, and so does the name of a file."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.architecture.tree import ROOT, python_files

EXCEPTIONS: frozenset[str] = frozenset()
"""Names that still stand for two classes; one that no longer does must go here, too."""


FILES: frozenset[str] = frozenset({"__init__.py", "__main__.py", "base.py"})
"""Names of files that say what a file is to its folder."""
TWICE: frozenset[str] = frozenset({"call.py", "model_server.py", "server.py"})
"""Others that still stand twice; one that no longer does must go here, too."""
MOVED: frozenset[str] = frozenset({"job.py", "result.py"})
"""Those of modules whose old names go on for a release (teola/moved.py)."""


def public_classes(source: str) -> Iterator[str]:
    """Names of the classes in a file that have no underscore in front, wherever they stand."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def twice(files: dict[str, str]) -> dict[str, list[str]]:
    """Name of a class -> the files that have one of it, where there are several."""
    found: dict[str, list[str]] = {}
    for file, source in files.items():
        for name in public_classes(source):
            found.setdefault(name, []).append(file)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_no_public_class_name_stands_twice() -> None:
    files = python_files("teola", "engines")
    found = twice({str(file.relative_to(ROOT)): file.read_text() for file in files})
    assert {name: where for name, where in found.items() if name not in EXCEPTIONS} == {}
    assert found.keys() >= EXCEPTIONS, "take out of EXCEPTIONS what is mended"


def test_what_stands_twice_is_found() -> None:
    files = {
        "a": "class One: ...\nclass _Own: ...",
        "b": "def f():\n    class One: ...\nclass _Own: ...",
        "c": "class Two:\n    class Inner: ...",
    }
    assert twice(files) == {"One": ["a", "b"]}


@pytest.mark.parametrize("tree", ["teola", "engines"])
def test_no_file_name_stands_twice_in_a_tree(tree: str) -> None:
    counts = Counter(file.name for file in python_files(tree))
    found = {name for name, count in counts.items() if count > 1} - FILES - MOVED
    assert found <= TWICE, "name it for what it alone is"


def test_what_is_excepted_still_stands_twice() -> None:
    counts = Counter(file.name for file in python_files("teola"))
    assert {name for name in TWICE if counts[name] < 2} == set()
