"""The chapters of a book: an EPUB is an archive of pages, and its package says their order.

A section begins at each heading. Many books show the title of a chapter as an image, so it also
begins with a page that starts without a heading and that the table of contents names.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree as Xml
from zipfile import BadZipFile, ZipFile

from . import Allowed, Extracted, PlaceName, Refused, short
from .archive import opened
from .encodings import decoded
from .html import html_text

_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = ("application/xhtml+xml", "text/html")
_CONTENTS: Final = "application/x-dtbncx+xml"
_TYPE: Final = "{http://www.idpf.org/2007/ops}type"
_GAP: Final = "\n\n"


class _Package(NamedTuple):
    """pages: names in the archive, in the order in which they are read. titles: by name."""

    pages: list[str]
    titles: Mapping[str, str]


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of an .epub file."""
    with opened(path, allowed.unpacked_bytes) as book:
        try:
            pages, titles = _package(book)
            locked = _locked(book)
            if any(page in locked for page in pages):
                raise Refused("encrypted")
            read = [html_text(decoded(book.read(page)), allowed.keep_hidden) for page in pages]
        except (KeyError, BadZipFile, Xml.ParseError):
            raise Refused("broken") from None
    sections: list[tuple[int, PlaceName]] = []
    at = 0
    for page, chapter in zip(pages, read, strict=True):
        if page in titles and chapter.text and not (chapter.places and chapter.places[0][0] == 0):
            sections.append((at, short(titles[page])))
        sections += ((at + start, name) for start, name in chapter.places)
        at += len(chapter.text) + len(_GAP)
    text = _GAP.join(chapter.text for chapter in read)
    return Extracted(text, sum(chapter.hidden for chapter in read), "section", sections)


def _package(book: ZipFile) -> _Package:
    root = Xml.fromstring(book.read(_CONTAINER)).find(".//{*}rootfile")
    if root is None:
        raise Refused("broken")
    package = root.attrib["full-path"]
    tree, folder = Xml.fromstring(book.read(package)), posixpath.dirname(package)
    items = {item.attrib["id"]: item.attrib for item in tree.iterfind(".//{*}manifest/{*}item")}
    order = [
        items[reference.attrib["idref"]] for reference in tree.iterfind(".//{*}spine/{*}itemref")
    ]
    pages = [_inside(folder, item["href"]) for item in order if item["media-type"] in _PAGES]
    return _Package(pages, dict(_titles(book, folder, items.values())))


def _titles(
    book: ZipFile, folder: str, items: Iterable[Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Pages and their titles, the first title of a page last."""
    titles: list[tuple[str, str]] = []
    for item in items:
        listed = "nav" in item.get("properties", "").split()
        if listed or item.get("media-type") == _CONTENTS:
            name = _inside(folder, item.get("href", ""))
            place = posixpath.dirname(name)
            titles += (
                (_inside(place, href.partition("#")[0]), title)
                for href, title in _contents(book, name, listed=listed)
                if title.strip()
            )
    return reversed(titles)


def _contents(book: ZipFile, name: str, *, listed: bool) -> Iterable[tuple[str, str]]:
    """Addresses and titles of a table of contents; nothing of one that cannot be read, since the
    text is there without it. listed: it is a page with links, as books have it since EPUB 3."""
    try:
        tree = Xml.fromstring(book.read(name))
    except (KeyError, BadZipFile, Xml.ParseError):
        return ()
    return _links(tree) if listed else _points(tree)


def _links(tree: Xml.Element) -> Iterator[tuple[str, str]]:
    for nav in tree.iterfind(".//{*}nav"):
        if nav.get(_TYPE) == "toc":
            for link in nav.iterfind(".//{*}a"):
                yield link.get("href", ""), "".join(link.itertext())


def _points(tree: Xml.Element) -> Iterator[tuple[str, str]]:
    for point in tree.iterfind(".//{*}navPoint"):
        content = point.find("{*}content")
        if content is not None:
            title = point.findtext("{*}navLabel/{*}text") or ""
            yield content.get("src", ""), title


def _inside(folder: str, href: str) -> str:
    """The name in the archive of what a file in `folder` refers to."""
    return posixpath.normpath(posixpath.join(folder, unquote(href)))


def _locked(book: ZipFile) -> set[str]:
    """Names of the encrypted files. Fonts often are encrypted; that is no reason to refuse a
    book."""
    if _ENCRYPTION not in book.namelist():
        return set()
    tree = Xml.fromstring(book.read(_ENCRYPTION))
    return {
        unquote(reference.attrib.get("URI", ""))
        for reference in tree.iterfind(".//{*}CipherReference")
    }
