"""Works, and batches that are filled with them, beside slow ones that go item by item."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from teola.graph import Op
from teola.policies.work import Estimate, Slots, Taker, Work, WorkSpec, merged_spans, ranges
from tests.recording import work


@pytest.mark.parametrize("seed", range(10))
def test_what_is_taken_of_a_work_is_there_no_longer(seed: int) -> None:
    """Beginnings, ends, middles, all of it, what is gone and what was never there."""
    draw, total = Random(seed), 9
    one, left = work(total=total), set(range(total))
    while left:
        lo, hi = sorted((draw.randint(0, total + 1), draw.randint(0, total + 1)))
        items = set(range(lo, hi))
        assert one.take(lo, hi) is (bool(items) and items <= left), (lo, hi, one.spans)
        if items <= left:
            left -= items
        assert [item for span in one.spans for item in range(*span)] == sorted(left)
        assert all(lo < hi for lo, hi in one.spans)
        assert one.remaining == len(left)


@pytest.mark.parametrize("seed", range(10))
def test_numbers_are_as_few_ranges_as_can_be(seed: int) -> None:
    draw = Random(seed)
    numbers = {draw.randrange(12) for _ in range(draw.choice([0, 1, 4, 9]))}
    begins = sorted(n for n in numbers if n - 1 not in numbers)
    ends = sorted(n + 1 for n in numbers if n + 1 not in numbers)
    expected = [*zip(begins, ends, strict=True)]
    assert ranges(sorted(numbers)) == expected
    pieces = [(n, n + 1) for n in numbers]
    draw.shuffle(pieces)
    assert merged_spans(pieces) == expected
    assert merged_spans(expected[::-1]) == expected


def test_what_is_known_of_a_work_follows_from_its_fields() -> None:
    call = work(total=100, found=30, estimate=Estimate(total_s=2.0), longer_s=0.5)
    assert (call.tokens, call.missing, call.total_s) == (100, 70, 2.5)
    assert (call.weighs(7), call.entries(7)) == (7, 1)
    rows = work(total=5, found=30, row_tokens=100)
    assert (rows.tokens, rows.missing) == (100, 70)
    assert (rows.weighs(7), rows.entries(7)) == (700, 7)
    assert work(total=8, row_tokens=1).weighs(3) == 3
    spec: WorkSpec = work(planned_output=3).spec
    assert spec.answer_tokens == 3
    assert work(planned_output=3, expected_output=9).spec.answer_tokens == 9
    assert not work(0) < work(1)
    assert not work(1) < work(0)


def test_slices_that_fly_are_somewhere_and_what_they_gave_adds_up() -> None:
    one = work(total=5)
    assert not one.on(0)
    one.flying = {(0, 2): (1, 7), (2, 5): (0, 8)}
    assert [one.on(i) for i in (0, 1, 2)] == [True, True, False]
    assert one.joined({"hits": 2}) == {"hits": 2}
    assert one.joined({"hits": 3, "scores": 0}) == {"hits": 5, "scores": 0}
    assert one.counts == {"hits": 5, "scores": 0}


# --- batches --------------------------------------------------------------------------------


@dataclass
class Slow:
    """A batch, an item or a row at a time. taken: (seq, item) of each."""

    slots: Slots
    taken: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weight, self.entries = self.slots.weight, self.slots.entries

    def take(self, one: Work) -> bool:
        """Whether there is room for more."""
        if not (self.weight > 0 and self.entries > 0):
            return False
        items = [item for span in one.spans for item in range(*span)]
        if one.row_tokens:
            self._rows(one, items)
        elif one.spec.cuttable:
            while items and self.weight > 0:
                self.taken.append((one.seq, items.pop(0)))
                self.weight -= 1
            self.entries -= 1
        else:
            tokens = len(items) - one.found
            alone = self.slots.idle and not self.taken
            if tokens > self.weight and not alone:
                return False
            self.taken += ((one.seq, item) for item in items)
            self.weight -= tokens
            self.entries -= 1
        return self.weight > 0 and self.entries > 0

    def _rows(self, one: Work, rows: list[int]) -> None:
        tokens = max(1, one.row_tokens - one.found)
        leaves = self.slots.kept if one.spec.yields else 0
        for row in rows:
            alone = self.slots.idle and not self.taken
            if self.entries <= leaves or (tokens > self.weight and not alone):
                return
            self.taken.append((one.seq, row))
            self.weight -= tokens
            self.entries -= 1


def drawn(draw: Random, seq: int) -> Work:
    """A call, of which some is kept; a window of rows; or items that may be cut, or may not."""
    kind = draw.choice(["call", "rows", "items", "whole"])
    more: dict[str, object] = {"cuttable": kind in ("rows", "items"), "total": draw.randint(1, 6)}
    if kind == "call":
        more |= {"found": draw.randrange(int(str(more["total"])))}
    if kind == "rows":
        tokens = draw.randint(1, 4)
        more |= {"row_tokens": tokens, "found": draw.randint(0, tokens), "rows": True}
        more |= {"yields": draw.random() < 0.5}
    made = work(seq, **more)
    if kind in ("rows", "items") and made.total > 2 and draw.random() < 0.4:
        assert made.take(1, 2)  # of which the second is gone
    return made


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_holds_what_has_room_one_after_another(seed: int) -> None:
    draw = Random(seed)
    for _ in range(25):
        entries = draw.choice([0, 1, 2, 5, 9])
        kept = draw.choice([0, 1, entries])
        slots = Slots(0, draw.choice([0, 1, 3, 6, 20]), entries, draw.random() < 0.5, kept=kept)
        taker, slow = Taker(slots), Slow(slots)
        for seq in range(draw.randint(1, 5)):
            one = drawn(draw, seq)
            assert taker.take(one) is slow.take(one), (slots, one)
            taken = [(w.seq, item) for w, lo, hi in taker.slices for item in range(lo, hi)]
            assert taken == slow.taken
            assert all(lo < hi for _, lo, hi in taker.slices)
            assert (taker.weight, taker.entries) == (slow.weight, slow.entries)
            assert taker.room is (slow.weight > 0 and slow.entries > 0)


@pytest.mark.parametrize(
    ("given", "lane", "begun", "fits"),
    [
        ({}, None, None, True),
        ({"affinity": 0}, None, None, True),
        ({"affinity": 1}, None, None, False),
        ({"avoid": 0}, None, None, False),
        ({"avoid": 1}, None, None, True),
        ({"affinity": 0, "avoid": 0}, None, None, False),
        ({"lane": Op.EMBEDDING}, Op.EMBEDDING, None, True),
        ({"lane": Op.RERANKING}, Op.EMBEDDING, None, False),
        ({"lane": None}, Op.EMBEDDING, None, False),
        ({"lane": Op.EMBEDDING}, None, Op.EMBEDDING, True),
        ({"lane": Op.RERANKING}, None, Op.EMBEDDING, False),
        ({"lane": Op.RERANKING}, None, None, True),
        ({"lane": None}, None, Op.EMBEDDING, False),
    ],
)
def test_a_batch_is_of_one_lane_and_for_its_instance(
    given: dict[str, object], lane: Op | None, begun: Op | None, fits: bool
) -> None:
    taker = Taker(Slots(0, 9, 9, True, lane=lane))
    if begun is not None:
        taker.take(work(1, lane=begun))
    assert taker.fits(work(2, **given)) is fits
