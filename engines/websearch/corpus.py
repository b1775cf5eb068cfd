"""The corpus: a web of one's own, for those without a search service, and for tests.

Documents of a folder, indexed in PostgreSQL when the engine starts, searched by words and by
meaning. Nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from teola.engine import EngineResult, EngineSpec, Hit, Request
from teola.errors import EngineError, EngineUnavailable, InputError

from ..embedding.model import Dtype, SharedModel, acquire, loaded, release
from ..vectorstore.embedded import EmbeddedPostgres
from . import answers
from .answers import WebRequest
from .corpus_documents import Collected, of_folder, of_python

if TYPE_CHECKING:
    from ..vectorstore.database import Database
    from .corpus_indexing import Reader

LANGUAGE = "english"
REFERENCE = "Python's language reference, indexed at the first start"


class Corpus:
    """Searches local documents by words (BM25) and by meaning, as if they were the web.

    folder: documents (text, Markdown, HTML, PDF), indexed when the engine starts and again where
    they have changed; without one, Python's language reference, some 300 passages; the engine
    starts before they are indexed, and the first searches wait. dsn, data_dir, programs: where the
    index is, as for `PgVector`. language: a text search configuration of PostgreSQL, whose stems
    and stop words hold (`simple` has none). model, dtype, threads, device: as for `MiniLM`.
    """

    def __init__(
        self,
        name: str = "websearch",
        folder: str | Path | None = None,
        dsn: str | None = None,
        data_dir: str | Path | None = None,
        language: str = LANGUAGE,
        model: str | None = None,
        dtype: Dtype = "auto",
        threads: int | None = None,
        device: str | None = None,
        max_batch: int = 32,
        programs: str | Path | None = None,
    ) -> None:
        if dsn is not None and data_dir is not None:
            raise InputError("give the corpus a dsn or a data_dir, not both")
        about = f"local corpus: {folder if folder is not None else REFERENCE}"
        self._spec = answers.spec(name, about, max_batch=max_batch, concurrency=2)
        self._folder = None if folder is None else Path(folder)
        self._dsn = dsn
        self._embedded = None if dsn else EmbeddedPostgres(data_dir, programs=programs)
        self._language = language
        self._load = partial(acquire, model, dtype, device, threads, who=f"engine {name!r}")
        self._shared: SharedModel | None = None
        self._database: Database | None = None
        self._indexing: asyncio.Task[int] | None = None
        self._again: Callable[[], asyncio.Task[int]]

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    async def start(self) -> None:
        """Bring the index up to date.

        Raises MissingExtra, EngineUnavailable, UnknownName (language).
        """
        collect = of_python if self._folder is None else partial(of_folder, self._folder)
        collected = await asyncio.to_thread(collect)
        self._shared = await asyncio.to_thread(self._load)
        self._database = await self._connect()
        await self._database.open()
        self._again = partial(self._index, self._database, collected, self._shared)
        self._indexing = self._again()
        if self._folder is not None or self._language != LANGUAGE:  # what users give may be wrong
            await self._indexing

    def _index(
        self, database: Database, collected: Collected, shared: SharedModel
    ) -> asyncio.Task[int]:
        """The task that brings the index up to date; its result is the corpus's id."""
        from .corpus_indexing import refresh

        task = asyncio.create_task(refresh(database, collected, self._reader(shared)))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _indexed(self) -> int:
        """The corpus's id, once it is indexed; after a failure that is tried again."""
        task = self._indexing
        assert task is not None
        if task.done() and (task.cancelled() or task.exception()):
            task = self._indexing = self._again()
        return await asyncio.shield(task)

    async def _connect(self) -> Database:
        from ..vectorstore.database import Database
        from .corpus_tables import CORPORA

        connections = self._spec.concurrency
        if self._embedded is None:
            return Database(CORPORA, self._dsn or "", None, connections)
        admin, query = await asyncio.to_thread(self._embedded.start)
        return Database(CORPORA, admin, query, connections, self._embedded.start)

    def _reader(self, shared: SharedModel) -> Reader:
        from ..documents import FileLoader
        from .corpus_indexing import Reader

        return Reader(FileLoader(), shared, self._language)

    async def close(self) -> None:
        """Leave no connection and, as the last user, no process and no model. Repeatable."""
        indexing, self._indexing = self._indexing, None
        if indexing is not None:
            indexing.cancel()
            await asyncio.wait([indexing])
        database, self._database = self._database, None
        shared, self._shared = self._shared, None
        try:
            if database is not None:
                await database.close()
        finally:
            if shared is not None:
                release(shared)
            if self._embedded is not None:
                await asyncio.to_thread(self._embedded.close)

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        """WEB_SEARCH: `queries` -> `hits`, a list for each query, best first. All queries of a
        batch are embedded together and searched for in one statement. Scores are in 0..1."""
        checked = [_checked(request) for request in requests]
        try:
            hit_lists = iter(await self._hits([q for q in checked if isinstance(q, WebRequest)]))
        except EngineError as error:
            return [error if isinstance(q, WebRequest) else q for q in checked]
        return [{"hits": next(hit_lists)} if isinstance(q, WebRequest) else q for q in checked]

    async def _hits(self, questions: Sequence[WebRequest]) -> list[list[list[Hit]]]:
        """For each question the hits of each of its queries."""
        from .corpus_search import search

        shared = loaded(self._shared, self._spec.name)
        if self._database is None:
            raise EngineUnavailable(f"engine {self._spec.name!r} is not started")
        queries = sorted({query for q in questions for query in q.queries if query.strip()})
        if not queries:
            return [[[] for _ in question.queries] for question in questions]
        vectors = await asyncio.to_thread(shared.embed, queries, "query")
        top_k = max(question.top_k for question in questions)
        corpus = await self._indexed()
        page_lists = await search(
            self._database, corpus, self._language, queries, list(vectors), top_k
        )
        pages = dict(zip(queries, page_lists, strict=True))
        return [
            [answers.hits(pages.get(query, ()), question.top_k) for query in question.queries]
            for question in questions
        ]


def _checked(request: Request) -> WebRequest | EngineError:
    try:
        return answers.read(request)
    except EngineError as error:
        return error
