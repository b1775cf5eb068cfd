"""Collections: named sets of documents, indexed once and searched by many queries.

Long because all that one does with a collection stands here.

Indexing is an application of one component, so it goes through the same scheduler as queries do.
Every document is a query of its own: a broken one harms no other, and those in flight share the
engines' batches. How many are in flight is bounded, in documents and in bytes, so that memory is.

A name is one document of a collection: indexing it again replaces it. What was indexed and is gone
from its folder is deleted with `sync`, after the rest is indexed, so that a file with a new name
takes over the chunks that it has under the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from teola.app import App
from teola.engine import UNNAMED, DocumentStore, Source
from teola.errors import DocumentError, InputError, QueryError, UnknownName
from teola.graph import Op, ToolStep
from teola.query.spec import QuerySpec
from teola.reindexing import reindex as reindex
from teola.runtime.default_runtime import default_runtime
from teola.runtime.documents import collected, origin_of, readable
from teola.runtime.live.query import Progress, Token
from teola.runtime.runtime import Runtime
from teola.workflow.components import Indexing

IN_FLIGHT: Final = 32
"""Documents that are indexed at once, at most."""
IN_FLIGHT_BYTES: Final = 16_000_000
"""Their bytes, at most; a larger document is indexed alone."""
DEADLINE_S: Final = 3600.0
"""Seconds for one document."""
STORE: Final = "vectorstore"


class IndexingStep(NamedTuple):
    """What happened to a document.

    state: `found` (items: documents in all, the first step), `embedded` (items: chunks of a batch),
    and for each document in the end `indexed` (items: its chunks), `taken` (stored with the chunks
    of another one that has its content), `known` or `failed` (reason).
    """

    state: str
    document: str = ""
    items: int = 0
    reason: str = ""


OnProgress = Callable[[IndexingStep], None]
MayDelete = Callable[[int, int], bool]
"""Whether so many documents may be deleted, of how many that came from their folder."""


def index(
    paths: Any,
    *,
    collection: str,
    runtime: Runtime | None = None,
    tenant: str = "default",
    overrides: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    deadline_s: float = DEADLINE_S,
    root: str | Path | None = None,
    sync: bool = False,
    replace: bool = False,
    metadata: Mapping[str, Any] | None = None,
    may_delete: MayDelete | None = None,
) -> dict[str, Any]:
    """Index files, directories or `{"name", "text"}` into a collection, made if it is new.

    overrides: {"index.chunk_size": 128}.
    on_progress: called in another thread.
    root: a directory; files are named by their way from there. Else a file has its own name, and
        those of a directory have names that begin with the directory's.
    sync: also delete what came from these directories before and is not there any more; `paths` are
        directories only.
    replace: a file may take the place of a file of its name from elsewhere, which is refused else.
    metadata: of all these documents; a document's own goes before.
    may_delete: asked before more than half of what came from a directory is deleted. Without it,
        that is refused before anything starts; where it says no, nothing from there is deleted.

    Returns {"collection", "documents", "new", "known", "chunks", "failed": [{"document",
    "reason"}], "passed_over": {".zip": 2}, "hidden", "replaced", "taken", "deleted"}: documents
    looked at, stored now, and there before; chunks made and stored now; files of the directories
    that are not read, by suffix; hidden texts left out of what was indexed now; names of documents
    that had another version; how many of the new ones took the chunks of another with their
    content; documents deleted. A document that cannot be read is listed in `failed`, and the
    others go on. Raises InputError before anything starts.
    """
    if not collection.strip():
        raise InputError("a collection needs a name")
    if collection == UNNAMED:
        raise InputError(
            f"the collection {UNNAMED!r} holds what came without a collection: choose another name"
        )
    documents = collected(paths, most=None, root=root)
    sources = [_with(source, metadata or {}, replace) for source in documents.sources]
    if not sources:
        raise InputError("there is nothing to index; give files or directories")
    for source in sources:
        if source.path is not None and not source.path.exists():
            raise DocumentError(f"no such file: {str(source.path)!r}; check the path")
    _check_names(sources)
    folders = _folders(paths) if sync else []
    home = runtime or default_runtime()
    app = App(
        "index",
        Indexing(store=STORE),
        inputs={"documents": "documents"},
        outputs={"stored": "stored"},
        runtime=home,
    )
    ask = QuerySpec({"documents": sources[:1]}, overrides or {}, None, deadline_s, tenant)
    app.job(ask)
    gone: list[dict[str, Any]] = []
    if folders:
        gone = _gone(_documents(home, tenant, collection), sources, folders, may_delete)
    work = _Index(app, collection, ask, on_progress or _ignore)
    future = home.start(work.run(sources))
    try:
        report = future.result()
    except BaseException:
        future.cancel()
        raise
    ids = [str(document["id"]) for document in gone if document["origin"] not in work.unread]
    deleted = _delete(home, tenant, collection, ids) if ids else 0
    return {**report, "passed_over": dict(documents.passed_over), "deleted": deleted}


def list_collections(
    *, runtime: Runtime | None = None, tenant: str = "default"
) -> list[dict[str, Any]]:
    """`name`, `documents` and `chunks` of each collection of the tenant."""
    home = runtime or default_runtime()

    async def listed() -> list[dict[str, Any]]:
        return await (await _store(home)).collections(tenant)

    return home.start(listed()).result()


def list_documents(
    collection: str, *, runtime: Runtime | None = None, tenant: str = "default"
) -> list[dict[str, Any]]:
    """`id`, `name`, `chunks`, `created_at`, `metadata`, `origin` (path of its file, None for a
    text) of each document, the oldest first. Raises UnknownName."""
    home = runtime or default_runtime()
    _check_known(home, tenant, collection)
    return _documents(home, tenant, collection)


def delete(
    collection: str,
    documents: Sequence[str] | None = None,
    *,
    runtime: Runtime | None = None,
    tenant: str = "default",
) -> int:
    """Delete documents by name or id (None: the whole collection); how many were deleted.

    Raises InputError, before anything is deleted, for a collection or document that is not there.
    """
    home = runtime or default_runtime()
    _check_known(home, tenant, collection)
    chosen = None
    if documents is not None:
        chosen = ids_of(_documents(home, tenant, collection), documents, collection)
    return _delete(home, tenant, collection, chosen)


def tidy(collection: str, *, runtime: Runtime | None = None, tenant: str = "default") -> list[str]:
    """Leave the newest document of each name, where a collection of an older Teola has several; the
    names of which some were deleted. Raises UnknownName."""
    home = runtime or default_runtime()
    _check_known(home, tenant, collection)
    newest: dict[str, str] = {}
    older: list[str] = []
    names: dict[str, None] = {}
    for document in _documents(home, tenant, collection):  # the oldest first
        name, id = str(document["name"]), str(document["id"])
        if name in newest:
            older.append(newest[name])
            names[name] = None
        newest[name] = id
    if older:
        _delete(home, tenant, collection, older)
    return list(names)


def _documents(home: Runtime, tenant: str, collection: str) -> list[dict[str, Any]]:
    async def listed() -> list[dict[str, Any]]:
        return await (await _store(home)).documents(tenant, collection)

    return home.start(listed()).result()


def _delete(home: Runtime, tenant: str, collection: str, ids: Sequence[str] | None) -> int:
    async def deleted() -> int:
        return await (await _store(home)).delete(tenant, collection, ids)

    return home.start(deleted()).result()


async def _store(home: Runtime) -> DocumentStore:
    await home.ensure([STORE])
    return cast("DocumentStore", home.host(STORE).engine)


def _check_known(home: Runtime, tenant: str, collection: str) -> None:
    names = [entry["name"] for entry in list_collections(runtime=home, tenant=tenant)]
    if collection not in names:
        raise UnknownName("collection", collection, names)


def ids_of(there: list[dict[str, Any]], wanted: Iterable[str], collection: str) -> list[str]:
    """Ids of the documents that have one of the names or ids `wanted`."""
    ids: list[str] = []
    for name in wanted:
        matching = [str(d["id"]) for d in there if name in (d["name"], str(d["id"]))]
        if not matching:
            near = get_close_matches(name, [d["name"] for d in there], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"no document {name!r} in collection {collection!r}{hint} "
                f"(`teola collections {collection}` lists them)"
            )
        ids += matching
    return ids


def _with(source: Source, metadata: Mapping[str, Any], replaces: bool) -> Source:
    return replace(source, metadata={**metadata, **source.metadata}, replace=replaces)


def _check_names(sources: Iterable[Source]) -> None:
    """Raise InputError for two documents of one name."""
    seen: dict[str, Source] = {}
    for source in sources:
        other = seen.setdefault(source.name, source)
        if _identity(other) != _identity(source):
            places = " and ".join(_place(document) or "a text" for document in (other, source))
            raise InputError(
                f"two documents are named {readable(source.name)!r} ({places}), and a name is one "
                "document of a collection: `--root DIR` (root=DIR) names files by their way from "
                "DIR"
            )


def _identity(source: Source) -> tuple[Any, ...]:
    return (_place(source), source.text, source.metadata)


def _place(source: Source) -> str:
    """Where its file lies; "" for a text."""
    return source.origin or (str(source.path) if source.path is not None else "")


def _folders(paths: Any) -> list[Path]:
    """Where the directories really lie. Raises InputError for anything else."""
    entries = [paths] if isinstance(paths, (str, Path, Mapping, Source)) else list(paths)
    folders: list[Path] = []
    for entry in entries:
        if not isinstance(entry, (str, Path)) or not Path(entry).expanduser().is_dir():
            shown = repr(str(entry)) if isinstance(entry, (str, Path)) else "a text"
            raise InputError(
                f"sync deletes what is gone from a directory, and {shown} is none: give "
                "directories only, or leave sync out"
            )
        folders.append(origin_of(Path(entry).expanduser()))
    return folders


def _gone(
    there: Sequence[dict[str, Any]],
    sources: Sequence[Source],
    folders: Sequence[Path],
    may_delete: MayDelete | None,
) -> list[dict[str, Any]]:
    """Documents that came from the folders, and whose file is gone or has another name now."""
    names = {(source.name, source.origin) for source in sources}
    origins = {source.origin for source in sources}
    gone: dict[str, dict[str, Any]] = {}
    for folder in folders:
        own = [d for d in there if d["origin"] and Path(d["origin"]).is_relative_to(folder)]
        renamed = [
            document
            for document in own
            if document["origin"] in origins and (document["name"], document["origin"]) not in names
        ]
        left = [
            document
            for document in own
            if document["origin"] not in origins and _is_missing(Path(document["origin"]))
        ]
        if 2 * len(left) > len(own):
            if may_delete is None:
                raise InputError(
                    f"{len(left)} of the {len(own)} documents that came from {str(folder)!r} are "
                    "gone from there: if they are to be deleted, say so with `--yes` "
                    "(may_delete=lambda number, of: True)"
                )
            if not may_delete(len(left), len(own)):
                left = []
        gone |= {str(document["id"]): document for document in (*left, *renamed)}
    return list(gone.values())


def _is_missing(path: Path) -> bool:
    """Whether the file is certainly not there."""
    try:
        return not path.exists()
    except OSError:  # such as a folder that may not be read
        return False


class _Index:
    """One call of `index`, on the runtime's loop. unread: origins of the documents that failed."""

    def __init__(
        self,
        app: App,
        collection: str,
        ask: QuerySpec,
        report: OnProgress,
    ) -> None:
        self.app, self.collection, self.ask, self.report = app, collection, ask, report
        self.new = self.known = self.chunks = self.hidden = self.taken = 0
        self.replaced: list[str] = []
        self.failed: list[dict[str, str]] = []
        self.unread: set[str | None] = set()
        self._bytes = 0
        self._freed = asyncio.Condition()

    async def run(self, sources: Sequence[Source]) -> dict[str, Any]:
        """Index all; the first error that is not one document's own ends everything."""
        await self.app.home.ensure(self.app.engine_names)
        self.report(IndexingStep("found", items=len(sources)))
        left = iter(sources)
        workers = [
            asyncio.create_task(self._worker(left)) for _ in range(min(IN_FLIGHT, len(sources)))
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                if not worker.cancelling():  # a second time would interrupt its cleaning up
                    worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return {
            "collection": self.collection,
            "documents": len(sources),
            "new": self.new,
            "known": self.known,
            "chunks": self.chunks,
            "failed": sorted(self.failed, key=lambda failure: failure["document"]),
            "hidden": self.hidden,
            "replaced": sorted(self.replaced),
            "taken": self.taken,
        }

    async def _worker(self, left: Iterator[Source]) -> None:
        for source in left:
            async with self._room(_size(source)):
                await self._one(source)

    @asynccontextmanager
    async def _room(self, size: int) -> AsyncIterator[None]:
        async with self._freed:
            await self._freed.wait_for(
                lambda: not self._bytes or self._bytes + size <= IN_FLIGHT_BYTES
            )
            self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            async with self._freed:
                self._freed.notify_all()

    async def _one(self, source: Source) -> None:
        def watch(event: Token | Progress | ToolStep) -> None:
            if isinstance(event, Progress) and _embedded(event):
                self.report(IndexingStep("embedded", source.name, event.items))

        inputs = {"documents": [source], "collection": self.collection}
        job = self.app.job(replace(self.ask, inputs=inputs))
        try:
            (await job.run(watch)).checked()
        except (DocumentError, QueryError) as error:
            name = readable(source.name)
            self.failed.append({"document": name, "reason": str(error)})
            self.unread.add(source.origin)
            self.report(IndexingStep("failed", name, reason=str(error)))
            return
        state = "indexed" if job.chunks else "taken" if job.taken else "known"
        self.hidden, self.chunks = self.hidden + job.hidden, self.chunks + job.chunks
        self.new, self.known = self.new + (state != "known"), self.known + (state == "known")
        self.taken += job.taken
        self.replaced += job.replaced
        self.report(IndexingStep(state, source.name, job.chunks))


def _embedded(event: Progress) -> bool:
    return event.state == "finished" and event.op == Op.EMBEDDING.value


def _size(source: Source) -> int:
    """Bytes of a document, at least 1; 1 for one that cannot be read, which its query will say."""
    if source.path is None:
        return max(1, len(source.text or ""))
    try:
        return max(1, source.path.stat().st_size)
    except OSError:
        return 1


def _ignore(step: IndexingStep) -> None:
    """Progress that nobody watches."""
