"""Collections from Python: indexing, listing, deleting, and queries over them."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from teola import App, EngineConfig, Runtime, collections
from teola.catalogue import load_app
from teola.errors import DocumentError, EngineUnavailable, InputError, UnknownName
from teola.runtime.documents import collected


@pytest.fixture
def naive(runtime: Runtime) -> App:
    app = copy.copy(load_app("naive-rag"))
    app.runtime = runtime
    return app


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def text(name: str, text: str, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "text": text, "metadata": metadata}


def test_documents_are_indexed_once(runtime: Runtime, tenant: str) -> None:
    given = [text("a", "Apples are red."), text("b", "Bananas are yellow.")]
    options: dict[str, Any] = {"collection": "fruit", "runtime": runtime, "tenant": tenant}
    first = collections.index(given, **options)
    assert (first["documents"], first["new"], first["known"], first["chunks"]) == (2, 2, 0, 2)
    second = collections.index([*given, text("c", "Cherries are dark.")], **options)
    assert (second["documents"], second["new"], second["known"], second["chunks"]) == (3, 1, 2, 1)
    assert collections.list_collections(runtime=runtime, tenant=tenant) == [
        {"name": "fruit", "documents": 3, "chunks": 3}
    ]


def test_equal_content_under_other_names_is_not_indexed_again(
    runtime: Runtime, tenant: str
) -> None:
    where: dict[str, Any] = {"collection": "same", "runtime": runtime, "tenant": tenant}
    collections.index(text("first", "All the same."), **where)
    steps: list[collections.IndexingStep] = []
    given = [text(f"copy-{i}", "All the same.") for i in range(5)]
    found = collections.index([*given, given[0]], **where, on_progress=steps.append)
    assert (found["new"], found["taken"], found["known"], found["chunks"]) == (5, 5, 1, 0)
    assert {step.state for step in steps} == {"found", "taken", "known"}
    assert {d["chunks"] for d in collections.list_documents("same", **_but(where))} == {1}


def _but(where: dict[str, Any]) -> dict[str, Any]:
    """Where, without the collection."""
    return {name: value for name, value in where.items() if name != "collection"}


def test_what_fails_is_told_and_the_rest_goes_on(
    runtime: Runtime, tenant: str, tmp_path: Path
) -> None:
    (tmp_path / "good.txt").write_text("Good.")
    (tmp_path / "empty.txt").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "secret.txt").write_text("Not to be found.")
    steps: list[collections.IndexingStep] = []
    found = collections.index(
        tmp_path, collection="c", runtime=runtime, tenant=tenant, on_progress=steps.append
    )
    assert (found["documents"], found["new"]) == (2, 1)
    (failure,) = found["failed"]
    (empty, good) = (f"{tmp_path.name}/{name}.txt" for name in ("empty", "good"))
    assert failure["document"] == empty
    assert "it is empty; leave it out" in failure["reason"]
    assert steps[0] == collections.IndexingStep("found", items=2)
    assert {(step.state, step.document, step.items) for step in steps[1:]} == {
        ("failed", empty, 0), ("embedded", good, 1), ("indexed", good, 1),
    }  # fmt: skip


def test_what_a_folder_holds_and_is_not_read_is_counted(
    runtime: Runtime, naive: App, tenant: str, tmp_path: Path
) -> None:
    for name in ("a.bin", "b.BIN", "c.zip", "Makefile"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "keeper.html").write_text("<p hidden>It is Eve.<p>The keeper is Olga.")
    (tmp_path / os.fsdecode(b"b\xff.txt")).write_text("The keeper is Moa.")
    where: dict[str, Any] = {"collection": "c", "runtime": runtime, "tenant": tenant}
    found = collections.index(tmp_path, **where)
    assert (found["documents"], found["new"], found["hidden"]) == (2, 1, 1)
    assert found["passed_over"] == {".bin": 2, ".zip": 1, "no suffix": 1}
    (failure,) = found["failed"]
    assert failure["document"] == f"{tmp_path.name}/b\\udcff.txt"
    assert "is not UTF-8; rename the file" in failure["reason"]
    (tmp_path / os.fsdecode(b"b\xff.txt")).unlink()
    result = naive.run(question="Who is the keeper?", documents=tmp_path, tenant=tenant)
    assert {
        "4 files passed over: .bin 2, .zip 1, no suffix 1",
        f"1 hidden text left out: {tmp_path.name}/keeper.html 1",
    } <= set(result.to_json()["notices"])


def test_documents_share_batches_within_bounds(
    runtime: Runtime, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than the window's bytes at once, unless one document alone has more."""
    most: list[int] = []
    room = collections._Index._room

    def watched(self: Any, size: int) -> Any:
        most.append(self._bytes)
        return room(self, size)

    monkeypatch.setattr(collections, "IN_FLIGHT_BYTES", 100)
    monkeypatch.setattr(collections._Index, "_room", watched)
    given = [text(f"d{i}", f"Document {i}. " * 3) for i in range(6)]
    given.append(text("large", "A large one. " * 30))
    found = collections.index(given, collection="many", runtime=runtime, tenant=tenant)
    assert found["new"] == 7
    assert 50 < max(most) <= 390


