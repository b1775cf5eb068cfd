"""Files that are ZIP archives inside: office documents and books."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

from . import Refused

MOST_ENTRIES: Final = 10_000
_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""An office document with a password is in an older container."""
_ENCRYPTED: Final = 0x1


def opened(path: Path, most_bytes: int) -> ZipFile:
    """The archive. Raises Refused before anything is unpacked if its entries are too large
    together. An entry cannot lie about its size: no more than the size that it declares is ever
    read."""
    with path.open("rb") as file:
        if file.read(len(_OLD_OFFICE)) == _OLD_OFFICE:
            raise Refused("encrypted")
    try:
        archive = ZipFile(path)
    except BadZipFile:
        raise Refused("broken") from None
    entries = archive.infolist()
    if len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > most_bytes:
        raise Refused("too large")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise Refused("encrypted")
    return archive
