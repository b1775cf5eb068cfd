"""Orders of the fields of a table, and what a cache of prefixes finds of the prompts then.

The cache keeps 3,000 blocks of 64 characters, and gives up the one that was used longest ago. A
block is found from when the call that computes it is let in, as in vLLM; running calls hold theirs.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa

from experiments.tables_orders.generated import TABLES
from teola.tables.duckdb_schema import quoted
from teola.tables.orders import ColumnOrder, Orders, by_score, rows_sql
from teola.tables.prompt_text import canonical
from teola.tables.shared_beginnings import POSITIONS
from teola.tables.sources import source_of

BLOCK: Final = 64
BLOCKS: Final = 3000
INSTRUCTION: Final = "Say in one word what this row is about."
EXHAUSTED: Final = 10
"""Fields of which all orders can be looked at."""
PATIENT_S: Final = 600.0
"""Here an order is looked for until it is found."""


def hits(prompts: Iterator[str], at_once: int = 1, kept: int = BLOCKS) -> float:
    """Share of the prompts' blocks that a cache has. at_once: calls that run together."""
    cache: OrderedDict[int, None] = OrderedDict()
    held: Counter[int] = Counter()
    running: deque[list[int]] = deque()
    found = total = 0
    for prompt in prompts:
        if len(running) == at_once:
            held.subtract(running.popleft())
        blocks = [hash(prompt[: end + BLOCK]) for end in range(0, len(prompt) - BLOCK + 1, BLOCK)]
        total += len(blocks)
        missed = False
        for block in blocks:
            missed = missed or block not in cache
            found += not missed
        # The first block of a prompt goes last, for without it the others are of no use.
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        held.update(blocks)
        running.append(blocks)
        _give_up(cache, held, kept)
    return found / total if total else 0.0


def _give_up(cache: OrderedDict[int, None], held: Counter[int], kept: int) -> None:
    while len(cache) > kept:
        block = next((one for one in cache if held[one] <= 0), None)
        if block is None:
            return
        del cache[block]


def load(con: duckdb.DuckDBPyConnection, source: Path | str, rows: int) -> list[str]:
    """Make the table `inputs` of a file, or of a generated table; the names of its columns."""
    if isinstance(source, Path):
        source_of(source).register(con, "t")
        columns = [(name, type) for name, type, *_ in con.execute("DESCRIBE t").fetchall()]
    else:
        made = TABLES[source](rows, Random(source))
        columns = [(f"column{at}", "VARCHAR") for at in range(len(made[0]))]
        values = [list(one) for one in zip(*made, strict=True)]
        con.register("t", pa.table(values, names=[name for name, _ in columns]))
    listed = ", ".join(
        f"{canonical(quoted(name), type)} AS f{at}" for at, (name, type) in enumerate(columns)
    )
    con.execute(
        f"CREATE TABLE inputs AS SELECT DISTINCT {listed}, '' AS key FROM t "
        f"LIMIT {rows if isinstance(source, Path) else 10**9}"
    )
    return [name for name, _ in columns]


def prompts(
    con: duckdb.DuckDBPyConnection, names: Sequence[str], order: ColumnOrder
) -> Iterator[str]:
    """The prompts of an order, in the order in which they are asked."""
    cursor = con.cursor()
    found = cursor.execute(rows_sql("inputs", "", names, order).sorted_sql)
    while batch := found.fetchmany(2048):
        yield from (f"{INSTRUCTION}{text}" for _, text, _ in batch)


def best_of_all(made: Orders) -> tuple[int, ...]:
    """The order that saves most of all that there are. What a field saves depends on the set of
    those before it, and not on their order, so 2^fields sets are enough."""
    best: dict[frozenset[int], tuple[int, tuple[int, ...]]] = {frozenset(): (0, ())}
    for size in range(made.count):
        for chosen in combinations(range(made.count), size):
            saved, order = best[frozenset(chosen)]
            for at in set(range(made.count)) - set(chosen):
                more = made.beginnings.saves([*chosen, at], at)
                found, key = (saved + more, (*order, at)), frozenset((*chosen, at))
                best[key] = max(best.get(key, found), found)
    return best[frozenset(range(made.count))][1]


def measure(source: Path | str, rows: int, *, exhaustive: bool = False) -> dict[str, Any]:
    """One table: the hits of each candidate, of the chosen one, and of that with 32 at once.
    exhaustive: also those of the best of all orders, if there are at most `EXHAUSTED` fields."""
    con = duckdb.connect()
    names = load(con, source, rows)

    def orders() -> Orders:
        return Orders(con, "inputs", "", names, len(INSTRUCTION), PATIENT_S)

    made = orders()
    scored = by_score(made.statistics, made.rows)
    after, _ = made.beginnings.after(scored)
    exchanged = [
        made.beginnings.exchanged(one, made.beginnings.saved(one)) for one in (scored, after)
    ]
    found = {}
    for name, positions in (
        ("as written", tuple(range(len(names)))),
        ("by score", scored),
        ("after", after),
        ("exchanged", max(exchanged, key=lambda one: one[1])[0]),
    ):
        found[name] = hits(prompts(con, names, ColumnOrder(positions, 0.0, "")))
    made.beginnings.groups(after)
    found["by groups"] = hits(prompts(con, names, ColumnOrder(after, 0.0, "", True)))
    best_order = best_of_all(made) if exhaustive and made.count <= EXHAUSTED else None
    made.beginnings.close()
    con.execute(f"DROP TABLE {POSITIONS}")
    began = time.process_time()
    best = orders().best()
    planned = time.process_time() - began
    chosen = hits(prompts(con, names, best))
    return {
        "table": source.stem if isinstance(source, Path) else source,
        "rows": made.rows,
        "columns": len(names),
        "hits": {name: round(share, 4) for name, share in found.items()},
        "chosen": best.reason.partition(":")[0].partition(",")[0],
        "chosen_hits": round(chosen, 4),
        "of_score": round(chosen / found["by score"], 4) if found["by score"] else None,
        "of_best": round(chosen / max(found.values()), 4),
        "of_best_32_at_once": round(
            hits(prompts(con, names, best), at_once=32) / max(found.values()), 4
        ),
        "plan_cpu_s": round(planned, 2),
        "best_of_all": round(hits(prompts(con, names, ColumnOrder(best_order, 0.0, ""))), 4)
        if best_order is not None
        else None,
    }
