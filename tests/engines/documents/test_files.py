"""Sources as bytes: how large they may be, wherever their pieces end."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from teola.engine import Source
from teola.errors import DocumentError
from teola_engines.documents import files

TEXTS = ["x", "seven b", "äöü", "a line\nand another ☾\n"]


def sources(text: str, folder: Path) -> list[Source]:
    """The text as a file, and given inline."""
    path = folder / "a.txt"
    path.write_bytes(text.encode())
    return [Source("a.txt", path=path), Source("a.txt", text=text)]


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("text", TEXTS)
def test_a_source_may_have_as_many_bytes_as_are_allowed_and_none_more(
    text: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    size = len(text.encode())
    digest = hashlib.sha256(text.encode()).hexdigest()
    for source in sources(text, tmp_path):
        for allowed in (size, size + 1, 10 * size):
            found = files.fingerprint(source, allowed)
            assert (found.sha256, found.size) == (digest, size)
            if source.path is None:
                assert files.inline_text(source, allowed) == text
            else:
                assert files.check(source.path, allowed) == size
                assert files.read_text(source.path, allowed) == text
        with pytest.raises(DocumentError, match="allowed; split it"):
            files.fingerprint(source, size - 1)


def test_a_file_that_grows_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as it is larger than allowed, and not where it has grown less."""
    monkeypatch.setattr(files, "_BLOCK", 4)
    for grown in (0, 4, 5):
        path = tmp_path / f"{grown}.txt"
        path.write_bytes(b"x" * 8)
        blocks = files._blocks(Source(path.name, path=path), 12)
        read = len(next(blocks))
        with path.open("ab") as file:
            file.write(b"y" * grown)
        if grown <= 4:
            assert read + sum(map(len, blocks)) == 8 + grown
        else:
            with pytest.raises(DocumentError, match="grew beyond the size allowed"):
                list(blocks)


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800"])
def test_what_is_no_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(DocumentError, match=r"'mine\.txt'"):
        files.inline_text(Source("mine.txt", text=text), 100)
