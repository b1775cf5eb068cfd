"""What an engine can is declared by protocols of `teola.engine`, and never guessed by a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, python_files

GUESSES = {"getattr", "hasattr"}
ENGINES = {"engine", "engines", "near", "embedder", "loader", "store", "asked"}
"""What engines are called in the code: as variables, attributes and results of calls."""


def guesses(source: str) -> Iterator[int]:
    """Lines that look whether an engine has an attribute of a certain name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Name(called), [of, ast.Constant(str()), *_]) if called in GUESSES:
                if _name(of) in ENGINES:
                    yield node.lineno


def _name(node: ast.expr) -> str:
    """The last name of an expression: `x.engine`, `engine`, `engines[0]`, `engine()`."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name.lstrip("_").lower()
        case ast.Subscript(value) | ast.Call(value) | ast.Await(value):
            return _name(value)
    return ""


def test_nobody_guesses_what_an_engine_can() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in python_files("teola")
        for line in guesses(file.read_text())
    ]
    assert found == [], "ask by isinstance and a protocol of teola/engine.py"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ('getattr(engine, "keeps", False)', True),
        ('getattr(self.host.engine, "dimensions", 384)', True),
        ('getattr(runtime.host(EMBEDDING).engine, "encode", None)', True),
        ('getattr(runtime.engines(name)[0], "model", None)', True),
        ('hasattr(self.near, "capacity")', True),
        ("getattr(engine, name)", False),
        ('getattr(factory, "__module__", "")', False),
        ("isinstance(engine, TellsMemory)", False),
    ],
)
def test_guesses_are_seen(line: str, refused: bool) -> None:
    assert bool(list(guesses(line))) is refused


def test_every_capability_is_in_the_documentation() -> None:
    tree = ast.parse(Path(ROOT / "teola" / "engine.py").read_text())
    source = (ROOT / "teola" / "engine.py").read_text()
    begin = source[: source.index("# --- capabilities")].count("\n")
    end = source[: source.index("# --- documents")].count("\n")
    names = [n.name for n in tree.body if isinstance(n, ast.ClassDef) and begin < n.lineno < end]
    page = (ROOT / "docs" / "add-an-engine.md").read_text()
    assert len(names) >= 8
    assert [name for name in names if f"`{name}`" not in page] == []
