"""Servers that refuse, are away, hang and turn slow, in the simulator: what becomes of queries.

Four LLM instances, of which one is in trouble for most of the time. A query is lost if it is not
`ok` although three others were there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola import Generate
from teola.learning import Learner
from teola.passes import optimise
from teola.profile import paper
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.events import Dispatch, State
from teola.schedule.plan import Plan
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind

INSTANCES: Final = 4
BAD: Final = 0
BEGINS_S: Final = 20.0
LASTS_S: Final = 200.0
FOUND_S: Final = 10.0
"""After so long what is sent to the bad one counts."""
EVERY_S: Final = 1.0
TROUBLES: Final[Mapping[str, Callable[[Sim], None]]] = {
    "none": lambda sim: None,
    "refuses": lambda sim: sim.refuse("llm", BAD, at=BEGINS_S, lasts_s=LASTS_S),
    "away": lambda sim: sim.refuse("llm", BAD, at=BEGINS_S, lasts_s=LASTS_S, away=True),
    "hangs": lambda sim: sim.hang("llm", BAD, at=BEGINS_S, lasts_s=LASTS_S),
    "slow": lambda sim: sim.slow("llm", BAD, at=BEGINS_S, lasts_s=LASTS_S, factor=20.0),
}


class _Counting(Sim):
    """Counts calls, and of those that were sent later than `since` those to the bad instance."""

    def __init__(self, since: float, until: float) -> None:
        super().__init__(paper("7b"), instances={"llm": INSTANCES}, learner=Learner())
        self._since, self._until = since, until
        self.calls = self.counted = self.bad = 0

    def dispatch(self, command: Dispatch, now: float) -> None:
        """As a simulation does, and count."""
        self.calls += len(command.slices)
        if self._since <= now < self._until:
            self.counted += len(command.slices)
            self.bad += len(command.slices) * (command.instance == BAD)
        super().dispatch(command, now)


def rows(queries: int) -> list[dict[str, Any]]:
    """One for each trouble."""
    return [_row(trouble, begin, queries) for trouble, begin in TROUBLES.items()]


def _row(trouble: str, begin: Callable[[Sim], None], queries: int) -> dict[str, Any]:
    sim = _Counting(BEGINS_S + FOUND_S, BEGINS_S + LASTS_S)
    begin(sim)
    kinds = {"question": Kind.TEXT}
    builder = Builder("troubles", Generate(), kinds, {"answer": "answer"})
    graph = builder.build(builder.configure({}), {})
    plan = Plan(optimise(graph, paper("7b")).e_graph, paper("7b"))
    for k in range(queries):
        sim.submit(plan, {"question": Tokens(100)}, at=EVERY_S * k, deadline_s=120.0)
    results = sim.run()
    ok = [one for one in results if one.state is State.OK]
    took = sorted(one.latency_s for one in ok)
    return {
        "trouble": trouble,
        "queries": queries,
        "ok": len(ok),
        "lost": queries - len(ok),
        "calls": sim.calls,
        "share_of_bad": round(sim.bad / max(1, sim.counted), 4),
        "p50_s": round(took[len(took) // 2], 3),
        "p99_s": round(took[int(0.99 * len(took))], 3),
    }
