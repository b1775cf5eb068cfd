"""Keeping a corpus's index equal to its source: what is new is read, what is gone is dropped.

A document is known by the digest of its bytes, so one that was only renamed or touched is not read
again. Each is stored in a transaction of its own, with the sizes that BM25 needs; a start that is
interrupted leaves whole documents, and the next one goes on. One process indexes a corpus at a
time, the others wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pgvector import Vector as Wire
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection, sql

from teola.engine import Splitting
from teola.errors import DocumentError, EngineUnavailable, UnknownName

from ..documents import FileLoader
from ..embedding.model import SharedModel
from ..vectorstore import schema as vectors
from ..vectorstore.database import Database
from ..vectorstore.lexical import regconfig_name
from ..vectorstore.values import clean
from .corpus_documents import Collected, Document, titled
from .corpus_tables import CORPUS_SCHEMA, INDEXING_LOCK

logger = logging.getLogger(__name__)
SPLITTING: Final = Splitting(chunk_size=160, overlap=24)
"""A passage is what a search service would show of a page, in tokens of the embedder."""
VERSION: Final = 1
"""To be raised when documents are read or split in another way."""

_WORD = re.compile(r"[^\W_]+")

CORPUS = """
INSERT INTO corpora (source, pipeline) VALUES (%(source)s, %(pipeline)s)
ON CONFLICT (source, pipeline) DO UPDATE SET source = excluded.source RETURNING id
"""
STORE = """
WITH document AS (
    INSERT INTO documents (corpus, sha256, url, title)
    VALUES (%(corpus)s, %(sha256)s, %(url)s, %(title)s) RETURNING id
), stored AS (
    INSERT INTO passages (corpus, document, index, body, embedding)
    SELECT %(corpus)s, document.id, p.number, p.body, p.embedding
    FROM document, unnest(%(bodies)s::text[], %(vectors)b::vector[])
        WITH ORDINALITY AS p (body, embedding, number)
    RETURNING id, index
), counted AS (
    SELECT stored.id, l.lexeme AS term, cardinality(l.positions) AS count,
        (sum(cardinality(l.positions)) OVER (PARTITION BY stored.id))::int AS length
    FROM stored
    JOIN unnest(%(words)s::text[]) WITH ORDINALITY AS w (words, number) ON w.number = stored.index
    CROSS JOIN LATERAL unnest(to_tsvector(%(language)s::regconfig, w.words)) AS l
), said AS (
    INSERT INTO terms (corpus, term, passage, count, length)
    SELECT %(corpus)s, term, id, count, length FROM counted
)
UPDATE corpora SET passages = passages + (SELECT count(*) FROM stored),
    words = words + (SELECT coalesce(sum(count), 0) FROM counted)
WHERE id = %(corpus)s
"""
DROP = "DELETE FROM documents WHERE corpus = %(corpus)s AND id = ANY (%(gone)s)"
COUNT = """
UPDATE corpora SET
    passages = (SELECT count(*) FROM passages WHERE corpus = %(corpus)s),
    words = (SELECT coalesce(sum(count), 0) FROM terms WHERE corpus = %(corpus)s)
WHERE id = %(corpus)s
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """How documents become passages with vectors."""

    loader: FileLoader
    model: SharedModel
    language: str

    @property
    def pipeline(self) -> str:
        """Changes whenever the index would."""
        read = self.loader.pipeline(SPLITTING)
        return f"{VERSION} {self.model.identity} {read} {self.language}"


def words_in(text: str) -> str:
    """The words of `text` alone: PostgreSQL's parser takes "a.b" and "a/b" for single ones."""
    return " ".join(_WORD.findall(clean(text).casefold()))


