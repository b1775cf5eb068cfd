"""The blocks that sequences take while they decode side by side, without a look at each of them.

All of them move with one clock, a token a step. Which step begins a new block of a sequence depends
on nothing but the clock, modulo the size of a block. So one number for each of these steps says how
many sequences begin a block then, and a sum of them how many blocks a stretch of steps takes.
"""

from __future__ import annotations


class DecodingBlocks:
    """Sequences that decode, by the steps at which they begin a block of `block_tokens` tokens.

    The step at clock `c` feeds the token number `offset + c` of a sequence to the model, counted
    from 1. All methods are O(block_tokens) at most.
    """

    def __init__(self, block_tokens: int) -> None:
        self._size = block_tokens
        self._beginning = [0] * block_tokens
        self.count = 0

    def join(self, offset: int) -> None:
        """A sequence decodes from now on."""
        self._beginning[(1 - offset) % self._size] += 1
        self.count += 1

    def leave(self, offset: int) -> None:
        """It does no longer."""
        self._beginning[(1 - offset) % self._size] -= 1
        self.count -= 1

    def blocks(self, clock: int, steps: int) -> int:
        """How many blocks so many steps take, the first of which is at `clock`."""
        rounds, rest = divmod(steps, self._size)
        first = clock % self._size
        end = first + rest
        found = rounds * self.count + sum(self._beginning[first:end])
        return found if end <= self._size else found + sum(self._beginning[: end - self._size])

    def steps(self, clock: int, blocks: int, most: int) -> int:
        """How many steps, the first of which is at `clock`, so many blocks suffice for; at most
        `most`."""
        size, count = self._size, self.count
        if count * -(-most // size) <= blocks:
            return most
        rounds = min(blocks // count, most // size)
        found, left = rounds * size, blocks - rounds * count
        while found < most and self._beginning[(clock + found) % size] <= left:
            left -= self._beginning[(clock + found) % size]
            found += 1
        return found
