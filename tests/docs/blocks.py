"""Fenced code blocks of Markdown files, with what their info strings ask for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Block:
    """language: first word of the info string. file: name to save it under ("" if none)."""

    language: str
    file: str
    line: int
    text: str

    def commands(self) -> Iterator[list[str]]:
        """The `teola` commands behind `$` prompts, without that word."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ teola "):
                yield shlex.split(line)[2:]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, *options = match[1].split() or [""]
        files = [o.removeprefix("file=") for o in options if o.startswith("file=")]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language, "".join(files), line, match[2]))
    return found


def links(page: Path) -> set[str]:
    """Targets of the page's links and images, code left out."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {markdown or html for markdown, html in _LINK.findall(text)}


def anchors(page: Path) -> set[str]:
    """Anchors of the page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}
