"""The tuner in the simulator: the same state machine as in a server, in virtual time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final, NamedTuple

from teola.learning import Learner
from teola.profile import Profile
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.staged import StagedQuery, Stages, staged
from teola.runtime.tuning.replay_case import ReplayCase, tuned
from teola.runtime.tuning.tuner import Tuner, TunerOptions
from teola.schedule.events import State, Tuned

TAKES_S: Final = 10.0
"""Virtual seconds until a replay has ended: about what it takes."""
GRID: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class Change(NamedTuple):
    """A found alpha. at: when it took effect. replay_s: processor seconds of the search."""

    at: float
    alpha: float
    replay_s: float


class Tuning:
    """Tunes alpha while a simulation runs."""

    def __init__(
        self, sim: Sim, profile: Profile, learner: Learner, options: TunerOptions, alpha: float
    ) -> None:
        self.sim, self.profile, self.learner = sim, profile, learner
        self.tuner, self.alpha = Tuner(options, so_far=self._so_far), alpha
        self.changes: list[Change] = []
        sim.at(self.tuner.due, self._window)
        self.left = 0

    def began(self, id: str, app: str, finish_by_s: float) -> None:
        """A query has arrived."""
        self.tuner.began(id, StagedQuery((), app, self.sim.now, finish_by_s=finish_by_s))

    def _so_far(self, id: str) -> Stages:
        query = self.sim.queries.get(id)
        return () if query is None else staged(query.trace)

    def ended(self, query: Query, result: SimulatedQuery) -> None:
        """A query has ended."""
        self.left -= 1
        if result.state is State.OK:
            self.tuner.ended(query.id, staged(query.trace), result.finished)
        else:
            self.tuner.recent.dropped(query.id)

    def _window(self) -> None:
        if self.left <= 0:
            return
        now = self.sim.now
        sample = self.tuner.look(now)
        if sample is not None:
            begun = time.process_time()
            alpha = self._best(sample)
            took_s = time.process_time() - begun
            self.sim.at(now + TAKES_S, self._apply, alpha, took_s)
        self.sim.at(self.tuner.due, self._window)

    def _best(self, sample: list[StagedQuery]) -> float:
        lessons = self.learner.lessons
        case = ReplayCase(
            sample,
            replace(self.profile, habits=lessons.habits),
            batching="urgency",
            routing="workload_balanced",
            minimise=self.tuner.options.minimise,
        )
        return tuned(case, "routing", "alpha", GRID)

    def _apply(self, alpha: float, replay_s: float) -> None:
        self.tuner.told()
        self.alpha = alpha
        self.changes.append(Change(self.sim.now, alpha, replay_s))
        self.sim.handle(Tuned("llm", "routing", {"alpha": alpha}), self.sim.now)
