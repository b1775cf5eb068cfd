"""Examples that people have kept: documents of the tenant's own collection for a database.

A document is a question, its SQL the document's metadata, so likeness, tenants and deletion are
those of collections. Each is asked for by an application of its own, on the runtime of the query
around it: its engines are started when the first example is kept, or looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from teola import App, Embedding, Indexing, Search, TeolaError

MOST: Final = 3
LEAST_LIKENESS: Final = 0.35
"""Of a kept question to the one that is asked, from 0 to 1."""
LONGEST_SQL: Final = 4_000

store = App(
    "keep-sql-example",
    Indexing(),
    inputs={"documents": "documents"},
    outputs={"stored": "stored"},
    description="Keeps a question with its SQL",
)
find = App(
    "sql-examples",
    Embedding(inputs={"texts": "question"}) >> Search(top_k=MOST),
    inputs={"question": "text", "documents": "documents"},
    outputs={"hits": "hits"},
    description="Questions that were kept with their SQL",
)


async def keep(wanted: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Keep the question with the SQL that has just run ("": nothing was asked to be kept)."""
    if not wanted["keep"] or "error" in result:
        return ""
    question, sql = wanted["question"], result["sql"]
    if len(sql) > LONGEST_SQL:
        raise TeolaError(f"an example that is kept has up to {LONGEST_SQL:,} characters of SQL")
    name = blake2b(question.casefold().encode(), digest_size=12).hexdigest()
    document = {"name": name, "text": question, "metadata": {"sql": sql}}
    await store.arun(documents=[document], collection=result["collection"])
    return "It was kept as an example."


async def kept_examples(linked: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Any]:
    """Examples like the question, {"question", "sql"}; none where none can have been kept."""
    if not linked["kept"]:
        return []
    try:
        found = await find.arun(question=wanted["question"], collection=linked["collection"])
    except TeolaError:
        return []  # the collection is gone, or its engines are: the question can do without
    return examples_of(found["hits"])


def examples_of(hits: Sequence[Any]) -> list[dict[str, str]]:
    """Of what a search has found."""
    return [
        {"question": hit.text, "sql": str(hit.metadata["sql"])}
        for hit in hits
        if hit.score >= LEAST_LIKENESS and "sql" in hit.metadata
    ]
