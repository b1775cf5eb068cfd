"""Each file of the deciding half has tests of its own name, or a line in tests/README.md."""

from __future__ import annotations

import re

from tests.architecture.tree import ROOT, python_files

DECIDING = ("graph", "passes", "schedule", "policies", "kv", "learning")
TESTS = ROOT / "tests"
LINE = re.compile(r"^\| ([\w/]+\.py) \| (.+?) \|")


def _listed() -> dict[str, list[str]]:
    lines = map(LINE.match, (TESTS / "README.md").read_text().splitlines())
    return {found[1]: found[2].split(", ") for found in lines if found}


def test_every_file_without_a_test_of_its_name_has_a_line_and_no_other_has() -> None:
    nameless = [
        f"{folder}/{file.relative_to(ROOT / 'teola' / folder).as_posix()}"
        for folder in DECIDING
        for file in python_files(f"teola/{folder}")
        if file.name != "__init__.py" and not any((TESTS / folder).rglob(f"test_{file.stem}.py"))
    ]
    assert sorted(_listed()) == sorted(nameless)


def test_the_tests_that_are_named_are_there() -> None:
    named = {name for names in _listed().values() for name in names}
    assert [name for name in sorted(named) if not (TESTS / name).is_file()] == []
