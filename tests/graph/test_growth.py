"""Failures of parts: why, how often, and what is not told apart any more."""

from __future__ import annotations

from teola.graph.growth import MOST_REASONS, OTHERS, Failures


def test_reasons_are_told_apart_until_there_are_too_many() -> None:
    failures = Failures(parts=500)
    for number in range(MOST_REASONS):
        failures.add(f"reason {number}")
    assert len(failures.reasons) == MOST_REASONS, "exactly as many"
    failures.add("one more", 3)
    failures.add("yet another")
    failures.add("reason 7", 2)
    assert failures.reasons[OTHERS] == 4
    assert failures.reasons["reason 7"] == 3, "it was known before"
    assert "one more" not in failures.reasons
    assert failures.reasons.total() == MOST_REASONS + 6


def test_failures_of_two_runs_are_one() -> None:
    one, other = Failures(parts=3), Failures(parts=4)
    one.add("away")
    other.add("away", 2)
    other.add("late")
    one.join(other)
    assert str(one) == "4 of 7 items failed: away (3 times); late"


def test_the_commonest_reasons_are_told_with_how_often_and_the_others_counted() -> None:
    failures = Failures(parts=9)
    for reason, times in (("a", 1), ("b", 3), ("c", 2)):
        failures.add(reason, times)
    assert str(failures) == "6 of 9 items failed: b (3 times); c (2 times); a"
    failures.add("d", 2)
    assert str(failures).endswith(
        "failed: b (3 times); c (2 times); d (2 times); and 1 more reasons"
    )