async def refresh(database: Database, collected: Collected, reader: Reader) -> int:
    """Bring the index up to date; the corpus's id. Raises EngineUnavailable, UnknownName."""
    async with database.admin() as connection:
        await register_vector_async(connection)
        where = await vectors.extension_schema(connection)
        path = sql.SQL("SET search_path TO {}, {}").format(sql.Identifier(CORPUS_SCHEMA), where)
        await connection.execute(path)
        await _check_language(connection, reader.language)
        values = {"source": collected.name, "pipeline": reader.pipeline}
        corpus = await _one(connection, CORPUS, values)
        await connection.execute("SELECT pg_advisory_lock(%s, %s)", (INDEXING_LOCK, corpus))
        await _Refresh(connection, corpus, reader).run(collected.documents)
        return corpus


class _Refresh:
    """One comparison of the index with its source, over one connection."""

    def __init__(self, connection: AsyncConnection[Any], corpus: int, reader: Reader) -> None:
        self.connection, self.corpus, self.reader = connection, corpus, reader
        self.unread: list[DocumentError] = []

    async def run(self, documents: Sequence[Document]) -> None:
        by_digest = await asyncio.to_thread(self._digests, documents)
        cursor = await self.connection.execute(
            "SELECT sha256, id, url FROM documents WHERE corpus = %s", (self.corpus,)
        )
        indexed = {sha256: (id, url) async for sha256, id, url in cursor}
        await self._drop([id for sha256, (id, _) in indexed.items() if sha256 not in by_digest])
        readable = 0
        for sha256, document in by_digest.items():
            if sha256 not in indexed:
                readable += await self._add(sha256, document)
                continue
            readable += 1
            if indexed[sha256][1] != document.url:
                values = (document.url, indexed[sha256][0])
                await self.connection.execute("UPDATE documents SET url = %s WHERE id = %s", values)
        self._report(readable)

    def _digests(self, documents: Sequence[Document]) -> Mapping[str, Document]:
        """The documents by digest; of equal ones the first."""
        by_digest: dict[str, Document] = {}
        for document in documents:
            try:
                digest = self.reader.loader.fingerprint(document.source).sha256
            except DocumentError as error:
                self.unread.append(error)
            else:
                by_digest.setdefault(digest, document)
        return by_digest

    async def _drop(self, gone: list[int]) -> None:
        if not gone:
            return
        values = {"corpus": self.corpus, "gone": gone}
        async with self.connection.transaction():
            await self.connection.execute(DROP, values)
            await self.connection.execute(COUNT, values)

    async def _add(self, sha256: str, document: Document) -> bool:
        """Index a document; whether it could be read."""
        reader, model = self.reader, self.reader.model
        try:
            chunks = await reader.loader.split(document.source, SPLITTING, model.encode)
        except DocumentError as error:
            self.unread.append(error)
            return False
        bodies = [clean(chunk).strip() for chunk in chunks]
        title = document.source.name
        if bodies:
            title, bodies[0] = titled(bodies[0], title)
        texts = [f"{title}\n{body}" for body in bodies]
        embedded = await asyncio.to_thread(model.embed, texts)
        values = {
            "corpus": self.corpus,
            "sha256": sha256,
            "url": document.url,
            "title": title,
            "bodies": bodies,
            "vectors": [Wire(vector) for vector in embedded],
            "words": [words_in(f"{title} {body}") for body in bodies],
            "language": regconfig_name(reader.language),
        }
        await self.connection.execute(STORE, values)
        logger.info("indexed %s: %d passages", document.url, len(bodies))
        return True

    def _report(self, readable: int) -> None:
        for error in self.unread:
            logger.info("left out of the corpus: %s", error)
        if self.unread and not readable:
            raise EngineUnavailable(
                f"nothing in the corpus folder can be read ({self.unread[0]}): put text, "
                "Markdown, HTML or PDF into it",
                retryable=False,
            )


async def _check_language(connection: AsyncConnection[Any], language: str) -> None:
    cursor = await connection.execute("SELECT cfgname FROM pg_ts_config")
    valid = [name async for (name,) in cursor]
    if language not in valid:
        raise UnknownName("language", language, valid, "the corpus")


async def _one(connection: AsyncConnection[Any], statement: Any, values: Any) -> int:
    cursor = await connection.execute(statement, values)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
