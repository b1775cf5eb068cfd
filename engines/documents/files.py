"""Files as documents: which formats there are, how bytes become text, and what is refused.

Plain text and Markdown are taken as they are. LlamaIndex's MarkdownReader is not used: it drops
what stands between angle brackets and the addresses of links, and moves text across headings; its
FlatReader only reads the bytes, and does not notice a binary file.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path

from teola.engine import Fingerprint, Source
from teola.errors import DocumentError

_BLOCK = 1 << 20
"""Bytes or characters that are read, decoded or looked through at once: each of these steps holds
up every other thread of the process."""
_LETTER = re.compile(r"[^\W_]")
_LONG_SPACE = re.compile(r"(?<!\s)(\s{100})\s+")
_BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
    (b"\xef\xbb\xbf", "utf-8-sig"),
)


class Format(Enum):
    """How a file is read. All formats but TEXT are parsed in a process of their own, by the module
    of `formats` that the value names."""

    TEXT = "text"
    HTML = "html"
    PDF = "pdf"
    CSV = "csv_table"
    NOTEBOOK = "notebook"
    MAIL = "mail"
    EPUB = "epub"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"


_FORMATS = {
    ".pdf": Format.PDF,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".ipynb": Format.NOTEBOOK,
    ".eml": Format.MAIL,
    ".epub": Format.EPUB,
    ".docx": Format.DOCX,
    ".pptx": Format.PPTX,
    ".xlsx": Format.XLSX,
}
_MARKDOWN = (".md", ".markdown")
LIBRARIES = {
    Format.DOCX: "docx",
    Format.PPTX: "pptx",
    Format.XLSX: "openpyxl",
}
"""The module that a format needs, from the extra `documents`."""
_NOT_TEXT = re.compile(
    r"\.(doc|od[tps]|rtf|ppt|xls|mobi|zip|gz|bz2|xz|zst|7z|rar|tar|tgz|png|jpe?g|gif|webp|"
    r"bmp|tiff?|ico|mp[34]|wav|ogg|avi|mov|webm|exe|dll|so|bin|pyc|class|jar|whl|sqlite|db|parquet|"
    r"npy|pkl|e?ps)"
)
"""Types with text in them that we would not find; anything else unknown is text if it decodes."""


def format_of(path: Path) -> Format:
    """The format, by suffix. Raises DocumentError for types that are known not to be text, and for
    office files where the extra `documents` is missing."""
    suffix = path.suffix.lower()
    if _NOT_TEXT.fullmatch(suffix):
        raise refusal(path, f"{suffix} files are not supported; give text, HTML, PDF or .docx")
    format = _FORMATS.get(suffix, Format.TEXT)
    if lacks(format):
        raise refusal(
            path, f"{suffix} files need the extra 'documents': pip install 'teola[documents]'"
        )
    return format


def lacks(format: Format) -> bool:
    """Whether a module that the format needs is not installed."""
    return format in LIBRARIES and find_spec(LIBRARIES[format]) is None


def is_markdown(source: Source) -> bool:
    """Whether the source is Markdown, whose headings become places. Its text is read as any text
    is."""
    path = Path(source.name) if source.path is None else source.path
    return path.suffix.lower() in _MARKDOWN


def check(path: Path, max_bytes: int) -> int:
    """Size of the file in bytes. Raises DocumentError if it is no file, empty, or too large."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DocumentError(f"no such file: {str(path)!r}; check the path") from None
    except (OSError, ValueError) as error:
        raise refusal(path, f"{_reason(error)}; check the path and its permissions") from error
    if stat.S_ISDIR(status.st_mode):
        raise refusal(path, "it is a directory; name the files in it")
    if not stat.S_ISREG(status.st_mode):
        raise refusal(path, "it is not a regular file; give a file")
    if status.st_size == 0:
        raise refusal(path, "it is empty; leave it out")
    if status.st_size > max_bytes:
        size = f"{status.st_size / 1e6:.0f} MB"
        allowed = f"{max_bytes / 1e6:.0f} MB"
        raise refusal(path, f"it has {size}, more than the {allowed} allowed; split it")
    return status.st_size


def fingerprint(source: Source, max_bytes: int) -> Fingerprint:
    """SHA-256 and size of the source's bytes (of inline text: its UTF-8), and how they are read."""
    reading = _reading(source)
    digest, size = hashlib.sha256(), 0
    for block in _blocks(source, max_bytes):
        digest.update(block)
        size += len(block)
    return Fingerprint(digest.hexdigest(), size, reading)


