"""Stop strings in a stream: however it is cut, the text before the first that is complete."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from teola.stops import Stops

TEXT = st.text("ab\n", max_size=12)


def expected(text: str, stop: list[str]) -> tuple[str, bool]:
    for end in range(len(text) + 1):
        found = [s for s in stop if s and text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


@settings(max_examples=300)
@given(text=TEXT, stop=st.lists(st.text("ab\n", max_size=3), max_size=3), cuts=st.data())
def test_every_cutting_gives_the_same(text: str, stop: list[str], cuts: st.DataObject) -> None:
    stops, shown, rest = Stops(stop), "", text
    while rest:
        size = cuts.draw(st.integers(1, len(rest)))
        shown += stops.feed(rest[:size])
        rest = rest[size:]
        wanted = expected(text, stop)[0]
        assert wanted.startswith(shown)
    shown += stops.feed("", last=True)
    assert (shown, stops.reached) == expected(text, stop)


def test_nothing_is_held_back_without_need() -> None:
    stops = Stops(["END"])
    assert stops.feed("The E") == "The "
    assert stops.feed("ast") == "East"
    assert stops.feed(" EN") == " "
    assert stops.feed("", last=True) == "EN"
