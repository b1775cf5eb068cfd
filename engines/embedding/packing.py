"""Which texts go through a model together.

Where none is padded, as in the packaged model, a pass is the tokens of its texts, one after the
other:

    tokens of the texts    254   31   12   180   40
    float32                [254 180 40 31 12]
    bfloat16               [254] [180] [40 31 12]

Libraries for matrices may add in another order when there are more rows. In float32 that moves a
vector by 1e-7; bfloat16 keeps two digits, so there a long text is a pass of its own, and its vector
the same whatever else is asked: nothing else is in the matrices that it is computed from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Room:
    """Of one pass. tokens: at most, unless a single text is longer. alone: tokens from which on a
    text is a pass of its own. None: no bound."""

    tokens: int | None = None
    alone: int | None = None


CPU_FLOAT32: Final = Room(1024)
"""More tokens gain nothing: a tenth less time than a chunk a pass, and as much as twice as many."""
CPU_BFLOAT16: Final = Room(256, 128)
GPU: Final = Room()
PADDED_ON_CPU: Final = 4
"""Texts of a pass on a processor where all are padded to the longest of them: 32 chunks and 3
questions took a fifth less time in fours than in one piece."""


def room_of(device: str, dtype: str) -> Room:
    """What a pass of the packaged model takes."""
    if device != "cpu":
        return GPU
    return CPU_FLOAT32 if dtype == "float32" else CPU_BFLOAT16


def packed(lengths: Sequence[int], batch: int, room: Room) -> Iterator[list[int]]:
    """The texts of each pass, by their places in `lengths`; the longest first, so that those of
    equal length are neighbours. batch: texts of a pass, at most."""
    chosen: list[int] = []
    filled = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if room.alone is not None and lengths[i] >= room.alone:
            yield [i]
            continue
        over = room.tokens is not None and filled + lengths[i] > room.tokens
        if chosen and (over or len(chosen) == batch):
            yield chosen
            chosen, filled = [], 0
        chosen.append(i)
        filled += lengths[i]
    if chosen:
        yield chosen


def by_length(texts: Sequence[str], batch: int) -> Iterator[list[int]]:
    """The texts of each pass of a model that pads, the longest first."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    for at in range(0, len(order), batch):
        yield order[at : at + batch]
