"""Files of queries: where they lie, under which names, and when they are deleted."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from teola.query.query_files import PREFIX, QueryFiles, _of_process, clear, sweep


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """For temporary files, by itself."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _of_process.cache_info().currsize
    yield tmp_path
    if _of_process.cache_info().currsize > before:
        os.close(_of_process(str(tmp_path))[1])
        _of_process.cache_clear()


def test_a_querys_files_lie_together_and_go_together(folder: Path) -> None:
    first, second = QueryFiles(), QueryFiles()
    first.remove()  # it has none
    paths = [first.place(".txt"), first.place(".txt"), second.place(".txt")]
    assert len({*paths}) == 3
    assert paths[0].parent == paths[1].parent != paths[2].parent
    assert {path.parent.parent for path in paths} == {_of_process(str(folder))[0]}
    for path in paths:
        path.write_text("x")
    first.remove()
    first.remove()
    assert [path.exists() for path in paths] == [False, False, True]


@pytest.mark.parametrize(
    ("suffix", "kept"),
    [
        (".pdf", ".pdf"),
        (".PDF", ".pdf"),
        (".7z", ".7z"),
        (".abcdefghij", ".abcdefghij"),
        (".abcdefghijk", ""),
        ("", ""),
        (".", ""),
        ("pdf", ""),
        (".tar.gz", ""),
        ("./x", ""),
        (".a\n", ""),
    ],
)
def test_a_strange_suffix_is_left_out(suffix: str, kept: str) -> None:
    assert QueryFiles().place(suffix).suffix == kept


def test_what_nobody_holds_any_more_is_swept_and_nothing_else(folder: Path) -> None:
    left, held, other = (folder / name for name in (f"{PREFIX}left", f"{PREFIX}held", "other"))
    for one in (left, held, other):
        one.mkdir()
        (one / "file").write_text("x")
    (folder / f"{PREFIX}link").symlink_to(other)
    (folder / f"{PREFIX}file").write_text("x")
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        sweep()
    finally:
        os.close(lock)
    assert not left.exists()
    assert [(one / "file").exists() for one in (held, other)] == [True, True]
    (mine,) = (one for one in folder.glob(f"{PREFIX}*") if one.is_dir() and not one.is_symlink()
               and one != held)  # fmt: skip
    assert _of_process(str(folder))[0] == mine
    sweep()
    assert mine.exists(), "this process holds it"


def test_a_process_that_ends_leaves_no_folder_and_may_begin_anew(folder: Path) -> None:
    path = QueryFiles().place("")
    path.write_text("x")
    _, lock = _of_process(str(folder))
    clear()
    assert list(folder.iterdir()) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock)
    again = QueryFiles().place("")
    assert again.parent.parent != path.parent.parent
    assert again.parent.is_dir()
