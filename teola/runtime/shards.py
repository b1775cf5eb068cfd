"""Shards of a table: ranges of its sorted rows, each a run of rows of its own somewhere else.

rows, sorted      a a a a a | b b | c c c c c | d d e e
                            ^ the first ordered column changes: rows share little across it
ideal cuts                    |           |
shards            a a a a a   b b c c c c c   d d e e
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

SHARDS_A_WORKER: Final = 8
"""So that the last ones end at about the same time."""
LEAST_ROWS: Final = 64
"""Rows of a shard, about: fewer do not fill an engine."""
MOST_TOKENS: Final = 4_000_000
"""Of a shard, about."""
NEAR: Final = 0.25
"""How far from the ideal cut a shard may end, as a part of the ideal shard, to end where the first
ordered column changes."""


def shard_count(rows: int, tokens: int, workers: int) -> int:
    """How many shards a table makes. tokens: of all of its prompts."""
    wanted = max(workers * SHARDS_A_WORKER, -(-tokens // MOST_TOKENS))
    return max(1, min(wanted, rows // LEAST_ROWS))


def cut_shards(tokens: Sequence[int], opens: Sequence[bool], count: int) -> list[tuple[int, int]]:
    """Ranges of rows, all in order, that have about the same number of tokens each and begin where
    a row opens, if one does near the ideal place. tokens: of each row's prompt. At most `count`
    ranges; a row that is very long leaves fewer."""
    ends = list(accumulate(tokens))
    if not ends:
        return []
    places = [row for row, one in enumerate(opens) if one]
    ideal = ends[-1] / count
    cuts = {0}
    for n in range(1, count):
        row = bisect_left(ends, n * ideal) + 1
        low = bisect_left(ends, (n - NEAR) * ideal) + 1
        high = bisect_left(ends, (n + NEAR) * ideal) + 1
        at = bisect_left(places, row)
        near = [place for place in places[max(0, at - 1) : at + 1] if low <= place <= high]
        cuts.add(min(near, key=lambda place: abs(place - row)) if near else row)
    found = sorted(cut for cut in cuts if cut < len(ends))
    return list(zip(found, [*found[1:], len(ends)], strict=True))