def _reading(source: Source) -> str:
    """How the source is read: where bytes and readings are equal, texts and places are. A table's
    reading is its suffix, which says what stands between two cells."""
    if is_markdown(source):
        return "markdown"
    format = Format.TEXT if source.path is None else format_of(source.path)
    if format is Format.CSV and source.path is not None:
        return source.path.suffix.lower()
    return format.value


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a text file, tidy. Raises DocumentError if it is none."""
    return usable(str(path), tidy(_decoded(path, _blocks(Source(path.name, path=path), max_bytes))))


def inline_text(source: Source, max_bytes: int) -> str:
    """The text given in place of a file, checked and made tidy as a file's would be."""
    for _ in _blocks(source, max_bytes):
        continue
    assert source.text is not None
    return usable(source.name, tidy(_pieces(source.text)))


def parsed_text(data: bytes, starts: Sequence[int]) -> tuple[str, list[int]]:
    """Tidy text of what the parser's process wrote, and the new positions of the characters at
    `starts`. `starts` ascend; none of these characters is white space."""
    view = memoryview(data)
    blocks = (bytes(view[at : at + _BLOCK]) for at in range(0, len(data), _BLOCK))
    return _tidy(codecs.iterdecode(blocks, "utf-8"), starts)


def tidy(pieces: Iterable[str]) -> str:
    """A text with plain line ends, and at most about 100 characters of white space in a row: with
    more, a document could be all white space, and each step on its way would take it whole."""
    return _tidy(pieces, ())[0]


def _tidy(pieces: Iterable[str], starts: Sequence[int]) -> tuple[str, list[int]]:
    plain = io.IncrementalNewlineDecoder(None, translate=True)
    parts: list[str] = []
    moved: list[int] = []
    before = length = 0  # characters of the pieces so far, and of what became of them
    for piece in pieces:
        # Cut at `starts`, before which all white space ends that is made shorter.
        last = bisect_left(starts, before + len(piece), len(moved))
        cuts = [start - before for start in starts[len(moved) : last]]
        for number, (lo, hi) in enumerate(pairwise([0, *cuts, len(piece)])):
            moved += [length] if number else []
            ended = plain.decode(piece[lo:hi]).replace("\f", "\n")
            parts.append(_LONG_SPACE.sub(r"\1", ended))
            length += len(parts[-1])
        before += len(piece)
    parts.append(plain.decode("", final=True))
    return "".join(parts), moved


def usable(name: str, text: str) -> str:
    """`text`. Raises DocumentError if there is nothing in it to read."""
    if not any(_LETTER.search(piece) for piece in _pieces(text)):
        raise DocumentError(f"cannot read {name!r}: there is no text in it; leave it out")
    return text


def refusal(path: Path, reason: str) -> DocumentError:
    """The error for `path`: one line."""
    return DocumentError(f"cannot read {str(path)!r}: {reason}")


def _decoded(path: Path, blocks: Iterable[bytes]) -> Iterator[str]:
    """The blocks as text: as a byte order mark says, else UTF-8. Raises DocumentError if they are
    no text."""
    decoder, read = None, 0
    for block in chain(blocks, (b"",)):  # which ends it
        decoder = decoder or _decoder(block)
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = read - pending + error.start
            what = "a binary file" if b"\0" in block else f"not UTF-8 text (byte {at})"
            raise refusal(path, f"it is {what}; convert it to UTF-8 text") from error
        if "\0" in text:
            raise refusal(path, "it is a binary file; give text, Markdown, HTML or PDF")
        read += len(block)
        yield text


def _decoder(beginning: bytes) -> codecs.IncrementalDecoder:
    encoding = next((name for mark, name in _BOMS if beginning.startswith(mark)), "utf-8")
    return codecs.getincrementaldecoder(encoding)()


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK))


def _blocks(source: Source, max_bytes: int) -> Iterator[bytes]:
    if source.path is None:
        yield from _inline_bytes(source, max_bytes)
        return
    check(source.path, max_bytes)
    try:
        with source.path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                max_bytes -= len(block)
                if max_bytes < 0:
                    raise refusal(source.path, "it grew beyond the size allowed while it was read")
                yield block
    except OSError as error:
        raise refusal(source.path, f"{_reason(error)}; check its permissions") from error


def _inline_bytes(source: Source, max_bytes: int) -> Iterator[bytes]:
    if source.text is None:
        raise DocumentError(f"document {source.name!r} has neither a path nor a text; give one")
    if not source.text:
        raise DocumentError(f"text {source.name!r} is empty; leave it out")
    size = 0
    for piece in _pieces(source.text):
        try:
            data = piece.encode()
        except UnicodeEncodeError as error:
            raise DocumentError(f"text {source.name!r} is not valid Unicode; clean it") from error
        if b"\0" in data:
            raise DocumentError(f"text {source.name!r} has NUL characters; remove them")
        size += len(data)
        if size > max_bytes:
            limit = f"{max_bytes / 1e6:.0f} MB"
            raise DocumentError(
                f"text {source.name!r} is larger than the {limit} allowed; split it"
            )
        yield data


def _reason(error: OSError | ValueError) -> str:
    code = getattr(error, "errno", None)
    return os.strerror(code).lower() if code else str(error)
