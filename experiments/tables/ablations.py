"""One thing changed at a time: the order of columns, dedup, which filter comes first, batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Report
from experiments.tables import paper
from experiments.tables.generated import STATISTICS
from experiments.tables.model import profile_of
from experiments.tables.queries import QUERIES, Asked
from experiments.tables.runs import Measured, System, ablation, run
from teola.kv import Access, BlockCache
from teola.kv.policies import make_policy

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
    return [*found, *batches()]


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

BATCHES: Final = {
    "[1,1,1][2,2,2][3,3,3]": ((1, 1, 1), (2, 2, 2), (3, 3, 3)),
    "[1,2,3][1,2,3][1,2,3]": ((1, 2, 3),) * 3,
}
PREFIX_BLOCKS: Final = 10


def batches() -> list[Report]:
    """Prompts of three prefixes in batches of three, on an engine that finds in a batch only what
    batches before it have computed: the paper's example. calls: prefixes that are computed."""
    found = {case: _batched(some) for case, some in BATCHES.items()}
    slowest = max(one.seconds for one in found.values())
    return [ablation("batches", "", case, 9, one, slowest) for case, one in found.items()]


def _batched(some: Sequence[Sequence[int]]) -> Measured:
    llm = profile_of(cache=True).engines["llm"]
    cache = BlockCache(PREFIX_BLOCKS * 9, llm.block_tokens, make_policy("fifo"))
    computed, seconds, asked = 0, 0.0, 0
    for now, batch in enumerate(some):
        tables, tokens = [], 0
        for prefix in batch:
            keys = tuple((prefix, at) for at in range(PREFIX_BLOCKS))
            table = cache.acquire(keys, PREFIX_BLOCKS, Access(), float(now))
            assert table is not None
            tables.append((table, keys))
            missing = PREFIX_BLOCKS - table.found
            computed += missing > 0
            tokens += missing * llm.block_tokens
            asked += PREFIX_BLOCKS * llm.block_tokens
        # A batch is seen by others once it is whole.
        for table, keys in tables:
            cache.commit(table, keys, float(now))
        for table, _ in tables:
            cache.release(table, float(now))
        seconds += llm.step.seconds(0, 0, tokens) or llm.step.seconds(len(batch))
    missed = computed * PREFIX_BLOCKS * llm.block_tokens
    return Measured(computed, asked, asked - missed, seconds, 0.0, 0.0, ())
