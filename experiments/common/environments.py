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
import venv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

LIMIT_S: Final = 1800.0


class NotMade(Exception):
    """The environment could not be made; the message says why."""


@cache
def python(name: str, wanted: Sequence[str]) -> Path:
    """The interpreter of the environment `name` with these requirements, which is made if need be.
    Raises NotMade."""
    digest = hashlib.sha256(" ".join((*wanted, sys.version)).encode()).hexdigest()[:12]
    folder = user_cache_path("teola", ensure_exists=True) / f"{name}-{digest}"
    found = folder / "bin" / "python"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            _make(folder, found, wanted)
    return found


def _make(folder: Path, python: Path, wanted: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
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
