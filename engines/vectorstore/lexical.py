"""Full text: the chunks of a scope that have words of a question, scored by BM25.

A chunk is a candidate if it has any word of the question (of a large collection, any of its rarest
words). PostgreSQL's own `ts_rank` does not weigh
a word by how rare it is, so the score is computed here: Robertson and Zaragoza, "The Probabilistic
Relevance Framework: BM25 and Beyond" (2009), formula 3.15, with k1 = 1.2 and b = 0.75. The length
of a chunk is its number of different words.

`fused` merges both lists by reciprocal rank: Cormack, Clarke and Buettcher (SIGIR 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import AsyncConnection, sql

from teola.citation import with_place
from teola.engine import Hit
from teola.errors import InputError

from .schema import TEXT_FUNCTIONS

RANK_CONSTANT = 60
"""Of reciprocal rank fusion, as its authors chose it: how little the first ranks stand out."""

MOST_CHUNKS = 1_000
"""Chunks that are scored, where an index tells beforehand how many have a word. Scoring one takes
a tenth of a millisecond, since its text is cut into words again."""

WORDS = r"""
WITH words AS (
    SELECT lexeme,
        ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery AS query
    FROM unnest(to_tsvector({language}, %(question)s))
),"""
"""A lexeme is quoted as tsquery reads it: nothing in a question is an operator."""

BY_READING = """
cut AS MATERIALIZED (
    SELECT c.document, c.index, c.body, c.place, to_tsvector({language}, c.body) AS vector
    FROM {chunks} c WHERE {conditions} AND EXISTS (SELECT FROM words)
), matched AS MATERIALIZED (
    SELECT * FROM cut
    WHERE vector @@ (SELECT string_agg(query::text, ' | ')::tsquery FROM words)
),"""
"""Every chunk of the scope is cut into words."""

BY_INDEX = """
sizes AS MATERIALIZED (
    SELECT lexeme, query, (SELECT count(*) FROM (
        SELECT FROM {chunks} c
        WHERE {conditions} AND to_tsvector({language}, c.body) @@ words.query LIMIT {most}
    ) AS having_it) AS chunks FROM words
), totals AS (
    SELECT query, sum(chunks) OVER rarest AS total, sum(chunks) OVER rarest - chunks AS before
    FROM sizes WHERE chunks > 0 WINDOW rarest AS (ORDER BY chunks, lexeme)
), matched AS MATERIALIZED (
    SELECT c.document, c.index, c.body, c.place, to_tsvector({language}, c.body) AS vector
    FROM {chunks} c WHERE {conditions} AND to_tsvector({language}, c.body) @@ (
        SELECT string_agg(query::text, ' | ')::tsquery FROM totals
        WHERE total < {most} OR before = 0)
    LIMIT {most}
),"""
"""The candidates have one of the rarest words of the question, as many as give fewer than
MOST_CHUNKS; common words only count in their scores."""

COUNTED = """
counted AS MATERIALIZED (
    SELECT m.document, m.index, u.lexeme, coalesce(cardinality(u.positions), 1) AS times,
        m.length / m.usual AS relative_length
    FROM (SELECT *, length(vector) AS length, avg(length(vector)) OVER () AS usual FROM matched) m
    CROSS JOIN LATERAL unnest(m.vector) AS u
    WHERE u.lexeme IN (SELECT lexeme FROM words)
),"""
"""How often each candidate has which words of the question."""

SIZES = """
sizes AS (
    SELECT lexeme, count(*) AS chunks FROM counted GROUP BY lexeme
),"""

SCORED = """
rarity AS MATERIALIZED (
    SELECT lexeme, ln(1 + (
        greatest((SELECT coalesce(sum(stored), 0) FROM teola.documents
            WHERE collection = {collection} AND ready AND born <= {version}
                AND (died > {version}) IS NOT FALSE), chunks) - chunks + 0.5) / (chunks + 0.5)
    ) AS idf
    FROM sizes
), scored AS (
    SELECT document, index,
        sum(idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * relative_length))) AS score
    FROM counted JOIN rarity USING (lexeme) GROUP BY document, index
), ranked AS (
    SELECT *, row_number() OVER (ORDER BY score DESC, document, index) AS rank FROM scored
)
SELECT r.document, d.name, r.index, m.body, m.place, d.metadata, r.score
FROM ranked r JOIN matched m USING (document, index) JOIN teola.documents d ON d.id = r.document
WHERE r.rank <= {top_k}
    OR (r.document, r.index) IN (SELECT * FROM unnest(%(near)s::text[], %(places)s::int[]))
