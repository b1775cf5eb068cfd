"""Formats beside text, HTML and PDF, in files that the formats' own libraries wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from docx import Document
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from openpyxl import Workbook
from pptx import Presentation
from pptx.util import Inches

from teola.engine import Source
from teola.errors import DocumentError
from teola.runtime.documents import SUFFIXES
from teola_engines.documents import FileLoader, files
from teola_engines.documents.files import Format, format_of
from teola_engines.documents.sandbox import Parsed, ParsingLimits, parse

Make = Callable[[Path], None]


async def read(path: Path, **limits: int) -> Parsed:
    return await parse(path, format_of(path), ParsingLimits(**limits))


def word(path: Path) -> None:
    document = Document()
    document.add_heading("Keepers", 2)
    document.add_paragraph("The keeper of Holm is Xena.").add_run(" EVIL").font.hidden = True
    document.add_paragraph("one", style="List Bullet")
    table = document.add_table(2, 3)
    for cell, text in zip(table.rows[0].cells, ("Name", "Opened", "Closed"), strict=True):
        cell.text = text
    table.cell(1, 0).text, table.cell(1, 2).text = "Holm", "1950"
    last = document.add_paragraph("After ")
    inserted = "<w:ins {ns}><w:r><w:t>the </w:t></w:r></w:ins>"
    deleted = "<w:del {ns}><w:r><w:delText>EVIL</w:delText></w:r></w:del>"
    control = "<w:sdt {ns}><w:sdtContent><w:r><w:t>table.</w:t></w:r></w:sdtContent></w:sdt>"
    block = "<w:p><w:r><w:t>In a control.</w:t></w:r></w:p>"
    for xml in (inserted, deleted, control):
        last._p.append(parse_xml(xml.format(ns=nsdecls("w"))))
    last._p.addnext(
        parse_xml(f"<w:sdt {nsdecls('w')}><w:sdtContent>{block}</w:sdtContent></w:sdt>")
    )
    document.save(str(path))


def excel(path: Path) -> None:
    book = Workbook()
    book.active.title = "Houses"
    for row in (["Name", "Opened", "Closed"], [], ["Holm", None, 1950]):
        book.active.append(row)
    hidden = book.create_sheet("Secret")
    hidden.append(["EVIL"])
    hidden.sheet_state = "hidden"
    book.create_sheet("Ships").append(["Ferry"])
    book["Ships"]["F1"].number_format = "0.00"  # and nothing in it
    book.create_sheet("Empty").sheet_state = "hidden"
    book.save(path)


def slides(path: Path) -> None:
    show = Presentation()
    for title in ("The keeper is Zeb", "EVIL", "Third"):
        slide = show.slides.add_slide(show.slide_layouts[5])
        slide.shapes.title.text = title
        if title == "EVIL":
            slide.element.set("show", "0")
    size = (Inches(1),) * 4
    table = slide.shapes.add_table(1, 2, *size).table
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    slide.shapes.add_group_shape().shapes.add_textbox(*size).text_frame.text = "Grouped"
    slide.notes_slide.notes_text_frame.text = "Noted"
    show.save(str(path))


def book(path: Path) -> None:
    opf = """<package xmlns="http://www.idpf.org/2007/opf"><manifest>
    <item id="b" href="text/two.xhtml" media-type="application/xhtml+xml"/>
    <item id="a" href="text/o%20ne.xhtml" media-type="application/xhtml+xml"/>
    <item id="c" href="x.css" media-type="text/css"/></manifest>
    <spine><itemref idref="a"/><itemref idref="b"/></spine></package>"""
    container = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
    <rootfile full-path="OPS/book.opf"/></rootfiles></container>"""
    with ZipFile(path, "w") as archive:
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("OPS/book.opf", opf)
        archive.writestr("OPS/text/two.xhtml", "<h1>Two</h1><p hidden>EVIL</p>")
        archive.writestr("OPS/text/o ne.xhtml", "<h1>One</h1><p>Wärter</p>")


def mail(path: Path) -> None:
    message = EmailMessage()
    message["Subject"], message["From"] = "Wärter", "vera@example.org"
    message.set_content("The keeper is Véra " + "and " * 30 + "Uno.", cte="quoted-printable")
    message.add_alternative("<p>EVIL</p>", subtype="html")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="a.pdf")
    path.write_bytes(message.as_bytes())


def page_mail(path: Path) -> None:
    message = EmailMessage()
    message["Subject"] = "Page"
    message.set_content("<p>Wärter<p hidden>EVIL", subtype="html", charset="iso-8859-1")
    path.write_bytes(message.as_bytes())


def blank_mail(path: Path) -> None:
    message = EmailMessage()
    message["Subject"] = "Both"
    message.set_content(" ")
    message.add_alternative("<p>The ferry leaves at nine.", subtype="html")
    path.write_bytes(message.as_bytes())


def notebook(path: Path) -> None:
    image = {"output_type": "display_data", "data": {"image/png": "EVIL" * 1000}}
    table = {"output_type": "execute_result", "data": {"text/plain": ["6"], "text/html": "EVIL"}}
    printed = {"output_type": "stream", "text": ["done\n"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {"cell_type": "code", "source": "x = 6", "outputs": [image, table, printed]},
    ]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))


