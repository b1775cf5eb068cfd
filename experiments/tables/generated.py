"""Tables with the statistics of the paper's two data sets, made by seed.

Values are random words. An item (a film, a product) is drawn by a Zipf law, and a review is written
for it. Of each column the mean length and the number of distinct values are the paper's; those that
depend on the number of rows keep their share of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from teola.errors import UnknownName

ZIPF: Final = 0.8
"""The k-th item is reviewed as often as 1 / k^0.8 says."""
WORDS: Final = 4000
ITEM_SPREAD: Final = 0.4
"""Lengths are spread evenly, by so much of the mean to both sides."""


@dataclass(frozen=True)
class Statistics:
    """Of one data set, as the paper tells them. rows: its rows. items: distinct items. item_length,
    review_length: mean characters of what is said of an item, and of a review. distinct: reviews
    that differ, of all rows. passing: share of rows that the cheap condition of Q2 lets through."""

    rows: int
    items: int
    item_length: float
    review_length: float
    distinct: int
    passing: float


STATISTICS: Final = {
    "movies": Statistics(15018, 68, 407.27, 131.50, 14977, 10461 / 15008),
    "products": Statistics(15014, 144, 282.56, 381.54, 12932, 8874 / 15000),
}
FORMATS: Final = (
    "MP3 Music", "Audio CD", "Vinyl", "Cassette", "DVD", "Blu-ray", "Box set", "Download",
    "LP record", "Hardcover", "Paperback", "Kindle", "Streaming", "SACD disc", "Mini disc", "Tape",
)  # fmt: skip


@cache
def table(data: str, rows: int, seed: int = 0) -> pa.Table:
    """So many rows of a data set. `picked` is even from 0 to 1: conditions of any selectivity are
    over it. Raises UnknownName."""
    if data not in STATISTICS:
        raise UnknownName("data set", data, STATISTICS)
    draw = random.Random(f"tables/{data}/{seed}")
    made = Writer(draw)
    known = STATISTICS[data]
    reviews = _reviews(known, rows, draw, made)
    infos = made.of_mean(known.item_length, [item for item, _, _ in reviews], known.items)
    columns = (_movies if data == "movies" else _products)(known, reviews, infos, draw, made)
    columns["picked"] = [draw.random() for _ in range(rows)]
    return pa.table(columns)


class Writer:
    """Writes random words, of `words`."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(WORDS)]

    def text(self, length: int) -> str:
        """A text of so many characters."""
        words = self._draw.choices(self.words, k=length // 3 + 2)
        return " ".join(words)[:length].ljust(length, "x")

    def about(self, mean: float) -> str:
        """A text of about that length."""
        return self.text(round(mean * self._draw.uniform(1 - ITEM_SPREAD, 1 + ITEM_SPREAD)))

    def of_mean(self, mean: float, drawn: list[int], count: int) -> list[str]:
        """A text for each item, so that they are as long as `mean` on average of the rows."""
        lengths = [self._draw.uniform(1 - ITEM_SPREAD, 1 + ITEM_SPREAD) for _ in range(count)]
        scale = mean * len(drawn) / sum(lengths[item] for item in drawn)
        return [self.text(max(1, round(scale * length))) for length in lengths]


def _reviews(
    known: Statistics, rows: int, draw: random.Random, made: Writer
) -> list[tuple[int, str, str]]:
    """Item, review, and its summary, of each row. Some repeat one before them."""
    weights = list(accumulate(1 / (k + 1) ** ZIPF for k in range(known.items)))
    items = draw.choices(range(known.items), cum_weights=weights, k=rows)
    again = set(draw.sample(range(1, rows), round(rows * (1 - known.distinct / known.rows))))
    found: list[tuple[int, str, str]] = []
    for row, item in enumerate(items):
        if row in again:
            found.append(found[draw.randrange(row)])
        else:
            found.append((item, made.about(known.review_length), made.about(24)))
    return found


def _movies(
    known: Statistics,
    reviews: list[tuple[int, str, str]],
    infos: list[str],
    draw: random.Random,
    made: Writer,
) -> dict[str, Any]:
    titles = [made.about(18) for _ in infos]
    count = len(reviews)
    return {
        "title": [titles[item] for item, _, _ in reviews],
        "movie_info": [infos[item] for item, _, _ in reviews],
        "review_content": [text for _, text, _ in reviews],
        "review_type": draw.choices(
            ["Fresh", "Rotten"], [known.passing, 1 - known.passing], k=count
        ),
        "review_score": draw.choices(["1/5", "2/5", "3/5", "4/5", "5/5"], k=count),
        "top_critic": draw.choices([True, False], k=count),
    }


def _products(
    known: Statistics,
    reviews: list[tuple[int, str, str]],
    infos: list[str],
    draw: random.Random,
    made: Writer,
) -> dict[str, Any]:
    titles = [made.about(30) for _ in infos]
    formats = [draw.choice(FORMATS) for _ in infos]
    count = len(reviews)
    return {
        "asin": [f"B{item:09d}" for item, _, _ in reviews],
        "title": [titles[item] for item, _, _ in reviews],
        "description": [infos[item] for item, _, _ in reviews],
        "reviewText": [text for _, text, _ in reviews],
        "verified": draw.choices([True, False], [known.passing, 1 - known.passing], k=count),
        "overall": draw.choices([1, 2, 3, 4, 5], [5, 5, 10, 20, 60], k=count),
        "summary": [summary for _, _, summary in reviews],
        "Format": [formats[item] for item, _, _ in reviews],
    }
