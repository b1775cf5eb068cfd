"""An application under load in the simulator, whose learner starts knowing nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from teola.learning import Learner
from teola.profile import EngineProfile, Profile, StepTime, paper
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.outcome import Delivery, Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan

GROWING = StepTime(
    base_s=0.012,
    per_sequence_s=0.0003,
    per_context_s=1.5e-6,
    per_token_s=2e-4,
    per_pair_s=5e-8,
    prefill_s=0.004,
)
"""A step that attention makes longer, as on a GPU (experiments/step_model)."""


def growing() -> Profile:
    """The paper's testbed with LLMs whose steps grow with what they attend to."""
    known = paper("13b")
    engines = {
        name: replace(entry, step=GROWING) if entry.step != StepTime() else entry
        for name, entry in known.engines.items()
    }
    return replace(known, name="growing", engines=engines)


def alike(profile: Profile, engine: str, **more: Any) -> Profile:
    """The profile with another entry for one engine."""
    entry: EngineProfile = replace(profile.engines[engine], **more)
    return replace(profile, engines={**profile.engines, engine: entry})


class Spread(Planned):
    """Answers of the planned length, more or less: lognormal, drawn by query and call."""

    def __init__(self, mean: float = 40.0, sigma: float = 0.4, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.mean, self.sigma = mean, sigma

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        drawn = random.Random(f"{self.seed}/{query.id}/{head}")
        self.answer_tokens = max(1, round(self.mean * drawn.lognormvariate(0.0, self.sigma)))
        return super().call(query, head)


class Loaded:
    """Queries of an application, one after another at a Poisson process' times.

    profile: what is true. learns: whether the plans go by what is learned meanwhile; else by the
    engines' declarations. chunks: of a document, at least and at most.
    """

    def __init__(
        self,
        app: str,
        profile: Profile,
        *,
        learns: bool = True,
        learner: Learner | None = None,
        outcomes: Planned | None = None,
        chunks: tuple[int, int] = (8, 96),
        sim: Callable[..., Sim] = Sim,
        **options: Any,
    ) -> None:
        self.app, self.chunks = app, chunks
        self.learner = learner or (Learner() if learns else None)
        builder = import_module(f"teola_apps.{app}").app.builder
        self.optimiser = Optimiser(builder, profile.untimed(), self.learner)
        given = {"outcomes": outcomes or Spread(), "learner": self.learner, **options}
        self.sim = sim(profile, **given)

    def plan(self, chunks: int) -> Plan:
        """For a document of so many chunks, by what is known now."""
        sizes = {} if self.app == "search_agent" else {"chunks": chunks}
        return self.optimiser.plan({}, sizes)

    def submit(self, count: int, rate: float, seed: int = 0, **more: Any) -> None:
        """Let `count` queries come, `rate` a second."""
        drawn, at = random.Random(f"loaded/{seed}"), 0.0
        for _ in range(count):
            at += drawn.expovariate(rate)
            chunks = drawn.randint(*self.chunks)
            question = drawn.randint(5, 40)
            planned = _later(self.plan, chunks)
            self.sim.submit(planned, self._inputs(chunks, question), at=at, app=self.app, **more)

    def _inputs(self, chunks: int, question: int) -> Mapping[str, Any]:
        given: dict[str, Any] = {"question": Tokens(question)}
        if self.app == "search_agent":
            return given
        if self.app == "chat_rag":
            given["history"] = Tokens(200)
        return {**given, "chunks": [Tokens(256)] * chunks, "scope": Tokens(0)}

    def run(self, count: int, rate: float, seed: int = 0) -> list[SimulatedQuery]:
        """Let so many come, and wait for the last one."""
        self.submit(count, rate, seed)
        return self.sim.run()


def _later(plan: Callable[[int], Plan], chunks: int) -> Callable[[], Plan]:
    return lambda: plan(chunks)
