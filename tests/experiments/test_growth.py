"""The experiment on growth measures what it says; growth does not slow down as a query grows."""

from __future__ import annotations

import time

import pytest

from experiments.growth.__main__ import measure
from experiments.growth.measure import Stopwatch, items, listing
from teola import Runtime

pytestmark = pytest.mark.slow

FAR_TOO_SLOW_US = 1_000
"""Of a part, on however busy a machine."""


@pytest.mark.nightly
async def test_every_length_is_measured() -> None:
    report = await measure(2, (1, 30))
    rows = report["rows"]
    assert [(row["kind"], row["parts"]) for row in rows] == [
        (kind, parts) for kind in ("loop", "each") for parts in (1, 30)
    ]
    for row in rows:
        assert 0 < row["growth_us"] < FAR_TOO_SLOW_US
        assert row["growth_us"] < row["part_us"]
    assert report["ten_primitives_us"] > 0


async def test_growth_does_not_depend_on_how_much_has_grown() -> None:
    with Runtime() as runtime:
        app, watch = listing(runtime), Stopwatch()
        await items(app, watch, 2)
        watch.watch(runtime.live)
        few = min([(await items(app, watch, 100)).growth_us for _ in range(5)])
        many = min([(await items(app, watch, 3_000)).growth_us for _ in range(2)])
    assert many < 2 * few


def test_only_what_is_asked_for_is_timed_and_once() -> None:
    watch = Stopwatch()

    def busy() -> None:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass

    inner = watch.around(busy, lambda: True)

    def outer(counts: bool) -> None:
        inner()
        inner()

    timed = watch.around(outer, lambda counts: counts)
    timed(True)
    assert 0.02 <= watch.seconds < 0.03
    watch.seconds = 0.0
    watch.around(busy, lambda: False)()
    assert watch.seconds == 0.0
