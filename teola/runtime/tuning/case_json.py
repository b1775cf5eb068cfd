"""A case to replay as JSON, for the process that replays it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from teola.habit import Habit
from teola.profile import Profile, from_json, to_json
from teola.runtime.sim.staged import StagedCall, StagedQuery
from teola.runtime.tuning.replay_case import ReplayCase

PLAIN = ("engine", "batching", "routing", "batching_options", "routing_options", "minimise")


def written_case(case: ReplayCase) -> dict[str, Any]:
    """A case as JSON values; `read_case` reads them back."""
    return {
        **{name: getattr(case, name) for name in PLAIN},
        "queries": [written_query(query) for query in case.queries],
        "profile": to_json(case.profile),
        "habits": [[*key, habit.to_json()] for key, habit in case.profile.habits.items()],
    }


def read_case(told: Mapping[str, Any]) -> ReplayCase:
    """What `written_case` wrote."""
    habits = {(app, name): Habit(**habit) for app, name, habit in told["habits"]}
    profile: Profile = replace(from_json(told["profile"]), habits=habits)
    queries = [read_query(one) for one in told["queries"]]
    return ReplayCase(queries, profile, **{name: told[name] for name in PLAIN})


def written_query(query: StagedQuery) -> dict[str, Any]:
    """A staged query as JSON values."""
    return {
        "stages": [[list(call) for call in stage] for stage in query.stages],
        "app": query.app,
        "arrival": query.arrival,
        "tenant": query.tenant,
        "finish_by_s": query.finish_by_s,
        "latency_s": query.latency_s,
        "counted": query.counted,
    }


def read_query(told: Mapping[str, Any]) -> StagedQuery:
    """What `written_query` wrote."""
    stages = tuple(tuple(StagedCall(*call) for call in stage) for stage in told["stages"])
    rest = {name: value for name, value in told.items() if name != "stages"}
    return StagedQuery(stages, **rest)
