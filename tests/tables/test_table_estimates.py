"""What an estimate says of its sums: those that are known, 0 among them, and no others."""

from __future__ import annotations

from random import Random

import pytest

from teola.price import shown_cost
from teola.tables.plan_steps import PlanRewrite, TablePlan
from teola.tables.table_estimates import QueryEstimate, StageEstimate


def stage(chance: Random, seconds: float | None, cost: float | None) -> StageEstimate:
    tokens = [chance.randint(0, 5000) for _ in range(3)]
    counts = [chance.choice((0, 7, 1234)) for _ in range(3)]
    order = chance.choice(((), ("a", "b")))
    return StageEstimate("LLM", "Suitable?", *counts, *tokens, seconds, cost, order, "by table")


@pytest.mark.parametrize("seed", range(8))
def test_a_sum_is_told_where_all_its_parts_are_known(seed: int) -> None:
    chance = Random(seed)
    known = [(0.0, 2.0), (0.0,), (None,), (0.0, 1.5, None)][seed % 4]
    stages = tuple(
        stage(chance, chance.choice(known), chance.choice(known))
        for _ in range(chance.randint(0, 3))
    )
    rewrites = (PlanRewrite("dedup", "3 of 9 rows", "they are equal"),) * (seed % 2)
    estimate = QueryEstimate(TablePlan((), "SELECT 1", (), rewrites), stages, ("a note",))
    total, lines = estimate.to_json()["total"], estimate.text().splitlines()
    for name in ("seconds", "cost"):
        parts = [getattr(one, name) for one in stages]
        assert total[name] == (None if None in parts else sum(parts))
    for name, part in (("calls", "to_ask"), *((n, n) for n in ("prompt_tokens", "cached_tokens"))):
        assert total[name] == sum(getattr(one, part) for one in stages)
    at = 0
    for number, one in enumerate(stages, 1):
        assert lines[at].startswith(f"{number}. 'Suitable?': {one.rows:,} rows")
        takes = f", about {one.seconds:,.0f} s" if one.seconds is not None else ""
        takes += f", cost {shown_cost(one.cost)}" if one.cost is not None else ""
        assert lines[at + 1].endswith(f" {one.completion_tokens:,} of answers{takes}")
        at += 2 + bool(one.order)
    assert lines[at:-2] == ["- dedup: 3 of 9 rows: they are equal"] * len(rewrites)
    assert lines[-2].startswith(f"total: {total['calls']:,} calls, ")
    ends = ")" if total["cost"] is None else f", cost {shown_cost(total['cost'])}"
    assert lines[-2].endswith(ends)
    assert lines[-1] == "a note"
    for width in (20, 60):
        narrow = estimate.text(width)
        assert narrow.split() == estimate.text().split()
        assert max(map(len, narrow.splitlines())) <= width
