"""What is true of the reviews, and a model that knows it.

The model reads its prompt: the first line is what it is asked, the others are texts of reviews. It
knows for each text what the data say of it, and it knows nothing of who asks.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple

from experiments.sembench.questions import (
    ANT_MAN,
    NEGATIVE,
    NO,
    OPPOSITE,
    POSITIVE,
    SAME,
    SCORE,
    SENTIMENT,
    TAKEN,
    YES,
    Question,
)
from teola.errors import InputError
from teola.testing import ScriptedModel
from teola.testing.scripted_model import ScriptedCall

FILE: Final = "Reviews.csv"
CHARACTERS: Final = 4
"""Of a token."""
DIGITS: Final = 6
"""That two figures agree in."""
STARS: Final = 5
GRADES: Final = {"A": 4.5, "B": 3.5, "C": 2.5, "D": 1.5, "F": 0.5}
SIGNS: Final = {"": 0.0, "+": 0.4, "-": -0.4}
UNSCORED: Final = {POSITIVE: 4.0, NEGATIVE: 2.0}
"""Of a review whose critic gave no score that can be read: what the rubric calls these."""
_OF: Final = re.compile(r"([0-9.]+) ?(?:/|of) ?([0-9.]+)")


class Review(NamedTuple):
    """A row of the table, as far as the questions go."""

    movie: str
    id: int
    text: str
    sentiment: str
    score: float


def score_of(given: str, sentiment: str) -> float:
    """A critic's score in stars, of five: `3.5/5`, `7/10` or `B+`, else by the sentiment."""
    if found := _OF.fullmatch(given.strip()):
        value, most = map(float, found.groups())
        return round(STARS * value / most, 2)
    letter, sign = given[:1], given[1:]
    if letter in GRADES and sign in SIGNS:
        return GRADES[letter] + SIGNS[sign]
    return UNSCORED[sentiment]


def read(folder: Path) -> list[Review]:
    """The rows of Reviews.csv. Raises InputError."""
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"there is no {path}: --data FOLDER, or TEOLA_DATA/sembench, must have the tables of "
            "SemBench's movie scenario"
        )
    with path.open(encoding="utf-8", newline="") as lines:
        return [
            Review(
                row["id"],
                int(row["reviewId"]),
                row["reviewText"],
                row["scoreSentiment"],
                score_of(row["originalScore"], row["scoreSentiment"]),
            )
            for row in csv.DictReader(lines)
        ]


# --- the model ------------------------------------------------------------------------------------


def written(text: str) -> str:
    """A text as it stands in a prompt, on one line."""
    return text.replace("\n", "\\n")


class KnowsTheTruth:
    """Answers prompts about these reviews. Raises InputError for any other prompt."""

    def __init__(self, reviews: Sequence[Review]) -> None:
        self._known = {written(one.text): one for one in reviews}

    def model(self) -> ScriptedModel:
        """A model for a runtime."""
        return ScriptedModel(self._said)

    def _said(self, call: ScriptedCall) -> str:
        return self(call.prompt)

    def __call__(self, prompt: str) -> str:
        instruction, *lines = prompt.split("\n")
        texts = [line.partition(": ")[2] for line in lines]
        missing = [text for text in texts if text not in self._known]
        if missing or not texts:
            raise InputError(f"no review stands in the prompt: {prompt[:200]!r}")
        reviews = [self._known[text] for text in texts]
        sentiments = [one.sentiment for one in reviews]
        if instruction == SENTIMENT and len(reviews) == 1:
            return sentiments[0]
        if instruction == SCORE and len(reviews) == 1:
            return f"{reviews[0].score:g}"
        if instruction in (SAME, OPPOSITE) and len(reviews) == 2:
            return YES if (sentiments[0] == sentiments[1]) == (instruction == SAME) else NO
        raise InputError(f"unknown question: {prompt[:200]!r}")


class Asked(NamedTuple):
    """Calls and tokens, at four characters each."""

    calls: int
    prompt_tokens: int
    completion_tokens: int


def tokens_in(text: str) -> int:
    return ceil(len(text) / CHARACTERS)


def asked(model: ScriptedModel) -> Asked:
    """What a model was asked."""
    return Asked(
        len(model.calls),
        sum(tokens_in(call.prompt) for call in model.calls),
        sum(tokens_in(call.answer or "") for call in model.calls),
    )


def every_row(question: Question, reviews: Sequence[Review]) -> Asked:
    """What asking for each row (or pair) once takes, of those that the conditions without a call
    let through. The prompts are those of Teola."""
    knows = KnowsTheTruth(reviews)
    rows = [one for one in reviews if question.movie in (None, one.movie)]
    if question.pairs:
        named = [(f"a.reviewText: {written(a.text)}", a.id) for a in rows]
        texts = [f"{one}\nb{two[1:]}" for (one, a), (two, b) in product(named, repeat=2) if a != b]
    else:
        texts = [f"reviewText: {written(one.text)}" for one in rows]
    prompts = [f"{question.instruction}\n{text}" for text in texts]
    return Asked(
        len(prompts),
        sum(map(tokens_in, prompts)),
        sum(tokens_in(knows(prompt)) for prompt in prompts),
    )


# --- the results ----------------------------------------------------------------------------------

Rows = Sequence[tuple[Any, ...]]


def expected(name: str, reviews: Sequence[Review]) -> list[tuple[Any, ...]]:
    """All rows that answer a question, of which Q1, Q2, Q5 and Q6 want a few."""
    taken = [one for one in reviews if one.movie == TAKEN]
    ant_man = [one for one in reviews if one.movie == ANT_MAN]
    positive = sum(one.sentiment == POSITIVE for one in taken)
    if name in ("Q1", "Q2"):
        rows = reviews if name == "Q1" else taken
        return [(one.id,) for one in rows if one.sentiment == POSITIVE]
    if name == "Q3":
        return [(positive,)]
    if name == "Q4":
        return [(positive / len(taken),)]
    if name in ("Q5", "Q6", "Q7"):
        return [
            (a.movie, a.id, b.id)
            for a, b in product(ant_man, repeat=2)
            if a.id != b.id and (a.sentiment == b.sentiment) == (name == "Q5")
        ]
    if name == "Q8":
        return list(Counter(one.sentiment for one in taken).items())
    if name == "Q9":
        return [(one.id, one.score) for one in ant_man]
    scores: dict[str, list[float]] = {}
    for one in reviews:
        scores.setdefault(one.movie, []).append(one.score)
    return [(movie, float(sum(map(Fraction, some)) / len(some))) for movie, some in scores.items()]


def right(question: Question, rows: Rows, truth: Rows) -> tuple[int, int]:
    """Rows that are right, and of how many: of all that are there or should be. Rows that come
    twice must be twice in the truth. Of a question that wants a few, any will do."""
    given, known = Counter(map(_rounded, rows)), Counter(map(_rounded, truth))
    both = (given & known).total()
    if question.wanted is None:
        return both, (given | known).total()
    return both, max(given.total(), min(question.wanted, known.total()))


def _rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(round(one, DIGITS) if isinstance(one, float) else one for one in row)
