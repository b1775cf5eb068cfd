"""Who goes before whom where what grows meets questions, as text: a line for each call sent.

    0.35 send map/each/item/3 since 0.31
    0.50 end q2 ok

A map of 24 items, a Loop of four turns and an agent share one model, which runs four calls at once,
with questions that come one after another, some of them in a hurry.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from teola import Agent, App, Each, Generate, Loop, component
from teola.profile import Profile, paper
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import Dispatch, Finish
from teola.tools import tool

KEPT: Final = Path(__file__).parent / "beside.txt"
ITEMS: Final = 24


@component(outputs="better", pure=True)
async def better(draft: str, answer: str) -> str:
    return f"{draft} {answer}"


@tool(pure=True)
async def look(query: str) -> str:
    """Look something up.

    Args:
        query: what to look for
    """
    return f"found {query}"


CHAT: Final = App("chat", Generate(), inputs={"question": "text"}, outputs={"answer": "answer"})
MAP: Final = App(
    "map",
    Each(
        Generate(inputs={"question": "row"}), over="rows", item="row", gives={"answers": "answer"}
    ),
    inputs={"rows": "texts"},
    outputs={"answers": "answers"},
)
LOOP: Final = App(
    "loop",
    Loop(
        Generate(inputs={"context": "draft"}) >> better,
        carry={"draft": "better"},
        until=lambda text: False,
        reads=["better"],
        gives=["better"],
        expect=4,
    ),
    inputs={"question": "text", "draft": "text"},
    outputs={"end": "better"},
)
AGENT: Final = App(
    "agent", Agent([look], expect=(2, 1)), inputs={"question": "text"}, outputs={"answer": "answer"}
)


def one_model(calls: int = 4) -> Profile:
    """The paper's, with one model that runs so many calls at once; tools take no time."""
    profile = paper("13b")
    llm = replace(profile.engines["llm"], instances=1, max_sequences=calls)
    return replace(profile, engines={**profile.engines, "llm": llm})


class Noting(Sim):
    """Notes who is sent and who ends."""

    told: list[str]

    def dispatch(self, command: Dispatch, now: float) -> None:
        for work, _, _ in command.slices:
            if command.engine == "llm":
                self.told.append(f"{now:.6g} send {work.run} since {work.arrival:.6g}")
        super().dispatch(command, now)

    def finished(self, query: Query, command: Finish, now: float) -> None:
        if query.place is None:
            self.told.append(f"{now:.6g} end {query.id} {command.state.value}")
        super().finished(query, command, now)


def decisions() -> str:
    """What the core decides, now."""
    profile = one_model()
    sim = Noting(profile, outcomes=Planned(answer_tokens=20))
    sim.told = []
    given = {
        "question": Tokens(16),
        "draft": Tokens(30),
        "rows": [Tokens(12) for _ in range(ITEMS)],
    }
    came = [(MAP, 0.0), (LOOP, 0.05), (AGENT, 0.1)]
    came += [(CHAT, 0.3 + 0.45 * k) for k in range(16)]
    for k, (app, at) in enumerate(came):
        optimiser = Optimiser(app.builder, profile)
        plan = optimiser.plan({}, {"rows": ITEMS} if app is MAP else {})
        inputs = {name: given.get(name) for name in plan.graph.inputs}
        hurry = 2.5 if k in (7, 12) else 120.0
        name = f"{app.name}{k}" if app is CHAT else app.name
        sim.submit(plan, inputs, at=at, id=name, app=app.name, deadline_s=hurry)
    sim.run()
    return "".join(f"{line}\n" for line in sim.told)
