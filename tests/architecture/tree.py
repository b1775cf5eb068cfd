"""Where the project's own Python files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

INSTALLED = {"teola": "teola", "engines": "teola_engines", "apps": "teola_apps"}
"""Folder in the repository -> name of the package it is installed as."""

FOLDERS = (*INSTALLED, "experiments", "tests")


def python_files(*folders: str) -> Iterator[Path]:
    """All Python files below `folders` of the repository, sorted."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))
