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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, LiteralString

from pgvector import Vector as Wire
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from teola.engine import EmbedderAdmission, EmbedderIdentity
from teola.errors import InputError

from .values import vector

ALIKE: Final = 0.99
"""Cosine of two vectors of one sentence that are of one model. Rounding to 16 bits or another
library leaves .999; other models of one length, whose axes mean other things, are near 0."""

_SPLIT = re.compile(r"([^/]*/\d+/\d+)/(.+)", re.DOTALL)
"""How Teola's loader and an embedder make a document's `pipeline`, of both of them."""

RECORD = """
SELECT c.id, c.embedder, c.sentence IS NOT NULL, CASE
    WHEN vector_dims(c.sentence) = vector_dims(%(sentence)s::vector)
    THEN 1 - (c.sentence <=> %(sentence)s::vector) END
FROM teola.collections c WHERE """
NAMED = RECORD + "c.name = %(name)s"
WITH_DOCUMENTS = (
    NAMED
    + """ AND EXISTS (
    SELECT FROM teola.documents d WHERE d.collection = c.id AND d.ready AND d.died IS NULL)
"""
)
PIPELINES = """
SELECT DISTINCT pipeline FROM teola.documents WHERE collection = %s AND died IS NULL
"""
ADOPT = "UPDATE teola.collections SET embedder = %s WHERE id = %s AND embedder IS NULL"
WRITE = """
UPDATE teola.collections SET embedder = %s, sentence = %s::vector
WHERE id = %s AND sentence IS NULL
"""
MAKE = """
INSERT INTO teola.collections (tenant, name, embedder, sentence) VALUES (%s, %s, %s, %s::vector)
ON CONFLICT DO NOTHING
"""
CLOSED_LOCK: Final = 0x7E01A6
"""Held, with a collection's number, by who embeds it anew and wants nothing more to be begun there
(reindexing.py)."""
HOLD = """
SELECT pg_try_advisory_xact_lock_shared(%s, id::int) FROM teola.collections
WHERE id = %s AND name = %s FOR KEY SHARE
"""
REPLACING = RECORD + "c.replaces = %(source)s"
ABANDON = """
WITH begun AS (
    UPDATE teola.collections SET replaces = NULL WHERE replaces = %(source)s RETURNING id
)
DELETE FROM teola.documents WHERE collection IN (SELECT id FROM begun)
"""
BEGIN = """
INSERT INTO teola.collections (tenant, embedder, sentence, replaces)
VALUES (%s, %s, %s::vector, %s) RETURNING id
"""
LOCK = "SELECT FROM teola.collections WHERE id = %s AND name = %s FOR UPDATE"
RETIRE = """
UPDATE teola.collections SET name = NULL WHERE id = %(number)s
    AND NOT EXISTS (SELECT FROM teola.documents WHERE collection = %(number)s AND died IS NULL)
"""


class _Verdict(Enum):
    SAME = auto()
    ONE_OF_SEVERAL = auto()
    UNSURE = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class EmbedderRecord:
    """What is written down for a collection. identities: several where its documents were indexed
    by several. cosine: between the recorded vector of the sentence and the asking embedder's, if
    both are there."""

    number: int
    identities: tuple[str, ...]
    dimensions: int
    has_sentence: bool
    cosine: float | None


