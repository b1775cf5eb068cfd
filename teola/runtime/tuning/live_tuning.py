"""The tuner of an engine that serves: it hears which queries come and end, and has them replayed.

The engine's queue hears of a better value by the event `Tuned`, when it is found, which may be
late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import inf
from typing import Any, Final, Protocol

from teola.errors import EngineError, InputError, UnknownName
from teola.policies.asker import Asker
from teola.policies.pairing import pair
from teola.policies.preferring import preferring
from teola.policies.tuning import grid_of
from teola.profile import Profile
from teola.runtime.observe.noting import note
from teola.runtime.observe.trace import Trace
from teola.runtime.sim.staged import StagedQuery, Stages, staged
from teola.runtime.tuning.replay_case import ReplayCase
from teola.runtime.tuning.tuner import Tuner, TunerOptions
from teola.runtime.tuning.tuner_process import TunerProcess
from teola.schedule.events import Tuned

log = logging.getLogger(__name__)
KINDS: Final = ("routing", "batching")
OPTION: Final = "option"
"""Among a tuner's options, the name of what it tunes, where a policy declares several."""

PolicyChoice = tuple[str, Mapping[str, Any], str, Mapping[str, Any]]
"""Batching policy and its options, routing policy and its options."""


class Target:
    """What is tuned: an option of the engine's routing or batching policy, by its grid."""

    def __init__(self, policies: PolicyChoice, options: Mapping[str, Any], where: str) -> None:
        batching, routing = pair(*policies)
        grids = {
            (kind, name): values
            for kind, policy in zip(KINDS, (routing, batching), strict=True)
            for name, values in grid_of(policy).items()
        }
        wanted = options.get(OPTION)
        names = list(dict.fromkeys(name for _, name in grids))
        if not grids:
            raise InputError(
                f"{where}: neither {policies[0]!r} nor {policies[2]!r} has an option that can be "
                "tuned; take routing = 'workload_balanced' (alpha), 'paced' (tau) or batching = "
                "'critical_path' (patience), or leave `tuner` out"
            )
        if wanted is not None and wanted not in names:
            raise UnknownName("tunable option", str(wanted), names, where)
        self.option: str = wanted or names[0]
        self.kind, self.grid = next(
            (kind, values) for (kind, name), values in grids.items() if name == self.option
        )


def tuner_options(options: Mapping[str, Any], where: str) -> TunerOptions:
    """The options of the tuner itself. Raises UnknownName, InputError."""
    known = [field.name for field in fields(TunerOptions)]
    for name in options:
        if name not in (*known, OPTION):
            raise UnknownName("option", name, [*known, OPTION], f"{where}: tuner")
    return TunerOptions(**{name: value for name, value in options.items() if name != OPTION})


class Tunable(Protocol):
    """The configuration of an engine, as far as a tuner needs it."""

    @property
    def batching(self) -> str: ...

    @property
    def batching_options(self) -> Mapping[str, Any]: ...

    @property
    def routing(self) -> str: ...

    @property
    def routing_options(self) -> Mapping[str, Any]: ...

    @property
    def tuner(self) -> Mapping[str, Any] | bool | None: ...


def check_tuner(name: str, config: Tunable) -> None:
    """Raises UnknownName or InputError where its tuner cannot be as it is configured."""
    if not config.tuner:
        return
    where, options = f"engine {name!r}", {} if config.tuner is True else config.tuner
    policies = config.batching, config.batching_options, config.routing, config.routing_options
    if preferring(config.routing_options)[0] is not None:
        raise InputError(f"{where}: a tuner replays without prices: leave out `tuner` or `prefer`")
    tuner_options(options, where)
    Target(policies, options, where)


class LiveTuning:
    """The tuning of one engine. post: takes events for the core. profile: what is known of the
    engine now, with an entry in its pool for each instance. trace: of a query that runs (None: it
    does not)."""

    def __init__(
        self,
        engine: str,
        policies: PolicyChoice,
        options: Mapping[str, Any],
        process: TunerProcess,
        post: Callable[[Tuned], None],
        profile: Callable[[], Profile],
        now: float,
        trace: Callable[[str], Trace | None] = lambda id: None,
    ) -> None:
        where = f"engine {engine!r}"
        self.engine, self._policies = engine, policies
        self.target = Target(policies, options, where)
        self.tuner = Tuner(tuner_options(options, where), now, self._so_far)
        self._trace = trace
        self._process, self._post, self._profile = process, post, profile

    def _so_far(self, id: str) -> Stages:
        trace = self._trace(id)
        return () if trace is None else staged(trace, self.engine)

    def began(self, id: str, asker: Asker, now: float) -> None:
        """A query was admitted."""
        wanted = asker.finish_by - now if asker.finish_by < inf else None
        query = StagedQuery((), asker.app, now, asker.tenant, wanted)
        self.tuner.began(id, query)

    def ended(self, id: str, trace: Trace, well: bool, now: float) -> None:
        """A query has ended."""
        if well:
            self.tuner.ended(id, staged(trace, self.engine), now)
        self.tuner.recent.dropped(id)

    async def run(self) -> None:
        """Look at the end of each window, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.0, self.tuner.due - loop.time()))
            sample = self.tuner.look(loop.time())
            if sample is not None:
                await self._tune(sample)

    async def _tune(self, sample: list[StagedQuery]) -> None:
        profile = self._profile()
        engine = profile.engines[self.engine]
        try:
            if not engine.timed:
                return
            batching, batching_options, routing, routing_options = self._policies
            case = ReplayCase(
                sample,
                replace(profile, engines={self.engine: engine}),
                self.engine,
                batching,
                routing,
                dict(batching_options),
                dict(routing_options),
                self.tuner.options.minimise,
            )
            target = self.target
            value = await self._process.tuned(case, target.kind, target.option, target.grid)
            self._post(Tuned(self.engine, target.kind, {target.option: value}))
        except (EngineError, OSError, ValueError) as error:  # of the process, or of its pipe
            message = (
                "engine %(engine)s: %(error_type)s while it was tuned; its policy stays as it is"
            )
            note(
                log,
                logging.WARNING,
                "tuning_failed",
                message,
                engine=self.engine,
                error_type=type(error).__name__,
            )
        finally:
            self.tuner.told()
