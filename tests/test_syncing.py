"""Folders that are indexed again: names, what changed, moved and went, where files come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from teola import Runtime, collections
from teola.engine import UNNAMED
from teola.errors import InputError
from teola.runtime.documents import collected


@pytest.fixture
def where(request: pytest.FixtureRequest, runtime: Runtime) -> dict[str, Any]:
    return {"runtime": runtime, "tenant": str(request.node.name)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder `a` of three files, one of them in a folder of its own."""
    made = tmp_path / "a"
    write(made / "notes.md", "The keeper is Olga.")
    write(made / "lamp.md", "The lamp burns oil.")
    write(made / "deep" / "boat.md", "The boat is red.")
    return made


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def index(paths: Any, where: dict[str, Any], **options: Any) -> dict[str, Any]:
    return collections.index(paths, collection="c", **where, **options)


def listed(where: dict[str, Any]) -> dict[str, str | None]:
    """Where each document comes from, by its name."""
    return {d["name"]: d["origin"] for d in collections.list_documents("c", **where)}


def counts(found: dict[str, Any]) -> tuple[int, ...]:
    numbers = (found[name] for name in ("new", "known", "chunks", "taken", "deleted"))
    return (*numbers, len(found["replaced"]))


NAMES = ["a/deep/boat.md", "a/lamp.md", "a/notes.md"]


def test_files_are_named_from_their_folder_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(document: Any, **options: Any) -> list[str]:
        return [source.name for source in collected(document, **options).sources]

    assert names(folder) == NAMES
    monkeypatch.chdir(tmp_path)
    assert names("a") == names("./a/") == names("../" + tmp_path.name + "/a") == NAMES
    monkeypatch.chdir(folder)
    assert names(".") == NAMES
    assert names(["notes.md", "deep"]) == ["notes.md", "deep/boat.md"]
    assert names(["notes.md", "deep"], root=tmp_path) == ["a/notes.md", "a/deep/boat.md"]
    os.symlink(folder, tmp_path / "link")
    assert names(tmp_path / "link")[0] == "link/deep/boat.md"
    origins = {source.origin for source in collected([tmp_path / "link", ".", folder]).sources}
    assert origins == {os.path.realpath(tmp_path / name) for name in NAMES}
    with pytest.raises(InputError, match=r"'notes\.md' does not lie in root"):
        names("notes.md", root=folder / "deep")
    with pytest.raises(InputError, match="which is no directory"):
        names("notes.md", root="nowhere")


def test_a_folder_is_kept_in_step(folder: Path, where: dict[str, Any]) -> None:
    """Changed, moved, gone and broken files, and one from elsewhere."""
    write(folder.parent / "other.md", "The harbour is deep.")
    index(folder.parent / "other.md", where)
    first = index(folder, where, sync=True)
    assert counts(first) == (3, 0, 3, 0, 0, 0)
    write(folder / "notes.md", "The keeper is Moa.")
    (folder / "lamp.md").rename(folder / "light.md")
    again = index(folder, where, sync=True)
    assert counts(again) == (2, 1, 1, 1, 1, 1)
    assert again["replaced"] == ["a/notes.md"]
    assert listed(where).keys() == {"other.md", "a/notes.md", "a/light.md", "a/deep/boat.md"}

    write(folder / "light.md", "\0 is no text")
    (folder / "deep" / "boat.md").unlink()
    broken = index(folder, where, sync=True)
    assert [failure["document"] for failure in broken["failed"]] == ["a/light.md"]
    assert broken["deleted"] == 1
    assert listed(where).keys() == {"other.md", "a/notes.md", "a/light.md"}, "it is still there"
    named = index(folder, where, sync=True, root=folder)  # other names for the same files
    assert (named["taken"], named["deleted"]) == (1, 1)
    assert listed(where).keys() == {"other.md", "notes.md", "a/light.md"}


def test_more_than_half_of_a_folder_is_deleted_only_if_somebody_says_so(
    folder: Path, where: dict[str, Any]
) -> None:
    index(folder, where)
    (folder / "lamp.md").unlink()
    (folder / "notes.md").unlink()
    write(folder / "new.md", "A new one.")
    with pytest.raises(InputError, match=r"2 of the 3 documents .* are gone .* `--yes`"):
        index(folder, where, sync=True)
    assert sorted(listed(where)) == NAMES, "it was refused before anything was done"
    asked: list[tuple[int, int]] = []

    def answer(yes: bool) -> collections.MayDelete:
        return lambda number, of: bool(asked.append((number, of))) or yes

    assert counts(index(folder, where, sync=True, may_delete=answer(False)))[4] == 0
    assert sorted(listed(where)) == sorted([*NAMES, "a/new.md"])
    (folder / "deep" / "boat.md").unlink()
    assert counts(index(folder, where, sync=True, may_delete=answer(True)))[4] == 3
    assert sorted(listed(where)) == ["a/new.md"]
    assert asked == [(2, 3), (3, 4)]


