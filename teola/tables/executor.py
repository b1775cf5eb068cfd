"""Runs the steps of a plan, in order, over DuckDB.

A Filter's conditions are taken by rank (condition_ranks): what they let through is learned from a
sample of the rows, which are asked anyway, and from earlier runs. Where a Filter needs only so many
rows, it takes windows of rows in order, as many as will do by what was seen until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

from teola.tables.condition_ranks import SAMPLE, ConditionRanks
from teola.tables.group_asking import GroupAsking
from teola.tables.plan_steps import (
    ROW,
    AskCall,
    Base,
    Conjunct,
    Drop,
    Filter,
    MakeTable,
    PlanStep,
    Retrieve,
    TablePlan,
)
from teola.tables.row_asking import CallAsker
from teola.tables.workspace import give_back

if TYPE_CHECKING:
    import duckdb

LEAST_WINDOW: Final = 16
"""Rows of the first window of an early stop, whatever the limit."""


@dataclass(slots=True)
class Executor:
    """Runs plans on a connection. asker: for their calls."""

    con: duckdb.DuckDBPyConnection
    asker: CallAsker
    last: PlanStep | None = None
    """The step whose rows are streamed as they are answered."""
    ranks: ConditionRanks = field(init=False)
    _streams: bool = False
    """Whether rows that pass the filter at hand are in the result."""

    def __post_init__(self) -> None:
        self.ranks = ConditionRanks(self.asker)

    def run(self, plan: TablePlan) -> None:
        """Run all steps; then the plan's final query gives its rows. Raises Stopped."""
        for step in plan.steps:
            self.asker.spent.check()
            self.step(step)

    def step(self, step: PlanStep) -> None:
        """Run one step."""
        if isinstance(step, (Base, MakeTable)):
            self._make(step.table, step.sql)
        elif isinstance(step, (AskCall, Retrieve)):
            self._ask(step, "true" if step is self.last else None)
        elif isinstance(step, Filter):
            self._streams = step is self.last
            self._filter(step)
        elif isinstance(step, Drop):
            self.con.execute(f"DROP TABLE IF EXISTS {step.table}")

    def _make(self, table: str, sql: str) -> None:
        self.con.execute(f"CREATE OR REPLACE TABLE teola_new AS {sql}")
        self.con.execute(f"DROP TABLE IF EXISTS {table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {table}")
        give_back(self.con)

    def _columns(self, table: str) -> set[str]:
        return {row[0] for row in self.con.execute(f"DESCRIBE {table}").fetchall()}

    def _ask(self, ask: AskCall | Retrieve, came: str | None = None) -> None:
        """came: SQL of which rows are in the result with this answer; None: more is to be done."""
        if ask.value in self._columns(ask.table):
            return
        if isinstance(ask, Retrieve):
            self.asker.retrieve(ask)
        elif ask.call.group is not None:
            self._ask_groups(ask)
        else:
            if came == "true":  # each row of the table is one of the result
                self.asker.spent.limits.check_rows(self._count(ask.table))
            self.asker.run(ask, came)

    def _ask_groups(self, ask: AskCall) -> None:
        GroupAsking(self.asker, ask).run()

    def _filter(self, step: Filter) -> None:
        if step.most is None:
            self._pass(step.table, step.conjuncts)
        elif not step.conjuncts:
            self._make(
                step.table,
                f"SELECT * FROM {step.table} ORDER BY {step.order} LIMIT {step.most}",
            )
        else:
            self._windows(step, step.most)
        self.ranks.keep()

    def _pass(self, table: str, conjuncts: Sequence[Conjunct]) -> None:
        """Remove the rows for which a condition is not true."""
        ranked = len(conjuncts) > 1 and "predicates" in self.asker.passes
        if not ranked or self.asker.closed:
            self._one_by_one(table, conjuncts)
        elif self._count(table) <= 2 * SAMPLE or self.ranks.known(conjuncts):
            self._one_by_one(table, self.ranks.ordered(conjuncts))
        else:
            self._by_sample(table, conjuncts)

    def _one_by_one(self, table: str, conjuncts: Sequence[Conjunct]) -> None:
        before = self._count(table)
        for at, conjunct in enumerate(conjuncts, 1):
            over = conjunct.condition if self._streams and at == len(conjuncts) else None
            for ask in conjunct.asks:
                self._ask(ask, over if ask is conjunct.asks[-1] else None)
            self._make(table, f"SELECT * FROM {table} WHERE {conjunct.condition} ORDER BY {ROW}")
            after = self._count(table)
            if not self.asker.closed:
                self.ranks.judged(conjunct, before, after)
            before = after

    def _by_sample(self, table: str, conjuncts: Sequence[Conjunct]) -> None:
        """Some rows go through the conditions in the order that one can guess, so that one knows
        what they let through; the others follow in the order that is right then."""
        others, sample = f"{table}_others", f"{table}_sample"
        self._make(
            others, f"SELECT *, row_number() OVER (ORDER BY hash({ROW})) AS teola_at FROM {table}"
        )
        self.asker.in_windows = True
        with self._restored(table, others):
            self._make(table, self._taken(others, f"teola_at <= {SAMPLE}"))
            self._one_by_one(table, self.ranks.ordered(conjuncts))
            self._make(sample, f"SELECT * FROM {table}")
            self._make(table, self._taken(others, f"teola_at > {SAMPLE}"))
            self._one_by_one(table, self.ranks.ordered(conjuncts))
            self._make(
                table,
                f"SELECT * FROM (SELECT * FROM {table} UNION ALL BY NAME SELECT * FROM {sample}) "
                f"ORDER BY {ROW}",
            )
        for name in (others, sample):
            self.con.execute(f"DROP TABLE {name}")
        self.asker.windows_over()

    def _windows(self, step: Filter, most: int) -> None:
        """Take rows in order until `most` have passed."""
        table, left, done = step.table, f"{step.table}_rest", f"{step.table}_done"
        self._make(
            left,
            f"SELECT *, row_number() OVER (ORDER BY {step.order}) - 1 AS teola_at FROM {table}",
        )
        total, low, passed = self._count(left), 0, 0
        size = self.ranks.window(step.conjuncts, most, LEAST_WINDOW) if most else 0
        self.asker.in_windows = True
        has_columns = False
        while (low < total and passed < most) or not has_columns:
            with self._restored(table, left):
                self._make(
                    table, self._taken(left, f"teola_at >= {low} AND teola_at < {low + size}")
                )
                ranked = "predicates" in self.asker.passes
                self._one_by_one(
                    table, self.ranks.ordered(step.conjuncts) if ranked else step.conjuncts
                )
            if has_columns:
                self.con.execute(f"INSERT INTO {done} BY NAME SELECT * FROM {table}")
            else:
                self._make(done, f"SELECT * FROM {table}")
            has_columns = True
            passed, low = self._count(done), low + size
            needed = ceil((most - passed) * low / passed) if passed else total
            size = min(2 * size, max(LEAST_WINDOW, needed))
        self._make(table, f"SELECT * FROM {done} ORDER BY {step.order} LIMIT {most}")
        self.con.execute(f"DROP TABLE {left}")
        self.con.execute(f"DROP TABLE {done}")
        self.asker.windows_over()

    def _taken(self, left: str, where: str) -> str:
        return f"SELECT * EXCLUDE (teola_at) FROM {left} WHERE {where} ORDER BY {ROW}"

    @contextmanager
    def _restored(self, table: str, left: str) -> Iterator[None]:
        """Give the table all of its rows again if it is left before its end: what was asked counts
        when the step is run once more."""
        try:
            yield
        except BaseException:
            self._make(table, self._taken(left, "true"))
            raise

    def _count(self, table: str) -> int:
        ((count,),) = self.con.execute(f"SELECT count(*) FROM {table}").fetchall()
        return int(count)
