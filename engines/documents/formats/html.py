"""The text of a page: headings and list items marked as in Markdown, the cells of a row by ` | `.

The page is read as a stream, without a tree: memory stays in proportion to the text, however deep
the nesting. Only the elements that are open are kept, and closed as the HTML Standard says, so that
the end of a hidden element is known where no tag tells it. LlamaIndex's HTMLTagReader is not used:
it reads one kind of tag, joins the cells of a table without a space, and keeps scripts and styles.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from . import Allowed, Extracted, PlaceName, short
from .encodings import decoded
from .tables import HtmlTable, span_number


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


_DROPPED: Final = frozenset({"script", "style", "template"})
_INLINE: Final = _tags(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark nobr "
    "output q rb rp rt rtc ruby s samp script small span strike strong style sub sup svg template "
    "time tt u var wbr"
)
_VOID: Final = _tags("area base br col embed hr img input link meta param source track wbr")
_PARAGRAPH: Final = _tags("blockquote dl figure h1 h2 h3 h4 h5 h6 ol p pre section table ul")
_SCOPE: Final = frozenset({"table", "td", "th", "caption", "template"})
"""An end tag ends nothing beyond them."""
_TABLE_SCOPE: Final = frozenset({"table", "template"})
_CELLS: Final = frozenset({"td", "th"})
_SECTIONS: Final = frozenset({"thead", "tbody", "tfoot"})
_PARTS: Final = frozenset({"table", "tr", "caption", *_CELLS, *_SECTIONS})
_ITEMS: Final = frozenset({"dt", "dd"})
_IN_ROW: Final = _CELLS | {"caption"}
_IMPLIED: Final = {
    "li": (frozenset({"li"}), _SCOPE | {"ul", "ol"}),
    "option": (frozenset({"option"}), _SCOPE | {"select", "datalist"}),
    **{tag: (_ITEMS, _SCOPE | {"dl"}) for tag in _ITEMS},
    **dict.fromkeys(_CELLS, (_IN_ROW, _TABLE_SCOPE)),
    "tr": (_IN_ROW | {"tr"}, _TABLE_SCOPE),
    **{tag: (_IN_ROW | _SECTIONS | {"tr"}, _TABLE_SCOPE) for tag in _SECTIONS},
}
"""Which open elements a start tag closes, and which it does not look beyond."""
_DISPLAY_NONE: Final = re.compile(r"(?:^|;)\s*display\s*:\s*none\b", re.IGNORECASE)
_HEADS: Final = "\0"
"""Stands before each heading while the page is read; texts that are put in have none."""
_MARK_ALONE: Final = re.compile(rf"\*|{_HEADS}?#+")
_HEADING: Final = re.compile(r"h([1-6])")


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of an HTML file."""
    return html_text(decoded(path.read_bytes()), allowed.keep_hidden)


def html_text(page: str, keep_hidden: bool = False) -> Extracted:
    """The text of a page."""
    parser = TextOfHtml(keep_hidden)
    parser.feed(page)
    parser.close()
    return parser.extracted()


@dataclass(slots=True)
class _Open:
    """An element that is open. shown: whether a reader sees it; dropped: it holds no text."""

    tag: str
    shown: bool
    dropped: bool


