"""Documents before they are indexed: which are taken, their keys, and what they become."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from teola.engine import (
    Claim,
    EngineKind,
    EngineSpec,
    Fingerprint,
    Passages,
    Source,
    Splitting,
)
from teola.errors import DocumentError, InputError
from teola.graph import Op
from teola.runtime import documents
from teola.runtime.documents import Preparer, collected
from teola.runtime.hosts.local import LocalHost
from teola.testing.hash_engines import HashEmbedder
from tests.planted import catches, edited


class Reading:
    """A loader of which only fingerprints are asked."""

    spec = EngineSpec("documents", EngineKind.DOCUMENTS, frozenset())

    def start(self) -> None: ...

    def close(self) -> None: ...

    def pipeline(self, splitting: Splitting) -> str:
        return "p"

    def fingerprint(self, source: Source) -> Any:
        return Fingerprint(f"sha of {source.text}", "text")


class Remote(Reading):
    async def fingerprint(self, source: Source) -> Any:
        return Fingerprint(f"sha of {source.text}", "text")


class Counting(LocalHost):
    calls = 0

    async def call(self, method: Any, *arguments: Any) -> Any:
        self.calls += 1
        return await super().call(method, *arguments)


@pytest.fixture(params=[Reading, Remote])
async def loader(request: pytest.FixtureRequest) -> AsyncIterator[Counting]:
    host = Counting(request.param(), 0)
    await host.start()
    yield host
    await host.close()


def given(count: int) -> list[Source]:
    return [Source(f"{n}.txt", text=f"text {n}", metadata={"n": n}) for n in range(count)]


class Named(HashEmbedder):
    identity, max_tokens = "hash", 66

    def encode(self, text: str) -> list[int]:
        return [*map(len, text.split())]


def prepares(loader: Counting) -> Preparer:
    return Preparer(loader, LocalHost(Named(), 0), loader)


@catches(
    "last-slice-lost",
    "a document that begins a slice and ends it is left out",
    edited(Preparer._keys, "range(0, len(given), READ", "range(0, len(given) - 1, READ"),
)
async def test_keys_come_in_order_and_in_slices(
    loader: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "READ_AT_ONCE", 3)
    for count in (0, 1, 3, 4, 6, 7):
        loader.calls = 0
        keys = await prepares(loader)._keys(given(count), Splitting(64, 0))
        assert [(k.name, k.sha256, k.metadata["n"]) for k in keys] == [
            (f"{n}.txt", f"sha of text {n}", n) for n in range(count)
        ]
        assert loader.calls == (0 if isinstance(loader.engine, Remote) else -(-count // 3))


async def test_a_name_that_is_not_utf_8_fails_wherever_it_stands(loader: Counting) -> None:
    wrong = [*given(70), Source("a\udcff.txt", text="x")]
    with pytest.raises(DocumentError, match="is not UTF-8; rename the file"):
        await prepares(loader)._keys(wrong, Splitting(64, 0))


# --- what is taken ----------------------------------------------------------------------------


def names(documents: Any, **more: Any) -> list[str]:
    return [source.name for source in collected(documents, **more).sources]


def test_a_folder_gives_what_can_be_read_in_it_by_ways_that_begin_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hidden, whatever the case of a suffix; what is not read is counted."""
    folder = tmp_path / "notes"
    for way in ("b.MD", "a/c.txt", ".git/d.txt", "a/.e.txt", "f.BIN", "g.bin", "README"):
        file = folder / way
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    ways = ["notes/a/c.txt", "notes/b.MD"]
    found = collected(folder)
    assert [source.name for source in found.sources] == ways
    assert found.passed_over == {".bin": 2, "no suffix": 1}
    assert [source.origin for source in found.sources] == [str(tmp_path / way) for way in ways]
    monkeypatch.chdir(folder)
    assert names(".") == ways
    assert names(["f.BIN", folder / "b.MD"]) == ["f.BIN", "b.MD"], "a file may have any suffix"
    assert names([folder / "a", "b.MD"], root=tmp_path) == ways
    with pytest.raises(InputError, match="does not lie in root"):
        names("b.MD", root=folder / "a")
    with pytest.raises(InputError, match="which is no directory"):
        names("b.MD", root=folder / "b.MD")
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(DocumentError, match="holds no documents"):
        collected(empty)


def test_as_many_documents_as_a_query_may_have_are_taken() -> None:
    inline = [{"name": f"{k}", "text": "x"} for k in range(3)]
    assert names(inline, most=3) == names(inline, most=None) == ["0", "1", "2"]
    with pytest.raises(InputError, match="3 documents are more than the 2 of one query"):
        collected(inline, most=2)
    assert collected(None).sources == collected([]).sources == []
    (one,) = collected({"name": 7, "text": 8, "metadata": None}).sources
    assert (one.name, one.text, one.metadata) == ("7", "8", {})
    (own,) = collected({"name": "a", "text": "b", "metadata": {"page": 1}}).sources
    assert own.metadata == {"page": 1}
    assert collected(own).sources == [own]


