"""A plan: steps over tables of DuckDB, in the order in which they are run.

    Base       a table is made: FROM, JOIN and the conjuncts without calls
    Filter     rows go for which a conjunct with calls is not true; perhaps until enough have passed
    AskCall    a call's answers become columns of a table
    Retrieve   contexts of a text become a column of a table
    MakeTable  a table is made of others
    Drop       a table goes that nothing reads any more

The text of each step names tables and columns that the plan made itself, but for a Base's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from teola.tables.llm_call import LlmCall
from teola.tables.retrieval_call import RetrievalCall

ROW: Final = "teola_row"
"""Column of a Base with the row's position in its source, from 0."""


@dataclass(frozen=True, slots=True)
class Base:
    """Table `table` becomes the rows of `sql`."""

    table: str
    sql: str


@dataclass(frozen=True, slots=True)
class MakeTable:
    """Table `table` becomes the rows of `sql`, in which no call is left."""

    table: str
    sql: str


@dataclass(frozen=True, slots=True)
class AskCall:
    """A call is asked for the rows of `table` for which `guard` is true (None: for all).

    fields: SQL of each field, over columns of the table. value, error: the columns that it gets.
    """

    table: str
    call: LlmCall
    fields: tuple[str, ...]
    guard: str | None
    value: str
    error: str


@dataclass(frozen=True, slots=True)
class Retrieve:
    """Contexts are searched for the rows of `table` for which `guard` is true (None: for all).

    field: SQL of the text, over columns of the table. value: the column that it gets.
    """

    table: str
    call: RetrievalCall
    field: str
    guard: str | None
    value: str


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One condition with calls: what it asks, in order, and the condition over the columns."""

    asks: tuple[AskCall | Retrieve, ...]
    condition: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows of `table` stay for which each conjunct is true.

    order: SQL of the keys by which rows are taken. most: how many rows have to pass, the first ones
    in that order; None: all that do.
    """

    table: str
    conjuncts: tuple[Conjunct, ...]
    order: str = ROW
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A table that nothing reads any more."""

    table: str


PlanStep = Base | MakeTable | AskCall | Retrieve | Filter | Drop


@dataclass(frozen=True, slots=True)
class PlanRewrite:
    """A change that a rule has made to a query, and why. rule: its name, as `passes` knows it."""

    rule: str
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result. type: as DuckDB writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class TablePlan:
    """steps: in order. final: the query that is left, without calls. columns: of the result.
    rowwise: each row of the result comes from a row of one base, whatever the others are: so those
    rows are right whose answers are known. streams: the base, where its last step asks for it and
    the rows say no order: so they may come as they are answered.
    """

    steps: tuple[PlanStep, ...]
    final: str
    columns: tuple[Column, ...]
    rewrites: tuple[PlanRewrite, ...] = ()
    rowwise: bool = False
    streams: str | None = None

    def asks(self) -> tuple[AskCall, ...]:
        """All calls that the plan has, in the order in which they were planned."""
        return tuple(ask for ask in self._asked() if isinstance(ask, AskCall))

    def retrievals(self) -> tuple[Retrieve, ...]:
        """All searches that the plan has."""
        return tuple(ask for ask in self._asked() if isinstance(ask, Retrieve))

    def _asked(self) -> Iterable[AskCall | Retrieve]:
        asks: list[AskCall | Retrieve] = []
        for step in self.steps:
            if isinstance(step, (AskCall, Retrieve)):
                asks.append(step)
            elif isinstance(step, Filter):
                asks += [ask for conjunct in step.conjuncts for ask in conjunct.asks]
        return dict.fromkeys(asks)
