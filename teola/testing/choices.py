"""What random cases are made by: a seed, or whatever else makes choices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """Decides what a random case is."""

    def whole(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        ...

    def flag(self) -> bool:
        """True or False."""
        ...

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...

    def several(self, options: Sequence[T], least: int, most: int, *, unique: bool) -> list[T]:
        """So many of the options; unique: none twice."""
        ...


class SeededChoices:
    """The choices of a seed: the same ones each time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def whole(self, least: int, most: int) -> int:
        """See Choices."""
        return self._random.randint(least, most)

    def flag(self) -> bool:
        """See Choices."""
        return self._random.random() < 0.5

    def one(self, options: Sequence[T]) -> T:
        """See Choices."""
        return self._random.choice(options)

    def several(self, options: Sequence[T], least: int, most: int, *, unique: bool) -> list[T]:
        """See Choices."""
        count = self._random.randint(least, min(most, len(options)) if unique else most)
        if unique:
            return self._random.sample(list(options), count)
        return self._random.choices(options, k=count)