def test_the_first_error_of_the_engines_ends_it(tmp_path: Path) -> None:
    dsn = {"dsn": "postgresql://nobody@127.0.0.1:9/x"}
    with (
        Runtime({"vectorstore": EngineConfig("vectorstore", dsn)}) as runtime,
        pytest.raises(EngineUnavailable, match="check the dsn"),
    ):
        collections.index([text("a", "A.")], collection="c", runtime=runtime)


@pytest.mark.parametrize(
    ("given", "collection", "told"),
    [([], "c", "nothing to index"), ("missing.txt", "c", "no such file"), ([], "", "needs a name")],
)
def test_wrong_input_is_refused(runtime: Runtime, given: Any, collection: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        collections.index(given, collection=collection, runtime=runtime)


def test_parameters_are_checked_first(runtime: Runtime) -> None:
    given = [text("a", "A.")]
    with pytest.raises(InputError, match="chunk_size"):
        collections.index(given, collection="c", runtime=runtime, overrides={"index.chunk_size": 0})
    with pytest.raises(InputError, match="chunk_size 5000 is more than"):
        collections.index(
            given, collection="c", runtime=runtime, overrides={"index.chunk_size": 5000}
        )


def test_documents_are_listed_and_deleted_by_name_or_id(runtime: Runtime, tenant: str) -> None:
    where: dict[str, Any] = {"runtime": runtime, "tenant": tenant}
    given = [text(name, f"This is {name}.", kind=name) for name in "abc"]
    collections.index(given, collection="c", **where)
    listed = collections.list_documents("c", **where)
    assert {d["name"]: d["metadata"] for d in listed} == {n: {"kind": n} for n in "abc"}
    with pytest.raises(InputError, match="no document 'x'"):
        collections.delete("c", ["a", "x"], **where)
    ids = {d["name"]: d["id"] for d in listed}
    assert collections.delete("c", ["a", ids["b"]], **where) == 2
    assert [d["name"] for d in collections.list_documents("c", **where)] == ["c"]
    assert collections.delete("c", **where) == 1
    with pytest.raises(UnknownName, match="unknown collection 'c'"):
        collections.list_documents("c", **where)


def test_tenants_do_not_see_each_other(runtime: Runtime, tenant: str) -> None:
    collections.index([text("a", "A.")], collection="c", runtime=runtime, tenant=tenant)
    assert collections.list_collections(runtime=runtime, tenant=f"{tenant}-2") == []
    with pytest.raises(UnknownName):
        collections.delete("c", runtime=runtime, tenant=f"{tenant}-2")


def test_queries_search_a_collection_documents_or_both(
    runtime: Runtime, naive: App, tenant: str
) -> None:
    tower = text("tower", "The tower is 61 metres tall.", year=1900)
    bridge = text("bridge", "The bridge is 300 metres long.", year=2000)
    collections.index([tower], collection="c", runtime=runtime, tenant=tenant)

    def documents(**inputs: Any) -> set[str]:
        found = naive.run(question="How tall is the tower?", tenant=tenant, **inputs)
        return {hit.document for hit in found["sources"]}

    assert documents(collection="c") == {"tower"}
    assert documents(documents=[bridge]) == {"bridge"}
    assert documents(collection="c", documents=[bridge]) == {"tower", "bridge"}
    assert documents(collection="c", filters={"year": 2000}) == {"bridge"}
    assert documents(collection="c", filters={"year": 1900}) == {"tower"}


@pytest.mark.timeout(60)
def test_a_runtime_closes_while_its_database_pool_still_grows(
    runtime: Runtime, tenant: str
) -> None:
    """Workers of the pool that were cancelled while they connect never end."""
    given = [text(f"d{i}", f"Document {i}.") for i in range(8)]
    for number in range(3):
        with Runtime({"vectorstore": runtime.configs["vectorstore"]}) as other:
            found = collections.index(given, collection=f"c{number}", runtime=other, tenant=tenant)
            assert found["documents"] == len(given)


def test_a_directory_for_one_query_has_its_limit(naive: App, tmp_path: Path) -> None:
    given = [text(f"d{i}", "x") for i in range(10_001)]
    with pytest.raises(InputError, match="collection first: `teola index PATH"):
        naive.run(question="Why?", documents=given)
    assert len(collected(given[:-1]).sources) == 10_000
    with pytest.raises(DocumentError, match="holds no documents"):
        naive.run(question="Why?", documents=tmp_path)
