"""What calls take beside rows of a table is not learned: nobody knows what the rows made of it."""

from __future__ import annotations

from teola.learning.calls import CallTimes, _Instance
from teola.learning.habits import Habits
from teola.policies.work import Slice
from tests.planted import catches, edited
from tests.recording import work


def called(times: CallTimes, began: float, name: str) -> None:
    """A call of 1 s to its first token and 1 s more, for 11 tokens."""
    one = work(name, total=100)
    times.sent(0, 1, [Slice(one, 0, 100)], began)
    times.first(0, one, began + 1)
    times.ended(one, False, 0, 11, began + 2)


@catches(
    "learned-beside-rows",
    "a call's time counts though rows ran beside it",
    edited(_Instance.beside_rows, "self.rows > 0 or self.rows_at >= since", "False"),
)
@catches(
    "never-again",
    "nothing is learned any more once rows ran",
    edited(_Instance.beside_rows, "self.rows_at >= since", "self.rows_at > 0"),
)
def test_calls_count_again_when_the_rows_are_gone() -> None:
    times = CallTimes(Habits(), 1000)
    times.rows(0, 4, 1.0)
    for k in range(5):
        called(times, 10.0 * k + 2, f"beside{k}")
    times.rows(0, -4, 50.0)
    assert times._squares.count == 0
    called(times, 60.0, "alone")
    assert times._squares.count == 2
