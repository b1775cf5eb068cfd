"""Where the files of queries lie until these end: a folder for each, all in one of the process.

The process keeps its folder locked (flock, which the kernel gives up with the process, however that
ends), so the next server sees which folders belong to nobody any more and deletes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

PREFIX: Final = "teola-uploads-"


class QueryFiles:
    """Files of one query in a folder of their own, which `remove` deletes."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def place(self, suffix: str) -> Path:
        """A new path of ours. suffix: says what is in the file; a strange one is left out."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(dir=_of_process(tempfile.gettempdir())[0]))
        known = re.fullmatch(r"\.[a-z0-9]{1,10}", suffix.lower())
        return self.folder / f"{uuid4().hex}{known[0] if known else ''}"

    def remove(self) -> None:
        """Delete what was kept."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def sweep() -> None:
    """Delete what servers that were killed left behind, and make the folder of this one."""
    here = tempfile.gettempdir()
    for folder in Path(here).glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, or just gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
    _of_process(here)


def clear() -> None:
    """Delete the folder of this process, whose queries have all ended."""
    folder, lock = _of_process(tempfile.gettempdir())
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    _of_process.cache_clear()


@cache
def _of_process(where: str) -> tuple[Path, int]:
    """The folder for all uploads of this process, and the descriptor that keeps it locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():  # else one that sweeps was quicker than the lock
            return folder, lock
        os.close(lock)
