"""What others find in the same passages: LlamaIndex's retriever, BM25, and both fused by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.retrieval.found import CANDIDATES, Found, System, each_once
from experiments.retrieval.questions import Passage, Question
from teola_engines.embedding.model import SharedModel

RANK_CONSTANT: Final = 60
"""Of reciprocal rank fusion, as its authors chose it (Cormack and others, SIGIR 2009)."""


class LlamaIndex:
    """`VectorStoreIndex.from_documents` and its retriever, with the embedding that Teola has.

    Its splitter makes pieces of up to 1,024 tokens, of which the embedding reads 256.
    """

    name, reads = "llamaindex", False

    def __init__(self, passages: Sequence[Passage], model: SharedModel) -> None:
        from llama_index.core import Document, VectorStoreIndex
        from llama_index.core.embeddings import BaseEmbedding

        class Embedding(BaseEmbedding):
            """The embedding as LlamaIndex wants one."""

            def _get_query_embedding(self, query: str) -> list[float]:
                return self._get_text_embeddings([query])[0]

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return self._get_query_embedding(query)

            def _get_text_embedding(self, text: str) -> list[float]:
                return self._get_text_embeddings([text])[0]

            def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
                found: list[list[float]] = model.embed(texts).tolist()
                return found

        documents = [Document(text=one.text, id_=one.name) for one in passages]
        index = VectorStoreIndex.from_documents(documents, embed_model=Embedding())
        self._retriever = index.as_retriever(similarity_top_k=CANDIDATES)

    def ask(self, questions: Sequence[Question], *, alone: bool = False) -> list[Found]:
        """See `System`."""
        found = (self._retriever.retrieve(one.text) for one in questions)
        return [Found(each_once(one.node.ref_doc_id for one in nodes)) for nodes in found]


class BM25:
    """bm25s with its defaults and English stop words."""

    name, reads = "bm25", False

    def __init__(self, passages: Sequence[Passage]) -> None:
        import bm25s

        self._names = [one.name for one in passages]
        self._tokenize: Any = bm25s.tokenize
        self._index = bm25s.BM25()
        self._index.index(self._tokens([one.text for one in passages]), show_progress=False)

    def ask(self, questions: Sequence[Question], *, alone: bool = False) -> list[Found]:
        """See `System`."""
        most = min(CANDIDATES, len(self._names))
        tokens = self._tokens([one.text for one in questions])
        found, _ = self._index.retrieve(tokens, k=most, show_progress=False)
        return [Found(tuple(self._names[i] for i in places)) for places in found]

    def _tokens(self, texts: list[str]) -> Any:
        return self._tokenize(texts, stopwords="en", show_progress=False)


@dataclass(frozen=True, slots=True)
class Fused:
    """Reciprocal rank fusion of what two systems find."""

    one: System
    other: System
    reads = False

    @property
    def name(self) -> str:
        return f"{self.one.name} + {self.other.name}"

    def ask(self, questions: Sequence[Question], *, alone: bool = False) -> list[Found]:
        """See `System`."""
        both = zip(self.one.ask(questions), self.other.ask(questions), strict=True)
        return [Found(fused(*pair)) for pair in both]


def fused(*lists: Found) -> tuple[str, ...]:
    """Passages by the sum of their reciprocal ranks."""
    scores: dict[str, float] = {}
    for found in lists:
        for rank, name in enumerate(found.passages, start=1):
            scores[name] = scores.get(name, 0.0) + 1 / (RANK_CONSTANT + rank)
    return tuple(sorted(scores, key=lambda name: -scores[name]))


def others(passages: Sequence[Passage], model: SharedModel) -> list[System]:
    """Those whose passages are always all there: none of them reads."""
    near, words = LlamaIndex(passages, model), BM25(passages)
    return [near, words, Fused(near, words)]
