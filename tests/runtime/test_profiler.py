"""What the profiler asks a language model, so that what it measures is what a query will see."""

from __future__ import annotations

from collections import Counter

import pytest

from teola.runtime.hosts.local import LocalHost
from teola.runtime.profiler import THOROUGH, Profiler, line
from teola.testing.hash_engines import HashModel


@pytest.mark.parametrize(("limit", "context"), [(None, THOROUGH.context), (64, 64)])
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
    assert len(twice) == sum(THOROUGH.sequences), (
        "each is asked for one token first, and only then timed"
    )
    for prompt in twice:
        assert context <= model.count_tokens(prompt) < context + 64
    assert max(asked.values()) == 2
    assert [p.items for p in found.points if p.op == "decoding"] == list(THOROUGH.sequences)


# --- a line through what was measured -----------------------------------------------------------


def test_a_line_is_found_again() -> None:
    sizes = [1.0, 2.0, 8.0, 512.0]
    assert line(sizes, [0.003 + 0.0004 * size for size in sizes]) == pytest.approx((0.003, 0.0004))


@pytest.mark.parametrize(
    ("sizes", "seconds", "found"),
    [
        ([1, 2, 4], [1.0, 4.0, 16.0], (0, 28 / 21)),  # its base would be below 0
        ([1, 2, 4], [4.0, 2.0, 1.0], (28 / 21, 0)),  # its slope would be below 0
        ([1], [2.0], (2, 0)),
        ([4, 4], [2.0, 2.0], (0, 0.5)),
    ],
)
def test_neither_part_of_it_is_negative(
    sizes: list[float], seconds: list[float], found: tuple[float, float]
) -> None:
    base, slope = line(sizes, seconds)
    assert base >= 0
    assert slope >= 0

    def error(base: float, slope: float) -> float:
        points = zip(sizes, seconds, strict=True)
        return sum(((base + slope * size) / took - 1) ** 2 for size, took in points)

    near = [(base + d, slope + e) for d in (-1e-3, 0, 1e-3) for e in (-1e-3, 0, 1e-3)]
    best = min(error(*one) for one in near if min(one) >= 0)
    assert error(base, slope) <= best + 1e-12
    assert (base, slope) == pytest.approx(found)
