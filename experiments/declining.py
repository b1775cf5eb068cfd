"""Finds the MaxSim below which the extractive reader declines, on questions in SQuAD's format.

    python -m experiments.declining xquad.en.json

Every question is asked twice, as naive-rag and advanced-rag do: with its article among the
documents, and without it. The threshold is the highest with which both applications answer 94 % of
the questions about every other article; the table tells what it does to all the other articles'.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from teola_engines.embedding.model import SharedModel, borrowed
from teola_engines.llm.quoting import choose
from teola_engines.llm.sentences import Sentence, sentences
from teola_engines.rerank.maxsim import maxsim

ANSWERED: Final = 0.94
THRESHOLDS: Final = tuple(round(float(t), 2) for t in np.arange(0.40, 0.60, 0.01))
PASSAGES, CANDIDATES, QUOTES = 3, 16, 3
"""As the applications have them: passages that are read, and searched for reranking."""

Choose = Callable[[Sequence[Sentence]], list[Sentence]]


class Question(NamedTuple):
    text: str
    article: str


class Asked(NamedTuple):
    """One question, asked once. quoted: its answer has quotes."""

    app: str
    article: str
    with_article: bool
    threshold: float
    quoted: bool


class Texts:
    """The vectors of texts and of their tokens, each computed once."""

    def __init__(self, model: SharedModel, texts: Sequence[str]) -> None:
        distinct = sorted(set(texts))
        self.vectors = dict(zip(distinct, model.embed(distinct), strict=True))
        self.tokens = dict(zip(distinct, model.embed_tokens(distinct), strict=True))

    def embed(self, texts: Sequence[str]) -> Any:
        return np.stack([self.vectors[text] for text in texts])

    def embed_tokens(self, texts: Sequence[str]) -> Any:
        return [self.tokens[text] for text in texts]


def read(file: Path) -> tuple[list[str], list[str], list[Question]]:
    """Passages, the article of each, and questions."""
    passages, articles, questions = [], [], []
    for article in json.loads(file.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            passages.append(paragraph["context"])
            articles.append(article["title"])
            questions += [Question(qa["question"], article["title"]) for qa in paragraph["qas"]]
    return passages, articles, questions


def asked(file: Path, every: int) -> Iterator[Asked]:
    """All questions, or every `every`th, with all thresholds."""
    passages, articles, questions = read(file)
    questions = questions[::every]
    parts = {passage: sentences(passage) for passage in passages}
    quotable = [sentence.text for found in parts.values() for sentence in found]
    with borrowed(dtype="float32") as model:
        texts = Texts(model, [*passages, *quotable, *(q.text for q in questions)])
    matrix = texts.embed(passages)
    for question in questions:
        order = np.argsort(-(matrix @ texts.vectors[question.text]))
        near = partial(maxsim, texts.tokens[question.text])
        for with_article in (True, False):
            hits = [passages[i] for i in order if with_article or articles[i] != question.article]
            reranked = sorted(hits[:CANDIDATES], key=lambda hit: -near(texts.tokens[hit]))
            for threshold in THRESHOLDS:
                chosen = partial(
                    choose,
                    question.text,
                    embed=texts.embed,
                    embed_tokens=texts.embed_tokens,
                    most=QUOTES,
                    least=threshold,
                )
                for app, answer, found in (
                    ("naive-rag", tree, hits),
                    ("advanced-rag", refine, reranked),
                ):
                    quotes = answer([parts[hit] for hit in found[:PASSAGES]], chosen)
                    yield Asked(app, question.article, with_article, threshold, bool(quotes))


def tree(context: Sequence[Sequence[Sentence]], chosen: Choose) -> list[Sentence]:
    """An answer from each passage, and one from these."""
    return chosen([quote for passage in context for quote in chosen(passage)])


def refine(context: Sequence[Sequence[Sentence]], chosen: Choose) -> list[Sentence]:
    """An answer that each passage may better."""
    answer: list[Sentence] = []
    for passage in context:
        answer = chosen([*answer, *passage])
    return answer


def share(rows: Sequence[Asked], app: str, threshold: float, *, with_article: bool) -> float:
    """Of the questions, the share that is answered; without the article, that is declined."""
    quoted = [
        row.quoted
        for row in rows
        if (row.app, row.threshold, row.with_article) == (app, threshold, with_article)
    ]
    return float(np.mean(quoted)) if with_article else 1 - float(np.mean(quoted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="questions in SQuAD's format")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth question")
    given = parser.parse_args()
    rows = list(asked(given.file, given.every))
    chosen_on = set(sorted({row.article for row in rows})[::2])
    halves = (
        [row for row in rows if row.article in chosen_on],
        [row for row in rows if row.article not in chosen_on],
    )
    apps = sorted({row.app for row in rows})
    fit = [
        threshold
        for threshold in THRESHOLDS
        if all(share(halves[0], app, threshold, with_article=True) >= ANSWERED for app in apps)
    ]
    print(
        f"threshold {max(fit, default='none')}; answered and declined (chosen on | other articles)"
    )
    for threshold in THRESHOLDS:
        for app in apps:
            numbers = [
                f"{share(half, app, threshold, with_article=True):.3f} "
                f"{share(half, app, threshold, with_article=False):.3f}"
                for half in halves
            ]
            print(f"{threshold:.2f}  {app:12}  {'  |  '.join(numbers)}")


if __name__ == "__main__":
    main()