class _Flow:
    """Text that grows by pieces: all of the page, or a cell's."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.gap = 0

    def put(self, text: str) -> None:
        if self.gap and not text.isspace():
            self.pieces.append("\n" * self.gap)
            self.gap = 0
        if not self.gap:
            self.pieces.append(text)

    def put_text(self, text: str) -> None:
        """Put what stands in the page."""
        self.put(text.replace(_HEADS, ""))

    def text(self) -> str:
        """The text, without runs of blank lines and without the marks of empty headings and list
        items."""
        lines = (line.rstrip() for line in "".join(self.pieces).split("\n"))
        kept = ("" if _MARK_ALONE.fullmatch(line.strip()) else line for line in lines)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


class TextOfHtml(HTMLParser):
    """Collects the text of a page. keep_hidden: also what a browser does not show."""

    def __init__(self, keep_hidden: bool = False) -> None:
        super().__init__(convert_charrefs=True)
        self._keep_hidden = keep_hidden
        self._open: list[_Open] = []
        self._count: Counter[str] = Counter()
        self._flows, self._tables = [_Flow()], list[HtmlTable]()
        self._hidden, self._unseen = 0, False  # texts; whether the one that is hidden now has any

    def extracted(self) -> Extracted:
        """What was collected. A heading begins a section, which ends with the next one of any
        level."""
        before, *after = self._flows[0].text().split(_HEADS)
        sections: list[tuple[int, PlaceName]] = []
        at = len(before)
        for text in after:
            if name := text.partition("\n")[0].lstrip("#").rstrip(" |").strip():
                sections.append((at, short(name)))
            at += len(text)
        return Extracted("".join([before, *after]), self._hidden, "section", sections)

    def close(self) -> None:
        super().close()
        while self._open:
            self._end_last()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("html", "body"):  # there are but one, and their end tags may be missing
            return
        self._close_implied(tag)
        if tag not in _INLINE:
            self._break(tag)
        attributes = dict(attrs)
        if tag not in _VOID:
            self._start(tag, attributes)
        elif tag == "img" and self._shown and not self._hides(tag, attributes):
            self._flows[-1].put_text(attributes.get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("html", "body"):
            return
        self._close(tag)
        if tag not in _INLINE:
            self._break(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else None
        if inside and inside.dropped:
            return
        if not self._shown:
            self._unseen = self._unseen or not data.isspace()
            return
        self._flows[-1].put_text(data if self._count["pre"] else re.sub(r"\s+", " ", data))

    @property
    def _shown(self) -> bool:
        return not self._open or self._open[-1].shown

    def _hides(self, tag: str, attributes: dict[str, str | None]) -> bool:
        if self._keep_hidden:
            return False
        style = attributes.get("style") or ""
        return tag == "noscript" or "hidden" in attributes or bool(_DISPLAY_NONE.search(style))

    def _start(self, tag: str, attributes: dict[str, str | None]) -> None:
        around = self._open[-1] if self._open else _Open("", True, False)
        shown = around.shown and not self._hides(tag, attributes)
        self._open.append(_Open(tag, shown, around.dropped or tag in _DROPPED))
        self._count[tag] += 1
        if not shown or self._open[-1].dropped:
            return
        table = self._tables[-1] if self._tables else None
        if tag == "table":
            self._tables.append(HtmlTable())
        elif table and (tag == "tr" or tag in _SECTIONS):
            if table.begun:  # its cells stand in no row
                self._end_row(table)
            if tag in _SECTIONS:
                table.end_spans()
        elif table and tag in _CELLS:
            table.cell(
                span_number(attributes.get("colspan"), 1), span_number(attributes.get("rowspan"), 0)
            )
            self._flows.append(_Flow())
        elif heading := _HEADING.fullmatch(tag):
            self._flows[-1].put(_HEADS + "#" * int(heading[1]) + " ")
        elif tag == "li":
            self._flows[-1].put("* ")

    def _close_implied(self, tag: str) -> None:
        if tag in _IMPLIED:
            closed, beyond = _IMPLIED[tag]
            if not any(self._count[name] for name in closed):
                return
            first = None
            for at in range(len(self._open) - 1, -1, -1):
                if self._open[at].tag in beyond:
                    break
                if self._open[at].tag in closed:
                    first = at
                    if tag in ("li", "option") or tag in _ITEMS:
                        break
            self._end_from(first)
        if tag not in _INLINE and self._count["p"]:
            for at in range(len(self._open) - 1, -1, -1):
                if self._open[at].tag == "p":
                    self._end_from(at)
                    break
                if self._open[at].tag not in _INLINE:
                    break

    def _close(self, tag: str) -> None:
        if not self._count[tag]:
            return
        for at in range(len(self._open) - 1, -1, -1):
            open_tag = self._open[at].tag
            if open_tag == tag:
                self._end_from(at)
                return
            if open_tag in (_TABLE_SCOPE if tag in _PARTS else _SCOPE):
                return
            if tag in _INLINE and open_tag not in _INLINE:
                return

    def _end_from(self, at: int | None) -> None:
        while at is not None and len(self._open) > at:
            self._end_last()

    def _end_last(self) -> None:
        ended = self._open.pop()
        self._count[ended.tag] -= 1
        if not ended.shown:
            if self._shown:  # the outermost that is hidden
                self._hidden += self._unseen
                self._unseen = False
            return
        if ended.dropped or not self._tables:
            return
        table = self._tables[-1]
        if ended.tag in _CELLS:
            table.fill(self._flows.pop().text())
        elif ended.tag in _SECTIONS:
            table.end_spans()
        elif ended.tag == "tr":
            self._end_row(table)
        elif ended.tag == "table":
            self._end_row(table)
            self._tables.pop()

    def _end_row(self, table: HtmlTable) -> None:
        row = table.end_row()
        if row:
            self._break("tr")
            self._flows[-1].put(row)
            self._break("tr")

    def _break(self, tag: str) -> None:
        flow = self._flows[-1]
        if self._shown:
            flow.gap = max(flow.gap, 2 if tag in _PARAGRAPH else 1)
