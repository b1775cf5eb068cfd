"""Split prefilling goes by the profile: a prefix that would not be done in time is no gain."""

from __future__ import annotations

import pytest

from teola.passes import optimise
from teola.passes.timetable import timetable
from teola.profile import paper
from teola_apps.naive_rag import app


def _optimised(chunks: int):  # type: ignore[no-untyped-def]
    graph = app.builder.build(app.builder.configure({}), {"chunks": chunks})
    return optimise(graph, paper("13b"), debug=True)


def _leaf(decisions, applied: bool) -> list[str]:  # type: ignore[no-untyped-def]
    return [
        d.reason
        for d in decisions
        if d.pass_name == "split_prefilling"
        and d.applied is applied
        and d.primitive == "generate.1.prefill"
    ]


def test_a_short_wait_for_the_context_is_not_worth_a_prefill_of_its_own() -> None:
    made = _optimised(chunks=1)
    assert _leaf(made.rewrites, applied=False) == [
        "computing a prefix ahead would take longer than waiting for the rest"
    ]
    assert not _leaf(made.rewrites, applied=True)


def test_a_long_wait_hides_the_prefix() -> None:
    assert _leaf(_optimised(chunks=48).rewrites, applied=True)


def test_a_prefix_that_saves_less_than_a_tenth_of_its_cost_stays_where_it_is() -> None:
    """A prefill costs 0.20 s and 0.30 s for 512 tokens more: from 38 tokens on a prefix saves a
    tenth of what it costs, and a short instruction with the question has 25."""

    def cut(instruction: str) -> list[str]:
        configs = app.builder.configure({"generate": {"instruction": instruction}})
        made = optimise(app.builder.build(configs, {"chunks": 48}), paper("13b"))
        assert made.rewrites
        return _leaf(made.rewrites, applied=True) or _leaf(made.rewrites, applied=False)

    (refused,) = cut("Be brief. ")
    assert refused == "no prefix is known earlier that is worth a prefill (38 tokens)"
    (applied,) = cut("Be brief. " * 12)
    assert "known before the rest" in applied


@pytest.mark.parametrize("chunks", [1, 2, 8, 33, 48, 192])
def test_no_document_gets_a_longer_critical_path(chunks: int) -> None:
    made = _optimised(chunks)
    before = timetable(made.p_graph, paper("13b")).length_s
    assert timetable(made.e_graph, paper("13b")).length_s <= before
