"""The step before the graph: from a query's documents to chunks to index and a scope to search.

What the store already has (same bytes, same splitting, same embedder) is neither split nor embedded
nor stored again. In a collection a name is one document, so files get names that tell them apart: a
folder's begin with the folder's own name. Reading and splitting run off the loop, of as many
documents at once as the loader's spec says, and for one tenant of fewer.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

from teola.engine import (
    UNNAMED,
    Chunk,
    Claim,
    DocumentKey,
    DocumentStore,
    Embedder,
    EmbedderAdmission,
    Engine,
    EstimatesTokens,
    Fingerprint,
    Loader,
    Passages,
    Scope,
    Source,
    Splitting,
    WarmsUp,
    near,
)
from teola.errors import DocumentError, InputError
from teola.runtime.embedder_identity import embedder_identity_of
from teola.runtime.hosts.local import LocalHost

SUFFIXES: Final = frozenset(
    {
        *(".txt", ".md", ".markdown", ".rst", ".html", ".htm", ".pdf"),
        *(".csv", ".tsv", ".ipynb", ".eml", ".epub", ".docx", ".pptx", ".xlsx"),
    }
)
"""What is taken from a directory; files given by name may have any suffix."""
MAX_DOCUMENTS: Final = 10_000
FEW_WORDS: Final = "A server reads this first. It has two sentences."
SHOWN: Final = 80
"""Characters of a path that an error repeats."""
KINDS: Final = 8
"""Kinds of files that a line about those passed over names."""
READ_AT_ONCE: Final = 64
"""Documents whose bytes one call of a thread reads: a task for each would hold the loop."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a query's documents become.

    new: documents that this query indexes.
    known: documents that were stored already.
    taken: documents that were stored with the chunks of others of their content.
    replaced: names of documents, new or taken, that had another version.
    hidden: texts that were left out because a reader does not see them, by the document's name.
    notice: what whoever searches the collection has to know.
    """

    chunks: list[Chunk]
    scope: Scope
    new: int
    known: int
    hidden: Mapping[str, int]
    taken: int = 0
    replaced: tuple[str, ...] = ()
    notice: str = ""


@dataclass(frozen=True, slots=True)
class CollectedSources:
    """Sources, and how many files of the directories are not read, by suffix."""

    sources: list[Source]
    passed_over: Counter[str]


def collected(
    documents: Any, most: int | None = MAX_DOCUMENTS, root: str | Path | None = None
) -> CollectedSources:
    """Sources from what users write: paths, directories, `{"name", "text"}`, or lists of these.

    A file is named by its name, and in a directory by its way from there, which begins with the
    directory's own name: `a/notes.md` for "a", "/srv/a" and, within it, ".". root: a directory from
    which the ways of all begin. most: documents of one query. Hidden files and folders in a
    directory do not count. Raises InputError, DocumentError.
    """
    passed_over: Counter[str] = Counter()
    if root is not None and not Path(root).expanduser().is_dir():
        raise InputError(f"root is {str(root)!r}, which is no directory: check the path")
    if documents is None:
        return CollectedSources([], passed_over)
    if isinstance(documents, (str, Path, Mapping, Source)):
        documents = [documents]
    sources: list[Source] = []
    for document in documents:
        sources += _sources(document, passed_over, root)
    if most is not None and len(sources) > most:
        raise InputError(
            f"{len(sources)} documents are more than the {most} of one query; put them into a "
            "collection first: `teola index PATH --collection NAME`"
        )
    return CollectedSources(sources, passed_over)


def passed_over(counts: Mapping[str, int]) -> str:
    """One line about files that are not read: `3 files passed over: .zip 2, .png 1`."""
    number = sum(counts.values())
    kinds = sorted(counts.items(), key=lambda kind: (-kind[1], kind[0]))
    listed = [f"{readable(suffix)} {count}" for suffix, count in kinds[:KINDS]]
    if rest := sum(count for _, count in kinds[KINDS:]):
        listed.append(f"others {rest}")
    return f"{number} file{'s' if number != 1 else ''} passed over: {', '.join(listed)}"


def left_out(hidden: Mapping[str, int]) -> str:
    """One line about hidden texts: `2 hidden texts left out: a.html 2`."""
    number = sum(hidden.values())
    listed = [f"{name} {count}" for name, count in list(hidden.items())[:KINDS]]
    if rest := sum(list(hidden.values())[KINDS:]):
        listed.append(f"others {rest}")
    return f"{number} hidden text{'s' if number != 1 else ''} left out: {', '.join(listed)}"


def readable(name: str) -> str:
    """A file's name as it can be shown and stored: bytes that are not UTF-8 as `\\udcff`."""
    return name.encode("utf-8", "backslashreplace").decode()


def replaced_line(names: Sequence[str]) -> str:
    """One line about names that had another version: `2 documents replaced: a.md, b.md`."""
    number = len(names)
    listed = [readable(name) for name in names[:KINDS]]
    if number > KINDS:
        listed.append(f"and {number - KINDS} more")
    return f"{number} document{'s' if number != 1 else ''} replaced: {', '.join(listed)}"


