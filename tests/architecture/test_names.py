"""A public name means one thing: of a class, of an alias, of what is imported, be it under another
name or its own; and so does the name of a file."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from experiments.house.imports import INSTALLED
from tests.architecture.tree import ROOT, python_files

EXCEPTIONS: frozenset[str] = frozenset()
"""Names that still mean two things; one that no longer does must go here, too."""


FILES: frozenset[str] = frozenset({"__init__.py", "__main__.py", "base.py"})
"""Names of files that say what a file is to its folder."""
TWICE: frozenset[str] = frozenset({"call.py", "model_server.py", "server.py"})
"""Others that still stand twice; one that no longer does must go here, too."""
MOVED: frozenset[str] = frozenset({"job.py", "result.py"})
"""Those of modules whose old names go on for a release (teola/moved.py)."""


def meanings(file: str, source: str) -> Iterator[tuple[str, str]]:
    """(name, what it means) of a file: its classes, wherever they stand, and its aliases, which are
    also what is imported under another name."""
    tree = tree_of(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, f"{file}:{node.lineno}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            of = ""
            if isinstance(node, ast.ImportFrom):
                of = imported_from(file, node.module or "", node.level)
            for alias in node.names:
                if alias.asname and alias.asname != alias.name:
                    yield alias.asname, f"{of}.{alias.name}".lstrip(".")
    for node in at_module_level(tree.body):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and names_a_type(target.id):
                yield target.id, f"{file}:{node.lineno}"


def at_module_level(body: Sequence[ast.stmt]) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Assignments of a module, those under `if TYPE_CHECKING` among them."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from at_module_level([*node.body, *node.orelse])


def names_a_type(name: str) -> bool:
    """As `Event` and `PathEntry` do, and neither `LIMIT` nor the letter of a type variable."""
    return name[0].isupper() and not name.isupper()


def imported_from(file: str, module: str, level: int) -> str:
    """The module that an import is from; a relative one is told from the file's own folder."""
    top, *below = file.split("/")
    above = [INSTALLED.get(top, top), *below][:-level] if level else []
    return ".".join([*above, *filter(None, [module])])


def several(files: dict[str, str]) -> dict[str, list[str]]:
    """Public name -> what it means, where it means more than one thing."""
    found: dict[str, list[str]] = {}
    for file, source in files.items():
        for name, meaning in meanings(file, source):
            if not name.startswith("_") and meaning not in found.setdefault(name, []):
                found[name].append(meaning)
    return {name: all_of_it for name, all_of_it in found.items() if len(all_of_it) > 1}


Thing = tuple[str, str]
"""A module, and a name in it."""


def imported_things(files: dict[str, str]) -> dict[str, set[str]]:
    """Name -> the things that it means where files import it as it is, where there are several.
    Names of libraries are theirs, and modules have the name of their file."""
    defined: dict[str, set[str]] = {}
    passed_on: dict[Thing, Thing] = {}
    imports: set[Thing] = set()
    for file, source in files.items():
        module, tree = module_of(file), tree_of(source)
        defined[module] = {name for node in tree.body for name in defined_by(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                origin = imported_from(file, node.module or "", node.level)
                for alias in node.names:
                    passed_on.setdefault((module, alias.name), (origin, alias.name))
                    if not alias.asname and not alias.name.startswith("_"):
                        imports.add((origin, alias.name))
    things: dict[str, set[str]] = {}
    for module, name in imports:
        thing = module, name
        while thing[1] not in defined.get(thing[0], ()) and thing in passed_on:
            thing = passed_on[thing]
        if thing[1] in defined.get(thing[0], ()):
            things.setdefault(name, set()).add(".".join(thing))
    return {name: several for name, several in things.items() if len(several) > 1}


def module_of(file: str) -> str:
    """`teola_engines.llm.prompts` of `engines/llm/prompts.py`."""
    top, *below = file.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join([INSTALLED.get(top, top), *below])


def defined_by(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module gives to functions, classes and values."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.If | ast.Try):
        for inner in [*node.body, *node.orelse]:
            yield from defined_by(inner)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


@cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def own_files() -> dict[str, str]:
    files = python_files("teola", "engines", "apps")
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def test_a_public_name_means_one_thing() -> None:
    found = several(own_files())
    assert {name: what for name, what in found.items() if name not in EXCEPTIONS} == {}
    assert found.keys() >= EXCEPTIONS, "take out of EXCEPTIONS what is mended"


def test_what_files_import_by_a_name_is_one_thing() -> None:
    assert imported_things(own_files()) == {}, "name one of them for what it alone is"


@pytest.mark.parametrize(
    ("other", "things"),
    [
        ("from a.d import read", {"a.b.read", "a.d.read"}),
        ("from .d import read", {"a.b.read", "a.d.read"}),
        ("from a import read", {"a.b.read", "a.d.read"}),
        ("from a.d import read as read_text", None),
        ("from a.c import read", None),
        ("from a import d\nd.read()", None),
        ("from library import read", None),
    ],
)
def test_a_name_that_is_imported_from_two_modules_is_found(
    other: str, things: set[str] | None
) -> None:
    files = {
        "a/__init__.py": "from a.d import read",
        "a/b.py": "def read(): ...",
        "a/c.py": "from a.b import read",
        "a/d.py": "if TYPED:\n    read, write = [], {}\nelse:\n    read = {}",
        "a/e.py": other,
    }
    files["a/__init__.py"] = files["a/__init__.py"] if other == "from a import read" else ""
    assert imported_things(files) == ({} if things is None else {"read": things})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class One: ...", "def f():\n    class One: ..."),
        ("class One: ...", "One = int | str"),
        ("One = tuple[int, str]", "One: TypeAlias = 'int | str'"),
        ("if TYPE_CHECKING:\n    One = list[int]", "One = TypeVar('One', bound=int)"),
        ("class One: ...", "from x import Two as One"),
        ("from x import Two as One", "from x import Three as One"),
        ("from x import two as one", "import three as one"),
        ("from .x import Two as One", "from ..x import Two as One"),
    ],
)
def test_a_name_with_two_meanings_is_found(one: str, other: str) -> None:
    name = "one" if "as one" in one else "One"
    assert several({"a/b/c.py": one, "a/b/d.py": other}).keys() == {name}


def test_names_of_one_meaning_are_not() -> None:
    files = {
        "a/b.py": "class _Own: ...\nT = TypeVar('T')\nLIMIT = 1\nimport numpy as np",
        "a/c.py": "class _Own: ...\nT = TypeVar('T')\nLIMIT = 2\nimport numpy as np",
        "a/d.py": "from .x import Wide as Two\nclass One:\n    class Inner: ...",
        "a/e.py": "from a.x import Wide as Two\nfrom a.d import One",
    }
    assert several(files) == {}


@pytest.mark.parametrize("tree", ["teola", "engines"])
def test_no_file_name_stands_twice_in_a_tree(tree: str) -> None:
    counts = Counter(file.name for file in python_files(tree))
    found = {name for name, count in counts.items() if count > 1} - FILES - MOVED
    assert found <= TWICE, "name it for what it alone is"


def test_what_is_excepted_still_stands_twice() -> None:
    counts = Counter(file.name for file in python_files("teola"))
    assert {name for name in TWICE if counts[name] < 2} == set()
