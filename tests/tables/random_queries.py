"""Random queries over random tables with NULLs, each of which DuckDB accepts."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb

TEXTS = ("a", "b", "c")
"""Texts of a column; with NULLs beside them."""


def fill(con: duckdb.DuckDBPyConnection, chance: Random) -> None:
    """Two tables, t (id, a, b, n, f) and u (id, c, b), of random rows."""
    con.execute(
        "CREATE OR REPLACE TABLE t (id INTEGER, a VARCHAR, b VARCHAR, n INTEGER, f BOOLEAN)"
    )
    con.execute("CREATE OR REPLACE TABLE u (id INTEGER, c VARCHAR, b VARCHAR)")

    def some(*values: Any) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    for id in range(chance.choice([0, 1, 12, 12, 12])):
        con.execute(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?)",
            [id, some(*TEXTS), some(*TEXTS), some(0, 1, 2), some(True, False)],
        )
    for _ in range(chance.choice([0, 2, 6])):
        con.execute("INSERT INTO u VALUES (?, ?, ?)", [some(*range(6)), some(*TEXTS), some(*TEXTS)])


class Writer:
    """Writes queries."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.sources = ["t"]

    def column(self) -> str:
        """A column of a source."""
        names = {"t": "abn", "u": "cb"}
        source = self.chance.choice(self.sources)
        return f"{source}.{self.chance.choice(names[source])}"

    def call(self, deep: int = 1) -> str:
        """A call."""
        fields = [self.column() for _ in range(self.chance.randint(0, 2))]
        if deep and self.chance.random() < 0.15:
            fields.append(self.call(0))
        name = "LLM_ERROR" if self.chance.random() < 0.1 else "LLM"
        return f"{name}({', '.join([repr('do ' + self.chance.choice('xyz')), *fields])})"

    def text(self, deep: int = 2) -> str:
        """An expression that is a text."""
        kind = self.chance.random()
        if not deep or kind < 0.45:
            return self.call()
        if kind < 0.6:
            return f"CAST({self.column()} AS VARCHAR)"
        if kind < 0.75:
            return (
                f"CASE WHEN {self.condition(deep - 1)} THEN {self.text(deep - 1)} "
                f"ELSE {self.text(deep - 1)} END"
            )
        if kind < 0.9:
            return f"coalesce({self.text(deep - 1)}, {self.text(deep - 1)})"
        return f"upper({self.text(deep - 1)})"

    def condition(self, deep: int = 2) -> str:
        """An expression that is a truth value, or NULL."""
        kind = self.chance.random()
        if not deep or kind < 0.3:
            word = self.chance.choice(["Yes", "No", "good", "x"])
            return f"{self.call()} {self.chance.choice(['=', '<>', 'IS DISTINCT FROM'])} '{word}'"
        if kind < 0.5:
            return self.chance.choice(
                ["t.n > 0", "t.f", "t.a IS NULL", "t.a = t.b", "t.id % 2 = 0"]
            )
        joined = self.chance.choice([" AND ", " OR "])
        if kind < 0.85:
            return f"({self.condition(deep - 1)}{joined}{self.condition(deep - 1)})"
        return f"NOT ({self.condition(deep - 1)})"

    def query(self) -> str:
        """A query whose rows DuckDB gives in one way only, apart from their order."""
        source = "t"
        self.sources = ["t"]
        if self.chance.random() < 0.35:
            how = self.chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN"])
            self.sources = ["t", "u"]
            on = "t.id = u.id"
            if self.chance.random() < 0.5:
                on = f"{on} AND {self.condition(1)}"
            source = f"t {how} u ON {on}"
        where = f" WHERE {self.condition()}" if self.chance.random() < 0.6 else ""
        shape = self.chance.random()
        if shape < 0.35:
            items = f"t.id, {self.text()} AS k, {self.text()} AS j"
            return f"SELECT {items} FROM {source}{where}"
        if shape < 0.5 and len(self.sources) == 1:
            key = self.chance.choice(["t.id", "t.id DESC", f"{self.call()}, t.id"])
            return (
                f"SELECT t.id, {self.text()} AS k FROM {source}{where} ORDER BY {key} "
                f"LIMIT {self.chance.randint(0, 4)} OFFSET {self.chance.randint(0, 2)}"
            )
        if shape < 0.75:
            having = f" HAVING count(*) > 1 OR {self.call_of('t.n')} = 'Yes'"
            return (
                f"SELECT t.n, {self.call_of('t.n')} AS k, count(*), max({self.text(1)}), "
                f"count(*) FILTER (WHERE {self.condition(1)}) FROM {source}{where} GROUP BY t.n"
                f"{having if self.chance.random() < 0.5 else ''}"
            )
        if shape < 0.85:
            return f"SELECT DISTINCT {self.text()} AS k, t.n FROM {source}{where}"
        if shape < 0.93:
            return (
                f"SELECT t.id, count(*) OVER (PARTITION BY {self.text(1)}) AS c, "
                f"{self.call()} AS k FROM {source}{where}"
            )
        inner = f"SELECT {self.text(1)} AS k FROM {source}{where}"
        return f"WITH q AS ({inner}) SELECT k, count(*) FROM q GROUP BY k"

    def call_of(self, column: str) -> str:
        """A call over one column."""
        return f"LLM('do {self.chance.choice('xyz')}', {column})"
