"""Each passage says the page, slide, sheet or section where it begins."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import pytest

from teola.engine import Passages, Source, Splitting
from teola.errors import InputError
from teola_engines.documents import FileLoader, files, markdown, plain_splitting, splitting
from teola_engines.documents.files import format_of
from teola_engines.documents.formats import LONGEST_HEADING, MOST_PLACES
from teola_engines.documents.markdown import sections
from teola_engines.documents.places import Places
from teola_engines.documents.sandbox import Parsed, ParsingLimits, _parsed, parse

from .conftest import Encode
from .test_formats import Make, book, excel, slides, word
from .test_splitting import TEXTS

SPLITTERS = [splitting, plain_splitting]


def begins(parsed: Parsed) -> list[tuple[str | int, str]]:
    """Each place and the line that it begins with."""
    places = parsed.places
    pairs = zip(places.starts, places.names, strict=True)
    return [(name, parsed.text[start:].partition("\n")[0]) for start, name in pairs]


@pytest.mark.parametrize("splitter", SPLITTERS)
@pytest.mark.parametrize("name", ["markdown", "chinese sentences", "no white space", "white space"])
def test_a_piece_stands_where_it_says(name: str, splitter: object, encode: Encode) -> None:
    text = files.tidy(["\n \n", TEXTS[name]])
    found = splitter.pieces(text, Splitting(64, 8), encode)  # type: ignore[attr-defined]
    assert [piece.text.strip() for piece in found] == [text[p.start : p.end].strip() for p in found]
    assert all(a.start < b.start and not text[a.end : b.start].strip() for a, b in pairwise(found))
    assert (found[0].start, found[-1].end) == (3, len(text.rstrip()))


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_a_text_that_repeats_itself_does_not_mislead(splitter: object, encode: Encode) -> None:
    text = "No. " * 2000
    found = splitter.pieces(text, Splitting(64, 10), encode)  # type: ignore[attr-defined]
    shared = {len(encode(text[b.start : a.end])) for a, b in pairwise(found)}
    assert shared == {10}
    assert found[-1].end >= len(text) - 1


@pytest.mark.parametrize("splitter", ["llama-index", "plain"])
async def test_pages_of_passages(
    splitter: str, make_pdf: Callable[..., Path], encode: Encode
) -> None:
    """Those that their texts tell, page 3 being empty."""
    pages = [
        "" if page == 3 else " ".join(f"Sentence {n} of leaf {page}." for n in range(7 * page))
        for page in range(1, 7)
    ]
    loader = FileLoader(splitter=splitter)  # type: ignore[arg-type]
    source = Source("a.pdf", path=make_pdf(*pages))
    found = await loader.split(source, Splitting(64, 20), encode)
    assert len(found) > 10
    for text, place in zip(found, found.places, strict=True):
        first, last = (int(re.findall(r"leaf (\d)", text)[i]) for i in (0, -1))
        told: dict[str, str | int] = {"page": first}
        if first != last:
            told["pages"] = f"{first}-{last}"
        assert place == told
    assert {place["page"] for place in found.places if place} == {1, 2, 4, 5, 6}


def test_a_passage_that_fills_its_page_is_on_no_other() -> None:
    places = Places("page", [10, 20, 30], [1, 2, 3])
    told = {
        (0, 10): None,
        (10, 20): {"page": 1},
        (10, 21): {"page": 1, "pages": "1-2"},
        (19, 31): {"page": 1, "pages": "1-3"},
        (20, 30): {"page": 2},
        (30, 99): {"page": 3},
    }
    assert places.of(told) == [*told.values()]


@pytest.mark.parametrize(
    ("name", "make", "kind", "expected"),
    [
        ("a.docx", word, "section", [("Keepers", "## Keepers")]),
        ("a.xlsx", excel, "sheet", [("Houses", "# Houses"), ("Ships", "# Ships")]),
        ("a.pptx", slides, "slide", [(1, "# Slide 1"), (3, "# Slide 3")]),
        ("a.epub", book, "section", [("One", "# One"), ("Two", "# Two")]),
    ],
)
async def test_places_of_files(
    name: str, make: Make, kind: str, expected: list[tuple[str | int, str]], tmp_path: Path
) -> None:
    make(tmp_path / name)
    parsed = await parse(tmp_path / name, format_of(Path(name)), ParsingLimits())
    assert (parsed.places.kind, begins(parsed)) == (kind, expected)


async def test_sections_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<title>T</title>Before<h1>Pri\0ces <b>2026</b></h1><p>x<pre># no heading\n</pre>"
        "<h2></h2><h3 hidden>EVIL</h3><table><tr><td><h4>In a</h4><td><h4>row</h4></table>"
        f"<div><h2>{'long ' * 100}</h2>y<p><h2>End",
        encoding="utf-8",
    )
    parsed = await parse(tmp_path / "a.html", format_of(Path("a.html")), ParsingLimits())
    assert "\0" not in parsed.text
    *few, long, last = begins(parsed)
    assert few == [
        ("Prices 2026", "# Prices 2026"),
        ("In a", "#### In a | #### row"),
        ("row", "#### row"),
    ]
    assert len(str(long[0])) == LONGEST_HEADING
    assert last == ("End", "## End")


async def test_titles_of_chapters_come_from_the_contents_where_a_page_shows_none(
    tmp_path: Path,
) -> None:
    book(tmp_path / "first.epub")
    contents = """<html xmlns="http://www.w3.org/1999/xhtml"
    xmlns:epub="http://www.idpf.org/2007/ops">
    <nav epub:type="page-list"><a href="o%20ne.xhtml">7</a></nav>
    <nav epub:type="toc"><a href="o%20ne.xhtml#top">The <i>keeper</i></a>
    <a href="o%20ne.xhtml#lamp">The lamp</a>
    <a href="two.xhtml">Not shown</a></nav></html>"""
    with ZipFile(tmp_path / "first.epub") as first, ZipFile(tmp_path / "a.epub", "w") as archive:
        for name in first.namelist():
            text = first.read(name).decode()
            text = text.replace("<h1>One</h1>", "").replace(
                "<manifest>",
                '<manifest><item id="n" properties="nav" href="text/nav.xhtml" media-type="x"/>',
            )
            archive.writestr(name, text)
        archive.writestr("OPS/text/nav.xhtml", contents)
    parsed = await parse(tmp_path / "a.epub", format_of(Path("a.epub")), ParsingLimits())
    assert begins(parsed) == [("The keeper", "Wärter"), ("Two", "# Two")]


def test_sections_of_markdown() -> None:
    text = """---
