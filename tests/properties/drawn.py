"""What hypothesis draws: random templates, and an Outcome source of fewer items than planned, any
branch, any length."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from teola.graph import ConditionParams, DecodeParams
from teola.runtime.in_flight import Query
from teola.runtime.sim.outcome import Delivery, Planned
from teola.runtime.values import Tokens
from teola.testing.templates import RandomTemplate, grow

T = TypeVar("T")


class DrawnChoices:
    """The choices of hypothesis, which looks for the smallest case that fails."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def whole(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def flag(self) -> bool:
        return self._draw(st.booleans())

    def one(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def several(self, options: Sequence[T], least: int, most: int, *, unique: bool) -> list[T]:
        items = st.sampled_from(options)
        return self._draw(st.lists(items, min_size=least, max_size=most, unique=unique))


@st.composite
def grown(draw: DrawFn) -> RandomTemplate:
    """A template over documents, a question and a list of notes, checked and wired."""
    return grow(DrawnChoices(draw)) or reject()


class Drawn(Planned):
    """What is drawn depends on the seed, the query and the primitive's p-graph id only."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed)

    def branch(self, query: Query, i: int) -> str:
        params = query.plan.primitives[i].params
        assert isinstance(params, ConditionParams)
        return self._random(query, i).choice(params.branches)

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        plan, draw = query.plan, self._random(query, head)
        items = draw.randint(0, 5)
        length, found = 0, []
        for member in plan.members[head]:
            length += draw.randint(1, 9)
            found.append(Delivery(member, length, self._delivered(query, member, items, length)))
        return length, found

    def _delivered(self, query: Query, i: int, items: int, length: int) -> Mapping[str, Any]:
        p = query.plan.primitives[i]
        assert isinstance(p.params, DecodeParams)
        result: dict[str, Any] = {port: Tokens(length) for port in p.outputs}
        if "items" in result:
            every = [Tokens(5)] * min(items, p.params.items or items)
            k = p.params.item
            result["items"] = every if k is None else every[k : k + 1]
        return result

    def _random(self, query: Query, i: int) -> random.Random:
        p = query.plan.primitives[i]
        return random.Random(f"{self.seed}/{query.id}/{p.origin or p.id}")
