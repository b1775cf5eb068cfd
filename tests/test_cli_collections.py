"""`teola index` with its options, and the commands of `teola collections`, on the tests' server."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from teola.cli import collecting, prompting
from teola.cli.given import parse_metadata
from teola.cli.index_documents import index_line
from teola.engine import UNNAMED
from teola.errors import InputError
from tests.command_line import CommandLine
from tests.fake_embeddings import FakeEmbeddings


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of four short files that no other test has."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.md").write_text(f"Note {name} of {uuid4().hex}.")
    return folder


@pytest.fixture
def name() -> str:
    """A collection that is not there yet."""
    return f"c{uuid4().hex[:15]}"


def documents(teola: CommandLine, name: str) -> dict[str, Any]:
    """What there is of each name."""
    return {one["name"]: one for one in teola("collections", name, "--json").json}


def test_sync_says_what_it_did(teola: CommandLine, notes: Path, name: str) -> None:
    assert teola("index", notes, "-c", name).out == f"{name}: 4 indexed (4 chunks)\n"
    (notes / "a.md").write_text(f"Another text for {name}.")
    (notes / "b.md").unlink()
    (notes / "c.md").rename(notes / "e.md")
    done = teola("index", notes, "-c", name, "--sync")
    told = "1 indexed (1 chunk), 1 replaced, 1 taken over, 2 deleted, 1 known already"
    assert (done.code, done.out) == (0, f"{told}\n")
    assert {*documents(teola, name)} == {f"notes/{one}.md" for one in "ade"}


def test_more_than_half_is_deleted_only_if_somebody_says_so(
    teola: CommandLine, notes: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    teola("index", notes, "-c", name)
    for gone in "bcd":
        (notes / f"{gone}.md").unlink()
    refused = teola("index", notes, "-c", name, "--sync")
    assert refused.code == 1
    assert "the files of 3 of 4 documents are gone" in refused.err
    assert "give --yes" in refused.err
    monkeypatch.setattr(prompting, "at_a_terminal", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = teola("index", notes, "-c", name, "--sync")
    assert (asked.code, "nothing was deleted" in asked.err) == (1, True)
    assert len(documents(teola, name)) == 4
    done = teola("index", notes, "-c", name, "--sync", "--yes")
    told = "0 indexed (0 chunks), 3 deleted, 1 known already"
    assert (done.code, done.out) == (0, f"{name}: {told}\n")
    assert {*documents(teola, name)} == {"notes/a.md"}


def test_names_and_metadata(teola: CommandLine, notes: Path, name: str) -> None:
    page = notes / "a.md"
    teola("index", page, "-c", name, "-m", "year=2026", "-m", "lang=en", "-m", 'tags=["x"]')
    found = documents(teola, name)["a.md"]
    assert found["metadata"] == {"year": 2026, "lang": "en", "tags": ["x"]}
    other = notes / "deep"
    other.mkdir()
    (other / "a.md").write_text(f"Elsewhere for {name}.")
    refused = teola("index", other / "a.md", "-c", name)
    assert refused.code == 1
    assert str(page) in refused.err
    assert str(other / "a.md") in refused.err
    assert teola("index", other / "a.md", "-c", name, "--replace").out.endswith(", 1 replaced\n")
    teola("index", other, "-c", name, "--root", notes)
    assert {*documents(teola, name)} == {"a.md", "deep/a.md"}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1", 1), ("1.5", 1.5), ("true", True), ('["a", 2]', ["a", 2]), ("null", "null"),
        ('{"a": 1}', '{"a": 1}'), ('"a"', '"a"'), ("NaN", "NaN"), ("", ""), ("1 2", "1 2"),
        ("a=b", "a=b"), pytest.param("9" * 400, "9" * 400, id="400 digits"),
        pytest.param("[" * 5000, "[" * 5000, id="5000 brackets"),
    ],
)  # fmt: skip
def test_values_of_metadata(typed: str, value: Any) -> None:
    found = parse_metadata([f"key={typed}"])["key"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["year"], "must be KEY=VALUE"),
        (["=1"], "must be KEY=VALUE"),
        (["a=1", "a=2"], "was given twice"),
        (["a=" + "x" * 20_000], "metadata of a document has"),
    ],
)
def test_metadata_that_is_none(typed: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        parse_metadata(typed)


def test_the_line_fits_a_terminal() -> None:
    found: dict[str, Any] = {
        "collection": "papers", "new": 6, "chunks": 17, "replaced": ["a", "b"], "taken": 1,
        "deleted": 3, "known": 40, "failed": [],
    }  # fmt: skip
    told = "5 indexed (17 chunks), 2 replaced, 1 taken over, 3 deleted"
    assert index_line({**found, "known": 0}) == f"papers: {told}"
    assert index_line(found) == f"{told}, 40 known already"
    many = index_line({**found, "known": 10**6})
    assert many == "5 indexed, 2 replaced, 1 taken over, 3 deleted, 1000000 known already"


def test_names_with_several_documents_are_shown_and_tidied(
    teola: CommandLine, notes: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    teola("index", notes / "a.md", "-c", name)
    teola("index", notes / "b.md", "-c", name)
    teola.rows(  # as versions did that knew documents by their content only
        f"UPDATE teola.documents SET name = 'a.md' WHERE name = 'b.md' AND collection = "
        f"(SELECT id FROM teola.collections WHERE name = '{name}') RETURNING id"
    )
    shown = teola("collections", name).out
    assert shown.count(", older") == 1
    assert f"several documents of one name: a.md (2): {'indexing a name again, or'}" in shown
    assert f"`teola collections tidy {name}`" in shown
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    refused = teola("collections", "tidy", name)
    assert refused.code == 1
    assert "Delete 1 older document" in refused.err
    assert teola("collections", "tidy", name, "--yes").out == f"{name}: 1 name tidied\n"
    (left,) = teola("collections", name, "--json").json
    assert left["name"] == "a.md"
    assert teola("collections", "tidy", name).out == f"{name}: 0 names tidied\n"


def test_documents_that_came_without_a_collection_may_share_a_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """None of them is older than another, and takes its place."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = [{"name": name, "chunks": 1, "created_at": at} for name in ("a", "b", "a", "a")]
    collecting._show_documents("papers", found)
    assert capsys.readouterr().out.count("older") == 2
    collecting._show_documents(UNNAMED, found)
    assert "older" not in capsys.readouterr().out


def test_a_collection_is_embedded_anew(teola: CommandLine, notes: Path, name: str) -> None:
    teola("index", notes, "-c", name)
    assert teola("collections", "reindex", name).out == f"{name}: 0 chunks embedded anew\n"
    with FakeEmbeddings(384) as server:
        told = teola("collections", "reindex", name, "--embedding", server.url, "--json").json
        assert (told["chunks"], told["embedded"]) == (4, 4)
        assert server.url.removeprefix("http://") in told["embedder"]
    assert "unknown collection" in teola("collections", "reindex", "nowhere").refused(2)


def test_what_is_no_command_is_a_collection(teola: CommandLine, notes: Path, name: str) -> None:
    teola("index", notes / "a.md", "-c", name)
    for words in ((name, "--json"), ("--json", name), ("show", name, "--json")):
        assert [one["name"] for one in teola("collections", *words).json] == ["a.md"]
    teola("index", notes / "b.md", "-c", "tidy")
    try:
        assert "b.md" in teola("collections", "show", "tidy").out
    finally:
        teola("delete", "-c", "tidy", "--yes")
