"""The cases: each simulates one model that runs a few calls at once, under a policy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from statistics import fmean
from typing import Any, Final

import teola
from experiments.common.arrivals import arrivals
from experiments.ordering.earliest import EarliestDeadlineFirst
from teola import App, Each, Generate
from teola.graph import Primitive
from teola.habit import Habit
from teola.passes.estimate import ANSWER_TOKENS
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.schedule.plan import Plan

EDF: Final = "earliest_deadline_first"
OURS: Final = "critical_path"
STEP_S: Final = 0.01
ANSWER: Final = 20
"""Tokens of an answer where nothing else is said: 0.2 s."""
DEFAULT_S: Final = 120.0
"""Seconds that a query has if nobody says."""
MAP: Final = 200
"""Items."""
PATIENT_S, HURRY_S = 600.0, (1.5, 6.0)


def model(calls: int, prefill_s: float = 0.0) -> Profile:
    """One that runs so many calls at once, a token in 10 ms, as a server that batches."""
    step = StepTime.of(Cost(base_s=prefill_s), Cost(base_s=STEP_S))
    llm = EngineProfile(step=step, max_batch=1 << 16, max_sequences=calls, instances=1)
    return Profile("one model", {"llm": llm})


def chat(name: str = "chat", component: str = "say") -> App:
    """A question, an answer."""
    return App(
        name, Generate(name=component), inputs={"question": "text"}, outputs={"answer": "answer"}
    )


def mapped(name: str = "map") -> App:
    """An answer for each row."""
    body = Generate(name="note", inputs={"question": "row"})
    each = Each(body, over="rows", item="row", gives={"answers": "answer"}, at_once=64)
    return App(name, each, inputs={"rows": "texts"}, outputs={"answers": "answers"})


@dataclass(frozen=True)
class Asked:
    """A query. takes: tokens of its answers."""

    app: App
    at: float
    deadline_s: float = DEFAULT_S
    takes: int = ANSWER
    rows: int = 0


CHAT: Final = chat()
MAPPED: Final = mapped()


class Lengths(Planned):
    """Answers are as long as each query was drawn."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        super().__init__()
        self._asked = asked

    def _length(self, query: Query, p: Primitive, so_far: int) -> int:
        return so_far + self._asked[int(query.id.partition("/")[0])].takes


def simulated(
    queries: Sequence[Asked], profile: Profile, policy: str = OURS, shown: str = ""
) -> list[SimulatedQuery]:
    """How each of them ended, in order. shown: the application that all count as."""
    if policy != EDF:
        return _simulated(queries, profile, policy, shown)
    deadlines = {str(k): one.at + one.deadline_s for k, one in enumerate(queries)}
    with teola.register("batching", EDF, lambda: EarliestDeadlineFirst(deadlines)):
        return _simulated(queries, profile, policy, shown)


def _simulated(
    queries: Sequence[Asked], profile: Profile, policy: str, shown: str
) -> list[SimulatedQuery]:
    profile = replace(profile, habits=_habits(queries))
    sim = Sim(profile, batching=policy, outcomes=Lengths(queries))
    plans: dict[tuple[str, int], Plan] = {}
    for k, one in enumerate(queries):
        key = one.app.name, one.rows
        if key not in plans:
            sizes = {"rows": one.rows} if one.rows else {}
            plans[key] = Optimiser(one.app.builder, profile).plan({}, sizes)
        given = {"question": Tokens(16), "rows": [Tokens(12) for _ in range(one.rows)]}
        inputs = {name: given.get(name) for name in plans[key].graph.inputs}
        sim.submit(
            plans[key],
            inputs,
            at=one.at,
            id=str(k),
            app=shown or one.app.name,
            deadline_s=one.deadline_s,
        )
    return sorted(sim.run(), key=lambda query: int(query.id))


def _habits(queries: Sequence[Asked]) -> dict[tuple[str, str], Habit]:
    """How long answers of each application are on average, as if that had been learned."""
    takes: dict[tuple[str, str], list[int]] = {}
    for one in queries:
        writer = "note" if one.rows else "say"
        takes.setdefault((one.app.name, writer), []).append(one.takes)
    return {
        key: Habit(calls=len(found), output=fmean(found) / ANSWER_TOKENS)
        for key, found in takes.items()
    }


def met(found: Sequence[SimulatedQuery]) -> set[str]:
    """Queries that were answered in time."""
    return {query.id for query in found if query.state is State.OK}