def origin_of(path: Path) -> Path:
    """Where a file or directory really lies; a link to a file is a file where the link is."""
    if path.is_dir():
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent)) / path.name


def _sources(document: Any, passed_over: Counter[str], root: str | Path | None) -> list[Source]:
    if isinstance(document, Source):
        return [document]
    if isinstance(document, Mapping):
        if not {"name", "text"} <= document.keys():
            raise InputError("an inline document needs the keys 'name' and 'text'")
        metadata = document.get("metadata") or {}
        return [Source(str(document["name"]), text=str(document["text"]), metadata=metadata)]
    if not isinstance(document, (str, Path)):
        raise InputError(f"a document is a path or {{'name', 'text'}}, not {document!r}")
    path = Path(document).expanduser()
    try:
        folder, there = path.is_dir(), path.exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        folder = there = False
    if not there:
        raise DocumentError(
            f"no such file: {_excerpt(str(document))!r}; check the path, or give a text itself as "
            "{'name': ..., 'text': ...}"
        )
    if not folder:
        return [_source(path, path.name, origin_of(path), root)]
    files = [p for p in path.rglob("*") if not _hidden(p.relative_to(path)) and p.is_file()]
    inside = sorted(p for p in files if p.suffix.lower() in SUFFIXES)
    suffixes = Counter(p.suffix.lower() for p in files)
    for suffix in suffixes.keys() - SUFFIXES:
        passed_over[suffix or "no suffix"] += suffixes[suffix]
    if not inside:
        listed = ", ".join(sorted(SUFFIXES))
        raise DocumentError(f"directory {str(path)!r} holds no documents ({listed})")
    name, origin = Path(os.path.basename(os.path.abspath(path))), origin_of(path)
    ways = ((p, p.relative_to(path)) for p in inside)
    return [_source(p, (name / way).as_posix(), origin / way, root) for p, way in ways]


def _source(path: Path, name: str, origin: Path, root: str | Path | None) -> Source:
    if root is not None:
        start = origin_of(Path(root).expanduser())
        if not origin.is_relative_to(start):
            raise InputError(
                f"{readable(str(path))!r} does not lie in root {str(root)!r}: give files and "
                "directories from there only"
            )
        name = origin.relative_to(start).as_posix()
    return Source(name, path=path, origin=readable(str(origin)))


