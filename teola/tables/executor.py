"""Runs the steps of a plan, in order, over DuckDB.

A Filter's conjuncts are taken by rank, cheapest and most selective first, as far as that is known;
where it needs only so many rows, it takes windows of rows in order that double.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from teola.tables.plan_steps import ROW, AskCall, Base, Drop, Filter, MakeTable, PlanStep, TablePlan
from teola.tables.row_asking import CallAsker

if TYPE_CHECKING:
    import duckdb

LEAST_WINDOW: Final = 16
"""Rows of the first window of an early stop, whatever the limit."""
SELECTIVITY: Final = 0.5
"""Share of rows that pass a condition of which nothing is known (the paper's sheet, 4.5)."""


@dataclass(slots=True)
class Executor:
    """Runs plans on a connection. asker: for their calls."""

    con: duckdb.DuckDBPyConnection
    asker: CallAsker

    def run(self, plan: TablePlan) -> None:
        """Run all steps; then the plan's final query gives its rows. Raises Stopped."""
        for step in plan.steps:
            self.asker.spent.check()
            self.step(step)

    def step(self, step: PlanStep) -> None:
        """Run one step."""
        if isinstance(step, (Base, MakeTable)):
            self._make(step.table, step.sql)
        elif isinstance(step, AskCall):
            self._ask(step)
        elif isinstance(step, Filter):
            self._filter(step)
        elif isinstance(step, Drop):
            self.con.execute(f"DROP TABLE IF EXISTS {step.table}")

    def _make(self, table: str, sql: str) -> None:
        self.con.execute(f"CREATE OR REPLACE TABLE teola_new AS {sql}")
        self.con.execute(f"DROP TABLE IF EXISTS {table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {table}")

    def _columns(self, table: str) -> set[str]:
        return {row[0] for row in self.con.execute(f"DESCRIBE {table}").fetchall()}

    def _ask(self, ask: AskCall) -> None:
        if ask.value not in self._columns(ask.table):
            self.asker.run(ask)

    def _filter(self, step: Filter) -> None:
        if step.most is None:
            self._pass(step)
            return
        if not step.conjuncts:
            self._make(
                step.table,
                f"SELECT * FROM {step.table} ORDER BY {step.order} LIMIT {step.most}",
            )
            return
        self._windows(step, step.most)

    def _pass(self, step: Filter) -> None:
        """Rows go for which a conjunct is not true."""
        for conjunct in step.conjuncts:
            for ask in conjunct.asks:
                self._ask(ask)
            self._make(
                step.table,
                f"SELECT * FROM {step.table} WHERE {conjunct.condition} ORDER BY {ROW}",
            )

    def _windows(self, step: Filter, most: int) -> None:
        """Take rows in order until `most` have passed."""
        table, rest, done = step.table, f"{step.table}_rest", f"{step.table}_done"
        self._make(
            rest,
            f"SELECT *, row_number() OVER (ORDER BY {step.order}) - 1 AS teola_at FROM {table}",
        )
        (total,) = self.con.execute(f"SELECT count(*) FROM {rest}").fetchall()[0]
        low, size, passed = 0, max(LEAST_WINDOW, int(most / SELECTIVITY)), 0
        made = False
        while (low < total and passed < most) or not made:
            self._make(
                table,
                f"SELECT * EXCLUDE (teola_at) FROM {rest} WHERE teola_at >= {low} "
                f"AND teola_at < {low + size} ORDER BY {ROW}",
            )
            self._pass(replace(step, most=None))
            if made:
                self.con.execute(f"INSERT INTO {done} BY NAME SELECT * FROM {table}")
            else:
                self._make(done, f"SELECT * FROM {table}")
            made = True
            (passed,) = self.con.execute(f"SELECT count(*) FROM {done}").fetchall()[0]
            low, size = low + size, size * 2
        self._make(table, f"SELECT * FROM {done} ORDER BY {step.order} LIMIT {most}")
        self.con.execute(f"DROP TABLE {rest}")
        self.con.execute(f"DROP TABLE {done}")
