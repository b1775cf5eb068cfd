"""Which documents a corpus has, in which order, and what they are called; without a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from teola.errors import EngineUnavailable
from teola_engines.websearch.corpus_documents import (
    BEGINNING,
    LONGEST_TITLE,
    _beginning,
    of_folder,
    titled,
)


def test_all_files_of_a_folder_are_in_order_but_hidden_ones(tmp_path: Path) -> None:
    names = ("b.md", "a.md", ".c.md", "z/y.md", "z/.x/v.md", "m/n/o.md", ".git/config", "a b.md")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "gone.md").symlink_to(tmp_path / "nothing")
    (tmp_path / "link.md").symlink_to(tmp_path / "b.md")
    found = of_folder(tmp_path)
    assert found.name == tmp_path.resolve().as_uri()
    paths = [document.source.path for document in found.documents]
    assert [path.relative_to(tmp_path.resolve()).as_posix() for path in paths if path] == [
        "a b.md", "a.md", "b.md", "link.md", "m/n/o.md", "z/y.md",
    ]  # fmt: skip
    first = found.documents[0]
    assert (first.source.name, first.url[-9:]) == ("a b.md", "/a%20b.md")


@pytest.mark.parametrize("inside", [(), (".hidden.md",), (".git/config",), ("empty/",)])
def test_a_folder_without_files_is_no_corpus(inside: tuple[str, ...], tmp_path: Path) -> None:
    for name in inside:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            (tmp_path / name).touch()
    with pytest.raises(EngineUnavailable, match="holds no files: put documents into it") as caught:
        of_folder(tmp_path)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("x" * BEGINNING, "x" * BEGINNING),
        ("x" * (BEGINNING + 1), "x" * BEGINNING),
        (f"one\n\ntwo\n\n{'x' * BEGINNING}", "one\n\ntwo"),
        (f"{'x' * (BEGINNING - 2)}\n\nmore", "x" * (BEGINNING - 2)),
        (f"{'x' * (BEGINNING - 1)}\n\nmore", "x" * (BEGINNING - 1) + "\n"),
    ],
)
def test_of_a_long_text_whole_paragraphs_are_taken(text: str, beginning: str) -> None:
    """Where there is one that fits."""
    assert _beginning(text) == beginning


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ("\n\n# The  lamp #\nIt is lit.", "The lamp", "It is lit."),
        ("# A *lamp*\n\nIt is lit.", "A *lamp*", "It is lit."),
        ("It is lit.\nMore.", "file", "It is lit.\nMore."),
        ("###### Six\n\nIt is lit.", "Six", "It is lit."),
        ("####### Seven\nIt is lit.", "file", "####### Seven\nIt is lit."),
        ("The lamp\n---\nIt is lit.", "The lamp", "It is lit."),
        ("The lamp\n--\nIt is lit.", "file", "The lamp\n--\nIt is lit."),
        ("The lamp\n-=-=\nIt is lit.", "file", "The lamp\n-=-=\nIt is lit."),
        ("# The lamp", "The lamp", "# The lamp"),
        ("The lamp\n====", "The lamp", "The lamp\n===="),
        ("# ##\nIt is lit.", "file", "It is lit."),
        (f"# {'x' * LONGEST_TITLE}y\nIt is lit.", "x" * LONGEST_TITLE, "It is lit."),
        ("", "file", ""),
    ],
)
def test_a_text_is_called_by_its_first_heading(text: str, title: str, body: str) -> None:
    """One that is nothing else keeps it as its text."""
    assert titled(text, "file") == (title, body)