def _excerpt(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


class Preparer:
    """Prepares documents with a loader, an embedder's tokenizer and a store."""

    def __init__(self, loader: LocalHost, embedder: LocalHost, store: LocalHost) -> None:
        self._loader, self._turns = loader, loader.turns
        self._documents = cast("Loader", loader.engine)
        self._embedder, self._embedding = cast("Embedder", embedder.engine), embedder
        self._store = cast("DocumentStore", store.engine)

    async def prepare(
        self,
        given: Sequence[Source],
        *,
        owner: str,
        tenant: str,
        collection: str | None,
        filters: Mapping[str, Any],
        splitting: Splitting,
        asked: float | None = None,
    ) -> Prepared:
        """Claim and split `given`; the caller must `release` in the end. asked: see DocumentStore.
        Raises DocumentError, and InputError, also for a collection of another embedder or one that
        does not exist."""
        admission = await self._admitted(tenant, collection, indexes=bool(given))
        limit = self._embedder.max_tokens - 2
        if splitting.chunk_size > limit:
            raise InputError(
                f"chunk_size {splitting.chunk_size} is more than the {limit} tokens that the "
                "embedding model reads; choose a smaller one"
            )
        if splitting.overlap >= splitting.chunk_size:
            raise InputError(
                f"overlap {splitting.overlap} must be smaller than chunk_size "
                f"{splitting.chunk_size}"
            )
        splitting = self._measured(splitting)
        keys = await self._keys(given, splitting)
        name = collection or UNNAMED
        identity = None
        if keys and name != UNNAMED:
            identity = await embedder_identity_of(self._embedding, sentence=True)
        claims: list[Claim] = []
        if keys:
            claims = await self._store.claim(tenant, name, keys, owner, asked, identity)
        chunks, owned, hidden = await self._split(given, claims, splitting, tenant)
        if owned:
            await self._store.expect(owner, owned)
        ids = tuple(dict.fromkeys(claim.document for claim in claims))
        searched = None if collection else ids
        scope = Scope(tenant, name, searched, dict(filters), admission.collection)
        taken = sum(claim.taken for claim in claims)
        replaces = (s.name for s, claim in zip(given, claims, strict=True) if claim.replaces)
        already_kept = len(ids) - len(owned) - taken
        sizes = len(owned), already_kept
        return Prepared(chunks, scope, *sizes, hidden, taken, tuple(replaces), admission.notice)

    async def count(self, given: Sequence[Source], splitting: Splitting) -> int:
        """How many chunks `given` makes; nothing is stored."""
        splitting = self._measured(splitting)
        made = [
            await self._loader.call(self._documents.split, source, splitting, self._embedder.encode)
            for source in given
        ]
        return sum(map(len, made))

    async def warm(self, splitting: Splitting) -> None:
        """Read and split a few words and ask the store what it has, so that no query is the first
        to do so; nothing is stored."""
        if isinstance(self._documents, WarmsUp):
            await self._loader.call(self._documents.warm)
        splitting = self._measured(splitting)
        source = Source("warming.txt", text=FEW_WORDS)
        await self._keys([source], splitting)
        await self._loader.call(self._documents.split, source, splitting, self._embedder.encode)
        if not splitting.estimated:  # else the embedder is a server, which each call may cost
            await embedder_identity_of(self._embedding, sentence=True)
        await self._store.collections("default")

    async def release(self, owner: str) -> None:
        """The query has ended: what it did not finish indexing is deleted."""
        await self._store.release(owner)

    def unpin(self, owner: str) -> None:
        """The query waits: its next search may see what is new."""
        self._store.unpin(owner)

    async def _admitted(
        self, tenant: str, collection: str | None, *, indexes: bool
    ) -> EmbedderAdmission:
        """What the store says to the embedder. Raises InputError if the collection has another one,
        and for one that does not exist if nothing is to be indexed into it."""
        if collection is None:
            return EmbedderAdmission(None)
        admission = EmbedderAdmission(None, unsure=True)
        for sentence in (False, True):
            if admission.unsure:
                identity = await embedder_identity_of(self._embedding, sentence=sentence)
                admission = await self._store.admit(
                    tenant, collection, identity, remember=collection != UNNAMED
                )
        if admission.collection is None and not indexes:
            raise InputError(await self._unknown(tenant, collection))
        return admission

    async def _unknown(self, tenant: str, collection: str) -> str:
        names = [entry["name"] for entry in await self._store.collections(tenant)]
        listed = ", ".join(n for n in names if n != UNNAMED) or "none yet"
        way = f"`teola index PATH --collection {collection}`"
        if tenant != "default":  # that of `teola index`
            way = f"`teola.collections.index(..., tenant={tenant!r})` in Python"
        return f"no collection {collection!r} (there is: {listed}); make it with {way}"

    def _measured(self, splitting: Splitting) -> Splitting:
        return replace(splitting, estimated=estimates(self._embedder))

    async def _keys(self, given: Sequence[Source], splitting: Splitting) -> list[DocumentKey]:
        pipeline = f"{self._documents.pipeline(splitting)}/{self._embedder.identity}"
        slices = (given[i : i + READ_AT_ONCE] for i in range(0, len(given), READ_AT_ONCE))
        found = await asyncio.gather(*(self._keys_of(part, pipeline) for part in slices))
        return list(chain.from_iterable(found))

    async def _keys_of(self, given: Sequence[Source], pipeline: str) -> list[DocumentKey]:
        read: Any = self._documents.fingerprint
        if inspect.iscoroutinefunction(read):
            _check_names(given)
            prints = [await read(source) for source in given]
        else:
            prints = await self._loader.call(_read, read, given)
        return [
            DocumentKey(
                print_.sha256,
                pipeline,
                source.name,
                source.metadata,
                print_.reading,
                source.origin,
                source.replace,
            )
            for source, print_ in zip(given, prints, strict=True)
        ]

    async def _split(
        self, given: Sequence[Source], claims: Sequence[Claim], splitting: Splitting, tenant: str
    ) -> tuple[list[Chunk], dict[str, int], dict[str, int]]:
        chunks: list[Chunk] = []
        owned: dict[str, int] = {}
        hidden: dict[str, int] = {}
        for source, claim in zip(given, claims, strict=True):
            if not claim.owned or claim.document in owned:
                continue
            async with self._turns.turn(tenant):
                texts = await self._loader.call(
                    self._documents.split, source, splitting, self._embedder.encode
                )
            if not texts:
                raise DocumentError(f"document {source.name!r} holds no text")
            owned[claim.document] = len(texts)
            passages = texts if isinstance(texts, Passages) else Passages(texts)
            if passages.hidden:
                hidden[source.name] = hidden.get(source.name, 0) + passages.hidden
            chunks += [
                Chunk(claim.document, i, text, source.name, place)
                for i, (text, place) in enumerate(zip(passages, passages.places, strict=True))
            ]
        return chunks, owned, hidden


def _read(
    fingerprint: Callable[[Source], Fingerprint], given: Iterable[Source]
) -> list[Fingerprint]:
    _check_names(given)
    return [fingerprint(source) for source in given]


def _check_names(given: Iterable[Source]) -> None:
    for source in given:
        if readable(source.name) != source.name:
            raise DocumentError(
                f"the file name {readable(source.name)!r} is not UTF-8; rename the file"
            )


def estimates(embedder: Engine) -> bool:
    """Whether it only estimates tokens, wherever it runs."""
    here = near(embedder)
    return isinstance(here, EstimatesTokens) and here.estimates
