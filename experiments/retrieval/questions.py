"""Questions about passages of articles, and the half of the articles that weights are chosen on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teola.errors import InputError

FILE: Final = "xquad_en.json"
FORMS: Final = (
    '{"paragraphs": [{"title", "text"}], "questions": [{"paragraph": 0, "question"}]}, or that of '
    "SQuAD"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """name: unique. article: title of the article that it is from."""

    name: str
    article: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """passage: the one that answers it."""

    text: str
    passage: Passage


@dataclass(frozen=True, slots=True)
class QuestionSet:
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    chosen_on: frozenset[str]
    """Every other article by its title: weights and thresholds are chosen on questions about these,
    and reported on those about the others."""

    def is_kept_back(self, question: Question) -> bool:
        return question.passage.article not in self.chosen_on


def find(file: Path | None, folder: Path | None) -> Path:
    """The file of questions: `file`, or the set in the data folder. Raises InputError."""
    if file is not None:
        places = [file]
    elif folder is not None:
        places = [folder / FILE, folder / "tables" / FILE]
    else:
        raise InputError("there are no questions: give --file QUESTIONS, --data or TEOLA_DATA")
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError(
            f"there is no {' nor '.join(map(str, places))}; experiments/retrieval/README.md says "
            "where it is from"
        )
    return found


def read(path: Path, every: int = 1) -> QuestionSet:
    """All passages, and every `every`th question. Raises InputError for a file of another form, and
    where one of the halves has no question."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        passages, asked = _squad(found["data"]) if "data" in found else _plain(found)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{path} has not the form {FORMS}: {error!r}") from None
    articles = sorted({passage.article for passage in passages})
    made = QuestionSet(tuple(passages), tuple(asked[::every]), frozenset(articles[::2]))
    if len({made.is_kept_back(question) for question in made.questions}) < 2:
        raise InputError(f"{path} needs questions about two articles, one to choose weights on")
    return made


def _plain(found: Any) -> tuple[list[Passage], list[Question]]:
    passages = [
        Passage(f"{number:04}", paragraph["title"], paragraph["text"])
        for number, paragraph in enumerate(found["paragraphs"])
    ]
    return passages, [Question(q["question"], passages[q["paragraph"]]) for q in found["questions"]]


def _squad(articles: Any) -> tuple[list[Passage], list[Question]]:
    passages: list[Passage] = []
    questions: list[Question] = []
    for article in articles:
        for paragraph in article["paragraphs"]:
            passage = Passage(f"{len(passages):04}", article["title"], paragraph["context"])
            passages.append(passage)
            questions += [Question(one["question"], passage) for one in paragraph["qas"]]
    return passages, questions
