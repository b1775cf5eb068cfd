"""What the profiler asks a language model, so that what it measures is what a query will see."""

from __future__ import annotations

from collections import Counter

import pytest

from teola.runtime.hosts.local import LocalHost
from teola.runtime.profiler import CONTEXT, SEQUENCES, Profiler
from tests.deterministic import HashModel


@pytest.mark.parametrize(("limit", "context"), [(None, CONTEXT), (64, 64)])
async def test_steps_are_measured_behind_prompts_that_are_computed_by_then(
    limit: int | None, context: int
) -> None:
    model = HashModel(max_sequences=16)
    host = LocalHost(model, 0)
    await host.start()
    try:
        found = await Profiler(host, repeats=1, limit=limit).measure()
    finally:
        await host.close()
    asked = Counter(model.prompts)
    twice = [prompt for prompt, times in asked.items() if times == 2]
    assert len(twice) == sum(SEQUENCES), "each is asked for one token first, and only then timed"
    for prompt in twice:
        assert context <= model.count_tokens(prompt) < context + 64
    assert max(asked.values()) == 2
    assert [p.items for p in found.points if p.op == "decoding"] == list(SEQUENCES)
