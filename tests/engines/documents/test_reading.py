"""The edges of what each format's module reads, called in this process."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from random import Random
from zipfile import ZipFile

import pytest
from docx import Document
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from openpyxl import Workbook
from pptx import Presentation

from teola_engines.documents.formats import (
    LONGEST_HEADING,
    Allowed,
    Extracted,
    Refused,
    archive,
    csv_table,
    docx,
    epub,
    joined,
    mail,
    notebook,
    pptx,
    short,
    xlsx,
)
from teola_engines.documents.formats.tables import MOST_COLUMNS, HtmlTable, span_number

ALL = Allowed(10**8, keep_hidden=False)
LONG = "x" * 200_000


# --- rows ---------------------------------------------------------------------------------------


@pytest.fixture
def field_size() -> Iterator[None]:
    """The longest field that csv reads is a setting of the process."""
    limit = csv.field_size_limit()
    yield
    csv.field_size_limit(limit)


@pytest.mark.usefixtures("field_size")
@pytest.mark.parametrize(
    ("name", "rows", "text"),
    [
        ("a.csv", "site,keeper\nHolm,Mia\nSkar\n,\nRef,Eva,7\n",
         "site | keeper\nsite: Holm | keeper: Mia\nsite: Skar\nRef | Eva | 7"),
        ("a.csv", "site\nHolm\n", "site\nHolm"),
        ("a.csv", "a,b,a\n1,2,3\n", "a | b | a\n1 | 2 | 3"),
        ("a.csv", "site;1,5\nHolm;2\n", "site | 1,5\nHolm | 2"),
        ("A.TSV", "a, b\tc\n1, 2\t3\n", "a, b | c\na, b: 1, 2 | c: 3"),
        ("a.csv", "sep=;\r\na,b;c\r\n1,2;3\r\n", "a,b | c\na,b: 1,2 | c: 3"),
        ("a.csv", "\ufeffSEP=,\na,b\n1;2,3;4;5\n", "a | b\na: 1;2 | b: 3;4;5"),
        ("a.csv", "sep=;;\na;b\n", "sep= |  | \na | b"),
        ("a.csv", "sep=,", ""),
        ("a.csv", f"a,b\n1,{LONG}\n", f"a | b\na: 1 | b: {LONG}"),
    ],
)  # fmt: skip
def test_rows_of_a_table(name: str, rows: str, text: str, tmp_path: Path) -> None:
    """Short and long ones, names that are none, and a field that is longer than csv takes."""
    (tmp_path / name).write_text(rows)
    assert csv_table.read(tmp_path / name, ALL).text == text


WORDS = [
    "the", "of lamp,", "harbour;", "ships:", "nine | or", "ten.", "don't", '"say"', "O'Neil", "3,5",
]  # fmt: skip


@pytest.mark.usefixtures("field_size")
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_what_stands_between_cells_is_found_whatever_they_say(
    delimiter: str, tmp_path: Path
) -> None:
    """Also in a long file, of which the beginning is looked at."""
    draw, path = Random(1), tmp_path / "a.csv"
    for count in [0, 1, 2, 3, 5, 8] * 12 + [200]:
        width = draw.randint(2, 5)
        names = [f"name{n}" for n in range(width)]
        rows = [
            [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in names]
            for _ in range(count)
        ]
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([names, *rows])
        named = [" | ".join(map(": ".join, zip(names, row, strict=True))) for row in rows]
        assert csv_table.read(path, ALL).text == "\n".join([" | ".join(names), *named])


@pytest.mark.usefixtures("field_size")
def test_a_row_that_the_beginning_of_a_file_cuts_says_nothing_of_what_stands_between_cells(
    tmp_path: Path,
) -> None:
    """Its first cell alone fills the beginning, and has a semicolon as the heading has."""
    path, long = tmp_path / "a.csv", "w" * 5000
    path.write_text(f"n;m,b,c\nu;{long},1,2\n")
    assert csv_table.read(path, ALL).text == f"n;m | b | c\nn;m: u;{long} | b: 1 | c: 2"


@pytest.mark.parametrize(
    ("value", "least", "number"),
    [
        (None, 1, 1), ("", 0, 1), ("2", 1, 2), (" 3 ", 1, 3), ("0", 1, 1), ("0", 0, 0),
        ("-1", 1, 1), ("x", 0, 1), ("²", 1, 1), ("٣", 1, 1),
        ("9" * 9, 1, 999_999_999), ("9" * 10, 1, 1),
    ],
)  # fmt: skip
def test_how_far_a_cell_reaches(value: str | None, least: int, number: int) -> None:
    assert span_number(value, least) == number


def test_a_cell_that_claims_a_million_columns_has_a_thousand() -> None:
    table = HtmlTable()
    table.cell(10**6, 1)
    table.fill("a")
    table.cell(1, 1)
    table.fill("b")
    assert table.end_row() == " | ".join(["a"] * MOST_COLUMNS + ["b"])


def test_nothing_and_zero_are_different_cells(tmp_path: Path) -> None:
    book = Workbook()
    book.active.append(["name", None, 0, False, 0.5, None])
    book.save(tmp_path / "a.xlsx")
    assert xlsx.read(tmp_path / "a.xlsx", ALL).text == "# Sheet\n\nname |  | 0 | False | 0.5"


# --- places and archives ------------------------------------------------------------------------


def test_places_begin_with_what_is_seen() -> None:
    parts = [("\0 a\0", "One"), ("b", None), (" \n", "Two"), ("\tc", 3), ("d", " ")]
    found = joined(parts, "--", "page", hidden=2)
    text = " a--b-- \n--\tc--d"
    assert found == Extracted(text, 2, "page", [(1, "One"), (text.index("c"), 3)])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (7, 7),
        (" a\0\n b ", "a b"),
        ("x" * LONGEST_HEADING, "x" * LONGEST_HEADING),
        ("x" * (LONGEST_HEADING + 1), "x" * (LONGEST_HEADING - 1) + "…"),
        ("a\ud800", "a?"),
    ],
)
def test_a_name_is_one_short_line(name: str | int, shown: str | int) -> None:
    assert short(name) == shown


def test_an_archive_may_have_as_much_as_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_ENTRIES", 3)
    path = tmp_path / "a.docx"
    for count, most_bytes, told in ((3, 30, ""), (3, 29, "too large"), (4, 99, "too large")):
        with ZipFile(path, "w") as file:
            for number in range(count):
                file.writestr(str(number), b"x" * 10)
        if told:
            with pytest.raises(Refused, match=told):
                archive.opened(path, most_bytes)
        else:
            archive.opened(path, most_bytes).close()


def test_a_locked_entry_is_known_among_other_marks(tmp_path: Path) -> None:
    """Its names may be marked as UTF-8, too."""
    path = tmp_path / "a.docx"
    with ZipFile(path, "w") as file:
        file.writestr("a", b"x")
        file.writestr("ä", b"x")
    archive.opened(path, 99).close()
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(Refused, match="encrypted"):
        archive.opened(path, 99)


# --- documents ----------------------------------------------------------------------------------


def test_what_a_word_document_shows(tmp_path: Path) -> None:
    """Hidden runs beside each other are one text; what was moved stands where it went."""
    document = Document()
    document.add_heading("Harbour", 0)
    paragraph = document.add_paragraph()
    for text, hidden in (("a", True), ("b", True), ("c", False), ("d", True)):
        paragraph.add_run(text).font.hidden = hidden
    moved = "<w:moveFrom {ns}><w:r><w:t>EVIL</w:t></w:r></w:moveFrom>"
    paragraph._p.append(parse_xml(moved.format(ns=nsdecls("w"))))
    document.add_paragraph(" ", style="List Bullet")
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, "abcd", strict=True):
        cell.text = text
    row = table.rows[1]._tr
    row.remove(row.tc_lst[0])
    row.get_or_add_trPr().append(parse_xml(f'<w:gridBefore {nsdecls("w")} w:val="1"/>'))
    inner = "<w:sdt><w:sdtContent><w:p><w:r><w:t>Inner.</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    table._tbl.addnext(
        parse_xml(f"<w:sdt {nsdecls('w')}><w:sdtContent>{inner}</w:sdtContent></w:sdt>")
    )
    document.save(str(tmp_path / "a.docx"))
    found = docx.read(tmp_path / "a.docx", ALL)
    assert found.text == "# Harbour\n\nc\n\na | b\n | d\n\nInner."
    assert (found.hidden, found.places) == (2, [(0, "Harbour")])
    kept = docx.read(tmp_path / "a.docx", Allowed(10**8, keep_hidden=True))
    assert (kept.hidden, "abcd" in kept.text) == (0, True)


def test_slides_are_hidden_by_either_word(tmp_path: Path) -> None:
    show = Presentation()
    for title, shown in (("a", "false"), ("b", "0"), ("c", "true"), ("d", "1")):
        slide = show.slides.add_slide(show.slide_layouts[5])
        slide.shapes.title.text = title
        slide.element.set("show", shown)
    show.save(str(tmp_path / "a.pptx"))
    found = pptx.read(tmp_path / "a.pptx", ALL)
    assert (found.text, found.hidden) == ("# Slide 3\n\nc\n\n# Slide 4\n\nd", 2)


def test_notebooks_of_older_versions(tmp_path: Path) -> None:
    code = {"cell_type": "code", "input": ["x = 6"], "outputs": [{"text": ["6"]}, {"png": "EVIL"}]}
    text = {"cell_type": "markdown", "source": "Text."}
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"worksheets": [{"cells": [code]}, {"cells": [text]}]}))
    assert notebook.read(path, ALL).text == "```\nx = 6\n```\n\n6\n\nText."
    path.write_text(json.dumps({"worksheets": [], "cells": [text]}))
    assert notebook.read(path, ALL).text == "Text."


def test_a_mail_says_what_is_not_read_of_it(tmp_path: Path) -> None:
    """An attachment without a name, and a page that shows nothing beside an empty text."""
    message = EmailMessage()
    message["Subject"], message["Cc"] = "Маяк", ""
    message.set_content(" ")
    message.add_alternative("<p hidden>EVIL", subtype="html")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf")
    (tmp_path / "a.eml").write_bytes(message.as_bytes())
    found = mail.read(tmp_path / "a.eml", ALL)
    told = "Subject: Маяк\nAttachments, not read: application/pdf\n\n"
    assert (found.text, found.hidden) == (told, 1)


def test_a_mail_is_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    message = EmailMessage()
    message.set_content("Маяк", charset="koi8-r")
    (tmp_path / "a.eml").write_bytes(message.as_bytes())
    assert mail.read(tmp_path / "a.eml", ALL).text.strip() == "Маяк"


# --- books --------------------------------------------------------------------------------------

PAGES = {
    "text/o ne.xhtml": "<img/>One.<h2>Later</h2><p hidden>EVIL</p>",
    "text/image.xhtml": "<img/>",
    "text/two.xhtml": "<p hidden>EVIL</p><h1>Two</h1>",
    "text/three.xhtml": "Three.",
}
POINTS = {
    "": "text/three.xhtml",
    "First": "text/o%20ne.xhtml#a",
    "Again": "text/o%20ne.xhtml#b",
    "Plate": "text/image.xhtml",
    "Other": "text/two.xhtml",
    "Third": "text/three.xhtml",
}


def book(path: Path, locked: str = "") -> None:
    """A book with its contents in a folder of their own. locked: what is encrypted in it."""
    items = {f"i{n}": name.replace(" ", "%20") for n, name in enumerate(PAGES)}
    manifest = "".join(
        f'<item id="{id}" href="{name}" media-type="application/xhtml+xml"/>'
        for id, name in items.items()
    )
    contents = '<item id="toc" href="toc/toc.ncx" media-type="application/x-dtbncx+xml"/>'
    spine = "".join(f'<itemref idref="{id}"/>' for id in items)
    points = "".join(
        f"<navPoint><navLabel><text> {title}</text></navLabel>"
        f'<content src="../{where}"/></navPoint>'
        for title, where in POINTS.items()
    )
    with ZipFile(path, "w") as archive:
        archive.writestr("META-INF/container.xml", '<c><rootfile full-path="OPS/book.opf"/></c>')
        archive.writestr(
            "OPS/book.opf",
            f"<package><manifest>{manifest}{contents}</manifest><spine>{spine}</spine></package>",
        )
        archive.writestr("OPS/toc/toc.ncx", f"<ncx>{points}</ncx>")
        for name, page in PAGES.items():
            archive.writestr(f"OPS/{name}", page)
        if locked:
            reference = f'<CipherReference URI="{locked}"/>'
            archive.writestr("META-INF/encryption.xml", f"<e><d>{reference}</d></e>")


def test_chapters_begin_where_the_contents_or_a_heading_say(tmp_path: Path) -> None:
    """A page without text is no chapter; of several titles of a page, the first is its own."""
    book(tmp_path / "a.epub")
    found = epub.read(tmp_path / "a.epub", ALL)
    assert found.hidden == 2
    begins = [(name, found.text[at:].partition("\n")[0]) for at, name in found.places]
    assert begins == [
        ("First", "One."), ("Later", "## Later"), ("Two", "# Two"), ("Third", "Three."),
    ]  # fmt: skip


def test_only_a_book_whose_pages_are_locked_is_refused(tmp_path: Path) -> None:
    book(tmp_path / "a.epub", locked="OPS/fonts/a.ttf")
    assert "Three." in epub.read(tmp_path / "a.epub", ALL).text
    book(tmp_path / "a.epub", locked="OPS/text/o%20ne.xhtml")
    with pytest.raises(Refused, match="encrypted"):
        epub.read(tmp_path / "a.epub", ALL)
