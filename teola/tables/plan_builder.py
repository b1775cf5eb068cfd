"""A plan that is being made: its steps, its rewrites, and names for its tables.

As steps are added their tables are declared, empty, on the planner's connection: so every statement
of the plan is checked by DuckDB before anything is asked.
"""

from __future__ import annotations

from sqlglot import exp

from teola.errors import InputError
from teola.tables.duckdb_schema import Catalogue
from teola.tables.marks import Calls
from teola.tables.plan_steps import (
    AskCall,
    Base,
    Drop,
    Filter,
    MakeTable,
    PlanRewrite,
    PlanStep,
    Retrieve,
)
from teola.tables.retrieval_call import CONTEXTS

PASSES = ("predicates", "guards", "early_stop", "dedup", "warm", "columns", "contexts", "sort")


class PlanBuilder:
    """The plan that the blocks of a query add their steps to. passes: names of the rewrites that
    may be made."""

    def __init__(self, catalogue: Catalogue, calls: Calls, passes: frozenset[str]) -> None:
        self.catalogue, self.calls, self.passes = catalogue, calls, passes
        self.steps: list[PlanStep] = []
        self.rewrites: list[PlanRewrite] = []
        self._count = 0
        self.blocks: list[bool] = []
        """For each block that was cut: whether its rows are those of its base."""

    def number(self) -> int:
        """A number that is used only once in the plan."""
        self._count += 1
        return self._count

    def new_table(self) -> str:
        """A name for a table."""
        return f"teola_t{self.number()}"

    def step(self, step: PlanStep) -> None:
        """Add a step and declare what it makes."""
        self.steps.append(step)
        if isinstance(step, (Base, MakeTable)):
            self._declare(step.table, f"SELECT * FROM ({step.sql}) LIMIT 0")
        elif isinstance(step, (AskCall, Retrieve)):
            self._declare_answer(step)
        elif isinstance(step, Filter):
            for conjunct in step.conjuncts:
                for ask in conjunct.asks:
                    self._declare_answer(ask)
                self.catalogue.describe(
                    f"SELECT * FROM {step.table} WHERE {conjunct.condition} ORDER BY {step.order}"
                )

    def _declare(self, table: str, sql: str) -> None:
        import duckdb

        try:
            self.catalogue.con.execute(f"CREATE TABLE teola_new AS {sql}")
            self.catalogue.con.execute(f"DROP TABLE IF EXISTS {table}")
            self.catalogue.con.execute(f"ALTER TABLE teola_new RENAME TO {table}")
        except duckdb.Error as error:
            raise InputError(f"this query cannot be planned: {error}") from None

    def _declare_answer(self, ask: AskCall | Retrieve) -> None:
        columns = {column.name for column in self.catalogue.describe(f"SELECT * FROM {ask.table}")}
        if ask.value in columns:
            return
        if isinstance(ask, Retrieve):
            self._declare(
                ask.table,
                f"SELECT *, CAST(NULL AS {CONTEXTS}) AS {ask.value} FROM {ask.table}",
            )
        else:
            fields = "".join(f", {field}" for field in ask.fields)
            where = f" WHERE {ask.guard}" if ask.guard else ""
            self.catalogue.describe(f"SELECT 1{fields} FROM {ask.table}{where}")
            self._declare(
                ask.table,
                f"SELECT *, CAST(NULL AS {ask.call.type}) AS {ask.value}, "
                f"CAST(NULL AS VARCHAR) AS {ask.error} FROM {ask.table}",
            )

    def drop(self, table: str) -> None:
        """Drop a table that nothing reads any more."""
        self.steps.append(Drop(table))

    def rewrote(self, rule: str, what: str, reason: str) -> None:
        """Record a rewrite."""
        self.rewrites.append(PlanRewrite(rule, what, reason))

    # --- what comes back to the cutter ----------------------------------------------------

    def query(self, node: exp.Query) -> exp.Query:
        """A query without calls that means the same once the steps are run."""
        raise NotImplementedError

    def optional_block(self, select: exp.Select) -> exp.Query:
        """A block whose FROM has no calls, cut if there are some in it."""
        raise NotImplementedError
