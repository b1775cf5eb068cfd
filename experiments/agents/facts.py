"""What the search tool finds: figures about the things that ParallelQA asks about.

Of several figures that are in use, the one is taken by which the data set's own answers come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Fact(NamedTuple):
    """A figure of a thing, such as its depth in metres."""

    value: float
    what: str


def _of(what: str, values: Mapping[str, float]) -> dict[str, Fact]:
    return {name: Fact(value, what) for name, value in values.items()}


FACTS: Final[Mapping[str, Fact]] = {
    **_of(
        "depth in metres",
        {
            "Mariana Trench": 10984,
            "Puerto Rico Trench": 8376,
            "Sunda Trench": 7290,
            "South Sandwich Trench": 8202,
            "Peru-Chile Trench": 8065,
        },
    ),
    **_of(
        "maximum speed in km/h",
        {"cheetah": 120, "peregrine falcon": 389, "greyhound": 72, "ostrich": 70, "gazelle": 97},
    ),
    **_of(
        "area in square kilometres",
        {
            "Sahara Desert": 9_200_000,
            "Kalahari Desert": 900_000,
            "Sonoran Desert": 260_000,
            "Atacama Desert": 105_000,
            "Arabian Desert": 2_330_000,
            "Amazon Rainforest": 5_500_000,
            "Congo Rainforest": 2_000_000,
            "Australian Forest": 1_340_000,
            "Borneo Rainforest": 748_168,
            "Black Forest": 6_009,
            "Pacific Ocean": 165_250_000,
            "Atlantic Ocean": 85_133_000,
            "Indian Ocean": 70_560_000,
            "Southern Ocean": 20_327_000,
            "Arctic Ocean": 14_056_000,
        },
    ),
    **_of(
        "length in kilometres",
        {
            "Yangtze River": 6300,
            "Mississippi River": 3766,
            "Volga River": 3531,
            "Mekong River": 4909,
            "Congo River": 4700,
        },
    ),
    **_of(
        "height in metres",
        {
            "Mount Everest": 8849,
            "Mount Kilimanjaro": 5895,
            "Aconcagua": 6961,
            "K2": 8611,
            "Mount Elbert": 4401,
            "Christ the Redeemer": 38,
            "Statue of Unity": 182,
            "Washington Monument": 169,
            "Motherland Calls": 85,
            "Ushiku Daibutsu": 120,
            "Burj Khalifa": 828,
            "Tokyo Skytree": 634,
            "Shanghai Tower": 632,
            "CN Tower": 553.3,
            "Ostankino Tower": 540.1,
            "Empire State Building": 443.2,
        },
    ),
    **_of(
        "population in millions",
        {"Vietnam": 98, "Thailand": 71.6, "South Korea": 51.7, "Japan": 125.7, "China": 1412},
    ),
}


def found(query: str) -> Fact | None:
    """What a search for a thing and what of it is asked finds."""
    name = query.partition(", ")[0]
    return FACTS.get(name)
