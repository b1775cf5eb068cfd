"""Finds the MaxSim below which the extractive reader declines: `LEAST_MAXSIM`.

Each application has read passages for each question: with its article among them, and without it.
Here the reader reads them again, at every threshold. The one that is chosen is the highest with
which all applications answer 94 % of the questions about the articles that weights are chosen on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from experiments.retrieval.found import Asked
from experiments.retrieval.questions import QuestionSet
from teola.engine import Hit
from teola_engines.embedding.model import SharedModel
from teola_engines.llm.quoting import best
from teola_engines.llm.sentences import Sentence, sentences

ANSWERED: Final = 0.94
THRESHOLDS: Final = tuple(round(0.40 + 0.01 * step, 2) for step in range(21))
QUOTES: Final = 3
"""Of one answer, as the reader has it by default."""


class Reader:
    """The extractive reader without calls: whether it answers from texts that were found."""

    def __init__(self, model: SharedModel) -> None:
        self._model = model
        self._known: dict[tuple[str, tuple[Sentence, ...]], tuple[list[Sentence], float]] = {}

    def answers(self, app: str, question: str, hits: Sequence[Hit], least: float) -> bool:
        """Whether there are quotes, in the way in which the application asks."""
        asked = " ".join(question.split())
        passages = [sentences(hit.text) for hit in hits]
        if app == "naive-rag":  # an answer from each passage, and one from these
            drafts = [quote for one in passages for quote in self._quotes(asked, one, least)]
            return bool(self._quotes(asked, drafts, least))
        answer: list[Sentence] = []
        for one in passages:  # an answer that each passage may better
            answer = self._quotes(asked, [*answer, *one], least)
        return bool(answer)

    def _quotes(self, question: str, context: Sequence[Sentence], least: float) -> list[Sentence]:
        """As they stand in an answer: without headings, in the order of the context."""
        key = question, tuple(context)
        if key not in self._known:
            model = self._model
            self._known[key] = best(question, context, model.embed, model.embed_tokens, most=QUOTES)
        found, near = self._known[key]
        return [Sentence(one.text) for one in sorted(found, key=context.index) if near >= least]


def curve(
    reader: Reader, asked: Mapping[str, Sequence[Asked]], given: QuestionSet
) -> list[dict[str, Any]]:
    """For each threshold, application and half of the articles: the shares of questions that are
    answered, and declined without their article. asked: by application."""
    found = []
    for app, questions in asked.items():
        for kept_back in (False, True):
            half = [one for one in questions if given.is_kept_back(one.question) is kept_back]
            for least in THRESHOLDS:
                answered = [_answers(reader, app, one, least) for one in half]
                alone = [_answers(reader, app, one, least, alone=True) for one in half]
                found.append(
                    {
                        "app": app,
                        "set": "kept_back" if kept_back else "chosen_on",
                        "least_maxsim": least,
                        "answered": round(fmean(answered), 4),
                        "declined": round(1 - fmean(alone), 4),
                    }
                )
    return found


def _answers(reader: Reader, app: str, one: Asked, least: float, *, alone: bool = False) -> bool:
    found = one.alone if alone else one.found
    assert found is not None
    return reader.answers(app, one.question.text, found.hits, least)


def chosen(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The threshold, of the rows of `curve`; None if with none of them enough is answered."""
    fit = [
        least
        for least in THRESHOLDS
        if all(
            row["answered"] >= ANSWERED
            for row in rows
            if row["set"] == "chosen_on" and row["least_maxsim"] == least
        )
    ]
    return max(fit, default=None)


def unlike(reader: Reader, app: str, asked: Sequence[Asked], least: float) -> int:
    """Of all answers of an application, how many the reader here does not give or decline as the
    application did."""
    found = [each for one in asked for each in (one.found, one.alone) if each is not None]
    questions = [one.question.text for one in asked for each in (one.found, one.alone) if each]
    return sum(
        reader.answers(app, question, each.hits, least) is bool(each.declined)
        for question, each in zip(questions, found, strict=True)
    )
