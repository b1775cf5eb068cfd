"""Interactive queries beside rows, simulated: what experiments.tables_beside holds them to."""

from __future__ import annotations

from experiments.tables_beside.measure import SHARE, simulated
from teola.schedule.row_run import RowSpecs
from tests.planted import catches, edited


@catches(
    "rows-at-equal-rank",
    "rows go in the order in which they came, among calls",
    edited(RowSpecs.add, "age_s / LENGTH + LEFT_S", "0.0"),
)
def test_calls_are_hardly_later_beside_rows_and_rows_get_the_rest() -> None:
    (alone,), (rows,), (beside,) = (
        simulated(load, 200, 0) for load in ("calls", "rows", "calls beside rows")
    )
    assert beside["interactive_p99_s"] <= 1.25 * alone["interactive_p99_s"]
    assert beside["rows_per_s"] >= (0.85 - SHARE) * rows["rows_per_s"]
