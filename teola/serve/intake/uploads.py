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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from teola.engine import Source
from teola.errors import InputError
from teola.serve.problems import TooLarge

FILE_BYTES: Final = 50 * 2**20
NAME_CHARACTERS: Final = 120
PREFIX: Final = "teola-uploads-"


@dataclass(slots=True)
class Allowance:
    """Bytes that the documents of one query may still have together."""

    left: int

    def take(self, size: int) -> None:
        """Raises InputError once there are none left."""
        self.left -= size
        if self.left < 0:
            raise InputError("the documents of one query are too large together; name fewer")


class Upload:
    """Files of one query in a folder of their own, which `remove` deletes."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    async def keep(self, file: UploadFile) -> Source:
        """Store a file under a name of ours. Raises TooLarge."""
        if file.size is not None and file.size > FILE_BYTES:
            raise TooLarge(f"a document may have {FILE_BYTES // 2**20} MiB; split this one")
        name = shown(file.filename or "document")
        path = self.place(Path(name).suffix)
        with path.open("wb") as out:
            await run_in_threadpool(shutil.copyfileobj, file.file, out)
        return Source(name, path=path)

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


def shown(name: str) -> str:
    """A client's file name as a label: no folders, nothing invisible, and of a long one its end,
    in which names differ, behind an ellipsis."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(c for c in last if c.isprintable()).strip(" .")
    if len(clean) > NAME_CHARACTERS:
        return f"…{clean[1 - NAME_CHARACTERS :]}"
    return clean or "document"


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
