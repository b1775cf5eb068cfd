"""Words that the ends of a PDF's lines have cut are whole again, and only these."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from teola.engine import Source, Splitting
from teola_engines.documents import FileLoader
from teola_engines.documents.formats.hyphens import joined

from .conftest import Encode


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("for each exam-\nple that was", "for each example\nthat was"),
        ("an exam-\nple, however", "an example,\nhowever"),
        ("soft\xad\nware", "software\n"),
        ("a well-known well\xad\nknown one", "a well-known wellknown\none"),
        ("one cut-\nting\nand an-\nother", "one cutting\nand another\n"),
        ("it is well-known: a well-\nknown one", "it is well-known: a well-known\none"),
        ("pre- and post-\nwar, pre-\nand", "pre- and postwar,\npre-\nand"),
        ("Anne-\nMarie, 1914-\n1918, x-\ny, -\nlist", "Anne-\nMarie, 1914-\n1918, x-\ny, -\nlist"),
        ("Grund-\nsätze der Maß-\nnahmen", "Grundsätze\nder Maßnahmen\n"),
        ("no line is cut\nhere", "no line is cut\nhere"),
        ("un-\nneces-\nsary work", "unneces-\nsary work"),
    ],
)
def test_words_are_joined(text: str, whole: str) -> None:
    assert joined(text) == whole


def test_it_takes_time_in_proportion_to_the_text() -> None:
    """A word of a million letters, and half a million cuts."""
    began = time.process_time()
    assert len(joined("a" * 10**6)) == 10**6
    joined("ab-\n" * 500_000)
    assert time.process_time() - began < 10


async def test_a_pdf_has_whole_words(make_pdf: Callable[..., Path], encode: Encode) -> None:
    path = make_pdf("The light-\nhouse has a lamp.")
    (text,) = await FileLoader().split(Source("a.pdf", path=path), Splitting(), encode)
    assert "The lighthouse" in text
