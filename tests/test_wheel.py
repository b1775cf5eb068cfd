"""The built wheel, installed outside the checkout, works beside a user's own `apps` and `engines`.

The environment is empty but for the wheel; it sees the dependencies through a path file that names
this environment's site-packages. Path files inside that folder are not read, so the editable
installation of the checkout stays out of sight, which a test confirms.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("teola", "engines", "apps", "pyproject.toml", "README.md", "LICENSE")
STATEMENT = "The lighthouse of Arrenholm is 61 metres tall."
DOCUMENT = f"""# Arrenholm

Arrenholm is a small harbour town. Its fishermen leave before dawn.
{STATEMENT}
A ferry connects the town with the islands twice a day.
"""

WHERE = """
import json, sys
import apps.mine, engines.mine, teola, teola_apps, teola_engines
print(json.dumps({
    "owners": [apps.mine.OWNER, engines.mine.OWNER],
    "ours": [package.__file__ for package in (teola, teola_apps, teola_engines)],
    "path": sys.path,
    "finders": [getattr(f, "__module__", "") + getattr(f, "__name__", "") for f in sys.meta_path],
}))
"""

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel in it; `home` is where its programs keep their data."""

    folder: Path
    home: Path

    def run(self, program: str, *arguments: str, cwd: Path) -> str:
        """Standard output of `bin/program`, run in `cwd` with `cwd` on the import path."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_"))}
        done = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=cwd,
            env=inherited | {"HOME": str(self.home), "PYTHONPATH": str(cwd)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{program} {arguments} failed:\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing left behind in the checkout's build folder gets in."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(build, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def home(servers: None) -> Iterator[Path]:
    """A home that any account may enter: the database server may run as another one."""
    with tempfile.TemporaryDirectory(prefix="teola-wheel-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def installed(wheel: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(folder, home)


@pytest.fixture(params=["regular", "namespace"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A user's project with `apps` and `engines` of his own, with or without `__init__.py`."""
    for name in ("apps", "engines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("OWNER = 'user'\n")
        if request.param == "regular":
            (tmp_path / name / "__init__.py").touch()
    (tmp_path / "arrenholm.md").write_text(DOCUMENT)
    return tmp_path


def test_wheel_holds_our_packages_under_names_of_our_own(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {
        "teola",
        "teola_apps",
        "teola_engines",
    }
    assert "teola/py.typed" in names
    page = ROOT / "teola" / "serve" / "ui"
    parts = [file for file in page.rglob("*") if file.is_file()]
    assert len(parts) > 30
    assert {file.relative_to(ROOT).as_posix() for file in parts} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_everybody_gets_their_own_packages(installed: Installed, project: Path) -> None:
    seen = json.loads(installed.run("python", "-c", WHERE, cwd=project))
    assert seen["owners"] == ["user", "user"]
    assert all(Path(file).is_relative_to(installed.folder) for file in seen["ours"]), seen["ours"]
    assert str(ROOT) not in seen["path"]
    assert not [finder for finder in seen["finders"] if "editable" in finder.lower()]


def test_help_names_the_commands(installed: Installed, project: Path) -> None:
    text = installed.run("teola", "--help", cwd=project)
    assert all(command in text for command in ("run", "explain", "apps", "engines"))


def test_our_apps_are_listed(installed: Installed, project: Path) -> None:
    listed = json.dumps(json.loads(installed.run("teola", "apps", "--json", cwd=project)))
    assert '"advanced-rag"' in listed
    assert '"naive-rag"' in listed


def test_a_question_is_answered_on_the_defaults(installed: Installed, project: Path) -> None:
    question = "question=How tall is the lighthouse of Arrenholm?"
    inputs = ["--input", question, "--input", "documents=arrenholm.md"]
    answer = json.loads(
        installed.run("teola", "run", "advanced-rag", *inputs, "--json", cwd=project)
    )
    assert answer["app"] == "advanced-rag"
    assert answer["state"] == "ok"
    assert "61 metres" in answer["outputs"]["answer"]
    assert any("arrenholm.md" in source["document"] for source in answer["outputs"]["sources"])
