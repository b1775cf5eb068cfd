"""Which embedder a collection has: written down with its first document, compared with who comes.

The same is one whose identity is equal, where identities are digests of weights; else one whose
vector of one fixed sentence has a cosine of at least ALIKE with the one written down, since names
of models lie. Another one is refused, unless the collection has no documents any more.

Collections that are older than this take it from how their documents were indexed, when somebody
first looks. Where that were two, both may search and index on, with a notice. Nobody knows the
sentence's vector of such a collection until an embedder of that identity comes, which gives it.

What is written down for a row of `collections` never changes. A collection that gets another
embedder gets another row: a query whose vectors are of the old one is told, by the row's number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from pgvector import Vector as Wire
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from teola.engine import Admission, EmbedderIdentity
from teola.errors import InputError

from .values import vector

ALIKE: Final = 0.99
"""Cosine of two vectors of one sentence that are of one model. Rounding to 16 bits or another
library leaves .999; other models of one length, whose axes mean other things, are near 0."""

_SPLIT = re.compile(r"[^/]*/\d+/\d+/(.+)", re.DOTALL)
"""How Teola's loader and an embedder make a document's `pipeline`; the group is the embedder."""

_WRITTEN = """
c.id, c.embedder, c.sentence IS NOT NULL, CASE
    WHEN vector_dims(c.sentence) = vector_dims(%(sentence)s::vector)
    THEN 1 - (c.sentence <=> %(sentence)s::vector) END
FROM teola.collections c WHERE c.name = %(name)s
"""
WRITTEN = "SELECT" + _WRITTEN
WITH_DOCUMENTS = (
    WRITTEN + " AND EXISTS (SELECT FROM teola.documents d WHERE d.collection = c.id AND d.ready)"
)
PIPELINES = "SELECT DISTINCT pipeline FROM teola.documents WHERE collection = %s"
ADOPT = "UPDATE teola.collections SET embedder = %s WHERE id = %s AND embedder IS NULL"
WRITE = """
UPDATE teola.collections SET embedder = coalesce(embedder, %s), sentence = %s::vector
WHERE id = %s AND sentence IS NULL
"""
MAKE = """
INSERT INTO teola.collections (tenant, name, embedder, sentence) VALUES (%s, %s, %s, %s::vector)
ON CONFLICT DO NOTHING
"""
HOLD = "SELECT FROM teola.collections WHERE id = %s AND name = %s FOR KEY SHARE"
EMPTY = """
SELECT NOT EXISTS (SELECT FROM teola.documents WHERE collection = c.id)
FROM teola.collections c WHERE c.id = %s AND c.name = %s FOR UPDATE
"""
RETIRE = "UPDATE teola.collections SET name = NULL WHERE id = %s"


class _Verdict(Enum):
    SAME = auto()
    ONE_OF_SEVERAL = auto()
    UNSURE = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Written:
    """What is written down for a collection. identities: several where its documents were indexed
    by several. cosine: of its sentence's vector and that of who asks, if both are there."""

    number: int
    identities: tuple[str, ...]
    dimensions: int
    has_sentence: bool
    cosine: float | None


