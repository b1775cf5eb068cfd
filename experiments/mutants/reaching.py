"""Which tests a mutant has to be noticed by: those that reach its function.

Without a table these are all tests of the files that tests/README.md names for the mutated file,
and of those beside them. The table says it by function: it is made by running each test file once,
the tests that `make check` runs, and it is kept with digests of that file and of the files that its
tests reach. What has changed since is left out of it until it is made again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final

from experiments.mutants import tree
from teola.errors import TeolaError

LINE: Final = re.compile(r"^\| ([\w/]+\.py) \| (.+?) \|", re.MULTILINE)
MOVED: Final = {
    "query/journal": ("serve/journal",),
    "runtime": ("runtime/live", "runtime/sim"),
    "engines/openai": ("servers", "engines/llm"),
}
"""Folders whose tests stand in another one."""


@dataclass(frozen=True, slots=True)
class Reach:
    """tests: by function, those that reach it. seconds: what each computes. files: test files that
    the table knows."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    files: frozenset[str] = frozenset()


def files_of(path: str, root: Path = tree.ROOT) -> tuple[str, ...]:
    """Test files for a mutated file: those of its name, those that tests/README.md lists for it,
    and those beside them. Raises TeolaError if there are none."""
    inner = path.removeprefix("teola/").removesuffix(".py")
    folder, _, stem = inner.rpartition("/")
    tests = root / "tests"
    top = tests / folder.partition("/")[0]
    named = set(top.rglob(f"test_{stem}.py")) if folder else set(tests.glob(f"test_{stem}.py"))
    named |= {tests / name for name in _listed(tests / "README.md").get(f"{inner}.py", ())}
    places = [tests / place for place in (folder, *MOVED.get(folder, ()))]
    beside = {file for place in places if place.is_dir() for file in place.glob("test_*.py")}
    if not named and not beside:
        beside = set(_nearest(places[0]).glob("test_*.py"))
    if not named | beside:
        raise TeolaError(f"no test file of {path} is known: name one in tests/README.md")
    return tuple(sorted(file.relative_to(root).as_posix() for file in named | beside))


def load(kept: Path, root: Path = tree.ROOT) -> Reach:
    """What of the kept table still holds."""
    reach = Reach(defaultdict(list), {}, frozenset())
    known = set()
    digests: dict[str, str | None] = {}
    for entry in map(_entry, kept.glob("*.json")):
        if not _holds(entry["digests"], root, digests):
            continue
        known.add(entry["file"])
        functions = entry["functions"]
        for test, (seconds, reached) in entry["tests"].items():
            reach.seconds[test] = seconds
            for number in reached:
                reach.tests[functions[number]].append(test)
    return Reach(dict(reach.tests), reach.seconds, frozenset(known))


def make(files: Collection[str], work: Path, kept: Path) -> None:
    """Run test files in the copy in `work`, and keep what they reach. Raises TeolaError if pytest
    cannot run them; tests that fail are left out of the table."""
    kept.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256("\0".join(sorted(files)).encode()).hexdigest()[:12]
    told, temporary = work / f"probe-{name}.json", work / f"tmp-{name}"
    told.write_text(json.dumps({"kept": str(kept), "work": str(work)}), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "experiments.mutants.probe"]
    options = ["-p", "no:cacheprovider", f"--basetemp={temporary}"]
    done = subprocess.run(
        [*command, *options, "-m", "not server and not slow", *sorted(files)],
        cwd=work / "tree",
        env={**tree.variables(work), "MUTANTS_PROBE": str(told)},
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(temporary, ignore_errors=True)
    told.unlink()
    if done.returncode not in (0, 1, 5):
        raise TeolaError(f"pytest could not make the table:\n{(done.stdout + done.stderr)[-2000:]}")


def missing(paths: Iterable[str], reach: Reach, root: Path = tree.ROOT) -> list[str]:
    """Test files of mutated files that the table does not know."""
    return sorted({name for path in paths for name in files_of(path, root)} - reach.files)


def within(tests: Iterable[str], reach: Reach, limit_s: float) -> list[str]:
    """The fastest first, as many as are run in the time that a mutant has."""
    ordered = sorted(tests, key=lambda test: (reach.seconds[test], test))
    ends = accumulate(reach.seconds[test] for test in ordered)
    return [test for test, end in zip(ordered, ends, strict=True) if end <= limit_s]


def _holds(digests: dict[str, str], root: Path, known: dict[str, str | None]) -> bool:
    for name, digest in digests.items():
        if name not in known:
            file = root / name
            known[name] = tree.file_digest(file) if file.is_file() else None
        if known[name] != digest:
            return False
    return True


def _entry(file: Path) -> dict:
    entry: dict = json.loads(file.read_text(encoding="utf-8"))
    return entry


@cache
def _listed(page: Path) -> dict[str, Sequence[str]]:
    if not page.is_file():
        return {}
    lines = LINE.findall(page.read_text(encoding="utf-8"))
    return {name: tests.split(", ") for name, tests in lines}


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return folder if folder.is_dir() else _nearest(folder.parent)
