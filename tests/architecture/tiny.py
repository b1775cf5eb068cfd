"""A folder of tests of its own, and pytest on it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import ROOT


def run(module: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and output of `python -m MODULE` in `folder`, for which this is no pytest."""
    given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    given |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
    given |= {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", module, "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
