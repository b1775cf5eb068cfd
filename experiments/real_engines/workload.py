"""What is asked: applications, documents of a given number of chunks, histories, arrival times.

Every query is an edition of its own: its number stands first in the document, in the history and in
the question, so a system finds nothing of one query in the store or in the prefix cache when it
answers another (but for the instruction). All systems are asked the same editions: the passages
that are found for one may be a quarter longer than those for another, even where both ask the same.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from teola.errors import InputError

APPS: Final = ("naive-rag", "advanced-rag", "chat-rag")
CHUNKS: Final = (45, 150)
HISTORY_TOKENS: Final = 1500
NAIVE_TOP_K: Final = 3
SEARCH_TOP_K: Final = 6
"""Hits for each of the three rewritings, so that about a dozen distinct passages are reranked."""
RERANK_TOP_K: Final = 3

QUESTIONS: Final = (
    "How does the interpreter look up a name?",
    "When is an exception handler left?",
    "Which methods make an object callable?",
    "How are keyword arguments matched with parameters?",
    "What does the with statement guarantee?",
)


@dataclass(frozen=True, slots=True)
class Query:
    """One query; history is None where the application has none. edition: unique in a run."""

    app: str
    edition: str
    question: str
    document: str
    history: str | None = None

    @property
    def tree(self) -> bool:
        """Whether answers are merged (naive RAG) or refined."""
        return self.app == "naive-rag"


class Workload:
    """Makes queries. split: the chunks of a text. tokenizer: file of the LLM's tokenizer."""

    def __init__(self, split: Callable[[str], Sequence[str]], tokenizer: Path) -> None:
        self._split, self._tokenizer = split, tokenizer
        self._editions: dict[tuple[str, int, str, int], str] = {}
        self._documents: dict[int, str] = {}

    def query(self, app: str, chunks: int, part: str, place: int) -> Query:
        """A query about a document of about `chunks` chunks; equal arguments, the same query.

        part: of the run, such as a load. place: in that part, from 0.
        """
        new = f"Edition {len(self._editions) + 1}"
        edition = self._editions.setdefault((app, chunks, part, place), new)
        document = f"{edition} of the reference.\n\n{self._document(chunks)}"
        question = f"{edition}: {QUESTIONS[place % len(QUESTIONS)]}"
        history = f"{edition}.\n{self._history}" if app == "chat-rag" else None
        return Query(app, edition, question, document, history)

    def _document(self, chunks: int) -> str:
        """A beginning of the text, cut at a line, that has about that many chunks."""
        if chunks not in self._documents:
            length = chunks * 900
            for _ in range(3):
                found = len(self._split(self._long_text[:length]))
                if abs(found - chunks) <= max(1, chunks // 50):
                    break
                length = length * chunks // found
            else:
                if length > len(self._long_text):
                    raise InputError(
                        f"there is no text for {chunks:,} chunks: the longest has {found:,}"
                    )
            self._documents[chunks] = self._long_text[:length].rpartition("\n")[0]
        return self._documents[chunks]

    @cached_property
    def _long_text(self) -> str:
        """The reference, and the sources of the standard library for documents that are longer."""
        modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in modules)
        return "\n\n".join([self._text, *texts])

    @cached_property
    def _text(self) -> str:
        """Python's language reference, which every interpreter carries."""
        from pydoc_data.topics import topics

        return "\n\n".join(topics[name] for name in sorted(topics))

    @cached_property
    def _history(self) -> str:
        """The end of the text, as turns of a conversation, `HISTORY_TOKENS` tokens long."""
        from tokenizers import Tokenizer

        tokenizer: Any = Tokenizer.from_file(str(self._tokenizer))
        paragraphs = [p.strip() for p in self._text[-40_000:].split("\n\n") if p.strip()]
        turns = [f"{'User' if i % 2 == 0 else 'Assistant'}: {p}" for i, p in enumerate(paragraphs)]
        ids = tokenizer.encode("\n".join(turns), add_special_tokens=False).ids[:HISTORY_TOKENS]
        return str(tokenizer.decode(ids)).strip()


def arrivals(rate: float, queries: int, seed: int = 7) -> list[float]:
    """Poisson arrival times, in seconds from the start, at `rate` queries a second on average.

    Scaled so that the last one comes at `queries / rate`: every system gets the same times, and so
    few arrivals would otherwise have a rate of their own.
    """
    rng = random.Random(seed)
    at, found = 0.0, []
    for _ in range(queries):
        at += rng.expovariate(1.0)
        found.append(at)
    return [time * queries / rate / at for time in found]
