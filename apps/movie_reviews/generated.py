"""The tables, made by seed: English sentences with the statistics of the paper's film reviews.

Of 15,018 reviews of 68 films: mean lengths, distinct values, and the share of `Fresh` are the
paper's; how often a film is reviewed falls by a Zipf law. What a review says goes with its type,
and who may see a film with what its plot tells: so answers of a model can be judged by reading.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from typing import Final, NamedTuple

from . import words

ROWS: Final = 15018
FILMS: Final = 68
INFO_LENGTH: Final = 407.27
"""Mean characters of movie_info, over the reviews that it stands beside."""
REVIEW_LENGTH: Final = 131.50
DISTINCT: Final = 14977 / 15018
"""Reviews that differ, of all."""
FRESH: Final = 10461 / 15008
ZIPF: Final = 0.8
"""The k-th film is reviewed as often as 1 / k^0.8 says."""
SPREAD: Final = 0.4
"""Lengths are spread evenly, by so much of the mean to both sides."""
TOP_CRITICS: Final = 0.3
LOST: Final = 1.8
"""Characters that a review loses on average because its sentences are whole."""


class Film(NamedTuple):
    """gentle: whether children may see it."""

    title: str
    hero: str
    job: str
    place: str
    gentle: bool
    info: str


def movies(rows: int = ROWS, seed: int = 0) -> list[dict[str, object]]:
    """The films. rows, seed: as of `reviews`."""
    return [{"title": film.title, "movie_info": film.info} for film in _films(rows, seed)]


def reviews(rows: int = ROWS, seed: int = 0) -> list[dict[str, object]]:
    """Reviews, in no order. review_score: from 1/5 to 5/5."""
    draw = random.Random(f"movie-reviews/reviews/{seed}")
    films = _films(rows, seed)
    known: set[str] = set()
    made: list[dict[str, object]] = []
    repeated = set(draw.sample(range(1, rows), rows - round(rows * DISTINCT))) if rows > 1 else ()
    for row, at in enumerate(_reviewed(rows, seed)):
        if row in repeated:
            made.append(dict(made[draw.randrange(row)]))
            continue
        fresh = draw.random() < FRESH
        text = _review(draw, films[at], fresh)
        while text in known:
            text = _review(draw, films[at], fresh)
        known.add(text)
        made.append(
            {
                "title": films[at].title,
                "review_content": text,
                "review_type": "Fresh" if fresh else "Rotten",
                "review_score": f"{draw.randint(3, 5) if fresh else draw.randint(1, 3)}/5",
                "top_critic": draw.random() < TOP_CRITICS,
            }
        )
    return made


def questions(rows: int = ROWS, seed: int = 0) -> list[dict[str, object]]:
    """Questions about the films, and what their plots say. rows, seed: as of `reviews`."""
    made: list[dict[str, object]] = []
    for film in _films(rows, seed):
        job = f"What is the job of {film.hero} in {film.title}?"
        made.append({"question": job, "answer": film.job})
        made.append({"question": f"Where does {film.title} take place?", "answer": film.place})
    return made


def _reviewed(rows: int, seed: int) -> list[int]:
    """Which film each review is of."""
    draw = random.Random(f"movie-reviews/popularity/{seed}")
    weights = list(accumulate(1 / (k + 1) ** ZIPF for k in range(FILMS)))
    return draw.choices(range(FILMS), cum_weights=weights, k=rows)


@cache
def _films(rows: int, seed: int) -> tuple[Film, ...]:
    """Their plots are as long as the paper's on average of the reviews."""
    draw = random.Random(f"movie-reviews/films/{seed}")
    titles = [f"The {one} {other}" for one in words.FIRST for other in words.SECOND]
    lengths = [draw.uniform(1 - SPREAD, 1 + SPREAD) for _ in range(FILMS)]
    scale = INFO_LENGTH * rows / sum(lengths[at] for at in _reviewed(rows, seed))
    films = []
    for title, length in zip(draw.sample(titles, FILMS), lengths, strict=True):
        hero, job, place = (
            draw.choice(words.HEROES),
            draw.choice(words.JOBS),
            draw.choice(words.PLACES),
        )
        gentle = draw.random() < 0.5
        film = Film(title, hero, job, place, gentle, "")
        films.append(film._replace(info=_text(scale * length, _plot(draw, film))))
    return tuple(films)


def _plot(draw: random.Random, film: Film) -> Iterator[str]:
    """Sentences, without an end."""
    yield f"{film.hero} is a {film.job} in {film.place}"
    yield draw.choice(words.GENTLE_ENDS if film.gentle else words.GRIM_ENDS)
    while True:
        deeds = words.GENTLE if film.gentle else words.GRIM
        for deed in draw.sample(deeds, len(deeds)):
            who = draw.choice(
                ["", f" with {draw.choice(words.HEROES)} the {draw.choice(words.JOBS)}"]
            )
            yield f"{draw.choice(words.TURNS)} {film.hero}{who} {deed}"


def _review(draw: random.Random, film: Film, fresh: bool) -> str:
    length = REVIEW_LENGTH * draw.uniform(1 - SPREAD, 1 + SPREAD)
    return _text(length + LOST, _opinions(draw, film, fresh))


def _opinions(draw: random.Random, film: Film, fresh: bool) -> Iterator[str]:
    """Sentences, without an end."""
    qualities, clauses = (
        (words.GOOD, words.GOOD_CLAUSES) if fresh else (words.BAD, words.BAD_CLAUSES)
    )
    fill: Callable[[str], str] = lambda clause: clause.format(  # noqa: E731
        hero=film.hero, aspect=draw.choice(words.ASPECTS), quality=draw.choice(qualities)
    )
    while True:
        one, other = draw.sample(qualities, 2)
        aspect = draw.choice(words.ASPECTS)
        yield f"The {aspect} is {one} and {other}, and {fill(draw.choice(clauses))}"


def _text(length: float, sentences: Iterator[str]) -> str:
    """Whole sentences, as near to a length as they come."""
    text = f"{next(sentences)}."
    while True:
        longer = f"{text} {next(sentences)}."
        if length - len(text) < len(longer) - length:
            return text
        text = longer
