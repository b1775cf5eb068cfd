"""How a query ended is the same, told out of its row of the journal."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from teola.query.journal.query_rows import ended
from teola.query.result import Result
from tests.query.test_failures import kept

FIELDS: dict[str, Any] = {
    "outputs": {"answer": "yes", "hits": [1, 2], "none": None},
    "missing": ("rerank", "search"),
    "reasons": {"rerank": "it is away"},
    "notices": ("an answer was cut", "a part was refused"),
}
SOME = [some for count in (0, 1, 4) for some in combinations(FIELDS, count)]


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("state", ["ok", "partial"])
def test_what_ended_well_is_told_whole(state: str, some: tuple[str, ...]) -> None:
    given = {"outputs": {}, **{name: FIELDS[name] for name in some}}
    result = Result("app", "id", state, latency_s=1.5, **given)
    row = ended(result, "t")
    assert (row.id, row.state, row.latency_s, row.tenant) == ("id", state, 1.5, "t")
    told = replace(kept(result, row.result), latency_s=row.latency_s)
    assert told.ending() == result
    assert told.shown()["result"] == result.to_json()
    assert told.summary()["latency_s"] == 1.5
