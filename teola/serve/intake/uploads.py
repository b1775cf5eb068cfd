"""Files that clients send, under names of ours, and how much of them is taken."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from teola.engine import Source
from teola.errors import InputError
from teola.query.query_files import QueryFiles
from teola.serve.problems import TooLarge

FILE_BYTES: Final = 50 * 2**20
NAME_CHARACTERS: Final = 120


@dataclass(slots=True)
class Allowance:
    """Bytes that the documents of one query may still have together."""

    left: int

    def take(self, size: int) -> None:
        """Count `size` bytes of a document. Raises InputError once none are left."""
        self.left -= size
        if self.left < 0:
            raise InputError("the documents of one query are too large together; name fewer")


class Upload(QueryFiles):
    """Files of one query, some of them a client's."""

    async def keep(self, file: UploadFile) -> Source:
        """Store a file under a name of ours. Raises TooLarge."""
        if file.size is not None and file.size > FILE_BYTES:
            raise TooLarge(f"a document may have {FILE_BYTES // 2**20} MiB; split this one")
        name = file_label(file.filename or "document")
        path = self.place(Path(name).suffix)
        with path.open("wb") as out:
            await run_in_threadpool(shutil.copyfileobj, file.file, out)
        return Source(name, path=path)


def file_label(name: str) -> str:
    """A client's file name as a label: no folders, nothing invisible, and of a long one its end,
    in which names differ, behind an ellipsis."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(c for c in last if c.isprintable()).strip(" .")
    if len(clean) > NAME_CHARACTERS:
        return f"…{clean[1 - NAME_CHARACTERS :]}"
    return clean or "document"
