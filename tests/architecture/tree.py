"""Where the project's own Python files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.house.imports import INSTALLED

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = (*INSTALLED, "experiments", "tests")


def python_files(*folders: str) -> Iterator[Path]:
    """All Python files below `folders` of the repository, sorted."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))
