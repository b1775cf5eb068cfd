"""What a system is asked and what it found, and the figures that this makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, NamedTuple, Protocol

from experiments.retrieval.questions import Question
from teola.engine import Hit

CANDIDATES: Final = 16
"""Chunks that a search gives, as those of the applications."""
RANKS: Final = 10
"""Of a passage that is found no later than this."""


class Found(NamedTuple):
    """passages: names, best first, each once. hits: their chunks, from Teola. declined: whether the
    reader did not answer; None without a reader."""

    passages: tuple[str, ...]
    hits: tuple[Hit, ...] = ()
    declined: bool | None = None


class System(Protocol):
    """Something that finds passages. reads: whether it answers from them, or declines."""

    @property
    def name(self) -> str: ...

    @property
    def reads(self) -> bool: ...

    def ask(self, questions: Sequence[Question], *, alone: bool = False) -> list[Found]:
        """alone: none of the passages of a question's article are there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, put to one system. found: with its article among the passages; alone: without
    it, if the system reads. seconds: its share of what its company took, `found` alone."""

    question: Question
    found: Found
    seconds: float
    alone: Found | None

    @property
    def rank(self) -> int | None:
        """Of the passage that answers the question, from 1; None if it is not among the first."""
        first, name = self.found.passages[:RANKS], self.question.passage.name
        return first.index(name) + 1 if name in first else None


def each_once(names: Iterable[str]) -> tuple[str, ...]:
    """Passages may be found by several of their chunks."""
    return tuple(dict.fromkeys(names))


def within(asked: Sequence[Asked], most: int) -> float:
    """The share of the questions whose passage has this rank or a better one."""
    return fmean(one.rank is not None and one.rank <= most for one in asked)


def reciprocal(asked: Sequence[Asked]) -> float:
    """Mean of the reciprocal ranks."""
    return fmean(0.0 if one.rank is None else 1 / one.rank for one in asked)


def row(name: str, system: str, asked: Sequence[Asked]) -> dict[str, Any]:
    """A row of the report. name: of the set of questions."""
    alone = [one.alone.declined for one in asked if one.alone is not None]
    declined = [one.found.declined for one in asked]
    return {
        "set": name,
        "system": system,
        "n": len(asked),
        "hit1": round(within(asked, 1), 4),
        "hit3": round(within(asked, 3), 4),
        "hit10": round(within(asked, RANKS), 4),
        "mrr10": round(reciprocal(asked), 4),
        "declined_unanswerable": round(fmean(map(bool, alone)), 4) if alone else None,
        "answered_answerable": round(1 - fmean(map(bool, declined)), 4) if alone else None,
        "seconds": round(sum(one.seconds for one in asked), 1),
    }