ORDER BY r.rank
"""

LANGUAGES = "SELECT cfgname FROM pg_ts_config WHERE pg_ts_config_is_visible(oid) ORDER BY cfgname"
USABLE = """
SELECT bool_and(proleakproof) FROM pg_proc WHERE oid = ANY (%s::regprocedure[])
"""
COMPLETE = """
SELECT coalesce(
    (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('teola.' || quote_ident(%s))),
    false)
"""


def regconfig_name(language: str) -> str:
    """A language as `regconfig` reads its name: else capitals are lost."""
    return sql.Identifier(language).as_string()


def index_name(collection: int, language: str) -> str:
    return f"chunks_text_{collection}_{language}"


async def check_language(connection: AsyncConnection[Any], language: str) -> None:
    """Raise InputError, with those that there are, if the server has no such language."""
    languages = [name async for (name,) in await connection.execute(LANGUAGES)]
    if language not in languages:
        raise InputError(
            f"this PostgreSQL has no text search configuration {language!r}: choose one of "
            f"{', '.join(languages)}"
        )


async def usable(connection: AsyncConnection[Any]) -> bool:
    """Whether row-level security lets searches use an index of text (indexing.py)."""
    cursor = await connection.execute(USABLE, (list(TEXT_FUNCTIONS),))
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def complete(connection: AsyncConnection[Any], index: str) -> bool:
    """Whether the index is there and completely built."""
    cursor = await connection.execute(COMPLETE, (index,))
    row = await cursor.fetchone()
    return row is not None and row[0]


def statement(
    conditions: sql.Composable,
    chunks: sql.Identifier,
    collection: int,
    version: int,
    language: str,
    top_k: int,
    *,
    by_index: bool,
) -> sql.Composed:
    """The search in the table `chunks`. Values: `question`, and `near` and `places`, the documents
    and indexes of chunks whose scores are wanted too, whatever their rank."""
    candidates = BY_INDEX + COUNTED if by_index else BY_READING + COUNTED + SIZES
    return sql.SQL(WORDS + candidates + SCORED).format(
        conditions=conditions,
        chunks=chunks,
        collection=sql.Literal(collection),
        version=sql.Literal(version),
        language=sql.SQL("{}::regconfig").format(sql.Literal(regconfig_name(language))),
        top_k=sql.Literal(top_k),
        most=sql.Literal(MOST_CHUNKS),
    )


async def ask(
    connection: AsyncConnection[Any],
    search: sql.Composed,
    values: Mapping[str, Any],
    near: Sequence[Sequence[Hit]],
) -> list[Hit]:
    """Hits with their lexical scores, best first: the best ones, and every hit of `near`, whatever
    its rank."""
    places = sorted({tuple(hit.id.rsplit(":", 1)) for hits in near for hit in hits})
    near_values = {"near": [d for d, _ in places], "places": [int(i) for _, i in places]}
    cursor = await connection.execute(search, {**values, **near_values})
    return [
        Hit(f"{document}:{index}", name, body, 0.0, with_place(metadata, place), float(score))
        async for document, name, index, body, place, metadata, score in cursor
    ]


def fused(near: Sequence[Hit], lexical: Sequence[Hit], top_k: int) -> list[Hit]:
    """The `top_k` best of two ranked lists by the sum of their reciprocal ranks, which is the new
    score: 1 for a hit that is first in both.

    Only the first `top_k` of `lexical` are candidates; the others are there for their scores.
    """
    scores = {hit.id: hit.lexical for hit in lexical}
    ranks: dict[str, float] = {}
    hits: dict[str, Hit] = {}
    for candidates in (near, lexical[:top_k]):
        for rank, hit in enumerate(candidates, start=1):
            hits.setdefault(hit.id, hit)
            ranks[hit.id] = ranks.get(hit.id, 0.0) + (RANK_CONSTANT + 1) / (RANK_CONSTANT + rank)
    best = sorted(hits.values(), key=lambda hit: -ranks[hit.id])[:top_k]
    return [
        replace(hit, score=ranks[hit.id] / 2, lexical=scores.get(hit.id) or 0.0) for hit in best
    ]
