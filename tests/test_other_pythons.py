"""Components on the interpreters after 3.11, where entering a task is asyncio's own doing.

The tests of `asyncio.timeout`, TaskGroup, anyio, contexts and cancellation run there as they are,
in an environment with our wheel and what its core needs: what is pure Python is taken out of this
environment, what is compiled is fetched by pip. An interpreter is nothing that we install, so one
that is not on this machine is left out, in continuous integration too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests import light

VERSIONS = ("3.12", "3.13", "3.14")
FILES = (
    "test_async_conditions.py",
    "test_entering.py",
    "test_live.py",
    "test_loops.py",
    "test_nesting.py",
)
NEEDED = ("pytest", "pytest-asyncio", "pytest-timeout", "anyio", "uvloop")
"""By those tests, besides the core."""

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return light.build_wheel(tmp_path_factory.mktemp("sources"))


def candidates(version: str) -> Iterator[str]:
    """Where an interpreter of this version may be; those of pyenv may be there and not chosen."""
    if found := shutil.which(f"python{version}"):
        yield found
    versions = Path.home() / ".pyenv" / "versions"
    yield from sorted(map(str, versions.glob(f"{version}.*/bin/python")), reverse=True)


def interpreter(version: str) -> str:
    """One that runs. Skips if there is none."""
    for found in candidates(version):
        asked = [found, "-c", "import sys, venv; print('{}.{}'.format(*sys.version_info))"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return found
    pytest.skip(f"no Python {version} on the PATH or in ~/.pyenv/versions")


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    options = ["--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    return subprocess.run(
        [*command, "install", *options, *arguments], capture_output=True, text=True
    )


def is_pure(one: Distribution) -> bool:
    """Whether it runs on any interpreter."""
    return "Root-Is-Purelib: true" in (one.read_text("WHEEL") or "")


def environment(version: str, wheel: Path, folder: Path) -> Path:
    """An environment of that version with our wheel and what is needed; its Python. Skips where
    that cannot be fetched, but in continuous integration."""
    subprocess.run([interpreter(version), "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    done = pip(python, "--no-index", str(wheel))
    assert done.returncode == 0, done.stderr
    (site_packages,) = folder.glob("lib/python*/site-packages")
    needed = light.closure([*light.requirements(site_packages), *NEEDED]).values()
    light.install(filter(is_pure, needed), site_packages)
    done = pip(python, *(f"{one.name}=={one.version}" for one in needed if not is_pure(one)))
    if done.returncode != 0:
        assert os.environ.get("CI") != "true", done.stderr
        pytest.skip(f"pip has nothing for Python {version}: {done.stderr.splitlines()[-1]}")
    return python


@pytest.mark.parametrize("version", VERSIONS)
def test_components_behave_as_in_a_task_of_their_own(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    python = environment(version, wheel, tmp_path / "environment")
    project = tmp_path / "project"  # the tests alone: the code is the wheel's
    sources = shutil.ignore_patterns("__pycache__")
    shutil.copytree(light.ROOT / "tests", project / "tests", ignore=sources)
    shutil.copy(light.ROOT / "pyproject.toml", project)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "--noconftest", "--timeout=60", "-p", "no:cacheprovider"]
        + [f"tests/runtime/live/{file}" for file in FILES],
        cwd=project,
        env=inherited | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
