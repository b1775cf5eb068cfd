"""Questions and a collection with the statistics of SQuAD's development set, made by seed.

The paper asks 5,000 questions of SQuAD and does not say which. Here they are drawn from the
development set's: 10,570 questions on 2,067 paragraphs of 48 articles. A paragraph has words of its
article and others, a question has words of its paragraph. So what a search finds behind the right
paragraph is of the same article, as it is there. The search is exact, over words weighed by how
rare they are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any, Final

import numpy as np
import pyarrow as pa

from experiments.tables.generated import WORDS, Writer
from experiments.tables.queries import CHARACTERS, CONTEXTS
from teola.tables.retrieval_call import RetrievalCall

DATA: Final = "squad"
QUESTIONS: Final = 5000
PARAGRAPHS: Final = 2067
ARTICLES: Final = 48
LENGTH: Final = 735
"""Characters of a paragraph, on average."""
ASKED_WORDS: Final = 10
"""Of a question: 60 characters."""
TOPIC_WORDS: Final = 120
OF_TOPIC: Final = 0.5
"""Share of a paragraph's words that are its article's."""

WEIGHTS_GB: Final = 0.67
BANDWIDTH_GB_S: Final = 300
TOKEN_S: Final = 0.3e-3 * 0.335 / 6.74
"""BGE-large has 0.335 of Llama's 6.74 billion weights, on the same machine."""
BATCH: Final = 64
AT_ONCE: Final = 1024


@cache
def collection(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """So many questions, and the paragraphs; with fewer questions there are fewer of those."""
    draw = random.Random(f"tables/{DATA}/{seed}")
    words = Writer(draw).words
    count = max(3, round(PARAGRAPHS * rows / QUESTIONS))
    articles = max(1, round(ARTICLES * rows / QUESTIONS))
    topics = [draw.sample(words, TOPIC_WORDS) for _ in range(articles)]
    paragraphs = []
    for at in range(count):
        length, said = LENGTH * draw.uniform(0.5, 1.5), list[str]()
        while sum(map(len, said)) + len(said) < length:
            said.append(draw.choice(topics[at % articles] if draw.random() < OF_TOPIC else words))
        paragraphs.append(" ".join(said))
    questions = [
        " ".join(draw.choices(draw.choice(paragraphs).split(), k=ASKED_WORDS)) for _ in range(rows)
    ]
    return questions, paragraphs


def table(rows: int, seed: int = 0) -> pa.Table:
    """The questions."""
    return pa.table({"question": collection(rows, seed)[0]})


class Search:
    """Finds paragraphs for texts, as the vector store of a runtime does. shared: in the paper's
    order, those first that most of all questions find. seconds: of the embedder, virtual: for the
    paragraphs, and for all texts so far."""

    def __init__(self, rows: int, seed: int, *, shared: bool = False) -> None:
        self._often: Counter[int] = Counter()
        self._paragraphs = collection(rows, seed)[1]
        self._columns: dict[str, int] = {}
        for one in self._paragraphs:
            for word in one.split():
                self._columns.setdefault(word, len(self._columns))
        assert len(self._columns) <= WORDS
        has = self._vectors(self._paragraphs)
        self._weights = np.log(len(self._paragraphs) / np.maximum(1, has.sum(axis=0)))
        vectors = has * self._weights
        self._vectors_of = vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=1))[:, None]
        self.seconds = embedding_s(self._paragraphs)
        if shared:
            questions = collection(rows, seed)[0]
            self._often.update(at for row in self._best(questions, CONTEXTS) for at in row)

    def __call__(
        self, call: RetrievalCall, texts: Sequence[str], seconds: float
    ) -> list[list[str]]:
        self.seconds += embedding_s(texts)
        often, best = self._often, self._best(texts, call.k)
        if often:
            best = [sorted(row, key=lambda at: (-often[at], at)) for row in best]
        return [[self._paragraphs[at] for at in row] for row in best]

    def _best(self, texts: Sequence[str], k: int) -> list[list[int]]:
        found: list[list[int]] = []
        for start in range(0, len(texts), AT_ONCE):
            some = self._vectors(texts[start : start + AT_ONCE])
            scores = (some * self._weights) @ self._vectors_of.T
            found += np.argsort(-scores, axis=1, kind="stable")[:, :k].tolist()
        return found

    def _vectors(self, texts: Sequence[str]) -> Any:
        found = np.zeros((len(texts), len(self._columns)), dtype=np.float32)
        for at, text in enumerate(texts):
            found[at, [self._columns[one] for one in text.split() if one in self._columns]] = 1.0
        return found


def embedding_s(texts: Sequence[str]) -> float:
    """What BGE-large takes for them, in batches."""
    tokens = sum(ceil(len(text) / CHARACTERS) for text in texts)
    return ceil(len(texts) / BATCH) * WEIGHTS_GB / BANDWIDTH_GB_S + tokens * TOKEN_S
