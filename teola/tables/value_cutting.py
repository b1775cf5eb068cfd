"""Values that are longer than a model's window: the last ordered fields are cut first.

window = instruction + lines of fields + answer, in tokens of the model
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teola.errors import InputError
from teola.tables.arrow_columns import text_column
from teola.tables.llm_call import LEAST_PART, LlmCall
from teola.tables.prompt_text import one_line
from teola.tables.workspace import cursor_of

if TYPE_CHECKING:
    import duckdb

TEMPLATE: Final = 32
"""Tokens that a chat template adds to a prompt, at most."""
AT_ONCE: Final = 1024
"""Rows that are cut at a time."""
STEP: Final = 0.95
"""The share to which a value that is still too long is shortened."""


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """tokens: of a prompt and its answer together. count: tokens of a text, as the model has
    them."""

    tokens: int
    count: Callable[[str], int]

    def room(self, call: LlmCall) -> int:
        """Tokens that the lines of a call's fields may have."""
        return self.tokens - call.max_tokens - TEMPLATE - self.count(call.prompt)

    def check(self, call: LlmCall) -> None:
        """Raises InputError where a call has no room for any value."""
        needed = self.count(_lines(call.names, [""] * len(call.names), range(len(call.names))))
        if call.listed:
            needed = LEAST_PART
        if self.room(call) < needed:
            raise InputError(
                f"the instruction {call.prompt[:40]!r} has {self.count(call.prompt):,} tokens, "
                f"and with an answer of {call.max_tokens:,} that is over the window of the model, "
                f"{self.tokens:,} tokens: shorten it, or give a smaller max_tokens"
            )


def cut_values(
    con: duckdb.DuckDBPyConnection,
    table: str,
    call: LlmCall,
    order: Sequence[int],
    window: ModelWindow,
) -> bool:
    """Make the table `teola_cut` of rows that are too long, with their key and shortened fields f0,
    f1, ... Returns whether there are any. order: the order of the fields in the prompts."""
    import pyarrow as pa

    room = window.room(call)
    fields = [f"f{at}" for at in range(len(call.names))]
    # A token has at least one byte.
    long = f"{' + '.join(f'strlen({field})' for field in fields)} > {room - _overhead(call)}"
    columns = ["key", *fields]
    listed = ", ".join(columns)
    con.execute(f"CREATE OR REPLACE TABLE teola_cut AS SELECT {listed} FROM {table} LIMIT 0")
    cursor = cursor_of(con)
    try:
        for batch in _batches(cursor, f"SELECT {listed} FROM {table} WHERE {long}"):
            rows = []
            for key, *values in batch:
                shorter = shortened(call.names, values, order, room, window.count)
                if shorter != values:
                    rows.append([key, *shorter])
            if rows:
                arrays = [text_column(column) for column in zip(*rows, strict=True)]
                con.register("teola_batch", pa.Table.from_arrays(arrays, columns))
                con.execute("INSERT INTO teola_cut SELECT * FROM teola_batch")
                con.unregister("teola_batch")
    finally:
        cursor.close()
    ((count,),) = con.execute("SELECT count(*) FROM teola_cut").fetchall()
    return bool(count)


def shortened(
    names: Sequence[str],
    values: Sequence[str],
    order: Sequence[int],
    room: int,
    count: Callable[[str], int],
) -> list[str]:
    """Values whose lines have at most `room` tokens: those of the last ordered fields are cut."""
    cut = list(values)
    if count(_lines(names, cut, order)) <= room:
        return cut
    for at in reversed(order):
        value, cut[at] = cut[at], ""
        left = room - count(_lines(names, cut, order))
        if left <= 0:
            continue
        length = int(len(value) * min(1.0, left / max(1, count(value))))
        while length > 0:
            cut[at] = value[:length]
            if count(_lines(names, cut, order)) <= room:
                return cut
            length = int(length * STEP)
        cut[at] = ""
        return cut
    return cut


def _overhead(call: LlmCall) -> int:
    return sum(len(one_line(name).encode()) + 3 for name in call.names)


def _lines(names: Sequence[str], values: Sequence[str], order: Sequence[int]) -> str:
    return "".join(f"\n{one_line(names[at])}: {values[at]}" for at in order)


def _batches(cursor: duckdb.DuckDBPyConnection, sql: str) -> Iterator[list[tuple[str, ...]]]:
    reader = cursor.execute(sql)
    while batch := reader.fetchmany(AT_ONCE):
        yield batch