# --- the cases ----------------------------------------------------------------------------------


def urgent(seed: int, share: float = 0.2, queries: int = 400) -> dict[str, Any]:
    """Two calls at once; thirty patient queries wait, and as many come as there is room for. One in
    five has 1.5 to 6 s. Who meets their deadline, of those that earliest-deadline-first meets?"""
    draw = random.Random(f"urgent/{seed}")
    profile, calls = model(2), 2
    asked = [Asked(CHAT, 0.0, PATIENT_S, draw.randint(25, 75)) for _ in range(30)]
    for at in arrivals(calls / (50 * STEP_S), queries, seed=seed):
        hurry = draw.uniform(*HURRY_S) if draw.random() < share else PATIENT_S
        asked.append(Asked(CHAT, at, hurry, draw.randint(25, 75)))
    could = met(simulated(asked, profile, EDF))
    did = met(simulated(asked, profile))
    hurried = {str(k) for k, one in enumerate(asked) if one.deadline_s < PATIENT_S}
    return {
        "case": "urgent",
        "seed": seed,
        "hurried": len(hurried),
        "could": len(could & hurried),
        "met": len(did & could & hurried),
        "patient_lost": len(could - did - hurried),
    }


def map_beside_chat(seed: int, *, one_app: bool) -> dict[str, Any]:
    """Four calls at once, a map of 200 calls, and a question every half a second or so while it
    runs: both, and each alone."""
    draw = random.Random(f"beside/{seed}")
    profile, gap_s = model(4), 0.5
    rows = Asked(MAPPED, 0.0, PATIENT_S, rows=MAP)
    chats, at = list[Asked](), 0.3
    alone_s = simulated([rows], profile)[0].latency_s
    while at < alone_s:
        chats.append(Asked(CHAT, at, PATIENT_S))
        at += draw.uniform(0.5, 1.5) * gap_s
    shown = "one" if one_app else ""
    by_themselves = [query.latency_s for query in simulated(chats, profile, shown=shown)]
    map_s, *beside = [q.latency_s for q in simulated([rows, *chats], profile, shown=shown)]
    work = len(chats) / (MAP + len(chats))
    return {
        "case": "map_beside_chat",
        "one_app": one_app,
        "seed": seed,
        "chats": len(chats),
        "alone_p99_s": percentile(by_themselves, 99),
        "beside_p50_s": percentile(beside, 50),
        "beside_p99_s": percentile(beside, 99),
        "map_alone_s": alone_s,
        "map_beside_s": map_s,
        "chats_share": work,
    }


def overload(load: float, seed: int, seconds: float = 600.0) -> dict[str, Any]:
    """Questions, long answers and maps of 20 at so many times what the model can do, each with the
    default deadline: how many are answered a second, and how much of the model's time those took
    that were."""
    draw = random.Random(f"overload/{seed}")
    profile, calls = model(4), 4
    kinds = [(CHAT, ANSWER, 0), (CHAT, 10 * ANSWER, 0), (MAPPED, ANSWER, 20)]
    mean_s = fmean(takes * STEP_S * max(1, rows) for _, takes, rows in kinds)
    rate = load * calls / mean_s
    asked = []
    for at in arrivals(rate, round(rate * seconds), seed=seed):
        app, takes, rows = draw.choice(kinds)
        asked.append(Asked(app, at, DEFAULT_S, takes, rows))
    found = simulated(asked, profile)
    good = [k for k, query in enumerate(found) if query.state is State.OK]
    useful_s = sum(asked[k].takes * STEP_S * max(1, asked[k].rows) for k in good)
    return {
        "case": "overload",
        "load": load,
        "seed": seed,
        "asked": len(asked),
        "answered": len(good),
        "goodput": len(good) / seconds,
        "useful_share": useful_s / (calls * seconds),
        "p99_s": percentile([found[k].latency_s for k in good], 99),
    }


def percentile(seconds: Sequence[float], percent: float) -> float:
    """The smallest that so many percent do not exceed."""
    ordered = sorted(seconds)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else inf


def rows(cases: Sequence[str], seeds: int) -> Iterator[dict[str, Any]]:
    """All of them."""
    for seed in range(seeds):
        if "urgent" in cases:
            yield urgent(seed)
        if "map_beside_chat" in cases:
            yield map_beside_chat(seed, one_app=False)
            yield map_beside_chat(seed, one_app=True)
        if "overload" in cases:
            yield overload(1.2, seed)
            yield overload(2.0, seed)
