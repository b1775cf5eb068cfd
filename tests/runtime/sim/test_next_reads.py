"""What a query will read again stays where the policy looks ahead: a small cache, by hand.

traveller   plan ────── tool, 5 s ────── report      both read its question: 40 tokens
passers-by       1 s    2 s    3 s                   each reads its own, once
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, ClassVar

import pytest

import teola
from teola.engine import NextRead
from teola.graph import Op, Part, Ref, Role
from teola.kv import Access
from teola.kv.policies.lru import Lru
from teola.kv.policies.next_use import NextUse
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime.in_flight import Query
from teola.runtime.next_reads import END
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Planned
from teola.runtime.sim.sim import SimulatedQuery
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from tests.planted import catches, edited
from tests.schedule.plans import plan, tool
from tests.schedule.test_beginnings import QUESTION, asking

TOOL_S, TOKEN_S, ANSWER = 5.0, 0.001, 4
PROFILE = Profile(
    "small",
    {
        "llm": EngineProfile(
            step=StepTime(base_s=0.001, per_token_s=TOKEN_S),
            max_batch=1000,
            prefix_reuse=True,
            keeps_prefixes=True,
            block_tokens=4,
            kv_blocks=28,
        ),
        "python": EngineProfile({Op.TOOL_CALL: Cost(base_s=TOOL_S)}),
    },
)
TRAVELLER = plan(
    *asking("plan", QUESTION, Part(Role.INSTRUCTION, "Plan")),
    tool("t", "plan"),
    *asking("report", QUESTION, Part(Role.CONTEXT, Ref("t", "out"))),
).graph
PASSER_BY = plan(*asking("m", QUESTION)).graph


class Watched:
    """What a policy is told and does. told: by query, accesses in order. gone: query and position
    of each block that was evicted."""

    told: ClassVar[dict[object, list[Access]]] = {}
    gone: ClassVar[list[tuple[object, int]]] = []
    places: ClassVar[dict[int, tuple[object, int]]] = {}

    def touch(
        self, blocks: Sequence[int], keys: Any, position: int, access: Access, now: float
    ) -> None:
        self.told.setdefault(access.query, []).append(access)
        self.places.update((b, (access.query, at)) for at, b in enumerate(blocks, position))
        super().touch(blocks, keys, position, access, now)  # type: ignore[misc]

    def evict(self, now: float) -> int:
        block: int = super().evict(now)  # type: ignore[misc]
        self.gone.append(self.places[block])
        return block


class Ahead(Watched, NextUse):
    """next_use, watched."""


class Behind(Watched, Lru):
    """lru, watched."""


def travelled(policy: type[Watched]) -> tuple[dict[str, int], list[str], Plan]:
    """Tokens that the traveller's calls found, by primitive; whose blocks were evicted, in order;
    and the traveller's plan."""
    traveller, passer_by = Plan(TRAVELLER, PROFILE), Plan(PASSER_BY, PROFILE)
    Watched.told, Watched.gone, found = {}, [], dict[str, int]()

    def ended(query: Query, result: SimulatedQuery) -> None:
        if query.id == "traveller":
            found.update({id: usage.cached_tokens for id, usage in query.trace.calls.items()})

    with teola.register("eviction", "watched", policy):
        outcomes = Planned(answer_tokens=ANSWER)
        sim = Sim(PROFILE, eviction="watched", outcomes=outcomes, on_finish=ended)
        sim.submit(traveller, {"question": Tokens(40)}, id="traveller")
        for k in range(3):
            sim.submit(passer_by, {"question": Tokens(40)}, at=1.0 + k, id=f"passer-by {k}")
        sim.run()
    whose = [str(query).split()[0] for query, _ in Watched.gone]
    return found, whose, traveller


@catches(
    "nothing-read-again",
    "a simulated instance is not told what is read again",
    edited(Stepper._begin, "self._reads(query, id[1], ends)", "()"),
)
@catches(
    "read-from-the-end",
    "the parts that are read again are counted from the wrong end of a prompt",
    edited(Stepper._reads, "tokens[until] // size", "0"),
)
@catches(
    "zones-ignored",
    "what is read again and what is not are evicted alike",
    edited(NextUse.touch, "while at >= until:", "while False:"),
)
def test_what_the_graph_says_is_read_again_outlives_what_is_not() -> None:
    """The traveller's blocks are the oldest, and are there when it is back: what follows its
    question goes first, then the passers-by whose queries have ended."""
    found, gone, _ = travelled(Behind)
    assert found == {"plan.prefill": 0, "report.prefill": 0}
    assert set(gone[:10]) == {"traveller"}
    found, gone, _ = travelled(Ahead)
    assert found == {"plan.prefill": 0, "report.prefill": 40}
    assert gone == ["traveller", *["passer-by"] * 14]
    assert Watched.gone[0] == ("traveller", 10), "what was generated, which nobody reads"


def test_what_is_told_comes_true() -> None:
    travelled(Ahead)
    (read, never), *_ = {access.reads: None for access in Watched.told["traveller"]}
    assert (read.until, never.seconds) == (10, inf)
    begins = {access.category[1]: None for access in Watched.told["traveller"]}
    assert [*begins] == ["plan", "report"]
    assert read.seconds == pytest.approx(TOOL_S, rel=0.02)


@catches(
    "always-worked-out",
    "when what is read again is worked out for policies that do not ask",
    edited(Stepper._reads, "not self._looks_ahead", "False"),
)
def test_it_costs_nothing_where_nobody_asks() -> None:
    _, _, made = travelled(Behind)
    assert {access.reads for told in Watched.told.values() for access in told} == {()}
    assert "beginnings" not in vars(made), "nor is it worked out who begins alike"


def test_a_session_may_go_on() -> None:
    Watched.told = {}
    with teola.register("eviction", "watched", Ahead):
        sim = Sim(PROFILE, eviction="watched", outcomes=Planned(answer_tokens=ANSWER))
        made = Plan(PASSER_BY, PROFILE)
        sim.submit(made, {"question": Tokens(40)}, program="s")
        sim.submit(made, {"question": Tokens(40)}, at=1.0, id="alone")
        sim.run()
    told = {query: {one.reads for one in accesses} for query, accesses in Watched.told.items()}
    assert told == {"s": {()}, "alone": {(NextRead(END, inf),)}}
