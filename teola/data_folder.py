"""The folder for what stays on this machine, as the environment names it.

    TEOLA_DATA_DIR           the folder itself
    XDG_DATA_HOME            a folder for all programs, with a folder `teola` in it

Where it names none, whoever keeps something there has a default.
"""

from __future__ import annotations

import os
from pathlib import Path


def named_folder() -> Path | None:
    """The folder that TEOLA_DATA_DIR names."""
    named = os.environ.get("TEOLA_DATA_DIR")
    return Path(named).expanduser() if named else None


def xdg_folder() -> Path | None:
    """The folder in XDG_DATA_HOME. A path that is not absolute counts for nothing, as XDG says."""
    home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return home / "teola" if home.is_absolute() else None
