"""Which versions are held in this process, by whom, and when somebody else's purge may go on;
without a database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from teola_engines.vectorstore.pins import NOWHERE, Pin, Pins, Searcher, _Readers

HOME, OLDEST, SEEN = 7, 3, 5
ONE, TWO = Searcher("one", "c"), Searcher("two", "c")


class Purges(list[int]):
    """Collections that were to be purged."""


@pytest.fixture
def purges() -> Purges:
    return Purges()


@pytest.fixture
def pins(purges: Purges, monkeypatch: pytest.MonkeyPatch) -> Pins:
    """The collection `c` of tenant `t` has a row."""
    presence: Any = SimpleNamespace(token=1)
    pins = Pins(None, presence, None)  # type: ignore[arg-type]
    pins._readers[HOME] = _Readers("t", OLDEST, SEEN)
    pins._ids["t", "c"] = HOME
    monkeypatch.setattr(pins, "purge_soon", lambda tenant, home: purges.append(home))
    return pins


def held(pins: Pins) -> dict[int, int]:
    return dict(pins._readers[HOME].held)


async def test_a_query_sees_what_it_saw_first(pins: Pins) -> None:
    """While it looks for that, it counts as a reader of the newest version that was seen."""
    hold = await pins.hold("t", [ONE, ONE])
    assert (hold.names, hold.pinned, held(pins)) == ({"c"}, set(), {SEEN: 1})
    assert hold.settle(ONE, {HOME: 6}, keep=True) == Pin(HOME, 6)
    assert held(pins) == {SEEN: 1, 6: 1}
    for _ in range(2):
        hold.end()
        assert held(pins) == {6: 1}
    again = await pins.hold("t", [ONE, TWO])
    assert (again.names, again.pinned, held(pins)) == ({"c"}, {HOME}, {6: 2})
    assert again.settle(ONE, {HOME: 9}, keep=True) == Pin(HOME, 6)
    assert again.settle(TWO, {HOME: 9}, keep=False) == Pin(HOME, 9)
    again.end()
    assert held(pins) == {6: 1}
    assert pins.pinned(TWO, "t") is None
    pins.unpin("one")
    pins.unpin("one")
    assert held(pins) == {}


async def test_who_reads_an_older_version_does_not_hide_that_a_newer_one_was_seen(
    pins: Pins,
) -> None:
    pins.pin(ONE, "t", Pin(HOME, SEEN - 1))
    pins.pin(ONE, "t", Pin(HOME, SEEN + 4))
    assert held(pins) == {SEEN - 1: 1}, "pinned once"
    hold = await pins.hold("t", [TWO])
    assert held(pins) == {SEEN - 1: 1, SEEN: 1}
    hold.end()


@pytest.mark.parametrize(
    ("names", "fits", "known"),
    [({"c": HOME}, True, True), ({"c": HOME + 1}, False, False), ({}, False, False)],
)
async def test_a_name_that_means_another_collection_now_is_looked_up_anew(
    names: dict[str, int], fits: bool, known: bool, pins: Pins
) -> None:
    hold = await pins.hold("t", [ONE])
    assert hold.fits(names) is fits
    assert (("t", "c") in pins._ids) is known
    hold.end()


async def test_what_is_pinned_meanwhile_has_to_be_read_too(pins: Pins) -> None:
    """Of a query that searches twice at once, the other search may be the quicker one."""
    hold = await pins.hold("t", [ONE])
    pins._readers[HOME + 1] = _Readers("t", 0, 0)
    pins.pin(ONE, "t", Pin(HOME + 1, 0))
    assert not hold.fits({"c": HOME})
    assert hold.settle(ONE, {HOME: 6}, keep=True) is None, "the version of what it sees is unknown"
    hold.end()


async def test_a_collection_that_was_not_there_stays_away(
    pins: Pins, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def register(tenant: str, name: str) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr(pins, "_register", register)
    query = Searcher("one", "none")
    hold = await pins.hold("t", [query])
    assert (asked, hold.names) == (["none"], set())
    assert hold.settle(query, {}, keep=True) is None
    hold.end()
    assert pins.pinned(query, "t") == NOWHERE
    later = await pins.hold("t", [query])
    assert (asked, later.settle(query, {}, keep=True)) == (["none"], None)
    pins.unpin("one")
    await pins.hold("t", [query])
    assert asked == ["none", "none"]


def test_a_purge_that_waits_for_us_goes_on_when_nobody_reads_what_our_row_says(
    pins: Pins, purges: Purges
) -> None:
    for query, version in ((ONE, OLDEST), (TWO, OLDEST), (Searcher("three", "c"), OLDEST + 1)):
        pins.pin(query, "t", Pin(HOME, version))
    pins._hear(HOME)
    pins._hear(HOME + 1)
    pins.unpin("one")
    assert purges == []
    pins.unpin("two")
    assert purges == [HOME]
    pins.unpin("three")
    assert purges == [HOME], "nobody waits any more"
    pins._hear(HOME)
    assert purges == [HOME, HOME], "nobody reads it"


def test_who_lost_its_rows_writes_them_again(pins: Pins) -> None:
    pins._lose()
    assert pins._ids == {}
    pins._ids |= {("t", "c"): HOME, ("t", "d"): HOME + 1, ("u", "c"): HOME}
    pins._forget_names(HOME)
    assert pins._ids == {("t", "d"): HOME + 1}
    pins.forget_name("t", "d")
    pins.forget_name("t", "d")
    assert pins._ids == {}
