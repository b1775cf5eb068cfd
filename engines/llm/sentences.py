"""Sentences of a text, as a reader would quote them: Markdown marks cleaned, headings remembered.

Written for chunks of documents of any kind: prose (also hard-wrapped), lists, tables, code. Rows of
tables and lines of code are no sentences: torn from what stands around them, they say nothing.
Strangers wrote them, so no regular expression here takes longer than in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"\s*(?:```+|~~~+)\s*(\S*)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_UNDERLINE = re.compile(r"\s*(={3,}|-{3,}|\*{3,}|~{3,}|\^{3,})\s*$")
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_TABLE_RULE = re.compile(r"[\s|:+-]+$")
_QUOTE_MARK = re.compile(r"^\s*>+\s")
_COLUMNS = re.compile(r"\S {3,}\S")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)")
_EMPHASIS = re.compile(r"(\*{1,3})(?=\S)(.{1,200}?)(?<=\S)\1(?!\w)")
_CODE = re.compile(r"(?<!`)`+([^`]+)`+")
_END = re.compile(
    r"""[.!?…]["'’”)\]]*\s+(?=["'“‘(\[]*[A-Z0-9\u00c0-\u00de\u0370-\uffff])|(?<=[。！？])"""
)
_ABBREVIATION = re.compile(
    r"(?:(?<![\w'’/.])[A-Z]|\b(?:e\.g|i\.e|cf|vs|al|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|fig|Eq|Sec|sec|approx|ca|Vol|pp|"
    r"Inc|Ltd|Jr|Sr)|^\d{1,3})\.\s+$"
)
_ABBREVIATED = 16
"""More characters than an abbreviation has, with what must not stand before it."""
_LEAD_WORDS = 4
_LONGEST = 350


@dataclass(frozen=True, slots=True)
class Sentence:
    """One quotable sentence (or list item) and the heading above it."""

    text: str
    heading: str = ""


def sentences(text: str) -> list[Sentence]:
    """The sentences of `text`, in order. A heading counts only where nothing stands below it."""
    found: list[Sentence] = []
    heading, used = "", True
    for kind, block in _blocks(text):
        if kind == "heading":
            if not used:
                found.append(Sentence(heading))
            heading, used = clean(block), False
            continue
        if kind == "aside":
            used = True
            continue
        pieces = [plain_quotes(block.strip())] if kind == "line" else _split(clean(block))
        kept = [Sentence(piece, heading) for piece in pieces if _says_something(piece)]
        found += kept
        used = used or bool(kept)
    if not used and heading:
        found.append(Sentence(heading))
    return found


def clean(text: str) -> str:
    """`text` on one line, without the marks of Markdown."""
    text = _IMAGE_OR_LINK.sub(r"\1", " ".join(text.split()))
    text = _CODE.sub(r"\1", _EMPHASIS.sub(r"\2", text))
    return plain_quotes(text).strip()


def plain_quotes(text: str) -> str:
    """`text` with single quotation marks, so that double ones around it are unambiguous."""
    return text.replace("“", "‘").replace("”", "’")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """("heading" | "text" | "line" | "aside", content) for each block of the text. aside: a row of
    a table or a line of code."""
    paragraph: list[str] = []
    lines = text.split("\n")
    fenced = _begins_in_code(lines)
    for raw in lines:
        kind, line = _classify(raw, fenced)
        if kind == "fence":
            fenced = not fenced
        if kind == "underline" and len(paragraph) == 1:
            yield "heading", paragraph.pop()
        if paragraph and kind != "text":
            yield "text", " ".join(paragraph)
            paragraph = []
        if kind in ("heading", "line", "aside"):
            yield kind, line
        elif kind in ("bullet", "text"):
            paragraph.append(line)
    if paragraph:
        yield "text", " ".join(paragraph)


def _begins_in_code(lines: Sequence[str]) -> bool:
    """Whether a chunk begins inside a block of code: a fence that names a language opens one."""
    fences = [fence[1] for line in lines if (fence := _FENCE.match(line))]
    named = next((i for i, language in enumerate(fences) if language), 0)
    return named % 2 == 1


def _classify(raw: str, fenced: bool) -> tuple[str, str]:
    if _FENCE.match(raw):
        return "fence", ""
    if fenced:
        return ("aside" if raw.strip() else "blank"), ""
    line = _QUOTE_MARK.sub("", raw, count=1)
    if heading := _HEADING.match(line):
        return "heading", heading[1].rstrip().rstrip("#").rstrip()
    if not line.strip():
        return "blank", ""
    if _UNDERLINE.match(line):
        return "underline", ""
    if _TABLE_RULE.match(line):
        return "blank", ""
    if _is_row(line.strip()):
        return "aside", ""
    if bullet := _BULLET.match(line):
        return "bullet", line[bullet.end() :]
    kind = "line" if _COLUMNS.search(line.strip()) else "text"
    return kind, " ".join(line.split())


def _is_row(line: str) -> bool:
    """Whether it is a row of a table, or the half of one that is left at the edge of a chunk."""
    barred = line.startswith("|") or line.endswith(" |") or " | " in line
    return barred or len(_COLUMNS.findall(line)) > 1


def _split(paragraph: str) -> Iterator[str]:
    """Sentences; a lead-in of a few words ("Fees.") stays with what follows it."""
    start = 0
    for end in _END.finditer(paragraph):
        piece = paragraph[start : end.end()]
        words = len(piece.split(None, _LEAD_WORDS))
        is_lead = start == 0 and words <= _LEAD_WORDS and piece.isascii()
        if not is_lead and not _ABBREVIATION.search(piece, max(0, len(piece) - _ABBREVIATED)):
            yield from _shorten(piece.strip())
            start = end.end()
    yield from _shorten(paragraph[start:].strip())


def _shorten(sentence: str) -> Iterator[str]:
    """A very long sentence in its parts between semicolons."""
    if len(sentence) <= _LONGEST:
        yield sentence
    else:
        yield from (part.strip() for part in re.split(r"(?<=;)\s+", sentence))


def _says_something(piece: str) -> bool:
    return sum(character.isalnum() for character in piece) >= 3