class Admissions:
    """Lets embedders in to the collections of a store of `dimensions`; `main` are those of the
    database, which older collections have."""

    def __init__(self, dimensions: int, main: int) -> None:
        self._dimensions, self._main = dimensions, main

    async def check(
        self, connection: AsyncConnection[Any], collection: str, embedder: EmbedderIdentity
    ) -> Admission:
        """See DocumentStore.admit: for who searches. One statement, but for a first look."""
        written = await self._read(connection, WITH_DOCUMENTS, collection, embedder)
        if written is None:
            return Admission(None)
        verdict = _judged(written, embedder)
        if verdict is _Verdict.UNSURE:
            return Admission(written.number, unsure=True)
        self._refuse(verdict, collection, written, embedder)
        await self._complete(connection, written, embedder, verdict)
        several = verdict is _Verdict.ONE_OF_SEVERAL
        return Admission(written.number, notice(collection, written) if several else "")

    async def enter(
        self,
        connection: AsyncConnection[Any],
        tenant: str,
        collection: str,
        embedder: EmbedderIdentity,
    ) -> int:
        """For who indexes, `embedder.sentence` being known: number of the collection, made if need
        be, whose name and embedder stay as they are until the transaction ends. Raises InputError.
        """
        while True:
            written = await self._read(connection, WRITTEN, collection, embedder)
            if written is None:
                values = (tenant, collection, Jsonb(_record(embedder)), _wire(embedder))
                await connection.execute(MAKE, values)
                continue
            verdict = _judged(written, embedder)
            if verdict is _Verdict.OTHER and await self._retire(connection, written, collection):
                continue
            self._refuse(verdict, collection, written, embedder)
            await self._complete(connection, written, embedder, verdict)
            held = await connection.execute(HOLD, (written.number, collection))
            if held.rowcount:
                return written.number

    async def _read(
        self,
        connection: AsyncConnection[Any],
        statement: str,
        collection: str,
        embedder: EmbedderIdentity,
    ) -> Written | None:
        self._check_length(embedder)
        values = {"name": collection, "sentence": _wire(embedder)}
        row = await (await connection.execute(statement, values)).fetchone()  # type: ignore[call-overload]
        if row is None:
            return None
        number, record, has_sentence, cosine = row
        if record is None:
            record = await self._adopt(connection, number, embedder)
        identities = tuple(record.get("identities") or [record["identity"]])
        return Written(number, identities, record["dimensions"], has_sentence, cosine)

    def _check_length(self, embedder: EmbedderIdentity) -> None:
        if embedder.dimensions != self._dimensions:
            raise InputError(
                f"the embedder {embedder.identity!r} gives vectors of {embedder.dimensions} "
                f"dimensions, the vector store keeps those of {self._dimensions}: give the engine "
                f"of the store dimensions = {embedder.dimensions} (`--dimensions`)"
            )

    async def _adopt(
        self, connection: AsyncConnection[Any], number: int, embedder: EmbedderIdentity
    ) -> dict[str, Any]:
        """Write down for an older collection what its documents were indexed with, if it has any;
        else it is the embedder's who asks."""
        cursor = await connection.execute(PIPELINES, (number,))
        identities = sorted({_identity(text, embedder) async for (text,) in cursor})
        if not identities:
            return _record(embedder)  # `_complete` writes it
        record: dict[str, Any] = {"dimensions": self._main}
        if len(identities) == 1:
            record["identity"] = identities[0]
        else:
            record["identities"] = identities
        await connection.execute(ADOPT, (Jsonb(record), number))
        return record

    def _refuse(
        self, verdict: _Verdict, name: str, written: Written, embedder: EmbedderIdentity
    ) -> None:
        if verdict is _Verdict.OTHER:
            raise InputError(refusal(name, written, embedder))

    async def _complete(
        self,
        connection: AsyncConnection[Any],
        written: Written,
        embedder: EmbedderIdentity,
        verdict: _Verdict,
    ) -> None:
        """Write down what was not known before this embedder came."""
        wanted = verdict is _Verdict.SAME and not written.has_sentence
        if wanted and embedder.sentence is not None:
            values = (Jsonb(_record(embedder)), _wire(embedder), written.number)
            await connection.execute(WRITE, values)

    async def _retire(
        self, connection: AsyncConnection[Any], written: Written, collection: str
    ) -> bool:
        """Take the name from a collection without documents, so that another one may have it."""
        cursor = await connection.execute(EMPTY, (written.number, collection))
        row = await cursor.fetchone()
        if row is None:
            return True  # somebody did
        if row[0]:
            await connection.execute(RETIRE, (written.number,))
        return bool(row[0])


def _judged(written: Written, embedder: EmbedderIdentity) -> _Verdict:
    if written.dimensions != embedder.dimensions:
        return _Verdict.OTHER
    if len(written.identities) > 1:
        known = embedder.identity in written.identities
        return _Verdict.ONE_OF_SEVERAL if known else _Verdict.OTHER
    equal = embedder.identity == written.identities[0]
    if equal and embedder.digests:
        return _Verdict.SAME
    if not written.has_sentence:
        return _Verdict.SAME if equal else _Verdict.OTHER
    if embedder.sentence is None:
        return _Verdict.UNSURE
    near = written.cosine is not None and written.cosine >= ALIKE
    return _Verdict.SAME if near else _Verdict.OTHER


def refusal(collection: str, written: Written, embedder: EmbedderIdentity) -> str:
    """Why an embedder may not search or index the collection, and what to do."""
    own = _listed(written.identities)
    if own == repr(embedder.identity):
        why = f"was indexed with {own}, which gives other vectors under that name now"
    else:
        why = f"was indexed with {own}, not with {embedder.identity!r}"
    return (
        f"the collection {collection!r} {why}: use the embedder it has, or embed it anew for this "
        f"one with `teola collections reindex {collection}`"
    )


def notice(collection: str, written: Written) -> str:
    """What whoever searches a collection of several embedders has to know."""
    return (
        f"the collection {collection!r} was indexed with several embedders "
        f"({_listed(written.identities)}), whose vectors cannot be compared: embed it anew with "
        f"`teola collections reindex {collection}`"
    )


def _listed(identities: Iterable[str]) -> str:
    return " and ".join(map(repr, identities))


def _identity(pipeline: str, embedder: EmbedderIdentity) -> str:
    """The embedder that a document was indexed with."""
    if pipeline.endswith(f"/{embedder.identity}"):
        return embedder.identity
    match = _SPLIT.fullmatch(pipeline)
    return match[1] if match else pipeline


def _record(embedder: EmbedderIdentity) -> dict[str, Any]:
    return {
        "identity": embedder.identity,
        "model": embedder.model,
        "dimensions": embedder.dimensions,
        "pooling": embedder.pooling,
    }


def _wire(embedder: EmbedderIdentity) -> Wire | None:
    if embedder.sentence is None:
        return None
    return Wire(vector(embedder.sentence, embedder.dimensions))