title: no heading
---

Before
# One #
```sh
# a comment
~~~
```
#hashtag
    # code
 ## C#

Under
lined
---
* item
---

 Three
=====
~~~~
```
~~~
# code
~~~~~
### `Four`"""
    places = sections(text)
    assert begins(Parsed(text, places=places)) == [
        ("One", "# One #"), ("C#", "## C#"), ("Three", "Three"), ("`Four`", "### `Four`"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A line.\n# One\n===", ["One"]),
        ("A line.\n\n---", []),
        ("A line.\n```\n```\n===", []),
        ("```\n``` sh\n# code\n```\n# One", ["One"]),
        ("```a`b\n# One\n```", ["One"]),
        ("~~~a`b\n# code\n~~~\n# One", ["One"]),
        ("# One##\n## Two ##\n### ##", ["One##", "Two", "##"]),
        ("One\n---\nTwo\n===", ["One", "Two"]),
    ],
)
def test_what_is_a_heading_of_markdown(text: str, names: list[str]) -> None:
    assert sections(text).names == names


@pytest.mark.parametrize("name", ["a.md", "a.MARKDOWN", "a.txt"])
async def test_only_markdown_is_read_as_such(name: str, tmp_path: Path, encode: Encode) -> None:
    text = "Before.\n\n# Keepers\n\nMia."
    (tmp_path / name).write_text(text)
    loader = FileLoader(splitter="plain")
    plain = loader.fingerprint(Source("a", text=text))
    for source in (Source(name, text=text), Source("b", path=tmp_path / name)):
        assert (loader.fingerprint(source) == plain) == (name == "a.txt")
        found = await loader.split(source, Splitting(16, 0), len_of_words)
        place = None if name == "a.txt" else {"section": "Keepers"}
        assert list(found) == ["Before.", "# Keepers", "Mia."]
        assert found.places == [None, place, place]


def len_of_words(text: str) -> list[int]:
    """Eight tokens a word."""
    return [0] * (8 * len(text.split()))


def test_places_do_not_change_what_is_made_tidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any blocks, whatever white space is made shorter, also before a place."""
    rng = random.Random(5)
    for _ in range(200):
        monkeypatch.setattr(files, "_BLOCK", rng.randint(1, 300))
        gaps = ("\r\n", "\n\n", " " * rng.randint(90, 300), "\f", "é", "\t\n" * rng.randint(1, 99))
        parts = [f"{i}x{rng.choice(gaps)}" for i in range(20)]
        text = "".join(parts)
        starts = [text.index(f"{i}x") for i in range(20)][:: rng.randint(1, 3)]
        plain, _ = files.parsed_text(text.encode(), ())
        tidied, moved = files.parsed_text(text.encode(), starts)
        assert tidied == plain
        for before, after in zip(starts, moved, strict=True):
            assert "".join(text[before:].split()) == "".join(tidied[after:].split())


def report(**changed: object) -> str:
    told = {"hidden": 0, "kind": "page", "starts": [0, 2], "names": [1, 2]}
    return json.dumps({**told, **changed})


@pytest.mark.parametrize(
    "told",
    [
        "", "7", "[]", "{}", "[" * 99_999, report(hidden="1"), report(kind="shoe"),
        report(starts=7), report(starts=[0]), report(starts=[2, 0]), report(starts=[-1, 2]),
        report(starts=[2, 2]),
        report(starts=[0, 99]), report(starts=[0, 1.5]), report(names=[1, None]),
        report(starts={}, names={}), report(starts="", names=""),
        report(names=["a", "x" * (LONGEST_HEADING + 1)]),
        report(starts=[*range(MOST_PLACES + 1)], names=[1] * (MOST_PLACES + 1)),
    ],
)  # fmt: skip
def test_a_report_of_a_harmed_process_is_refused(told: str) -> None:
    assert _parsed(b"a\nb", report()) == Parsed("a\nb", 0, Places("page", [0, 2], [1, 2]))
    assert _parsed(b"a\nb", told) is None


def test_a_report_may_have_as_many_places_and_as_long_names_as_are_allowed() -> None:
    text, name = b"a" * MOST_PLACES, "x" * LONGEST_HEADING
    told = report(starts=[*range(MOST_PLACES)], names=[name] * MOST_PLACES)
    parsed = _parsed(text, told)
    assert parsed is not None
    assert len(parsed.places.names) == MOST_PLACES


def test_more_places_than_anybody_writes_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sections("# a\n" * (MOST_PLACES + 2)).starts == ()
    monkeypatch.setattr(markdown, "MOST_PLACES", 2)
    assert sections("# a\n# b\n").names == ["a", "b"]
    assert sections("# a\n# b\n# c\n").names == ()


def test_each_text_has_one_place_or_none_has() -> None:
    assert Passages(["a", "b"]).places == [None, None]
    with pytest.raises(InputError, match="2 texts have 1 places"):
        Passages(["a", "b"], places=[{"page": 1}])
