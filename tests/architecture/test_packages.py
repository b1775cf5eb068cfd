"""The packages listed by hand in pyproject.toml are the folders that exist.

`package-dir` rules out discovery, so a folder forgotten there works from the checkout and is
missing from the wheel.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from experiments.house.imports import INSTALLED
from tests.architecture.tree import ROOT, python_files

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


def _installed_name(folder: Path) -> str:
    top, *rest = folder.relative_to(ROOT).parts
    return ".".join([INSTALLED[top], *rest])


def test_every_folder_with_python_files_is_listed_and_nothing_else() -> None:
    folders = {file.parent for file in python_files(*INSTALLED)}
    assert sorted(SETUPTOOLS["packages"]) == sorted(_installed_name(folder) for folder in folders)


def test_every_package_has_an_init_file() -> None:
    folders = {file.parent for file in python_files(*INSTALLED, "experiments", "tests")}
    assert [
        str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_folders_are_mapped_to_their_installed_names() -> None:
    mapping = {name: folder for folder, name in INSTALLED.items()}
    assert SETUPTOOLS["package-dir"] == mapping


@pytest.mark.parametrize("group", sorted(PYPROJECT["project"]["entry-points"]))
def test_every_entry_point_is_installed_and_loads(group: str) -> None:
    declared = PYPROJECT["project"]["entry-points"][group]
    installed = {entry.name: entry for entry in entry_points(group=group)}
    for name, value in declared.items():
        assert name in installed, f"{group} {name!r} is declared but not installed: run make setup"
        assert installed[name].value == value
        installed[name].load()
