"""Where a passage stands, in words; whoever wrote its document's metadata has the last word."""

from __future__ import annotations

from typing import Any

import pytest

from teola.citation import with_place
from teola.engine import Hit
from teola.query.result import jsonable


@pytest.mark.parametrize(
    ("metadata", "citation"),
    [
        ({}, "a.pdf"),
        ({"page": 12, "lang": "en"}, "a.pdf, p. 12"),
        ({"page": 12, "pages": "12-13"}, "a.pdf, pp. 12-13"),
        ({"page": 12, "pages": 300}, "a.pdf, p. 12"),
        ({"pages": 300, "slides": "40"}, "a.pdf"),
        ({"slide": 3}, "a.pdf, slide 3"),
        ({"slide": 3, "slides": "3-5"}, "a.pdf, slides 3-5"),
        ({"sheet": "2026"}, "a.pdf, sheet “2026”"),
        ({"section": "Fees"}, "a.pdf, section “Fees”"),
        ({"section": "a\nb" + "x" * 99}, f"a.pdf, section “a b{'x' * 76}…”"),
        ({"section": "x" * 80}, f"a.pdf, section “{'x' * 80}”"),
        ({"page": True, "section": ["a"], "sheet": " ", "slide": 1.5}, "a.pdf"),
    ],
)
def test_a_place_in_words(metadata: dict[str, Any], citation: str) -> None:
    hit = Hit("1", "a.pdf", "text", 0.5, metadata)
    assert hit.citation == citation
    told = jsonable(hit)
    assert told.get("citation", "a.pdf") == citation
    assert told.get("metadata", {}) == metadata


def test_a_document_s_own_metadata_wins() -> None:
    place = {"page": 3, "pages": "3-4"}
    assert with_place({"lang": "en"}, place) == {"lang": "en", "page": 3, "pages": "3-4"}
    for own in ({"page": 7}, {"pages": "1-9"}):
        assert with_place(own, place) is own
    assert with_place({"pages": 300}, {"page": 3}) == {"pages": 300}
    assert with_place({"page": 7}, {"slide": 3}) == {"page": 7, "slide": 3}
    assert with_place(own, None) is own
