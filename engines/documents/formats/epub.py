"""The chapters of a book: an EPUB is an archive of pages, and its package says their order."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree as Xml
from zipfile import BadZipFile, ZipFile

from . import Allowed, Extracted, Refused
from .archive import opened
from .encodings import decoded
from .html import text_of

_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = ("application/xhtml+xml", "text/html")


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of an .epub file."""
    with opened(path, allowed.unpacked_bytes) as book:
        try:
            pages = _pages(book)
            locked = _locked(book)
            if any(page in locked for page in pages):
                raise Refused("encrypted")
            read = [text_of(decoded(book.read(page)), allowed.keep_hidden) for page in pages]
        except (KeyError, BadZipFile, Xml.ParseError):
            raise Refused("broken") from None
    return Extracted("\n\n".join(one.text for one in read), sum(one.hidden for one in read))


def _pages(book: ZipFile) -> list[str]:
    """Names of the pages in the archive, in the order in which they are read."""
    root = Xml.fromstring(book.read(_CONTAINER)).find(".//{*}rootfile")
    if root is None:
        raise Refused("broken")
    package = root.attrib["full-path"]
    tree, folder = Xml.fromstring(book.read(package)), posixpath.dirname(package)
    items = {item.attrib["id"]: item.attrib for item in tree.iterfind(".//{*}manifest/{*}item")}
    order = [items[one.attrib["idref"]] for one in tree.iterfind(".//{*}spine/{*}itemref")]
    return [
        posixpath.normpath(posixpath.join(folder, unquote(item["href"])))
        for item in order
        if item["media-type"] in _PAGES
    ]


def _locked(book: ZipFile) -> set[str]:
    """Names of what only a key opens; fonts often are, which is no matter."""
    if _ENCRYPTION not in book.namelist():
        return set()
    tree = Xml.fromstring(book.read(_ENCRYPTION))
    return {unquote(one.attrib.get("URI", "")) for one in tree.iterfind(".//{*}CipherReference")}
