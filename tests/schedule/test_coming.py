"""Blocks that calls on their way will compute, looked up one by one, along long prompts."""

from __future__ import annotations

from random import Random

from teola.schedule.coming import STRIDE, Chain, Coming
from tests.planted import catches, edited


class Prompts:
    """Keys of blocks: equal ones have all blocks before them in common."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.made = draw, [list[int]()]
        self.after: dict[tuple[int, int], int] = {}

    def next(self) -> list[int]:
        """A prompt that goes on from some place in one of those before."""
        before = self.draw.choice(self.made)
        keys = before[: self.draw.randint(0, len(before))]
        for _ in range(self.draw.choice([0, 1, 5, STRIDE - 1, STRIDE, STRIDE + 1, 3 * STRIDE])):
            step = keys[-1] if keys else -1, self.draw.choice([0, 0, 0, 1])
            keys.append(self.after.setdefault(step, len(self.after)))
        self.made.append(keys)
        return keys


def lives(seed: int) -> int:
    """Calls come and have computed their blocks; how much of a prompt was to come at most."""
    draw = Random(seed)
    prompts, kept, most = Prompts(draw), dict[int, int](), 0
    coming, chains = Coming(kept), list[Chain]()
    for _ in range(60):
        if draw.random() < 0.6:
            keys = prompts.next()
            chains.append(coming.add(draw.randrange(3), keys, draw.randint(0, len(keys))))
        elif chains:
            coming.remove(chains.pop(draw.randrange(len(chains))))
        for key in draw.sample(sorted(prompts.after.values()), min(3, len(prompts.after))):
            kept[key] = kept.get(key, 0) ^ 1 << draw.randrange(3)
        keys, instances = prompts.next(), draw.choice([0b111, 0b101, 0b010])
        depth = draw.randint(0, len(keys))
        expected = {}
        for i in [i for i in range(3) if instances >> i & 1]:
            mine = [chain for chain in chains if chain.instance == i]

            def comes(at: int, mine: list[Chain] = mine, keys: list[int] = keys) -> bool:
                return any(
                    chain.start <= at < len(chain.keys) and chain.keys[at] == keys[at]
                    for chain in mine
                )

            if depth < len(keys) and comes(depth):
                end = depth
                while end < len(keys) and (comes(end) or kept.get(keys[end], 0) >> i & 1):
                    end += 1
                expected[i] = end
                most = max(most, end - depth)
        assert coming.depths(keys, depth, instances) == expected
        assert bool(coming) == any(chain.marks for chain in chains)
    for chain in chains:
        coming.remove(chain)
    assert not coming
    return most


@catches(
    "one-place-short",
    "a block is looked for under one key too few",
    edited(Coming._with, "depth - depth % STRIDE : depth", "depth - depth % STRIDE + 1 : depth"),
)
@catches(
    "filed-late",
    "a call is filed from the second place behind its beginning on",
    edited(Coming.add, "start - start % STRIDE + STRIDE", "start - start % STRIDE + 2 * STRIDE"),
)
@catches(
    "kept-between",
    "what is kept between two that are to come is not seen",
    edited(Coming._depth, "end += 1", "break"),
)
@catches(
    "to-its-end",
    "all of a call's prompt is expected, however soon another goes on otherwise",
    edited(Chain.end, "if mine[depth:stop] == keys[depth:stop]:", "if True:"),
)
def test_what_is_to_come_is_found_block_by_block() -> None:
    assert max(lives(seed) for seed in range(8)) > STRIDE + 1
