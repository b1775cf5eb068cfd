"""The small workload: one application on every kind of engine, documents and questions of its own.

    documents ─▶ index ───────────╮
    question ──▶ embed ─▶ search ◀╯─▶ rerank ─▶ generate (tree) ─▶ answer

Answers have a fixed length. Every query has its own number in the instruction, in the document and
in the question, so none finds anything of another in the store or in the LLM's prefix cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from teola import App, Embedding, Generate, Indexing, Rerank, Search
from teola.engine import Splitting
from teola_engines.documents.splitting import split

SPLITTING: Final = Splitting(chunk_size=200, overlap=20)
SEARCHED: Final = 8
ANSWER_TOKENS: Final = 24
INSTRUCTION: Final = (
    "This is request number {number}. Answer the question from the context below and from nothing "
    "else. Be brief and exact, and say so if the context does not contain the answer.\n\n"
)
QUESTIONS: Final = (
    "How does the interpreter look up a name?",
    "When is an exception handler left?",
    "Which methods make an object callable?",
)


def app() -> App:
    """The application."""
    index = Indexing(chunk_size=SPLITTING.chunk_size, overlap=SPLITTING.overlap)
    embed = Embedding(inputs={"texts": "question"})
    search, rerank = Search(top_k=SEARCHED), Rerank(top_k=3)
    generate = Generate(mode="tree", max_tokens=ANSWER_TOKENS, ignore_eos=True)
    return App(
        "fidelity",
        index >> embed >> search >> rerank >> generate,
        inputs={"question": "text", "documents": "documents"},
        outputs={"answer": "answer"},
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """One query. texts: the document's chunks. chunks: tokens of each, as the embedder counts
    them; question: likewise."""

    number: int
    question: str
    document: str
    texts: tuple[str, ...]
    chunks: tuple[int, ...]
    question_tokens: int

    def given(self) -> dict[str, Any]:
        """Its inputs."""
        document = {"name": f"reference {self.number}", "text": self.document}
        return {"question": self.question, "documents": document}

    def overrides(self) -> dict[str, Any]:
        """What makes its prompts its own."""
        return {"generate.instruction": INSTRUCTION.format(number=self.number)}


def queries(
    count: int, chunks: tuple[int, int], encode: Callable[[str], list[int]], seed: int
) -> list[Asked]:
    """Queries about documents of between `chunks` chunks, from Python's language reference."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    pieces = split(text[:200_000], SPLITTING, encode)
    draw = random.Random(seed)
    return [_one(i, pieces, draw.randint(*chunks), encode) for i in range(count)]


def _one(
    number: int, pieces: Sequence[str], chunks: int, encode: Callable[[str], list[int]]
) -> Asked:
    start = 7 * number % (len(pieces) - chunks)
    document = f"Reference {number}.\n\n" + "\n\n".join(pieces[start : start + chunks])
    found = split(document, SPLITTING, encode)
    question = f"In reference {number}: {QUESTIONS[number % len(QUESTIONS)]}"
    lengths = tuple(len(encode(chunk)) for chunk in found)
    return Asked(number, question, document, tuple(found), lengths, len(encode(question)))
