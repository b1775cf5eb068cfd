"""What ops may do and how often they are tried, written down for each of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from teola.graph import (
    AggregateParams,
    Aggregation,
    ConditionParams,
    DecodeParams,
    Op,
    PrefillParams,
    ToolParams,
)
from teola.graph.ops import (
    CONTROL,
    EmbeddingParams,
    GrowParams,
    IngestionParams,
    Params,
    RerankParams,
    SearchParams,
    SqlParams,
    WaitParams,
    WebSearchParams,
    has_effect,
    retries,
)
from tests.schedule.plans import nothing


def grow(effect: bool) -> GrowParams:
    grower: Any = SimpleNamespace(effect=effect)
    return GrowParams(grower)


WAITS: Any = WaitParams(nothing)
CASES: list[tuple[Op, Params, bool, int]] = [
    (Op.EMBEDDING, EmbeddingParams(), False, 2),
    (Op.INGESTION, IngestionParams(), True, 2),  # under a key, so that it happens once
    (Op.SEARCHING, SearchParams(4), False, 2),
    (Op.RERANKING, RerankParams(), False, 2),
    (Op.PREFILLING, PrefillParams(), False, 2),
    (Op.PARTIAL_PREFILLING, PrefillParams(), False, 2),
    (Op.FULL_PREFILLING, PrefillParams(), False, 2),
    (Op.DECODING, DecodeParams(), False, 0),  # its call is tried by the op of its prefilling
    (Op.PARTIAL_DECODING, DecodeParams(), False, 0),
    (Op.CONDITION, ConditionParams(nothing, ("a", "b"), "a"), False, 0),
    (Op.AGGREGATE, AggregateParams(Aggregation.FIRST), False, 0),
    (Op.WEB_SEARCH, WebSearchParams(), False, 1),
    (Op.SQL, SqlParams(), False, 1),
    (Op.GROW, grow(False), False, 0),
    (Op.GROW, grow(True), True, 0),
    (Op.WAIT, WAITS, False, 0),
    (Op.TOOL_CALL, ToolParams(nothing), True, 0),  # nobody says that it may be called again
    (Op.TOOL_CALL, ToolParams(nothing, pure=True), False, 2),
    (Op.TOOL_CALL, ToolParams(nothing, retries=0), True, 0),
    (Op.TOOL_CALL, ToolParams(nothing, retries=5), True, 5),
    (Op.TOOL_CALL, ToolParams(nothing, pure=True, retries=0), False, 0),
    (Op.TOOL_CALL, ToolParams(nothing, pure=True, retries=5), False, 5),
]


@pytest.mark.parametrize(("op", "params", "effect", "tries"), CASES)
def test_effects_and_tries(op: Op, params: Params, effect: bool, tries: int) -> None:
    assert has_effect(op, params) is effect
    assert retries(op, params) == tries


def test_every_op_is_told_of() -> None:
    assert {op for op, *_ in CASES} == set(Op)
    assert {op for op in Op if op in CONTROL} == {Op.CONDITION, Op.AGGREGATE, Op.GROW, Op.WAIT}
