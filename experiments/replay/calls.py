"""What all traces are read into: calls with a prompt of identities, and the category of a call.

Whoever replays a trace has no texts, only what is equal to what. A prompt is a Composite: parts of
numbered texts, of which equal numbers say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from teola.kv import Excerpt
from teola.runtime.values import Composite

TRACED: Final = 1 << 48
"""Texts of traces have numbers from here on: none that the simulator gives, nor a literal's."""
MOST_TURNS: Final = 5
"""Turns from this one on are of one category."""
LEAST_BLOCKS: Final = 2
"""So many blocks in common make two calls turns of one conversation."""


class TracedCall(NamedTuple):
    """One call of a trace.

    at: seconds after the trace's beginning. output: tokens that it generates. category: what calls
    like it are reused alike. session: calls of one conversation, or of one user's (empty: nobody
    knows).
    """

    at: float
    prompt: Composite
    output: int
    category: str = ""
    session: str = ""


@dataclass(frozen=True)
class Recording:
    """Calls in order of arrival. block_tokens: of the trace's blocks; it is replayed by them."""

    name: str
    block_tokens: int
    calls: tuple[TracedCall, ...]

    @property
    def seconds(self) -> float:
        """From the trace's beginning to its last call."""
        return self.calls[-1].at if self.calls else 0.0

    def first(self, count: int) -> Recording:
        """Its first so many calls."""
        return replace(self, calls=self.calls[:count])

    def faster(self, factor: float) -> Recording:
        """So many times as many calls a second."""
        calls = tuple(call._replace(at=call.at / factor) for call in self.calls)
        return replace(self, calls=calls)

    def arriving(self, times: Sequence[float]) -> Recording:
        """The same calls at other times: the first of them, if there are fewer times."""
        calls = tuple(
            call._replace(at=at) for call, at in zip(self.calls, sorted(times), strict=False)
        )
        return replace(self, calls=calls)


def ideal(calls: Iterable[TracedCall], block_tokens: int, since: float = 0.0) -> float:
    """Which part of the blocks in prompts, of calls from `since` on, an unlimited cache holds."""
    seen: set[int] = set()
    hits = blocks = 0
    for call in calls:
        keys = call.prompt.keys(block_tokens, 0)
        if call.at >= since:
            blocks += -(-int(call.prompt) // block_tokens)
            hits += next((k for k, key in enumerate(keys) if key not in seen), len(keys))
        seen.update(keys)
    return hits / blocks if blocks else 0.0


def prompt_of_blocks(blocks: Sequence[int], block_tokens: int, tokens: int) -> Composite:
    """A prompt of `tokens` tokens. blocks: the identity of each, the last one perhaps not full.
    Raises ValueError if there are not as many as that takes."""
    if len(blocks) != -(-tokens // block_tokens) or tokens < 1:
        raise ValueError(f"{len(blocks)} blocks of {block_tokens} tokens for {tokens} tokens")
    last = tokens - (len(blocks) - 1) * block_tokens
    parts = [Excerpt(TRACED + block, 0, block_tokens) for block in blocks]
    parts[-1] = parts[-1]._replace(length=last)
    return Composite.made_of(parts)


def turns(prompts: Iterable[Sequence[int]]) -> Iterator[int]:
    """Of each call of a trace that does not tell, the turn of its conversation, from 1 on.

    It goes on with the latest earlier call whose list of blocks, without its last one, is how its
    own begins; the last block is hardly ever full, so with it nothing would. One block alone says
    nothing: all calls of a service may begin with it.
    """
    latest: dict[int, tuple[int, int]] = {}
    """By the list without its last block: which call was the latest, and its turn."""
    for number, blocks in enumerate(prompts):
        key, found, without_last = 0, (-1, 0), 0
        for block in blocks:
            without_last, key = key, hash((key, block))
            found = max(found, latest.get(key, found))
        turn = found[1] + 1
        if len(blocks) >= LEAST_BLOCKS + 1:
            latest[without_last] = (number, turn)
        yield turn


def turn_category(turn: int) -> str:
    """The category of a turn of a conversation, from 1 on."""
    return f"turn-{min(turn, MOST_TURNS)}"
