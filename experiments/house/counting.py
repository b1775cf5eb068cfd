"""Statements, comments and satellites of a tree, a row a package. README.md says what each is."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from experiments.house.imports import Sources, folder_circles, sources_of
from teola.errors import InputError

COUNTED: Final = ("teola", "engines")
"""Folders of a tree that are counted."""
DIRECTIVES: Final = ("noqa", "type:", "mypy:", "ruff:", "fmt:", "pragma:", "---")
"""How a comment begins that is for a tool, or that is a line between parts of a file."""


@dataclass(frozen=True, slots=True)
class Counts:
    """A row of the report; `all` counts the whole tree."""

    package: str
    files: int
    lines: int
    statements: int
    comments: int
    circles: int
    satellites: int


def rows(tree: Path) -> list[dict[str, Any]]:
    """A row a package of the repository at `tree`, and the row `all`. Raises InputError if a
    folder of COUNTED is not there, and SyntaxError."""
    missing = [folder for folder in COUNTED if not (tree / folder).is_dir()]
    if missing:
        raise InputError(f"{tree} has no folder {missing[0]!r}; give --tree a checkout of Teola")
    sources = sources_of(tree, *COUNTED)
    made = satellites(sources)
    knots = folder_circles(sources)
    packages = sorted({package_of(package) for package, _ in sources.values()})
    counted = []
    for name in packages:
        own = {m: source for m, source in sources.items() if package_of(source[0]) == name}
        touching = [knot for knot in knots if name in map(package_of, knot)]
        counted.append(_row(name, own, len(touching), made))
    counted.append(_row("all", sources, len(knots), made))
    return [asdict(row) for row in counted]


def package_of(folder: str) -> str:
    """The package in whose row a folder is counted: `teola.runtime` for `teola.runtime.live`."""
    return ".".join(folder.split(".")[:2])


def _row(name: str, sources: Sources, knots: int, made: Mapping[str, Set[str]]) -> Counts:
    texts = [text for _, text in sources.values()]
    return Counts(
        package=name,
        files=len(texts),
        lines=sum(len(text.splitlines()) for text in texts),
        statements=sum(map(statements, texts)),
        comments=sum(map(comments, texts)),
        circles=knots,
        satellites=sum(len(made.get(module, ())) for module in sources),
    )


def statements(source: str) -> int:
    """Statements at every depth, without docstrings (of attributes, too) and a body's `...`."""
    return sum(
        isinstance(node, ast.stmt) and not _text(node) for node in ast.walk(ast.parse(source))
    )


def comments(source: str) -> int:
    """Lines with a comment for people, beside code or on their own."""
    texts = (
        token.string.lstrip("#: ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    )
    return sum(not text.startswith(DIRECTIVES) for text in texts)


def satellites(sources: Sources) -> dict[str, set[str]]:
    """Module -> the classes in it that some method makes with its own `self` among the arguments.
    A class with an underscore is looked for in the module that makes it."""
    homes: dict[str, set[str]] = {}
    trees = {module: ast.parse(source) for module, (_, source) in sources.items()}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(module)
    made: dict[str, set[str]] = {}
    for module, tree in trees.items():
        for name in _given_self(tree):
            places = homes.get(name, set())
            for home in {module} & places if name.startswith("_") else places:
                made.setdefault(home, set()).add(name)
    return made


def _given_self(tree: ast.Module) -> Iterator[str]:
    """Names that are called with `self` as an argument, in a class."""
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for call in ast.walk(owner):
            if isinstance(call, ast.Call) and any(map(_is_self, _arguments(call))):
                match call.func:
                    case ast.Name(id=name) | ast.Attribute(attr=name):
                        yield name


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
