"""One query over one table under one system, on the simulated model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from experiments.common.command import Report
from experiments.tables import paper, squad
from experiments.tables.generated import table
from experiments.tables.model import SimulatedModel
from experiments.tables.queries import QUERIES, Query
from teola import tables
from teola.tables.orders import ColumnStatistics, by_score
from teola.tables.workspace import Workspace

OUTPUTS: Final = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256)
"""Tokens of an answer that are tried: from a short sentence, since the paper searches what the
model says for the label, to what a call may write by default."""
FIT_ROWS: Final = 800


@dataclass(frozen=True)
class System:
    """passes: of the planner (None: all). cache: whether the engine keeps prefixes. by_score: the
    paper's order of the fields, and no other. choices: calls say what may be answered. grouped: the
    published planner of groups arranges rows and fields, in place of sorting."""

    passes: str | None
    cache: bool = True
    by_score: bool = False
    choices: bool = False
    grouped: bool = False


SYSTEMS: Final = {
    "no_cache": System("none", cache=False),
    "fifo": System("none"),
    "psm": System("sort", by_score=True),
    "psm_dedup_sql": System("predicates,dedup,sort", by_score=True),
    "groups": System("predicates,dedup", grouped=True),
    "ours": System(None, choices=True),
}


@dataclass(frozen=True)
class Measured:
    """One query that was run. seconds: of the model, virtual. plan_s, sql_s: of the processor, to
    plan it, and to run what DuckDB and Teola do beside the model. order: of its first call's
    fields. embedding_s: of the embedder, virtual (None: nothing is embedded); `seconds` has them.
    completion_tokens: of all answers."""

    calls: int
    prompt_tokens: int
    hit_tokens: int
    seconds: float
    plan_s: float
    sql_s: float
    order: tuple[str, ...]
    embedding_s: float | None = None
    completion_tokens: int = 0

    @property
    def hit_share(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def run(query: Query, sql: str, system: System, rows: int, output: int, seed: int) -> Measured:
    """Run a text of a query. output: tokens of an answer that is not held to choices. Raises
    AssertionError where it does not end well."""
    known = {call.question: call for call in query.calls}
    model = SimulatedModel(known, output, cache=system.cache, grouped=system.grouped)
    search = squad.Search(rows, seed, shared=system.by_score) if query.retrieves else None
    source = {"t": squad.table(rows, seed) if search else table(query.data, rows, seed)}
    asked = tables.sql(sql, source, answers=False, passes=system.passes)
    began = time.process_time()
    with Workspace(source) as workspace:
        asked.plan(workspace, system.passes)
    planned = time.process_time()
    done = asked.run(ask_rows=model, search=search)
    plan_s = planned - began
    # It is planned once more in there.
    sql_s = max(0.0, time.process_time() - planned - model.processor_s - plan_s)
    assert done.state == "ok", f"{query.name} on {query.data}: {done.reason}"
    order = tuple(done.report["stages"][-len(query.calls)]["order"])
    done.close()
    embedding_s = search.seconds if search else None
    return Measured(
        model.calls,
        model.prompt_tokens,
        model.hit_tokens,
        model.seconds + (embedding_s or 0.0),
        plan_s,
        sql_s,
        order,
        embedding_s,
        model.completion_tokens,
    )


def text_of(query: Query, system: System, rows: int, seed: int) -> str:
    """The text of a query as a system is asked it."""
    if query.retrieves or not system.by_score:
        return query.sql(choices=system.choices)
    orders = [scored(query.data, call.fields, rows, seed) for call in query.calls]
    return query.sql(orders, choices=system.choices)


def scored(data: str, fields: Sequence[str], rows: int, seed: int) -> list[str]:
    """Fields by the paper's score: mean length x rows / distinct values, the largest first."""
    source = table(data, rows, seed)
    statistics = []
    for name in fields:
        texts = [str(value) for value in source.column(name).to_pylist()]
        mean = sum(map(len, texts)) / len(texts)
        statistics.append(ColumnStatistics(mean, len(set(texts))))
    return [fields[at] for at in by_score(statistics, rows)]


def measured(name: str, data: str, system: str, rows: int, output: int, seed: int) -> Measured:
    """One cell."""
    query, how = QUERIES[name, data], SYSTEMS[system]
    return run(query, text_of(query, how, rows, seed), how, rows, output, seed)


def fitted(name: str, data: str, rows: int, seed: int) -> int:
    """Tokens of an answer, of OUTPUTS, with which the cache alone is most nearly as much faster as
    in the paper."""
    wanted = paper.FACTORS[name, data].fifo

    def away(output: int) -> float:
        none, cached = (
            measured(name, data, system, rows, output, seed) for system in ("no_cache", "fifo")
        )
        return abs(none.seconds / cached.seconds - wanted)

    return min(OUTPUTS, key=away)


def ablation(
    name: str, data: str, case: str, rows: int, one: Measured, base_s: float | None
) -> Report:
    """A row of the ablations. base_s: seconds of what it is compared with."""
    return {
        "name": name,
        "data": data,
        "case": case,
        "rows": rows,
        "calls": one.calls,
        "hit_share": round(one.hit_share, 4),
        "seconds": round(one.seconds, 2),
        "ratio": None if base_s is None else round(base_s / one.seconds, 3),
    }
