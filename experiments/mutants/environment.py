"""mutmut and what it reads code with: fetched once by pip, into a folder of the user's cache.

The folder has these two alone, and comes behind all that is installed: tests see the versions that
the project locks. Its name tells what is in it, so that another version makes another folder.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from teola.errors import TeolaError

WANTED: Final = ("mutmut==3.8.1", "libcst==1.9.0")
LIMIT_S: Final = 900.0


@cache
def folder() -> Path:
    """Where mutmut is; it is fetched if need be. Raises TeolaError if that fails."""
    name = hashlib.sha256(" ".join((*WANTED, sys.version)).encode()).hexdigest()[:12]
    made = user_cache_path("teola") / f"mutants-{name}"
    if (made / "whole").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    try:
        subprocess.run(
            [*command, "--target", made, *WANTED],
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        shutil.rmtree(made, ignore_errors=True)
        raise TeolaError(f"pip could not install {' and '.join(WANTED)}: {lines[-1]}") from None
    (made / "whole").touch()
    return made


def use() -> None:
    """Let this process import mutmut. Raises TeolaError."""
    if str(folder()) not in sys.path:
        sys.path.append(str(folder()))
