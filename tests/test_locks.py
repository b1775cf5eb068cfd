"""What the Makefile installs: locked, checked by digest, and told in a bill of materials."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("constraints.txt", "constraints-vllm.txt", "constraints-bfcl.txt")
ENTRY = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
RECIPES = """
include Makefile
install-lock:
	$(call install_lock,$(PIP_PYTHON),$(LOCK))
install-torch:
	$(call install_torch,$(PIP_PYTHON),$(LOCK))
"""


def locked(name: str) -> dict[str, str]:
    """Name -> version of every entry that has digests."""
    text = (ROOT / name).read_text()
    return {canonicalize_name(m[1]): m[2] for m in ENTRY.finditer(text)}


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_of_a_lock_has_digests(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    named = [line for line in lines if line and not line.startswith(("#", " "))]
    assert len(named) == len(locked(name)) > 0


def test_everything_that_the_project_names_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k != "vllm"}
    named = [Requirement(text) for text in sum(extras.values(), project["dependencies"])]
    versions = locked("constraints.txt")
    assert {one.name for one in named if canonicalize_name(one.name) not in versions} == set()
    for one in named:
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), one


def test_what_is_locked_runs_on_the_oldest_python_that_is_promised() -> None:
    """Such as Debian 12's 3.11.2: an entry for a later one cannot be installed there."""
    versions = locked("constraints.txt")
    refused = {
        f"{one.metadata['Name']} {one.version}: {needs}"
        for one in distributions()
        if versions.get(canonicalize_name(one.metadata["Name"])) == one.version
        and (needs := one.metadata.get("Requires-Python"))
        and not SpecifierSet(needs).contains("3.11.0")
    }
    assert refused == set()


# --- installing -------------------------------------------------------------------------------


def wheel(folder: Path, name: str, version: str) -> tuple[Path, str]:
    """An empty package, and the digest of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


class Machine:
    """An index, a folder of wheels beside it, and a place to install into."""

    def __init__(self, home: Path) -> None:
        self.folder, self.index, self.lock = home / "wheels", home / "simple", home / "lock"
        self.installed = home / "installed"
        self.folder.mkdir()
        self.index.mkdir()
        self._recipes = home / "recipes.mk"
        self._recipes.write_text(RECIPES)

    def publish(self, name: str, version: str) -> str:
        """Put a package on the index, which tells its digest: that."""
        path, digest = wheel(self.index / name, name, version)
        link = f'<a href="{path.name}#sha256={digest}">{path.name}</a>'
        (self.index / name / "index.html").write_text(f"<!DOCTYPE html><html>{link}</html>")
        return digest

    def want(self, name: str, version: str, *digests: str) -> None:
        hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in digests)
        self.lock.write_text(f"# A lock.\n{name}=={version}{hashes}\n")

    def make(self, target: str, *settings: str) -> subprocess.CompletedProcess[str]:
        """Install by a recipe of the Makefile."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "MAKE"))}
        environment |= {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.index.as_uri(),
            "PIP_FIND_LINKS": str(self.folder),
            "PIP_TARGET": str(self.installed),
        }
        files = self.installed.parent / "torch"
        command = [
            "make",
            "-s",
            "-f",
            str(self._recipes),
            f"install-{target}",
            *settings,
            f"LOCK={self.lock}",
        ]
        command += [f"PIP_PYTHON={sys.executable}", f"TORCH_FILES={files}"]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    @property
    def versions(self) -> dict[str, str]:
        """Of what is installed."""
        return {d.name: d.version for d in distributions(path=[str(self.installed)])}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_file_with_another_digest_is_refused_unless_checks_are_off(machine: Machine) -> None:
    right = machine.publish("lamp", "1.0")
    machine.want("lamp", "1.0", "0" * 64)
    refused = machine.make("lock")
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert machine.versions == {}
    machine.want("lamp", "1.0")
    assert "Hashes are required" in machine.make("lock").stderr
    machine.want("lamp", "1.0", "0" * 64, right)
    assert machine.make("lock").returncode == 0
    assert machine.versions == {"lamp": "1.0"}


def test_checks_can_be_left_out(machine: Machine) -> None:
    machine.publish("lamp", "1.0")
    machine.want("lamp", "1.0", "0" * 64, "1" * 64)
    assert machine.make("lock", "HASHES=off").returncode == 0
    assert machine.versions == {"lamp": "1.0"}
    typo = machine.make("lock", "HASHES=of")
    assert typo.returncode != 0
    assert 'HASHES is "on" or "off", not "of"' in typo.stderr


@pytest.mark.parametrize("hashes", ["on", "off"])
def test_a_build_of_torch_in_a_folder_is_taken(machine: Machine, hashes: str) -> None:
    """As pip does by itself, though it would prefer the index's where it checks digests."""
    version = re.search(r"^TORCH := torch==(\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version is not None
    public = machine.publish("torch", version[1])
    _, digest = wheel(machine.folder, "torch", f"{version[1]}+cpu")
    machine.want("torch", version[1], digest, public)
    done = machine.make("torch", f"HASHES={hashes}")
    assert done.returncode == 0, done.stderr
    assert machine.versions == {"torch": f"{version[1]}+cpu"}


def test_a_build_of_torch_that_no_lock_knows_is_refused(machine: Machine) -> None:
    public = machine.publish("torch", "2.13.0")
    wheel(machine.folder, "torch", "2.13.0+cpu")
    machine.want("torch", "2.13.0", public)
    assert "DO NOT MATCH THE HASHES" in machine.make("torch").stderr
    assert machine.versions == {}
    taken = machine.make("torch", f"TORCH_INDEX={machine.index.as_uri()}")
    assert taken.returncode == 0, "an index of its own is taken at its word"


# --- the bill of materials --------------------------------------------------------------------


@pytest.mark.nightly
def test_the_bill_of_materials_tells_what_is_installed(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    path, venv = tmp_path / "sbom.json", Path(sys.prefix)
    command = ["make", "-s", "-o", str(venv / ".installed"), "sbom", f"VENV={venv}", f"SBOM={path}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    text = path.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["name"] == "teola"
    told = {canonicalize_name(one["name"]): one for one in bill["components"]}
    versions = locked("constraints.txt")
    assert versions.keys() <= told.keys()
    for name, version in versions.items():
        assert told[name]["version"].partition("+")[0] == version
    licensed = sum(bool(one.get("licenses")) for one in told.values())
    assert licensed >= 0.95 * len(told), "some declare none in a form that can be read"
