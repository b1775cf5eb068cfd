"""Works, windows and second tries as they may be and may not be: each edge of what is looked at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from teola.errors import EngineError
from teola.policies.asker import Asker
from teola.policies.routing.base import MOST_HELD_S
from teola.policies.work import Window, Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Cause, Dispatch, RowFailure, RowsEnded
from teola.schedule.graph_run import GraphRun
from teola.schedule.hedging import Backup, EndingTry, Hedging
from teola.schedule.validate import (
    _validate_owner,
    _validate_spans,
    validate,
    validate_queue,
    validate_stored,
)
from tests.recording import work
from tests.schedule.plans import call, plan, tool
from tests.schedule.test_rows import Bed


def fails(wrong: str) -> AbstractContextManager[Any]:
    """What is told; "": nothing is wrong."""
    return pytest.raises(AssertionError, match=wrong) if wrong else nullcontext()


# --- whose a work is --------------------------------------------------------------------------


@pytest.mark.parametrize("same", [None, b"same"])
@pytest.mark.parametrize("admitted", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("deadline", [8.0, 9.0, 10.0])
def test_only_what_is_done_for_others_too_may_be_older_or_wanted_sooner(
    same: Any, admitted: float, deadline: float
) -> None:
    """Never younger, nor wanted later."""
    asker = Asker("t", "app", "q", 2.0)
    run = GraphRun("q", plan(tool("t")), asker, began=2.5, admitted=2.0, deadline=9.0)
    one = replace(work(0, same=same), asker=asker, began=2.5, admitted=admitted, deadline=deadline)
    wrong = ""
    if deadline != 9.0 and not (same and deadline < 9.0):
        wrong = "primitive 0 of 'q' ends by"
    if admitted != 2.0 and not (same and admitted < 2.0):
        wrong = "primitive 0 of 'q' came"
    with fails(wrong):
        _validate_owner(one, run)
    _validate_owner(one, None)
    for change, told in (
        ({"asker": replace(asker)}, "is asked by"),
        ({"began": 2.0}, "began 2.0 and not 2.5"),
        ({"behind_s": 1.0}, "has 1.0 s behind it"),
    ):
        if not wrong:
            with fails(told):
                _validate_owner(replace(one, **change), run)  # type: ignore[arg-type]


# --- pieces -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"spans": [(0, 10)], "queued": True}, ""),
        ({"spans": [(4, 10)], "done": 4, "queued": True}, ""),
        ({"spans": [(4, 10)], "flying": {(0, 4): (0, 1)}, "queued": True}, ""),
        ({"spans": [], "flying": {(0, 4): (0, 1), (4, 10): (1, 2)}, "queued": False}, ""),
        ({"spans": [], "flying": {(0, 10): (0, 1)}, "queued": True}, "is queued: True"),
        ({"spans": [(0, 10)], "queued": False}, "is queued: False"),
        ({"spans": [(4, 10)], "queued": True}, "has 6 items and not 10"),
        ({"spans": [(4, 10)], "done": 5, "queued": True}, "has 11 items and not 10"),
        ({"spans": [(4, 4), (4, 10)], "done": 4, "queued": True}, "has an empty piece"),
        ({"spans": [(3, 10)], "flying": {(0, 4): (0, 1)}, "queued": True}, "has an item twice"),
        ({"tries": 2}, ""),
        ({"tries": 3}, "was tried too often"),
        ({"tries": 5, "excused": 3}, ""),
        ({"tries": 6, "excused": 3}, "was tried too often"),
        ({"withdrawn": True, "spans": [], "queued": False}, "was withdrawn and is kept"),
        ({"withdrawn": True, "queued": True}, "was withdrawn and is queued"),
        ({"withdrawn": True, "flying": {(0, 4): (0, 1)}, "spans": [], "queued": False}, ""),
        ({"withdrawn": True, "flying": {(0, 4): (0, 1)}, "queued": True}, "and is queued"),
    ],
)
def test_each_item_is_done_or_out_or_queued(change: dict[str, Any], wrong: str) -> None:
    queue = Bed().core.queues["llm"]
    one = replace(work(0, total=10, retries=2), **{"queued": True, **change})
    with fails(wrong):
        _validate_spans(queue, one)


# --- windows of rows --------------------------------------------------------------------------

BROKEN = Cause(EngineError("it broke", retryable=True), True)


def windows() -> tuple[Bed, Dispatch, Work, Window]:
    """Twenty rows: of 0..8 on one instance 0, 1 and 5 have been answered, 2 has failed; 8..16 are
    on another one, where none has begun, and the rest waits."""
    bed = Bed()
    first, _ = bed.rows(17)
    work, lo, _ = first.slices[0]
    place = "llm", first.batch, work.run, work.primitive, lo
    failed = [RowFailure(2, BROKEN, True)]
    bed.core.handle(RowsEnded(*place, [(0, 2), (5, 6)], failed, 5, 0, 3, [0, 1, 5]), 1.0)
    validate(bed.core, 1.0)
    assert work.window is not None
    return bed, first, work, work.window


def slice_of(bed: Bed, work: Work, instance: int) -> Any:
    return next(one for one in bed.queue.rows.of(work) if one.instance == instance)


CHANGES: dict[str, tuple[Callable[[Bed, Work, Window], object], str]] = {
    "another row is out": (lambda b, w, x: slice_of(b, w, 0).out.add(1), "17 items|18 items|twice"),
    "nothing is out": (lambda b, w, x: slice_of(b, w, 0).out.clear(), "of which nothing is out"),
    "too many have begun": (
        lambda b, w, x: setattr(slice_of(b, w, 0), "prefilling", -1), "-1 in prefilling",
    ),
    "too few have begun": (
        lambda b, w, x: setattr(slice_of(b, w, 0), "prefilling", 5), "has 5 in prefilling",
    ),
    "a row is out and waits": (lambda b, w, x: w.spans.insert(0, (3, 4)), "has rows twice: "),
    "a row is out twice": (lambda b, w, x: slice_of(b, w, 1).out.add(3), "has rows twice: "),
    "a row is out and has failed": (lambda b, w, x: x.failed.update({3: BROKEN}), "rows twice: "),
    "a row is lost": (lambda b, w, x: x.failed.clear(), "has 16 items and not 17"),
    "a row was answered twice": (lambda b, w, x: setattr(w, "done", 4), "has 18 items and not 17"),
    "tried once more": (lambda b, w, x: x.tries.update({3: 4}), "rows were tried too often: "),
    "tried as often as may be": (lambda b, w, x: x.tries.update({3: w.spec.retries}), ""),
    "a slice is forgotten": (lambda b, w, x: w.flying.popitem(), "is in flight as"),
    "it is elsewhere": (lambda b, w, x: w.flying.update({(0, 8): (1, 0)}), "is in flight as"),
    "the run has more open": (lambda b, w, x: b.core.runs["rows"].open.update({7: 1}), "open, and"),
    "the run has none open": (lambda b, w, x: b.core.runs["rows"].open.clear(), "open, and"),
    "the run has fewer rows": (
        lambda b, w, x: b.core.runs["rows"].open.update({0: 16}), "window 0 of 'rows' has other",
    ),
    "rows that yield": (
        lambda b, w, x: setattr(b.queue.instances[1], "rows", 0), "0 rows and not 8",
    ),
    "weight of a row": (
        lambda b, w, x: setattr(b.queue.instances[1], "weight", 79), "weight 79, not 80",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_window_that_is_not_as_its_slices_are_is_told(name: str) -> None:
    change, wrong = CHANGES[name]
    bed, _, one, window = windows()
    change(bed, one, window)
    with fails(wrong):
        validate(bed.core, 1.0)


@pytest.mark.parametrize(("prefilling", "wrong"), [(0, ""), (4, ""), (5, "in prefilling")])
def test_as_many_rows_may_prefill_as_are_out(prefilling: int, wrong: str) -> None:
    bed, _, one, _ = windows()
    row_slice = slice_of(bed, one, 0)
    assert (len(row_slice.out), row_slice.prefilling) == (4, 3)
    row_slice.prefilling = prefilling
    bed.queue.instances[0].weight += (prefilling - 3) * one.missing
    with fails(wrong):
        validate_queue(bed.queue, 1.0)


# --- what is held, and second tries -----------------------------------------------------------


@pytest.mark.parametrize(
    ("affinity", "after_s", "wrong"),
    [
        (-1, 0.0, ""),
        (-1, MOST_HELD_S + 0.9, ""),
        (-1, MOST_HELD_S + 1.0, "is held for too long"),
        (0, 0.0, "is held, and bound to 0"),
    ],
)
def test_what_is_held_is_bound_to_none_and_not_for_ever(
    affinity: int, after_s: float, wrong: str
) -> None:
    queue = Bed().queue
    one = work(0, arrival=5.0, total=10)
    one.queued = True
    queue.works["q", 0] = one
    queue.line.hold(one, 5.0)
    one.affinity = affinity
    with fails(wrong):
        validate_queue(queue, 5.0 + after_s)


def sent_twice() -> tuple[EngineQueue, Work]:
    """A call of 30 tokens, 10 of which are found, that gave no token on instance 0, with a second
    try on instance 1; and one there that was ended, and has its place yet."""
    queue = Bed().queue
    queue.hedging = Hedging(1.0)
    one = work(0, total=30, found=10, engine="llm", members=(1,), cuttable=False)
    one.spans, one.queued, one.prefilling = [], False, True
    queue.works["q", 0], one.flying[0, 30] = one, (0, 1)
    queue.instances.send(0, 1, 30, 1, 10)
    queue.instances.send(1, 2, 30, 1)
    queue.hedging.running["q", 0] = Backup(1, 2, 0.0)
    queue.instances.send(1, 3, 15, 2)
    queue.hedging.ending["older", 3] = EndingTry(1, 0, 0)
    queue.hedging.ending["gone", 4] = EndingTry(0, 9, 0)
    queue.hedging.ending["old", 3] = EndingTry(1, 15, 15)
    queue.instances.send(0, 4, 0, 1)
    return queue, one


def test_a_second_try_counts_where_it_runs_with_all_its_tokens() -> None:
    queue, one = sent_twice()
    validate_queue(queue, 1.0)
    one.prefilling = False
    with fails("runs twice, but has given a token"):
        validate_queue(queue, 1.0)
    for i, weight in ((0, 21), (1, 44)):
        queue, one = sent_twice()
        queue.instances[i].weight = weight
        with fails(f"weight {weight}, not"):
            validate_queue(queue, 1.0)
    queue, one = sent_twice()
    del queue.hedging.ending["gone", 4]  # type: ignore[union-attr]
    with fails("batches"):
        validate_queue(queue, 1.0)


@pytest.mark.parametrize("together", [False, True])
def test_only_what_is_alone_may_be_larger_than_an_instance_takes(together: bool) -> None:
    """A call, or a second try, or rows; not two of them."""
    queue, _ = sent_twice()
    queue.instances[1].limits = queue.instances[1].limits._replace(max_batch=29)
    with fails("45 tokens in prefilling"):
        validate_queue(queue, 1.0)
    del queue.hedging.ending["old", 3]  # type: ignore[union-attr]
    queue.instances.land(1, 3, 15, 15)
    validate_queue(queue, 1.0)
    queue, _ = sent_twice()
    queue.instances[0].limits = queue.instances[0].limits._replace(max_batch=19)
    validate_queue(queue, 1.0)
    other = work(1, run="r", total=5, engine="llm", cuttable=False)
    other.spans, other.queued, other.prefilling = [], False, together
    queue.works["r", 1], other.flying[0, 5] = other, (0, 7)
    queue.instances.send(0, 7, 5, 1, 0 if together else 5)
    with fails("25 tokens in prefilling" if together else ""):
        validate_queue(queue, 1.0)


@pytest.mark.parametrize(("rows", "prefilling", "wrong"), [(1, 1, ""), (2, 2, "20 tokens")])
def test_one_row_alone_may_be_too_large(rows: int, prefilling: int, wrong: str) -> None:
    bed = Bed(1)
    bed.rows(rows)
    bed.queue.instances[0].limits = bed.queue.instances[0].limits._replace(max_batch=9)
    assert bed.queue.instances[0].weight == 10 * prefilling
    with fails(wrong):
        validate_queue(bed.queue, 1.0)


# --- stores -----------------------------------------------------------------------------------


def test_a_piece_that_was_computed_with_the_rest_is_not_stored() -> None:
    p = plan(tool("late"), *call("m", ahead=True, late="late"))
    run = GraphRun("q", p)
    ahead, rest = p.index["m.ahead"], p.index["m.prefill"]
    run.fused[rest] = (ahead,)
    validate_stored(run, ())
    with fails("m.ahead was computed with the rest of its prompt"):
        validate_stored(run, {ahead})
    run.fused.clear()
    with fails("m.ahead is kept though waiting"):
        validate_stored(run, {ahead})
    validate_stored(run, {p.index["m"]} if run.readers[p.index["m"]] else ())