class Admissions:
    """Admits embedders to the collections of a store of `dimensions`. main: those that the database
    was made with, which older collections have."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = self.main = dimensions

    async def check(
        self,
        connection: AsyncConnection[Any],
        collection: str,
        embedder: EmbedderIdentity,
        remember: bool,
    ) -> EmbedderAdmission:
        """See DocumentStore.admit; for a search. One statement, unless nobody has looked at this
        older collection yet."""
        while True:
            named = {"name": collection}
            recorded = await self._read(connection, WITH_DOCUMENTS, named, embedder, remember)
            if recorded is None:
                return EmbedderAdmission(None)
            verdict = _judged(recorded, embedder)
            if verdict is _Verdict.UNSURE:
                return EmbedderAdmission(recorded.number, unsure=True)
            if verdict is _Verdict.OTHER:
                raise InputError(refusal(collection, recorded, embedder))
            if not remember or await self._completed(connection, recorded, embedder, verdict):
                several = verdict is _Verdict.ONE_OF_SEVERAL
                return EmbedderAdmission(
                    recorded.number, notice(collection, recorded) if several else ""
                )

    async def enter(
        self,
        connection: AsyncConnection[Any],
        tenant: str,
        collection: str,
        embedder: EmbedderIdentity,
    ) -> int:
        """Admit an embedder that indexes; it must have its `sentence`. Returns the collection's
        number, and makes the collection if it is missing. Its name and its embedder stay as they
        are until the transaction ends. Raises InputError."""
        while True:
            recorded = await self._read(connection, NAMED, {"name": collection}, embedder)
            if recorded is None:
                values = (tenant, collection, Jsonb(_record(embedder)), _wire(embedder))
                await connection.execute(MAKE, values)
                continue
            verdict = _judged(recorded, embedder)
            if verdict is _Verdict.OTHER:
                if not await self._retired(connection, recorded, collection):
                    raise InputError(refusal(collection, recorded, embedder))
            elif await self._completed(connection, recorded, embedder, verdict):
                values = (CLOSED_LOCK, recorded.number, collection)
                row = await (await connection.execute(HOLD, values)).fetchone()
                if row == (False,):
                    raise InputError(
                        f"the collection {collection!r} is being embedded anew for another "
                        "embedder: index into it with that one, when it is done"
                    )
                if row is not None:
                    return recorded.number

    async def source(
        self, connection: AsyncConnection[Any], collection: str, embedder: EmbedderIdentity
    ) -> tuple[EmbedderRecord | None, bool]:
        """For reindexing: what is written down for the collection, and whether its vectors are
        surely of this embedder already."""
        recorded = await self._read(connection, WITH_DOCUMENTS, {"name": collection}, embedder)
        if recorded is None:
            return None, False
        sure = embedder.digests or recorded.has_sentence
        return recorded, sure and _judged(recorded, embedder) is _Verdict.SAME

    async def target(
        self,
        connection: AsyncConnection[Any],
        tenant: str,
        source: int,
        embedder: EmbedderIdentity,
    ) -> int:
        """The collection that is to replace `source`: one that was begun for this embedder, else a
        new one. What was begun for another one is deleted."""
        begun = await self._read(connection, REPLACING, {"source": source}, embedder)
        if begun is not None and _judged(begun, embedder) is _Verdict.SAME:
            return begun.number
        await connection.execute(ABANDON, {"source": source})
        values = (tenant, Jsonb(_record(embedder)), _wire(embedder), source)
        (number,) = await (await connection.execute(BEGIN, values)).fetchone() or (0,)
        return int(number)

    async def _read(
        self,
        connection: AsyncConnection[Any],
        statement: LiteralString,
        where: Mapping[str, Any],
        embedder: EmbedderIdentity,
        remember: bool = True,
    ) -> EmbedderRecord | None:
        self._check_length(embedder)
        values = {**where, "sentence": _wire(embedder)}
        row = await (await connection.execute(statement, values)).fetchone()
        if row is None:
            return None
        number, record, has_sentence, cosine = row
        if record is None:
            record = await self._adopt(connection, number, embedder, remember)
        identities = tuple(record.get("identities") or [record["identity"]])
        return EmbedderRecord(number, identities, record["dimensions"], has_sentence, cosine)

    def _check_length(self, embedder: EmbedderIdentity) -> None:
        if embedder.dimensions != self._dimensions:
            raise InputError(
                f"the embedder {embedder.identity!r} gives vectors of {embedder.dimensions} "
                f"dimensions, the vector store keeps those of {self._dimensions}: give the engine "
                f"of the store dimensions = {embedder.dimensions} (`--dimensions`)"
            )

    async def _adopt(
        self,
        connection: AsyncConnection[Any],
        number: int,
        embedder: EmbedderIdentity,
        remember: bool,
    ) -> dict[str, Any]:
        """Write down which embedders an older collection was indexed with; `embedder`, if it has no
        documents."""
        cursor = await connection.execute(PIPELINES, (number,))
        identities = sorted({_identity(text, embedder) async for (text,) in cursor})
        if not identities:
            return _record(embedder)  # `_completed` writes it
        record: dict[str, Any] = {"dimensions": self.main}
        if len(identities) == 1:
            record["identity"] = identities[0]
        else:
            record["identities"] = identities
        if remember:
            await connection.execute(ADOPT, (Jsonb(record), number))
        return record

    async def _completed(
        self,
        connection: AsyncConnection[Any],
        recorded: EmbedderRecord,
        embedder: EmbedderIdentity,
        verdict: _Verdict,
    ) -> bool:
        """Write down what only this embedder can tell. False if another process was
        quicker."""
        if verdict is not _Verdict.SAME or recorded.has_sentence or embedder.sentence is None:
            return True
        values = (Jsonb(_record(embedder)), _wire(embedder), recorded.number)
        return bool((await connection.execute(WRITE, values)).rowcount)

    async def _retired(
        self, connection: AsyncConnection[Any], recorded: EmbedderRecord, collection: str
    ) -> bool:
        """Take the name from a collection without documents, so that another one may have it."""
        # Two statements: the second one sees what was committed while the first one waited.
        locked = await connection.execute(LOCK, (recorded.number, collection))
        if not locked.rowcount:
            return True  # somebody else did
        return bool((await connection.execute(RETIRE, {"number": recorded.number})).rowcount)


def _judged(recorded: EmbedderRecord, embedder: EmbedderIdentity) -> _Verdict:
    if recorded.dimensions != embedder.dimensions:
        return _Verdict.OTHER
    if len(recorded.identities) > 1:
        listed = embedder.identity in recorded.identities
        return _Verdict.ONE_OF_SEVERAL if listed else _Verdict.OTHER
    equal = embedder.identity == recorded.identities[0]
    if equal and embedder.digests:
        return _Verdict.SAME
    if not recorded.has_sentence:
        return _Verdict.SAME if equal else _Verdict.OTHER
    if embedder.sentence is None:
        return _Verdict.UNSURE
    near = recorded.cosine is not None and recorded.cosine >= ALIKE
    return _Verdict.SAME if near else _Verdict.OTHER


def refusal(collection: str, recorded: EmbedderRecord, embedder: EmbedderIdentity) -> str:
    """Why an embedder may not search or index the collection, and what to do."""
    own = _listed(recorded.identities)
    if own == repr(embedder.identity):
        why = f"was indexed with {own}, which gives other vectors under that name now"
    else:
        why = f"was indexed with {own}, not with {embedder.identity!r}"
    return (
        f"the collection {collection!r} {why}: use the embedder it has, or embed it anew for this "
        f"one with `teola collections reindex {collection}`"
    )


def notice(collection: str, recorded: EmbedderRecord) -> str:
    """The notice for searches in a collection that was indexed by several embedders."""
    return (
        f"the collection {collection!r} was indexed with several embedders "
        f"({_listed(recorded.identities)}), whose vectors cannot be compared: embed it anew with "
        f"`teola collections reindex {collection}`"
    )


def _listed(identities: Iterable[str]) -> str:
    return " and ".join(map(repr, identities))


def _identity(pipeline: str, embedder: EmbedderIdentity) -> str:
    """The embedder that a document was indexed with."""
    if pipeline.endswith(f"/{embedder.identity}"):
        return embedder.identity
    match = _SPLIT.fullmatch(pipeline)
    return match[2] if match else pipeline


def embedded_by(pipeline: str, embedder: EmbedderIdentity) -> str:
    """The `pipeline` of the same chunks embedded by another one."""
    match = _SPLIT.fullmatch(pipeline)
    return f"{match[1] if match else pipeline}/{embedder.identity}"


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
