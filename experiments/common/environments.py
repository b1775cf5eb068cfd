"""Environments of peers that do not go beside ours: each made once, in the user's cache, by pip.

A folder is named by what is in it, so that another version makes another one. A second process that
wants one which is being made waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

LIMIT_S: Final = 1800.0
NEWEST: Final = 14
"""Minor version of the newest Python 3 that is looked for."""


class NotMade(Exception):
    """The environment could not be made; the message says why."""


@cache
def python(name: str, wanted: Sequence[str], least: tuple[int, int] = (3, 0)) -> Path:
    """The interpreter of the environment `name` with these requirements, which is made if need be.
    least: version of its Python. Raises NotMade."""
    base, version = _base(least)
    digest = hashlib.sha256(" ".join((*wanted, version)).encode()).hexdigest()[:12]
    folder = user_cache_path("teola", ensure_exists=True) / f"{name}-{digest}"
    found = folder / "bin" / "python"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            _make(folder, found, wanted, base)
    return found


def _base(least: tuple[int, int]) -> tuple[str, str]:
    """The interpreter that makes an environment, and its `sys.version`: this one if it is new
    enough, or the oldest one on the PATH that is. Raises NotMade."""
    if sys.version_info[:2] >= least:
        return sys.executable, sys.version
    major, minor = least
    for name in (f"python{major}.{newer}" for newer in range(minor, NEWEST + 1)):
        if (path := shutil.which(name)) is None:
            continue
        code = "import sys, venv; print(sys.version, end='')"
        ran = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if ran.returncode == 0:  # pyenv leaves names on the PATH that run nothing
            return path, ran.stdout
    raise NotMade(f"it needs Python {major}.{minor}, which is not on the PATH")


def _make(folder: Path, python: Path, wanted: Sequence[str], base: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        make = [base, "-m", "venv", str(folder)]
        subprocess.run(make, check=True, capture_output=True, text=True, timeout=LIMIT_S)
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *wanted]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        shutil.rmtree(folder, ignore_errors=True)
        raise NotMade(f"pip: {lines[-1][:200] if lines else 'failed'}") from None
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise NotMade(f"{type(error).__name__}: {error}"[:200]) from None
    (folder / "whole").touch()


def installed(python: Path, package: str) -> str:
    """The version of a package in an environment."""
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    told = subprocess.run([python, "-c", code, package], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def variables(root: Path) -> dict[str, str]:
    """The environment's variables of a process in one: no proxy, and the experiments' code."""
    kept = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    paths = [str(root), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}
