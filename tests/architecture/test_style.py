"""Rules of style that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.tree import FOLDERS, ROOT, python_files

MOST_LINES = 400
LENGTH_REASON = "long because"
OPENING = 10
POSTPONED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
BROAD = {"Exception", "BaseException"}
BROADLY = re.compile(r"\bexcept\s*(:|\(|\w*Exception)")
NOQA = re.compile(r"noqa(: ?[A-Z0-9, ]+)?")
UNPICKLERS = {"pickle", "cPickle", "cloudpickle", "dill"}
UNPICKLING = {"load", "loads", "Unpickler"}

EMPTY_NAMES = {"utils", "util", "helpers", "misc"}


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _comment(source: str, line: int) -> str:
    """The comment on a line, without the hash sign."""
    return source.splitlines()[line - 1].partition("#")[2].strip()


def _reason(comment: str) -> str:
    """What a comment says beyond switching a linter off."""
    return NOQA.sub("", comment).strip(" -:#")


def broad_excepts(source: str) -> Iterator[int]:
    """Lines of a bare or broad `except` that neither ends in `raise` nor gives a reason."""
    if not BROADLY.search(source):
        return
    for node in ast.walk(_tree(source)):
        if not isinstance(node, ast.ExceptHandler) or _reraises(node):
            continue
        caught = [] if node.type is None else list(ast.walk(node.type))
        broad = any(isinstance(name, ast.Name) and name.id in BROAD for name in caught)
        if (node.type is None or broad) and not _reason(_comment(source, node.lineno)):
            yield node.lineno


def _reraises(handler: ast.ExceptHandler) -> bool:
    """Whether it only cleans up: its last statement is a bare `raise`."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def unpickling(source: str) -> Iterator[int]:
    """Lines that use `load`, `loads` or `Unpickler` of a pickling package."""
    if not any(name in source for name in UNPICKLERS):
        return
    for node in ast.walk(_tree(source)):
        match node:
            case ast.ImportFrom(module=module, names=names):
                used = {name.name for name in names}
            case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                used = {attribute}
            case _:
                continue
        if module in UNPICKLERS and used & UNPICKLING:
            yield node.lineno


def too_long(source: str) -> bool:
    """Whether it has more lines than a file may have, and does not say why."""
    lines = source.splitlines()
    return len(lines) > MOST_LINES and LENGTH_REASON not in "\n".join(lines[:OPENING]).lower()


def postponed(source: str) -> Iterator[int]:
    """Lines that put something off."""
    return (n for n, line in enumerate(source.splitlines(), 1) if POSTPONED.search(line))


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Name of a file -> what is in it."""
    return {_name(file): file.read_text() for file in python_files(*FOLDERS)}


def _offences(sources: dict[str, str], lines: Callable[[str], Iterator[int]]) -> list[str]:
    """FILE:LINE of everything that a rule finds."""
    return [f"{name}:{line}" for name, source in sources.items() for line in lines(source)]


def test_files_are_found(sources: dict[str, str]) -> None:
    assert {_name(Path(__file__)), "teola/errors.py"} <= sources.keys()


def test_files_are_short_or_say_why_not(sources: dict[str, str]) -> None:
    told = f"split them, or say {LENGTH_REASON!r} ... in the first {OPENING} lines"
    assert [name for name, source in sources.items() if too_long(source)] == [], told


def test_files_are_named_after_what_they_hold(sources: dict[str, str]) -> None:
    assert [name for name in sources if Path(name).stem in EMPTY_NAMES] == []


def test_nothing_is_put_off(sources: dict[str, str]) -> None:
    assert _offences(sources, postponed) == []


def test_broad_excepts_have_a_reason(sources: dict[str, str]) -> None:
    told = "catch what can be handled, or give a reason there"
    assert _offences(sources, broad_excepts) == [], told


def test_nothing_is_unpickled(sources: dict[str, str]) -> None:
    told = "data between services is validated, never unpickled"
    assert _offences(sources, unpickling) == [], told


@pytest.mark.parametrize(
    ("first", "lines", "refused"),
    [
        ("", MOST_LINES, False),
        ("", MOST_LINES + 1, True),
        ('"""Long because it is one table."""', MOST_LINES + 1, False),
    ],
)
def test_long_files_need_a_reason(first: str, lines: int, refused: bool) -> None:
    assert too_long(first + "\n" * lines) is refused


def test_what_is_put_off_is_seen() -> None:
    assert list(postponed("x = 1\n# TO" + "DO: the rest\n")) == [2]


@pytest.mark.parametrize(
    ("clause", "refused"),
    [
        ("except:", True),
        ("except Exception:", True),
        ("except (ValueError, BaseException):", True),
        ("except Exception:  # noqa: BLE001", True),
        ("except Exception:  # noqa: BLE001 - the driver's edge, re-emitted as Failed", False),
        ("except ValueError:", False),
    ],
)
def test_broad_excepts_need_a_reason(clause: str, refused: bool) -> None:
    assert bool(list(broad_excepts(f"try:\n    pass\n{clause}\n    pass\n"))) is refused


def test_cleaning_up_and_raising_again_needs_no_reason() -> None:
    assert not list(
        broad_excepts("try:\n    pass\nexcept BaseException:\n    close()\n    raise\n")
    )
    assert list(broad_excepts("try:\n    pass\nexcept BaseException as e:\n    raise E from e\n"))


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("pickle.loads(data)", True),
        ("from pickle import loads", True),
        ("pickle.dumps(data)", False),
        ("json.loads(data)", False),
    ],
)
def test_unpickling_is_refused(line: str, refused: bool) -> None:
    assert bool(list(unpickling(line))) is refused
