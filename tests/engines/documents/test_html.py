"""What is read of a page: tables, what a browser shows of it, and its encoding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from teola.engine import Source, Splitting
from teola_engines.documents import FileLoader
from teola_engines.documents.formats.encodings import decoded
from teola_engines.documents.formats.html import html_text

from .conftest import Encode


def rows(html: str) -> list[str]:
    return html_text(f"<p>Before<table>{html}</table>after").text.split("\n\n")[1].splitlines()


def test_empty_cells_keep_values_under_their_headings() -> None:
    head = "<tr><th>Name</th><th>Opened</th><th>Closed</th><th>Keeper</th></tr>"
    body = "<tr><td>Holm</td><td></td><td>1950</td><td>Mia</td></tr><tr><td><td>1920<td><td>Nils"
    assert rows(head + body) == [
        "Name | Opened | Closed | Keeper",
        "Holm |  | 1950 | Mia",
        " | 1920 |  | Nils",
    ]


def test_a_value_stands_in_each_column_and_row_that_it_spans() -> None:
    head = "<thead><tr><th rowspan=0>Name<th colspan=2>Years<tr><th>Opened<th>Closed</thead>"
    body = "<tr><td rowspan=2>Holm<td>1920<td>1930<tr><td><td>1950<tr><td>Skar<td>1960"
    assert rows(head + body) == [
        "Name | Years | Years",
        "Name | Opened | Closed",
        "Holm | 1920 | 1930",
        "Holm |  | 1950",
        "Skar | 1960",
    ]
    assert rows("<tr><td>a<td>b<td rowspan=2>c<tr><td>d") == ["a | b | c", "d |  | c"]
    assert rows("<tr><td colspan=4>Title<tr><td colspan=x>a<td>b") == ["Title", "a | b"]
    assert rows("<tr><td rowspan=2>Holm<tr><td>1950<tr><td>1960") == ["Holm", "Holm | 1950", "1960"]


def test_a_cell_spans_rows_also_beside_one_with_paragraphs() -> None:
    page = "<table><tr><td rowspan=2>Holm<td><p>a<p>b<tr><td>1950<tr><td>x<td>1960</table>"
    assert html_text(page).text == "Holm\n\na\n\nb\nHolm | 1950\nx | 1960"


@pytest.mark.parametrize("begins", ["<tr>", "<tbody>", "<tbody><tr>", "</tbody><tr>"])
def test_cells_that_stand_in_no_row_are_one(begins: str) -> None:
    assert rows(f"<td>a<td>b{begins}<td>c<td>d") == ["a | b", "c | d"]
    assert rows(f"<td rowspan=2>a<td>b{begins}<td>c") == (
        ["a | b", "a | c"] if begins in ("<tr>", "</tbody><tr>") else ["a | b", "c"]
    )


@pytest.mark.parametrize("seed", range(30))
def test_cells_of_several_rows_and_columns_stand_wherever_they_reach(seed: int) -> None:
    """Tables are drawn as grids; the cells of each row are those that begin there."""
    chance, height, width = random.Random(seed), 5, 6
    grid = [[""] * width for _ in range(height)]
    html = ""
    for row in range(height):
        html += "<tr>"
        for column in range(width):
            if grid[row][column]:
                continue
            columns = 1
            while column + columns < width - 1 and not grid[row][column + columns]:
                if chance.random() < 0.7:
                    break
                columns += 1
            alone = column == width - 1  # so that each row has a cell of its own
            down = 1 if alone else chance.randint(1, height - row)
            for below in grid[row : row + down]:
                below[column : column + columns] = [f"{row}.{column}"] * columns
            html += f"<td colspan={columns} rowspan={down}>{row}.{column}"
    assert rows(html) == [" | ".join(cells) for cells in grid]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<ruby>灯台<rp>(</rp><rt>とうだい</rt><rp>)</rp></ruby>守", "灯台(とうだい)守"),
        ("<ruby>灯<rt>とう<rb>台<rt>だい</ruby>守", "灯とう台だい守"),
        ("H<sub>2</sub>O, <strike>10</strike> <big>9</big> <nobr>m<acronym>a</acronym>s</nobr>l",
         "H2O, 10 9 masl"),
        ("a<div>b</div>c<br>d", "a\nb\nc\nd"),
    ],
)  # fmt: skip
def test_a_line_is_broken_only_where_a_browser_breaks_it(page: str, text: str) -> None:
    assert html_text(page).text == text


def test_tables_that_only_lay_out_a_page_stay_text() -> None:
    page = "<table><tr><td>Menu<td><h2>News</h2><p>One.<p>Two.<table><tr><td>a<td>b</table></table>"
    assert html_text(page).text == "Menu\n\n## News\n\nOne.\n\nTwo.\n\na | b"


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>EVIL<p>",
        "<div style='color:red; DISPLAY : none'><p>EVIL</p><b>EVIL</div>",
        "<noscript>EVIL</noscript>",
        "<ul><li hidden>EVIL<li>seen</ul>",
        "<table><tr><td>a<td hidden>EVIL<td>b<tr hidden><td>EVIL<tr><td>c</table>",
        "<span hidden>EVIL <i>EVIL</i></span></div>",
        "<div hidden><div>EVIL</div></p></span>EVIL</div>",
        "<img hidden alt=EVIL>",
        "<div hidden><img alt=EVIL></div>",
        "<div><span hidden>EVIL<div>EVIL</span>EVIL</div>EVIL</span></div>",
    ],
)
def test_what_a_browser_does_not_show_is_left_out(hidden: str) -> None:
    page = f"<body><p>Before.</p>{hidden}<p>After.</body>"
    assert "EVIL" not in html_text(page).text
    assert "Before." in html_text(page).text
    assert "After." in html_text(page).text
    assert "EVIL" in html_text(page, keep_hidden=True).text


def test_a_hidden_option_hides_no_other() -> None:
    assert html_text("<select><option hidden>EVIL<option>Holm</select>").text == "Holm"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<div hidden/>seen<span hidden />, too", "seen, too"),
        ("a<span hidden>x<p>y</p>z<br></span>b", "ab"),
        ("a<template><i>no</i><b>no</b></template>b", "ab"),
        ("<p>a<b>b<p>c</b>d", "ab\n\ncd"),
        ("<dl><dd>a<dl><dd>b<dd>c</dl>d<dd>e</dl>", "a\n\nb\nc\n\nd\ne"),
        ("a<h2> <br></h2><ul><li></ul>b", "a\n\nb"),
    ],
)
def test_where_an_element_ends_is_known_without_its_tag(page: str, text: str) -> None:
    assert html_text(page).text == text


def test_hidden_texts_are_counted() -> None:
    assert html_text("<div hidden>a <b> </b>\n</div><div hidden> <b>b</b></div>").hidden == 2
    page = (
        "<p hidden>a<p hidden><b hidden>b</b></p><div hidden> <br></div><noscript><img></noscript>"
    )
    assert html_text(page).hidden == 2
    assert html_text(page, keep_hidden=True).hidden == 0


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xfe\xff" + "<p>Wärter".encode("utf-16-be"), "Wärter"),
        (b"\xff\xfe" + "<p>Wärter".encode("utf-16-le"), "Wärter"),
        ("<p>Wärter von Höhle “gut”".encode() + b"\xff", "Wärter von Höhle “gut”\ufffd"),
        ("<meta charset=iso-8859-1><p>Wärter “gut”".encode("cp1252"), "Wärter “gut”"),
        ("<!-- <meta charset=koi8-r> --><meta charset=UTF-8><p>Wärter".encode(), "Wärter"),
        ("<meta charset=utf-16><p>Wärter".encode(), "Wärter"),
        (b"<meta charset=koi8-r><meta charset=utf-8><p>\xed\xc1\xd1\xcb", "Маяк"),
        (b" " * 1024 + "<meta charset=koi8-r><p>Wärter".encode(), "Wärter"),
        ("<p>äöüß".encode() + b"\xff", "äöüß\ufffd"),  # a fifth is damaged, and no more
        (b"<p>T\xe9 \xe0 la menthe, \xe9t\xe9", "Té à la menthe, été"),
        ("<p>Der Wärter heißt Jürgen".encode("cp1252"), "Der Wärter heißt Jürgen"),
        (
            "<p>灯塔的看守人叫王梅。灯塔高六十一米。".encode("gbk"),
            "灯塔的看守人叫王梅。灯塔高六十一米。",
        ),
        (
            "<meta http-equiv='Content-Type' content='text/html; charset=koi8-r'><p>Маяк".encode(
                "koi8-r"
            ),
            "Маяк",
        ),
        (
            b"<meta http-equiv=content-type content='x; CHARSET=koi8-r ; y'><p>\xed\xc1\xd1\xcb",
            "Маяк",
        ),
    ],
)
def test_encodings_are_those_of_a_browser(data: bytes, text: str) -> None:
    assert html_text(decoded(data)).text == text


def test_what_is_said_outside_of_an_encoding_comes_before_what_a_page_says() -> None:
    page = "<meta charset=koi8-r>Wärter"
    assert html_text(decoded(page.encode(), "utf-8")).text == "Wärter"
    assert html_text(decoded(page.encode(), "no such one")).text != "Wärter"


async def test_the_loader_counts_or_keeps_hidden_texts(tmp_path: Path, encode: Encode) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p hidden>The keeper is EVIL.<p>The keeper is Olga.")
    source = Source("a.html", path=path)
    plain, keeping = FileLoader(), FileLoader(keep_hidden=True)
    found = await plain.split(source, Splitting(), encode)
    assert (list(found), found.hidden) == (["The keeper is Olga."], 1)
    found = await keeping.split(source, Splitting(), encode)
    assert (list(found), found.hidden) == (["The keeper is EVIL.\n\nThe keeper is Olga."], 0)
    assert plain.pipeline(Splitting()) != keeping.pipeline(Splitting())
