"""An engine's queue, made from the names of its policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from teola.learning import LearnedProfiles, Learner
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.policies.pairing import pair
from teola.policies.preferring import preferring, ranks
from teola.price import Price
from teola.profile import EngineProfile
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.instances import Limits


def queue_of(
    engine: str,
    limits: Sequence[Limits],
    profile: EngineProfile | None,
    batching: str = batching_policies.DEFAULT,
    options: Mapping[str, Any] | None = None,
    routing: str = routing_policies.DEFAULT,
    routing_options: Mapping[str, Any] | None = None,
    learner: Learner | None = None,
    *,
    explains: bool = False,
    names: Sequence[str] = (),
    prices: Sequence[Price | None] = (),
) -> EngineQueue:
    """The scheduler's queue of an engine. limits: of each instance. profile: the engine's, if it is
    known. batching, routing: names of policies; options, routing_options: their keyword arguments.
    learner: who is told how long its work takes, and tells policies. explains: LLM calls say why
    they go where they go, for their traces. names: of the instances, by what they are and not by
    number. prices: of the instances, where some are preferred by it. Raises UnknownName,
    InputError."""
    policy, router = pair(batching, options or {}, routing, routing_options or {})
    profiles: Sequence[EngineProfile] = ()
    if learner is not None:
        names = names or [str(i) for i in range(len(limits))]
        declared = profile or EngineProfile()
        profiles = LearnedProfiles(learner, engine, declared, len(limits), names)
    elif profile is not None:
        profiles = [profile.of(i) for i in range(len(limits))]
    queue = EngineQueue(engine, limits, policy, router, profiles)
    queue.faults.batching, queue.faults.routing = batching, routing
    prefer, _ = preferring(routing_options or {})
    if prefer is not None:
        queue.prefer(ranks(prices or [None] * len(limits), f"engine {engine!r}"), prefer.most_s)
    if learner is not None:
        budget = limits[0].max_batch if limits[0].continuous else None
        queue.observer = learner.observer(engine, budget, names)
    if explains and queue.continuous:
        queue.placing.explain()
    return queue
