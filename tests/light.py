"""What `pip install teola` brings: our wheel, and the distributions that the core needs.

Nothing is downloaded: the closure of the requirements is taken from where this Python has it, file
by file, so that an environment made of it holds no other package.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COMPILED = (".pyc", ".pyo")
ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("teola", "engines", "apps", "pyproject.toml", "README.md", "LICENSE")


def build_wheel(folder: Path) -> Path:
    """Build our wheel from a copy in `folder`, so that nothing left behind in the checkout's build
    folder gets in."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built


def requirements(site_packages: Path) -> list[str]:
    """What the core needs of others, as the wheel that is installed there declares it."""
    (ours,) = distributions(name="teola", path=[str(site_packages)])
    return [one for one in ours.requires or () if "extra ==" not in one]


def closure(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Distributions that these requirements bring, by name; those of extras of theirs included."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    wanted = [(Requirement(one), "") for one in requirements]
    while wanted:
        one, extra = wanted.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(one.name)
        for own in ("", *one.extras):
            if (name, own) in seen:
                continue
            seen.add((name, own))
            found[name] = distribution(name)
            wanted += [(Requirement(need), own) for need in found[name].requires or ()]
    return found


def files(found: Distribution) -> Iterator[tuple[PurePosixPath, Path]]:
    """What it has in site-packages, but for compiled files: where there, and where it is."""
    for file in found.files or ():
        inside = ".." not in file.parts and not file.is_absolute()
        if inside and file.suffix not in COMPILED and Path(str(file.locate())).is_file():
            yield PurePosixPath(file), Path(str(file.locate()))


def install(found: Iterable[Distribution], site_packages: Path) -> int:
    """Make them importable from a folder; their size in bytes."""
    size = 0
    for one in found:
        for place, file in files(one):
            target = site_packages / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
            size += file.stat().st_size
    return size
