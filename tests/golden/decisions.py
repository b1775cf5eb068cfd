"""Whole simulated runs as text, a line for each decision that the core took.

    0.35 send llm.1 batch 4: q2/generate/prefill 0:412 since 0.31
    0.35 abort llm.1 batch 4: q2/generate/prefill
    0.50 end q2 cancelled

Eight queries of two tenants meet on two instances of each engine; one is cancelled, and an instance
of the LLM and one of a batch engine die and come back. Everything is guessed ahead that may be.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from teola.passes import PIPELINE, optimise
from teola.profile import paper
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.events import AbortRequest, Dispatch, Finish
from teola.schedule.plan import Plan
from tests.properties.drawn import Drawn

APPS: Final = ("naive_rag", "advanced_rag", "chat_rag", "search_agent")
POLICIES: Final = ("critical_path", "topology", "fair")
SCENARIOS: Final = [(app, policy) for app in APPS for policy in POLICIES]
QUERIES: Final = 8


def path_of(app: str, policy: str) -> Path:
    """Where the decisions of a scenario are kept."""
    return Path(__file__).parent / f"{app}-{policy}.txt"


def decisions(app: str, policy: str) -> str:
    """What the core decides in this scenario, now."""
    return "".join(f"{line}\n" for line in _run(app, policy).told)


class Noting(Sim):
    """Notes what the core decides."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.told: list[str] = []
        self.plans: dict[str, Plan] = {}

    def dispatch(self, command: Dispatch, now: float) -> None:
        for work, lo, hi in command.slices:
            self._note(
                now,
                f"send {command.engine}.{command.instance} batch {command.batch}: "
                f"{self._name(work.run, work.primitive)} {lo}:{hi} since {work.arrival:.9g}",
            )
        super().dispatch(command, now)

    def abort(self, command: AbortRequest, now: float) -> None:
        name = self._name(command.run, command.primitive)
        where = f"{command.engine}.{command.instance} batch {command.batch}"
        self._note(now, f"abort {where}: {name}")
        super().abort(command, now)

    def finished(self, query: Query, command: Finish, now: float) -> None:
        self._note(now, f"end {query.id} {command.state.value}")
        super().finished(query, command, now)

    def _name(self, run: str, i: int) -> str:
        return f"{run}/{self.plans[run].ids[i]}"

    def _note(self, now: float, text: str) -> None:
        self.told.append(f"{now:.9g} {text}")


def _run(app: str, policy: str) -> Noting:
    profile = paper("13b")
    builder = import_module(f"teola_apps.{app}").app.builder
    options = {"by": "tenant", "weights": {"t0": 2.0}, "inner": "critical_path"}
    engines: dict[str, None] = {}
    plans = []
    for k in range(QUERIES):
        sizes = {"chunks": 20 + 11 * k} if app != "search_agent" else {}
        graph = builder.build(builder.configure({}), sizes)
        plan = Plan(optimise(graph, profile, list(PIPELINE)).e_graph, profile)
        engines |= {p.engine: None for p in plan.primitives if p.engine}
        plans.append((plan, sizes))
    sim = Noting(
        profile,
        batching=policy,
        routing="round_robin" if policy == "topology" else "least_loaded",
        policy_options=dict.fromkeys(engines, options) if policy == "fair" else None,
        instances=dict.fromkeys(engines, 2),
        outcomes=Drawn(7),
    )
    for k, (plan, sizes) in enumerate(plans):
        inputs: dict[str, Any] = {
            "question": Tokens(14 + k),
            "history": Tokens(60 + 40 * k),
            "scope": Tokens(0),
            "chunks": [Tokens(200 + 8 * n) for n in range(sizes.get("chunks", 0))],
        }
        wanted = {name: value for name, value in inputs.items() if name in plan.graph.inputs}
        sim.plans[f"q{k}"] = plan
        cancel = 0.5 if k == 3 else None
        sim.submit(
            plan,
            wanted,
            at=0.06 * k,
            id=f"q{k}",
            app=app,
            tenant=f"t{k % 2}",
            cancel_after_s=cancel,
        )
    sim.kill("llm", 0, at=1.3, back_s=0.4)
    sim.kill(next(name for name in engines if name != "llm"), 1, at=0.5, back_s=0.3)
    sim.run()
    return sim
