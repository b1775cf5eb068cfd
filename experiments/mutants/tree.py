"""A copy of the working tree, in which mutants are written and tests are run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from experiments.mutants import environment
from teola.errors import TeolaError

ROOT: Final = Path(__file__).resolve().parents[2]
SHORT: Final = {"engines": "teola_engines", "apps": "teola_apps"}
"""Folders that are imported by another name."""
CODE: Final = ("teola/", "engines/", "apps/", "pyproject.toml")
"""Files that decide which mutants there are."""
UNSET: Final = ("MUTANT_UNDER_TEST", "PYTHONDONTWRITEBYTECODE")
"""The copy may hold what Python compiles, so that the next worker begins sooner."""
TESTS: Final = ("tests/",)
"""Files that decide, with those, which of them are noticed."""


def files(root: Path = ROOT) -> list[str]:
    """Paths of the files that git tracks or would track. Raises TeolaError outside of git."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise TeolaError(f"{root} has to be a git checkout, whose files can be listed")
    return sorted(name for name in listed.stdout.split("\0") if (root / name).is_file())


def digest_below(places: tuple[str, ...], names: Iterable[str]) -> str:
    """A digest of those files that stand in some places of the working tree."""
    return digest(name for name in names if name.startswith(places))


def digest(names: Iterable[str], root: Path = ROOT) -> str:
    """A digest of files with their names."""
    whole = hashlib.sha256()
    for name in names:
        whole.update(f"{name}\0{file_digest(root / name)}\0".encode())
    return whole.hexdigest()


def file_digest(file: Path) -> str:
    """A digest of one file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def copy(to: Path, names: Iterable[str], root: Path = ROOT) -> None:
    """Make `to/tree` anew from these files, and `to/links` with the names they are imported by."""
    tree, links = to / "tree", to / "links"
    for old in (tree, links):
        shutil.rmtree(old, ignore_errors=True)
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, tree / name)
    links.mkdir(parents=True)
    for folder, imported in SHORT.items():
        (links / imported).symlink_to(tree / folder)


def variables(work: Path) -> Mapping[str, str]:
    """The environment of a process that imports the copy in `work`, and mutmut."""
    paths = (work / "tree", work / "links", environment.folder())
    return {
        **{name: value for name, value in os.environ.items() if name not in UNSET},
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def module_of(path: str) -> str:
    """The name by which a file is imported."""
    first, *rest = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join((SHORT.get(first, first), *rest))