def semicolons(path: Path) -> None:
    path.write_bytes(
        'name;keeper;height\nHolm;;12\n"Sk;ar";"Ni\nls";14\n'.encode("utf-16")  # Excel's own way
    )


def plain_rows(path: Path) -> None:
    path.write_text("1,2\n3,\n")


def tabs(path: Path) -> None:
    path.write_text("\nCity, State\tPeople\nBoston, MA\t1\n")


@pytest.mark.parametrize(
    ("name", "make", "text", "hidden"),
    [
        ("a.docx", word, "## Keepers\n\nThe keeper of Holm is Xena.\n\n* one\n\n"
         "Name | Opened | Closed\nHolm |  | 1950\n\nAfter the table.\n\nIn a control.", 1),
        ("a.xlsx", excel, "# Houses\n\nName | Opened | Closed\nHolm |  | 1950\n\n"
         "# Ships\n\nFerry", 1),
        ("a.pptx", slides, "# Slide 1\n\nThe keeper is Zeb\n\n"
         "# Slide 3\n\nThird\n\na | b\n\nGrouped\n\nNoted", 1),
        ("a.epub", book, "# One\n\nWärter\n\n# Two", 1),
        ("a.eml", mail, "Subject: Wärter\nFrom: vera@example.org\n"
         f"Attachments, not read: a.pdf\n\nThe keeper is Véra {'and ' * 30}Uno.\n", 0),
        ("b.eml", page_mail, "Subject: Page\n\nWärter", 1),
        ("c.eml", blank_mail, "Subject: Both\n\nThe ferry leaves at nine.", 0),
        ("a.ipynb", notebook, "# Title\nText.\n\n```\nx = 6\n```\n\n6\n\ndone\n", 0),
        ("a.csv", semicolons, "name | keeper | height\nname: Holm | height: 12\n"
         "name: Sk;ar | keeper: Ni ls | height: 14", 0),
        ("b.csv", plain_rows, "1 | 2\n3 | ", 0),
        ("a.tsv", tabs, "City, State | People\nCity, State: Boston, MA | People: 1", 0),
    ],
)  # fmt: skip
async def test_what_is_read(name: str, make: Make, text: str, hidden: int, tmp_path: Path) -> None:
    make(tmp_path / name)
    found = await read(tmp_path / name)
    assert (found.text, found.hidden) == (text, hidden)


async def test_what_is_imported_late_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is compiled yet, and the parser may write no file."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "empty"))
    page = tmp_path / "a.html"
    page.write_bytes("<p>Grüße, Wärter".encode("latin-1"))
    assert (await read(page)).text == "Grüße, Wärter"


async def refused(path: Path, **limits: int) -> str:
    with pytest.raises(DocumentError) as caught:
        await read(path, **limits)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".docx", ".xlsx", ".pptx", ".epub"])
async def test_archives_are_bounded_before_they_are_unpacked(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"bomb{suffix}"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 3_000_000)
    assert path.stat().st_size < 10_000
    assert "unpacks to more than 2 MB" in await refused(path, text_bytes=2_000_000)


async def test_archives_that_lie_about_their_size_end_early(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/container.xml", b"<a>" + b" " * 3_000_000)
    data = path.read_bytes()
    path.write_bytes(data.replace((3_000_003).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    assert "broken" in await refused(path, text_bytes=2_000_000)


async def test_broken_and_locked_files_are_refused(tmp_path: Path) -> None:
    for name in ("a.docx", "a.xlsx", "a.pptx", "a.epub", "a.ipynb"):
        (tmp_path / name).write_bytes(b"[1, 2]")
        assert "file is broken" in await refused(tmp_path / name)
    (tmp_path / "b.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600)
    assert "the .docx file is encrypted" in await refused(tmp_path / "b.docx")
    (tmp_path / "a.csv").write_bytes("Wärter,1".encode("cp1252"))
    assert "not UTF-8" in await refused(tmp_path / "a.csv")


async def test_laughs_by_the_billion_are_refused(tmp_path: Path) -> None:
    """Entities of XML that would unpack to gigabytes."""
    word(tmp_path / "good.docx")
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "lol">{entities}]><x>&e9;</x>'
    path = tmp_path / "bomb.docx"
    with ZipFile(tmp_path / "good.docx") as good, ZipFile(path, "w") as bad:
        for name in good.namelist():
            bad.writestr(name, bomb if name == "word/document.xml" else good.read(name))
    assert "broken" in await refused(path)


def test_a_missing_extra_fails_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word(tmp_path / "a.docx")
    monkeypatch.setitem(files.LIBRARIES, Format.DOCX, "no_such_module")
    with pytest.raises(DocumentError, match=r"needs? the extra 'documents'.*teola\[documents\]"):
        FileLoader().fingerprint(Source("a.docx", path=tmp_path / "a.docx"))


def test_a_folder_gives_what_the_loader_reads() -> None:
    assert {suffix for suffix in SUFFIXES if format_of(Path(f"a{suffix}")) is Format.TEXT} == {
        ".txt", ".md", ".markdown", ".rst",
    }  # fmt: skip