def test_who_deletes_nothing_still_names_files_anew(folder: Path, where: dict[str, Any]) -> None:
    index(folder, where)
    for name in ("lamp.md", "notes.md"):
        (folder / name).unlink()
    found = index(folder, where, sync=True, root=folder, may_delete=lambda number, of: False)
    assert found["deleted"] == 1
    assert sorted(listed(where)) == ["a/lamp.md", "a/notes.md", "deep/boat.md"]


def test_of_two_folders_each_is_asked_about_alone(
    folder: Path, tmp_path: Path, where: dict[str, Any]
) -> None:
    other = tmp_path / "b"
    for name in "wxyz":
        write(other / f"{name}.md", f"The boat is called {name}.")
    index([folder, other], where)
    for gone in (folder / "lamp.md", folder / "notes.md", *(other / f"{n}.md" for n in "wxy")):
        gone.unlink()
    found = index([folder, other], where, sync=True, may_delete=lambda number, of: of == 4)
    assert found["deleted"] == 3
    assert sorted(listed(where)) == [*NAMES, "b/z.md"]
    found = index([folder, other], where, sync=True, may_delete=lambda number, of: True)
    assert (found["deleted"], sorted(listed(where))) == (2, ["a/deep/boat.md", "b/z.md"])


def test_sync_wants_folders(folder: Path, where: dict[str, Any]) -> None:
    for given in (folder / "notes.md", [folder, {"name": "x", "text": "X."}]):
        with pytest.raises(InputError, match="sync deletes what is gone from a directory"):
            index(given, where, sync=True)


def test_files_of_one_name_from_two_places(
    folder: Path, tmp_path: Path, where: dict[str, Any]
) -> None:
    other = tmp_path / "b" / "notes.md"
    write(other, "The keeper is Eve.")
    with pytest.raises(InputError, match=r"named 'notes.md' \(.*a/notes.md and .*b/notes.md\)"):
        index([folder / "notes.md", other], where)
    both = index([folder / "notes.md", other], where, root=tmp_path)
    assert (both["new"], sorted(listed(where))) == (2, ["a/notes.md", "b/notes.md"])
    index(folder / "notes.md", where)
    (failure,) = index(other, where)["failed"]
    assert str(folder / "notes.md") in failure["reason"]
    assert str(other) in failure["reason"]
    assert index(other, where, replace=True)["replaced"] == ["notes.md"]
    assert listed(where)["notes.md"] == str(other)
    text = index({"name": "notes.md", "text": "The keeper is Ada."}, where)
    assert (text["replaced"], listed(where)["notes.md"]) == (["notes.md"], None)
    with pytest.raises(InputError, match=r"named 'x' \(a text and a text\)"):
        index([{"name": "x", "text": "One."}, {"name": "x", "text": "Two."}], where)


def test_metadata_of_all_and_of_one(where: dict[str, Any]) -> None:
    texts = [{"name": "x", "text": "X."}, {"name": "y", "text": "Y.", "metadata": {"year": 2}}]
    index(texts, where, metadata={"year": 1, "kind": "note"})
    found = {d["name"]: d["metadata"] for d in collections.list_documents("c", **where)}
    assert found == {"x": {"year": 1, "kind": "note"}, "y": {"year": 2, "kind": "note"}}
    changed = index(texts, where, metadata={"year": 1, "kind": "book"})
    assert counts(changed) == (2, 0, 0, 2, 0, 2)


def test_the_place_of_what_came_without_a_collection(where: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="holds what came without a collection"):
        collections.index({"name": "x", "text": "X."}, collection=UNNAMED, **where)


def test_tidy_leaves_the_newest_of_a_name(
    runtime: Runtime, where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older Teola has left: here, documents that are not published as one name's."""
    publishing = "teola_engines.vectorstore.publishing.UNNAMED"
    monkeypatch.setattr(publishing, "c")
    for text in ("One.", "Two.", "Three."):
        index({"name": "x", "text": text}, where)
    monkeypatch.undo()
    index({"name": "y", "text": "Why."}, where)
    there = collections.list_documents("c", **where)
    assert [d["name"] for d in there] == ["x", "x", "x", "y"]
    assert collections.tidy("c", **where) == ["x"]
    assert [d["id"] for d in collections.list_documents("c", **where)] == [
        there[2]["id"],
        there[3]["id"],
    ]
    assert collections.tidy("c", **where) == []


def test_all_documents_of_a_name_are_deleted(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teola_engines.vectorstore.publishing.UNNAMED", "c")  # as above
    for text in ("One.", "Two."):
        index({"name": "x", "text": text}, where)
    monkeypatch.undo()
    index({"name": "y", "text": "Why."}, where)
    assert collections.delete("c", ["x"], **where) == 2
    assert [*listed(where)] == ["y"]
