"""The environment of the peer `litellm`: made once, in the user's cache, by pip.

It gets the same `openai` as ours. Its folder is named by what is in it, so that another version
makes another one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

LITELLM: Final = "1.110"
LIMIT_S: Final = 900.0


class NotMade(Exception):
    """The environment could not be made; the message says why."""


def wanted() -> tuple[str, ...]:
    """What is installed in it."""
    return (f"litellm=={LITELLM}.*", f"openai=={version('openai')}")


@cache
def python() -> Path:
    """Its interpreter; it is made if need be. Raises NotMade."""
    name = hashlib.sha256(" ".join((*wanted(), sys.version)).encode()).hexdigest()[:12]
    folder = user_cache_path("teola") / f"edge-{name}"
    found = folder / "bin" / "python"
    if (folder / "whole").exists():
        return found
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        command = [found, "-m", "pip", "install", "--quiet", *wanted()]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        shutil.rmtree(folder, ignore_errors=True)
        raise NotMade(f"pip: {lines[-1][:200] if lines else 'failed'}") from None
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise NotMade(f"{type(error).__name__}: {error}"[:200]) from None
    (folder / "whole").touch()
    return found


def installed() -> str:
    """The version of litellm in it. Raises NotMade."""
    code = "from importlib.metadata import version; print(version('litellm'))"
    told = subprocess.run([python(), "-c", code], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def variables(root: Path) -> dict[str, str]:
    """The environment's variables of a client: no proxy, nothing fetched, the experiment's code."""
    kept = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {
        "PYTHONPATH": os.pathsep.join(paths),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
