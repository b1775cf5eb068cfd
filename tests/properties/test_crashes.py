"""A query whose server dies at any moment goes on elsewhere: the same answers, nothing done twice.

What is committed is all that a death leaves. Each run has fresh engines and its own passes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.graph import Inquiry
from teola.passes import PIPELINE, optimise
from teola.runtime.live.nesting import Terms
from teola.runtime.live.people import People
from teola.runtime.live.query import Ending
from teola.runtime.live.steps import Steps
from teola.schedule.plan import Plan
from teola.testing.hash_engines import hash_engines
from teola.testing.pass_contract import parts_by, profile_of
from teola.testing.templates import RandomTemplate
from tests.properties.drawn import grown
from tests.properties.test_passes import answer, passes
from tests.recording import Bench

ID = "query"


class Died(Exception):
    """The server is gone."""


@dataclass
class Journal:
    """Keeps steps; dies with the commit number `dies_at`, before it or (`late`) after. done: how
    often each step was committed."""

    kept: dict[str, str | None] = field(default_factory=dict)
    done_: Counter[str] = field(default_factory=Counter)
    dies_at: int = 0
    late: bool = False
    dead: bool = False

    async def begun(self, key: str) -> None:
        await self._write(key, None)

    async def done(self, key: str, result: str) -> None:
        await self._write(key, result)

    async def _write(self, key: str, value: str | None) -> None:
        await asyncio.sleep(0)
        self.dies_at -= 1
        dies = self.dead or self.dies_at == 0
        self.dead = dies
        if dies and not self.late:
            raise Died
        self.late = self.late and not dies
        self.kept[key] = value
        if value is not None:
            self.done_[key] += 1
        if dies:
            raise Died


async def once(
    made: RandomTemplate, names: list[str], journal: Journal, repeated: Counter[str]
) -> Ending:
    """A run, until its end or until it dies. repeated: of effects that were cut off, how often
    somebody said that they are to be done again."""
    known = profile_of()
    before = made.builder.build(made.builder.configure({}), made.sizes)
    plan = Plan(optimise(before, known, names).e_graph, parts=parts_by(names, known))
    people = People(ID)

    def on_ask(asked: Inquiry) -> None:
        assert asked.kind == "unknown"
        repeated[asked.component] += 1
        asyncio.get_running_loop().call_soon(people.answer, asked.id, {"do": "repeat"})

    people.on_ask = on_ask
    terms = Terms(people=people, steps=Steps(ID, journal.kept, journal))
    async with Bench(hash_engines()) as bench:
        ending = await bench.run(plan, made.inputs, deadline_s=20, id=ID, terms=terms)
        await bench.settle()
        bench.assert_idle()
        assert not people.open
        assert not people.queries
        return ending


@pytest.mark.property
@settings(max_examples=50)
@given(
    made=grown(),
    orders=st.lists(passes, min_size=1, max_size=3),
    deaths=st.lists(st.tuples(st.integers(1, 25), st.booleans()), min_size=1, max_size=3),
)
def test_a_query_goes_on_where_it_was(
    made: RandomTemplate, orders: list[list[str]], deaths: list[tuple[int, bool]]
) -> None:
    goes_on(made, orders, deaths)


def goes_on(made: RandomTemplate, orders: list[list[str]], deaths: list[tuple[int, bool]]) -> None:
    before = made.builder.build(made.builder.configure({}), made.sizes)
    told, _ = asyncio.run(answer(before, made.inputs, parts_by([], profile_of())))
    effects = Counter(made.effects)
    made.effects.clear()
    journal, repeated = Journal(), Counter[str]()
    runs = [list(PIPELINE), *orders]
    for k, (at, late) in enumerate(deaths):
        journal.dies_at, journal.late, journal.dead = at, late, False
        asyncio.run(once(made, runs[k % len(runs)], journal, repeated))
    journal.dies_at, journal.dead = 0, False
    ending = asyncio.run(once(made, runs[-1], journal, repeated))
    assert ending.state is told.state, ending.error
    assert ending.outputs == told.outputs
    assert max(journal.done_.values(), default=0) <= 1, "no result is computed again"
    for name, count in Counter(made.effects).items():
        assert count <= effects[name] + repeated[name], "only what was cut off, and by their word"
    made.effects.clear()
