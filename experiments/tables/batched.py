"""An engine that takes rows in batches and shares nothing within one, in virtual time.

It finds of a prompt what batches before have computed, and a batch is over when its longest answer
is. The paper's example, [1,1,1][2,2,2][3,3,3] against [1,2,3][1,2,3][1,2,3], is of such an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from math import ceil
from typing import Any

from experiments.tables.model import EVICTION, SimulatedModel, profile_of
from experiments.tables.queries import Asked
from teola.kv import Access, BlockCache
from teola.kv.policies import make_policy
from teola.runtime.sim.sim_rows import SimRow, SimulatedRows
from teola.runtime.values import Composite
from teola.schedule.events import State


class BatchedModel(SimulatedModel):
    """places: prompts of a batch."""

    def __init__(self, asked: Mapping[str, Asked], output: int, places: int) -> None:
        super().__init__(asked, output)
        self._places, self._llm = places, profile_of(cache=True).engines["llm"]
        blocks = self._llm.kv_blocks
        assert blocks is not None
        self._cache = BlockCache(blocks, self._llm.block_tokens, make_policy(EVICTION))
        self.batches: list[list[int]] = []
        """Blocks that each prompt computed, by batch."""

    def simulate(self, rows: Iterator[SimRow], *, warm: bool, shared: float) -> SimulatedRows:
        """Batch by batch, whatever the scheduler would make of them."""
        asked = prompt = found = written = 0
        seconds = 0.0
        while batch := [*islice(rows, self._places)]:
            missing, hits = self._batch(batch, seconds)
            longest, context = (
                max(row.output for row in batch),
                sum(int(row.prompt) for row in batch),
            )
            seconds += self._prefill_s(missing)
            seconds += self._llm.step.seconds(len(batch), context, repeat=max(1, longest - 1))
            asked += len(batch)
            prompt, found = prompt + context, found + hits
            written += sum(row.output for row in batch)
        return SimulatedRows(
            "batched", State.OK, 0.0, seconds, asked, 0, asked, prompt, found, written, None
        )

    def _batch(self, batch: list[SimRow], now: float) -> tuple[int, int]:
        """Tokens that are computed, and those that are found."""
        size, held = self._llm.block_tokens, list[Any]()
        missing = hits = 0
        self.batches.append([])
        for row in batch:
            assert isinstance(row.prompt, Composite)
            keys = row.prompt.keys(size, 0)
            table = self._cache.acquire(keys, ceil((row.prompt + row.output) / size), Access(), now)
            assert table is not None, f"{self._places} prompts have no room"
            held.append((table, keys))
            hits += table.found * size
            missing += int(row.prompt) - table.found * size
            self.batches[-1].append(len(keys) - table.found)
        for table, keys in held:  # others see a batch once it is whole
            self._cache.commit(table, keys, now)
        for table, _ in held:
            self._cache.release(table, now)
        return missing, hits

    def _prefill_s(self, tokens: int) -> float:
        whole, rest = divmod(tokens, self._llm.max_batch)
        step = self._llm.step
        return whole * step.seconds(0, 0, self._llm.max_batch) + step.seconds(0, 0, rest)
