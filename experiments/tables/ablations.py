"""One thing changed at a time: the order of columns, dedup, which filter comes first, batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

import pyarrow as pa
from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Report
from experiments.tables import paper
from experiments.tables.batched import BatchedModel
from experiments.tables.generated import STATISTICS, table
from experiments.tables.queries import QUERIES, Asked, Query
from experiments.tables.runs import Measured, System, ablation, run
from teola import tables

SORTED: Final = System("sort")
CHOOSING: Final = System("columns,sort")
SELECTIVITIES: Final = (1.0, 0.75, 0.5, 0.25)

Outputs = Mapping[tuple[str, str], int]


def measure(
    rows: int, outputs: Outputs, seed: int, workers: int, progress: Progress
) -> list[Report]:
    """All of them but the hit shares. rows: of each query."""
    jobs: list[pool.Job[list[Report]]] = []
    for data in STATISTICS:
        written, kept = outputs["Q1", data], outputs["Q2", data]
        jobs.append((column_orders, (data, rows, written, seed)))
        jobs.append((filters, (data, rows, kept, seed)))
        jobs.append((dedups, (data, rows, written, seed)))
    found = [row for some in pool.run(jobs, workers, progress, "ablations") for row in some]
    return [*found, *batches(rows, outputs["Q1", "movies"], seed)]


def _projected(
    data: str, fields: Sequence[str], system: System, rows: int, output: int, seed: int
) -> Measured:
    """Q1's instruction over some fields. Their order is kept where it is not to be chosen."""
    query = QUERIES["Q1", data]
    asked: Asked = query.calls[0]
    call = asked.sql(fields, choices=False, fixed="columns" not in (system.passes or ""))
    return run(query, f"SELECT {call} AS said FROM t", system, rows, output, seed)


def column_orders(data: str, rows: int, output: int, seed: int) -> list[Report]:
    """All orders of three columns, sorted. ratio: against the slowest."""
    names = paper.COLUMNS[data]
    found = {
        order: _projected(data, order, SORTED, rows, output, seed) for order in permutations(names)
    }
    chosen = _projected(data, names, CHOOSING, rows, output, seed).order
    slowest = max(one.seconds for one in found.values())
    return [
        ablation(
            "column_order",
            data,
            f"{', '.join(order)}{' (chosen)' if order == chosen else ''}",
            rows,
            one,
            slowest,
        )
        for order, one in found.items()
    ]


def dedups(data: str, rows: int, output: int, seed: int) -> list[Report]:
    """Equal prompts asked once, by pairs of columns. ratio: against all rows asked, reordered
    alike."""
    found = []
    for of, pair in paper.DEDUP:
        if of == data:
            every = _projected(data, pair, CHOOSING, rows, output, seed)
            once = _projected(data, pair, System("dedup,columns,sort"), rows, output, seed)
            found.append(ablation("dedup", data, ", ".join(pair), rows, once, every.seconds))
    return found


def filters(data: str, rows: int, output: int, seed: int) -> list[Report]:
    """The condition with the call first, and the cheap one first, by what the cheap one lets
    through. ratio: against the call first."""
    query = QUERIES["Q2", data]
    found = []
    for share in (*SELECTIVITIES, paper.FILTER_FIRST[data][0]):
        call = query.calls[0].sql(query.calls[0].fields, choices=False, fixed=False)
        label = query.calls[0].labels[0]
        sql = f"SELECT title FROM t WHERE {call} = '{label}' AND picked < {share}"
        base_s: float | None = None
        for name, passes in (("call", "columns,sort"), ("cheap", "predicates,columns,sort")):
            one = run(query, sql, System(passes), rows, output, seed)
            base_s = base_s or one.seconds
            case = f"{share:g}, {name} first"
            found.append(ablation("filter_first", data, case, rows, one, base_s))
    return found


# --- an engine that does not share within a batch -----------------------------------------------

PLACES: Final = 32
"""Of a batch, where it is not the paper's example."""
EXAMPLE: Final = {0: "[1,1,1][2,2,2][3,3,3]", 3: "[1,2,3][1,2,3][1,2,3]"}
"""The order of the paper's example without batch_aware, and with three places."""


def batches(rows: int, output: int, seed: int) -> list[Report]:
    """Rows as they are sorted, and with batch_aware, on an engine that finds in a batch only what
    batches before it have computed. The paper's example is nine rows of three beginnings, of which
    `calls` tells how often one was computed; then Q1 on movies."""
    found = []
    source = pa.table(
        {"a": [f"{k // 3} {'word ' * 200}" for k in range(9)], "b": [f"{k}" for k in range(9)]}
    )
    example = Query(
        "Q1", "", (replace(QUERIES["Q1", "movies"].calls[0], fields=("a", "b")),), "", 9
    )
    ends = [batched(example, source, "sort", places, 1, 3) for places in EXAMPLE]
    slowest = max(one.seconds for one, _ in ends)
    for case, (one, model) in zip(EXAMPLE.values(), ends, strict=True):
        computed = sum(blocks > 1 for batch in model.batches for blocks in batch)
        counted = replace(one, calls=computed)
        found.append(ablation("batches", "", case, 9, counted, slowest))
    query, films = QUERIES["Q1", "movies"], table("movies", rows, seed)
    ends = [batched(query, films, None, places, output, PLACES) for places in (0, PLACES)]
    for case, (one, _) in zip(("sorted", f"batch_aware {PLACES}"), ends, strict=True):
        found.append(ablation("batches", "movies", case, rows, one, ends[0][0].seconds))
    return found


def batched(
    query: Query, source: pa.Table, passes: str | None, aware: int, output: int, places: int
) -> tuple[Measured, BatchedModel]:
    """A query on such an engine. aware: see batch_aware (0: off). places: of its batches."""
    call = query.calls[0]
    model = BatchedModel({call.question: call}, output, places)
    text = f"SELECT {call.sql(call.fields, choices=False, fixed=False)} AS said FROM t"
    asked = tables.sql(text, {"t": source}, answers=False, passes=passes)
    done = asked.run(ask_rows=model, batch_aware=aware or None)
    assert done.state == "ok", done.reason
    order = tuple(done.report["stages"][0]["order"])
    done.close()
    prompt, hits = model.prompt_tokens, model.hit_tokens
    return Measured(model.calls, prompt, hits, model.seconds, 0.0, 0.0, order), model
