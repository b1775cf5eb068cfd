"""Nearest neighbours: one statement for all vectors that share a scope and a top_k.

Long because exact, indexed and hybrid searches are one transaction each, told side by side.

Small collections are searched exactly: every distance is computed. A collection with an HNSW
index of its own (indexing.py) is searched through it, iteratively: the index is scanned on, in
strict order, until enough rows pass the filters. Where it gives fewer than asked for, because few
rows pass, or where the scope names few chunks from the start, the question is asked exactly.

A hybrid search asks the full text of the same scope next, in the same transaction, and fuses both
lists (lexical.py). These are two statements, because the first one switches plans off that the
second one needs.

Each query sees one version of a collection (pins.py): documents that were born later or had died
before are left out, as those are that are still being indexed. They are few, so they are listed.

Equal scores are ordered by document and index, so the same question has one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from pgvector import Vector as Wire
from psycopg import AsyncConnection, sql

from teola.citation import with_place
from teola.engine import EngineResult, Hit, Life, Request, Scope
from teola.errors import InputError
from teola.filters import NAME_KEY, Comparison, comparisons
from teola.graph.ops import SearchParams

from . import lexical
from .database import Database
from .filtering import where
from .pins import HeldVersions, Searcher
from .schema import ChunkTables
from .values import ChunkVector, check_name, vector

EF_SEARCH = (200, 1000)
"""Candidates that HNSW keeps: at least, and the most that pgvector takes."""

QUESTION_CHARS = 10_000
"""What comes behind is no question any more, and each of its words costs time."""
WORD_CHARS = 500
"""Longer ones are left out of a question: a lexeme of more than 2,046 bytes, which a word may
become when it loses its capitals, breaks PostgreSQL's text search."""

SEARCH = """
SELECT q.number, h.document, d.name, h.index, h.body, h.place, d.metadata, 1 - h.distance
FROM unnest(%(vectors)b::vector[]) WITH ORDINALITY AS q (embedding, number)
CROSS JOIN LATERAL (
    SELECT c.document, c.index, c.body, c.place, c.embedding <=> q.embedding AS distance
    FROM {chunks} c
    WHERE {conditions}
    ORDER BY {distance}, c.document, c.index
    LIMIT {top_k}
) AS h
JOIN teola.documents d ON d.id = h.document
ORDER BY q.number, h.distance, h.document, h.index
"""
BY_INDEX = "c.embedding <=> q.embedding"
EXACTLY = "(c.embedding <=> q.embedding) + 0"
"""The same number, in a form that no index serves."""

COLLECTIONS: LiteralString = """
SELECT id, name, indexed, version, (embedder->'dimensions')::int FROM teola.collections WHERE """
IN_COLLECTION = "c.collection = {collection}"
VISIBLE: LiteralString = """c.document NOT IN (
    SELECT id FROM teola.documents WHERE collection = {collection}
        AND (NOT ready OR died <= {version} OR born > {version}))"""
VISIBLE_BY_INDEX: LiteralString = """c.document NOT IN (
    SELECT id FROM teola.documents WHERE collection = {collection}
        AND (NOT ready OR died IS NOT NULL) AND (NOT ready OR died <= {version}) UNION ALL
    SELECT id FROM teola.documents WHERE collection = {collection} AND born > {version})"""
"""The same, where plans may not merge what several indexes give. Both list what is hidden once, and
look into that list for each chunk."""

IN_DOCUMENTS = "c.document = ANY (%(documents)s)"
NAMED = """c.document = ANY (ARRAY(
    SELECT id FROM teola.documents WHERE collection = {collection} AND name = %(name)s))"""
FILTERED = """(c.document IN (
    SELECT id FROM teola.documents WHERE collection = {collection} AND """
FILTERED_END = ")) IS TRUE"
"""Around the comparisons of filtering.py. IS TRUE keeps it a lookup in a table of the documents
that match: a join might order the rows by something else than their distance."""

