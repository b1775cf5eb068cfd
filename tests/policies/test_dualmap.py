"""How much of a call's beginning dualmap hashes, against counting all of the last calls anew."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest

from teola.policies.routing.dualmap import DualMap
from tests.planted import catches, edited
from tests.policies.routed import call, router

MOST = 20
"""Calls whose beginnings are counted here."""


def beginnings(keys: tuple[Hashable, ...]) -> list[Hashable]:
    """Those of 1, 2, 4, ... blocks that are whole."""
    found, length = list[Hashable](), 1
    while length <= len(keys):
        found.append(keys[length - 1])
        length *= 2
    return found


@catches(
    "beginnings-for-ever",
    "beginnings of long ago count as popular",
    edited(DualMap._prefix, "len(self._last) > LAST", "False"),
)
@catches(
    "beginnings-one-too-many",
    "one call more than the last ones counts",
    edited(DualMap._prefix, "len(self._last) > LAST", "len(self._last) > LAST + 1"),
)
@catches(
    "share-is-too-much",
    "a beginning that has just its share is spread",
    edited(DualMap._prefix, "<= share", "< share"),
)
@catches(
    "longest-half",
    "a prompt of eight blocks is known by four of them at most",
    edited(DualMap._prefix, "len(work.keys).bit_length()", "(len(work.keys) - 1).bit_length()"),
)
def test_a_beginning_is_as_long_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DualMap._prefix.__globals__, "LAST", MOST)
    for seed in range(5):
        draw, policy, last = random.Random(seed), DualMap(), list[list[Hashable]]()
        router(policy, 4)
        for k in range(150):
            keys = list[Hashable]()
            for _ in range(draw.choice([0, 1, 2, 3, 4, 7, 8])):
                keys.append((*keys[-1:], draw.choice([0, 0, 0, 1])))
            work = call(f"q{k}", tuple(keys))
            if not keys:
                assert policy._prefix(work) == work.run
                continue
            last.append(beginnings(work.keys))
            del last[:-MOST]
            rare = [one for one in last[-1] if sum(one in each for each in last) <= MOST / 4]
            assert policy._prefix(work) == [*rare, last[-1][-1]][0]
