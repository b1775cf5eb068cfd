"""The child process that parses one PDF or HTML file: `python parser.py FORMAT PATH TEXT MEM CPU`.

A file made to blow up (a "bomb") must not take the service with it, so parsing happens here, under
limits that the process sets for itself before it looks at the file: bytes of memory, seconds of
CPU, bytes of text; and without the network, other programs or files to change, as far as Python
knows what its code does: a fault in a C library can do whatever this account may. The text goes to
stdout as UTF-8. A refusal is exit status 3 with one word on stderr, see sandbox.py.

It is started as a script and imports nothing of ours, and pypdf only for PDF, to start soon.
LlamaIndex's HTMLTagReader is not used: it reads one kind of tag, joins the cells of a table without
a space, and keeps scripts and styles.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import NoReturn

REFUSED = 3
_FORBIDDEN = re.compile(
    "socket|subprocess|os|shutil|tempfile|ctypes|signal|fcntl|mmap|pty|sqlite3|dbm|syslog|urllib|"
    "http|ftplib|smtplib|poplib|imaplib|webbrowser"
)
"""Modules that reach outside: whatever they do and Python tells of is refused."""
_ALLOWED = ("os.listdir", "os.scandir")
"""What an import does."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DROPPED = re.compile("script|style|template")
_INLINE = re.compile(
    "a|abbr|b|bdi|bdo|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|q|s|samp|script|small|"
    "span|strong|style|sub|sup|svg|td|template|th|time|tt|u|var|wbr"
)
_PARAGRAPH = re.compile("blockquote|dl|figure|h[1-6]|ol|p|pre|section|table|ul")
_CELL = "\x1f"
_MARK_ALONE = re.compile(r"\*|#+")
_HEADING = re.compile(r"h([1-6])")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{2,40})""", re.IGNORECASE)


class TextOfHtml(HTMLParser):
    """Collects the text of a page: headings and list items marked as in Markdown, cells by ` | `.

    Streaming, without a tree: memory stays in proportion to the text, however deep the nesting.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._dropped = self._verbatim = self._gap = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if _DROPPED.fullmatch(tag):
            self._dropped += 1
        if tag == "pre":
            self._verbatim += 1
        if not _INLINE.fullmatch(tag):
            self._break(tag)
        if heading := _HEADING.fullmatch(tag):
            self._put("#" * int(heading[1]) + " ")
        elif tag == "li":
            self._put("* ")
        elif tag in ("td", "th"):
            self._put(_CELL)
        elif tag == "img":
            self._put(" ".join(value or "" for name, value in attrs if name == "alt"))

    def handle_endtag(self, tag: str) -> None:
        if _DROPPED.fullmatch(tag):
            self._dropped = max(0, self._dropped - 1)
        if tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)
        if not _INLINE.fullmatch(tag):
            self._break(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("br", "hr", "img"):
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self._put(data if self._verbatim else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        """What was collected, without runs of blank lines."""
        lines = (_line(line) for line in "".join(self._pieces).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def _break(self, tag: str) -> None:
        self._gap = max(self._gap, 2 if _PARAGRAPH.fullmatch(tag) else 1)

    def _put(self, text: str) -> None:
        if self._gap and not text.isspace():
            self._pieces.append("\n" * self._gap)
            self._gap = 0
        if not self._gap:
            self._pieces.append(text)


def html_text(path: Path) -> str:
    """The text of an HTML file."""
    parser = TextOfHtml()
    parser.feed(_decode(path.read_bytes()))
    parser.close()
    return parser.text()


def pdf_reader() -> Callable[[Path], str]:
    """A function that gives the text of a PDF; everything it needs is imported by then."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    def pdf_text(path: Path) -> str:
        try:
            with path.open("rb") as file:
                return "\n".join(page.extract_text() for page in PdfReader(file).pages)
        except (FileNotDecryptedError, DependencyError):
            refuse("encrypted")

    return pdf_text


def refuse(reason: str) -> NoReturn:
    """End the process with a reason that sandbox.py knows."""
    sys.stderr.write(f"\n{reason}\n")
    sys.stderr.flush()
    os._exit(REFUSED)


def main(kind: str, path: str, max_text: int, memory: int, cpu_s: int) -> None:
    """Parse one file and write its text."""
    _limit(memory, cpu_s)
    logging.disable(logging.CRITICAL)
    read = pdf_reader() if kind == "pdf" else html_text
    sys.addaudithook(_forbid)
    text = read(Path(path)).replace("\0", "").encode("utf-8", "replace")
    if len(text) > max_text:
        refuse("too much text")
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _limit(memory: int, cpu_s: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits; the time-out of the parent still holds
        return
    for what, most, grace in (
        (resource.RLIMIT_AS, memory, 0),
        (resource.RLIMIT_CPU, cpu_s, 2),  # SIGXCPU first, and SIGKILL if that does not help
        (resource.RLIMIT_CORE, 0, 0),
    ):
        hard = resource.getrlimit(what)[1]
        unlimited = hard == resource.RLIM_INFINITY
        most, last = (n if unlimited else min(n, hard) for n in (most, most + grace))
        resource.setrlimit(what, (most, last))


def _forbid(event: str, args: tuple[object, ...]) -> None:
    writes = event == "open" and isinstance(args[2], int) and args[2] & _WRITING
    if writes or (_FORBIDDEN.fullmatch(event.partition(".")[0]) and event not in _ALLOWED):
        refuse("broken")


def _line(line: str) -> str:
    cells = [cell.strip() for cell in line.split(_CELL)]
    if len(cells) > 1:
        return " | ".join(cell for cell in cells if cell)
    return "" if _MARK_ALONE.fullmatch(cells[0]) else line.rstrip()


def _decode(data: bytes) -> str:
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        declared = _CHARSET.search(data[:4096])
        name = declared[1].decode("ascii") if declared else "cp1252"
        try:
            return data.decode(name, "replace")
        except LookupError:
            return data.decode("cp1252", "replace")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