SIZE = """
SELECT coalesce(sum(stored), 0) FROM teola.documents
WHERE collection = %(collection)s AND ready AND born <= %(version)s
    AND (died > %(version)s) IS NOT FALSE
    AND (%(documents)s::text[] IS NULL OR id = ANY (%(documents)s))
    AND (%(name)s::text IS NULL OR name = %(name)s)
"""
SETTINGS = """
SELECT set_config('enable_seqscan', %(plain)s, true), set_config('enable_sort', %(plain)s, true),
    set_config('enable_bitmapscan', %(plain)s, true),
    set_config('hnsw.iterative_scan', 'strict_order', true),
    set_config('hnsw.ef_search', %(ef)s, true)
"""


LacksIndex = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One request, checked. query: who asks, and in which collection. life: says whether it goes
    on."""

    number: int
    query: Searcher
    life: Life
    scope: Scope
    top_k: int
    vectors: tuple[ChunkVector, ...]
    name: str | None
    comparisons: tuple[Comparison, ...]
    language: str | None = None
    question: str = ""

    def group(self, home: SearchedVersion | None) -> tuple[Any, ...]:
        """Equal where one statement can answer both. home: where it looks."""
        scope = self.scope
        return (home, scope.documents, repr(sorted(scope.filters.items())), self.top_k)

    @property
    def values(self) -> dict[str, Any]:
        documents = None if self.scope.documents is None else list(self.scope.documents)
        return {"documents": documents, "name": self.name}


@dataclass(frozen=True, slots=True)
class Collection:
    """dimensions: of its vectors; None while that is not known."""

    id: int
    name: str | None
    indexed: bool
    version: int
    dimensions: int | None


@dataclass(frozen=True, slots=True)
class SearchedVersion:
    """A collection in the version that is searched."""

    id: int
    version: int
    indexed: bool
    dimensions: int
    tables: ChunkTables

    @property
    def chunks(self) -> sql.Identifier:
        """The table that it looks in."""
        return self.tables.own


def read(number: int, request: Request, dimensions: int) -> SearchRequest:
    """Check one request. Raises InputError."""
    scope: Scope = request.inputs["scope"]
    if not isinstance(request.params, SearchParams):
        raise InputError("a search needs SearchParams")
    top_k = request.params.top_k
    if top_k < 1:
        raise InputError(f"top_k is {top_k}: ask for at least one")
    for document in scope.documents or ():
        check_name("document", document)
    filters = comparisons(scope.filters)
    named = [
        comparison
        for comparison in filters
        if comparison.path == (NAME_KEY,) and comparison.operator == "$eq"
    ]
    name = named[0].value if named else None
    vectors = tuple(vector(values, dimensions) for values in request.inputs["vectors"])
    rest = tuple(comparison for comparison in filters if comparison not in named[:1])
    language, question = request.params.language, ""
    if language is not None:
        text = request.inputs.get("question")
        if not isinstance(text, str):
            raise InputError("a hybrid search needs the text `question` beside its vectors")
        words = text[:QUESTION_CHARS].replace("\0", " ").split()
        question = " ".join(word for word in words if len(word) <= WORD_CHARS)
    asker = Searcher(request.context.whole_id, scope.collection)
    life = request.context.life
    return SearchRequest(number, asker, life, scope, top_k, vectors, name, rest, language, question)


async def search(
    database: Database,
    tables: ChunkTables,
    tenant: str,
    batch: Sequence[SearchRequest],
    hold: HeldVersions,
    exact_below: int,
    lacks_index: LacksIndex,
) -> dict[int, EngineResult | Exception] | None:
    """Answer a tenant's questions in one transaction; results by number. None: a name has become
    another collection's, so hold again. lacks_index: told of the collections and languages whose
    text has no index."""
    results: dict[int, EngineResult | Exception] = {}
    async with database.transaction(tenant) as connection:
        groups: dict[tuple[Any, ...], tuple[SearchedVersion | None, list[SearchRequest]]] = {}
        collections = await _collections(connection, hold)
        names = {
            collection.name: collection.id
            for collection in collections.values()
            if collection.name is not None
        }
        if not hold.fits(names):
            return None
        for question in batch:
            home = _home(hold, question, collections, tables)
            if refused := _refused(question.scope, home, tables):
                results[question.number] = refused
            else:
                groups.setdefault(question.group(home), (home, []))[1].append(question)
        for home, questions in groups.values():
            vectors = [values for question in questions for values in question.vectors]
            hits = await _ask(connection, questions[0], home, vectors, exact_below)
            for question in questions:
                mine, hits = hits[: len(question.vectors)], hits[len(question.vectors) :]
                try:
                    if home is not None and mine and question.language is not None:
                        mine = await _with_words(connection, question, home, mine, lacks_index)
                    results[question.number] = {"hits": mine}
                except InputError as error:
                    results[question.number] = error
    return results


def _home(
    hold: HeldVersions,
    question: SearchRequest,
    collections: Mapping[int, Collection],
    tables: ChunkTables,
) -> SearchedVersion | None:
    """Where a question looks; None: there is no such collection. A query that ended meanwhile pins
    nothing, for it has let go of everything already."""
    versions = {collection.id: collection.version for collection in collections.values()}
    pin = hold.settle(question.query, versions, keep=not question.life.over)
    if pin is None:
        return None
    collection = collections[pin.collection]
    return SearchedVersion(*pin, collection.indexed, collection.dimensions or tables.width, tables)


async def _with_words(
    connection: AsyncConnection[Any],
    question: SearchRequest,
    home: SearchedVersion,
    near: list[list[Hit]],
    lacks_index: LacksIndex,
) -> list[list[Hit]]:
    """The nearest hits of each vector, fused with the hits that have words of the question."""
    if question.scope.documents == ():
        return near
    language, top_k = question.language or "", question.top_k
    await lexical.check_language(connection, language)
    name = lexical.index_name(home.id, language)
    by_index = await lexical.usable(connection) and await lexical.complete(connection, name)
    if not by_index:
        lacks_index(home.id, language)
    conditions, values = _conditions(question, home)
    search = lexical.statement(
        conditions, home.chunks, home.id, home.version, language, top_k, by_index=by_index
    )
    values["question"] = question.question
    lexical_hits = await lexical.ask(connection, search, values, near)
    return [lexical.fused(hits, lexical_hits, top_k) for hits in near]


async def _collections(
    connection: AsyncConnection[Any], hold: HeldVersions
) -> dict[int, Collection]:
    pinned = hold.pinned
    statement = " UNION ALL ".join(
        [COLLECTIONS + "name = ANY(%(names)s)"] * bool(hold.names)
        + [COLLECTIONS + "id = ANY(%(ids)s)"] * bool(pinned)
    )
    if not statement:
        return {}
    cursor = await connection.execute(statement, {"names": list(hold.names), "ids": list(pinned)})
    return {row[0]: Collection(*row) async for row in cursor}


def _refused(scope: Scope, home: SearchedVersion | None, tables: ChunkTables) -> InputError | None:
    """The refusal, if the asking vectors cannot be compared with those of the collection."""
    if scope.number is not None and (home is None or home.id != scope.number):
        return InputError(
            f"the collection {scope.collection!r} got another embedder, or was deleted, while this "
            "query ran: ask again"
        )
    if home is not None and home.dimensions != tables.width:
        return InputError(
            f"the collection {scope.collection!r} has vectors of {home.dimensions} dimensions, the "
            f"store those of {tables.width}: use the embedder it has, or embed it anew with "
            f"`teola collections reindex {scope.collection}`"
        )
    return None


async def _ask(
    connection: AsyncConnection[Any],
    question: SearchRequest,
    home: SearchedVersion | None,
    vectors: Sequence[ChunkVector],
    exact_below: int,
) -> list[list[Hit]]:
    """Hits of each vector, all with the scope and top_k of `question`."""
    if home is None or not vectors or question.scope.documents == ():
        return [[] for _ in vectors]
    if not home.indexed or await _is_narrow(connection, question, home, exact_below):
        return await _run(connection, question, home, vectors, indexed=False)
    nearest = await _run(connection, question, home, vectors, indexed=True)
    short = [i for i, hits in enumerate(nearest) if len(hits) < question.top_k]
    if short:
        again = [vectors[i] for i in short]
        exact = await _run(connection, question, home, again, indexed=False)
        for i, hits in zip(short, exact, strict=True):
            nearest[i] = hits
    return nearest


async def _is_narrow(
    connection: AsyncConnection[Any],
    question: SearchRequest,
    home: SearchedVersion,
    exact_below: int,
) -> bool:
    """Whether the scope names so few chunks that computing all distances is quicker."""
    if question.scope.documents is None and question.name is None:
        return False
    values = {**question.values, "collection": home.id, "version": home.version}
    cursor = await connection.execute(SIZE, values)
    row = await cursor.fetchone()
    return row is None or row[0] < exact_below


async def _run(
    connection: AsyncConnection[Any],
    question: SearchRequest,
    home: SearchedVersion,
    vectors: Sequence[ChunkVector],
    *,
    indexed: bool,
) -> list[list[Hit]]:
    if indexed:
        await _plan(connection, "off", question.top_k)
    statement, values = _statement(question, home, indexed=indexed)
    values["vectors"] = [Wire(values) for values in vectors]
    cursor = await connection.execute(statement, values)
    hits: list[list[Hit]] = [[] for _ in vectors]
    shared: dict[str, Any] = {}  # metadata, once for all hits of a document
    async for number, document, name, index, body, place, metadata, score in cursor:
        placed = with_place(shared.setdefault(document, metadata), place)
        hit = Hit(f"{document}:{index}", name, body, float(score), placed)
        hits[number - 1].append(hit)
    if indexed:
        await _plan(connection, "on", question.top_k)
    return hits


async def _plan(connection: AsyncConnection[Any], plain: str, top_k: int) -> None:
    """Switch plans that compute all distances "on" or "off", to the end of the transaction."""
    ef = min(max(2 * top_k, EF_SEARCH[0]), EF_SEARCH[1])
    await connection.execute(SETTINGS, {"plain": plain, "ef": str(ef)})


def _conditions(
    question: SearchRequest, home: SearchedVersion, visible: LiteralString = VISIBLE
) -> tuple[sql.Composed, dict[str, Any]]:
    """Which chunks `c` are in scope, and the values in that; the collection is a literal, so that
    the plan can use its own indexes."""
    values = question.values
    optional = {"documents": IN_DOCUMENTS, "name": NAMED}
    conditions = [IN_COLLECTION, visible]
    conditions += [text for key, text in optional.items() if values[key] is not None]
    if question.comparisons:
        tests, compared = where(question.comparisons)
        conditions.append(FILTERED + tests + FILTERED_END)
        values |= compared
    literals = {"collection": sql.Literal(home.id), "version": sql.Literal(home.version)}
    texts = (sql.SQL(text).format(**literals) for text in conditions)
    return sql.SQL(" AND ").join(texts), values


def _statement(
    question: SearchRequest, home: SearchedVersion, *, indexed: bool
) -> tuple[sql.Composed, dict[str, Any]]:
    """The search for the nearest chunks, and its values, all but the vectors."""
    visible = VISIBLE_BY_INDEX if indexed else VISIBLE
    conditions, values = _conditions(question, home, visible)
    search = sql.SQL(SEARCH).format(
        chunks=home.chunks,
        conditions=conditions,
        distance=sql.SQL(BY_INDEX if indexed else EXACTLY),
        top_k=sql.Literal(question.top_k),
    )
    return search, values