@pytest.mark.parametrize("wrong", [{"name": "a"}, {"text": "b"}, [7], [None]])
def test_what_is_no_document_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="'name'"):
        collected(wrong)


@pytest.mark.parametrize("more", [0, 1])
def test_of_a_long_path_that_is_not_there_the_beginning_is_told(more: int) -> None:
    path = "x" * (documents.SHOWN + more)
    with pytest.raises(DocumentError) as raised:
        collected(path)
    told = "x" * documents.SHOWN + "..." * more
    assert str(raised.value).startswith(f"no such file: {told!r}; ")


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_line_names_eight_kinds_and_counts_the_rest(more: int) -> None:
    """The most frequent first, and of equals in the order of their names."""
    kinds = documents.KINDS + more
    counts = {f".{chr(122 - k)}": 1 for k in range(kinds - 1)} | {".most": 3}
    rest = f", others {more}" * bool(more)
    names = sorted({*counts} - {".most"})[: documents.KINDS - 1]
    listed = ", ".join([".most 3", *(f"{name} 1" for name in names)])
    assert documents.passed_over(counts) == f"{kinds + 2} files passed over: {listed}{rest}"
    listed = ", ".join(f"{name} {count}" for name, count in [*counts.items()][: documents.KINDS])
    last = f", others {more - 1 + 3}" if more else ""
    assert documents.left_out(counts) == f"{kinds + 2} hidden texts left out: {listed}{last}"
    given = [f"{k}.md" for k in range(kinds)]
    listed = ", ".join(given[: documents.KINDS])
    last = f", and {more} more" if more else ""
    assert documents.replaced_line(given) == f"{kinds} documents replaced: {listed}{last}"


def test_a_line_about_one_says_so() -> None:
    assert documents.passed_over({".z": 1}) == "1 file passed over: .z 1"
    assert documents.left_out({"a.html": 1}) == "1 hidden text left out: a.html 1"
    assert documents.replaced_line(["a\udcff"]) == "1 document replaced: a\\udcff"


# --- what is prepared -------------------------------------------------------------------------


class Splits(Reading):
    """A loader whose documents have a chunk a word, and hide as many texts as they have marks."""

    def split(self, source: Source, splitting: Splitting, encode: Any) -> Passages:
        text = source.text or ""
        return Passages(text.replace("!", "").split(), hidden=text.count("!"))


class Keeps:
    """A store that has the documents whose text is known."""

    spec = EngineSpec("vectorstore", EngineKind.VECTORSTORE, frozenset({Op.SEARCHING}))

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        self.known, self.expected = known, dict[str, int]()

    async def claim(self, tenant: str, name: str, keys: Any, *more: Any) -> list[Claim]:
        return [Claim(key.sha256, key.sha256 not in self.known) for key in keys]

    async def expect(self, owner: str, counts: dict[str, int]) -> None:
        self.expected |= counts


async def prepared(store: Keeps, *texts: str, **more: Any) -> documents.Prepared:
    loader = LocalHost(cast("Any", Splits()), 0)
    preparer = Preparer(loader, LocalHost(Named(), 0), LocalHost(cast("Any", store), 0))
    sources = [Source("same.html", text=text) for text in texts]
    given: dict[str, Any] = {"splitting": Splitting(64, 8), "filters": {}, **more}
    return await preparer.prepare(sources, owner="q", tenant="t", collection=None, **given)


async def test_documents_of_one_name_are_told_apart_and_their_hidden_texts_added_up() -> None:
    """Equal ones are split once, and those that are stored not at all."""
    store = Keeps(("sha of known !",))
    found = await prepared(store, "one two !!", "known !", "three !", "one two !!")
    chunks = [(chunk.document, chunk.index, chunk.text) for chunk in found.chunks]
    assert chunks == [
        ("sha of one two !!", 0, "one"),
        ("sha of one two !!", 1, "two"),
        ("sha of three !", 0, "three"),
    ]
    assert store.expected == {"sha of one two !!": 2, "sha of three !": 1}
    assert (found.new, found.known, found.hidden) == (2, 1, {"same.html": 3})
    assert found.scope.documents == ("sha of one two !!", "sha of known !", "sha of three !")
    with pytest.raises(DocumentError, match=r"document 'same.html' holds no text"):
        await prepared(Keeps(), "x", "!")


@pytest.mark.parametrize(
    ("size", "overlap", "refused"),
    [
        (64, 63, None),
        (65, 0, "chunk_size 65 is more than the 64 tokens that the embedding model reads"),
        (63, 63, "overlap 63 must be smaller than chunk_size 63"),
    ],
)
async def test_a_chunk_is_no_longer_than_the_embedder_reads_and_than_its_overlap(
    size: int, overlap: int, refused: str | None
) -> None:
    """Which adds two tokens of its own."""
    splitting = Splitting(size, overlap)
    if refused is None:
        assert (await prepared(Keeps(), "one", splitting=splitting)).new == 1
        return
    with pytest.raises(InputError, match=refused):
        await prepared(Keeps(), "one", splitting=splitting)
