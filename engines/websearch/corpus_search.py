"""Searching a corpus: by words (BM25) and by meaning (vectors), in one statement for all queries.

    score(passage) = sum over the two rankings of 1 / (60 + rank), as a share of the best possible

is reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009). Of a document only its best passage
is a hit. BM25 is that of Robertson and Zaragoza (2009), with the usual k1 = 1.2 and b = 0.75.
Passages that share no word with the query and are far from it in meaning are not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg
from pgvector import Vector as Wire

from teola.errors import EngineError

from ..embedding.encoder import Vector
from ..vectorstore.database import Database
from ..vectorstore.lexical import regconfig_name
from .answers import Page
from .corpus_indexing import words_in

CANDIDATES: Final = 50
"""Passages that each of the two rankings contributes."""
FUSION: Final = 60
FARTHEST: Final = 0.8
"""Cosine distance from which on a passage has nothing to do with the query."""

SEARCH = """
WITH size AS (
    SELECT passages, words::float8 / greatest(passages, 1) AS length
    FROM corpora WHERE id = %(corpus)s
), asked AS MATERIALIZED (
    SELECT q.number, l.lexeme AS term
    FROM unnest(%(words)s::text[]) WITH ORDINALITY AS q (words, number)
    CROSS JOIN LATERAL unnest(to_tsvector(%(language)s::regconfig, q.words)) AS l
), weight AS MATERIALIZED (
    SELECT t.term, ln(1 + (size.passages - count(*) + 0.5) / (count(*) + 0.5)) AS idf
    FROM terms t, size
    WHERE t.corpus = %(corpus)s AND t.term IN (SELECT term FROM asked)
    GROUP BY t.term, size.passages
), scored AS (
    SELECT a.number, t.passage,
        sum(
            w.idf * t.count * 2.2 / (t.count + 1.2 * (0.25 + 0.75 * t.length / size.length))
        ) AS score
    FROM asked a
    JOIN weight w ON w.term = a.term
    JOIN terms t ON t.corpus = %(corpus)s AND t.term = a.term
    CROSS JOIN size
    GROUP BY a.number, t.passage
), by_words AS (
    SELECT number, passage,
        row_number() OVER (PARTITION BY number ORDER BY score DESC, passage) AS rank
    FROM scored
), by_meaning AS (
    SELECT q.number, n.passage,
        row_number() OVER (PARTITION BY q.number ORDER BY n.distance, n.passage) AS rank
    FROM unnest(%(vectors)b::vector[]) WITH ORDINALITY AS q (embedding, number)
    CROSS JOIN LATERAL (
        SELECT p.id AS passage, p.embedding <=> q.embedding AS distance
        FROM passages p WHERE p.corpus = %(corpus)s
        ORDER BY distance, p.id LIMIT %(candidates)s
    ) AS n
    WHERE n.distance < %(farthest)s
), fused AS (
    SELECT number, passage, sum(1.0::float8 / (%(fusion)s + rank)) AS score
    FROM (
        SELECT * FROM by_words WHERE rank <= %(candidates)s UNION ALL SELECT * FROM by_meaning
    ) AS ranked
    GROUP BY number, passage
), best AS (
    SELECT DISTINCT ON (f.number, p.document) f.number, f.score, p.document, p.body
    FROM fused f JOIN passages p ON p.id = f.passage
    ORDER BY f.number, p.document, f.score DESC, p.index
), placed AS (
    SELECT b.number, b.score, b.body, d.url, d.title,
        row_number() OVER (PARTITION BY b.number ORDER BY b.score DESC, d.url) AS place
    FROM best b JOIN documents d ON d.id = b.document
)
SELECT number, url, title, body, score * (%(fusion)s + 1) / 2 FROM placed
WHERE place <= %(top_k)s ORDER BY number, place
"""


async def search(
    database: Database,
    corpus: int,
    language: str,
    queries: Sequence[str],
    vectors: Sequence[Vector],
    top_k: int,
) -> list[list[Page]]:
    """The `top_k` best pages for each query, given its vector. Raises EngineError."""
    values = {
        "corpus": corpus,
        "language": regconfig_name(language),
        "words": [words_in(query) for query in queries],
        "vectors": [Wire(vector) for vector in vectors],
        "candidates": max(CANDIDATES, top_k),
        "farthest": FARTHEST,
        "fusion": FUSION,
        "top_k": top_k,
    }
    pages: list[list[Page]] = [[] for _ in queries]
    try:
        async with database.reading() as connection:
            async for number, url, title, body, score in await connection.execute(SEARCH, values):
                pages[number - 1].append(Page(url, title, body, float(score)))
    except psycopg.Error as error:
        raise EngineError(f"the corpus could not be searched ({type(error).__name__})") from error
    return pages
