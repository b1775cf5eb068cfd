"""Asking LLM_AGG for groups of rows: as a tree, whose prompts are within the model's window.

    rows of a group, in its order  ─▶ parts ─▶ an answer each ─▶ parts of answers ─▶ ... ─▶ one

A part is filled row by row. So it depends on the rows before it and on nothing else, neither on
what comes back first nor on other groups: rows that are added at a group's end leave all parts but
the last as they were. Parts are rows of a table, asked as all rows are: equal ones are one
question, and their answers are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from teola.tables.arrow_columns import int_column, text_column
from teola.tables.group_calls import LINES, ROW_EMPTY
from teola.tables.llm_call import TEXT as VARCHAR
from teola.tables.llm_call import LlmCall
from teola.tables.plan_steps import ROW, AskCall
from teola.tables.prompt_text import canonical
from teola.tables.row_asking import CallAsker, typed
from teola.tables.workspace import cursor_of

if TYPE_CHECKING:
    import duckdb

    from teola.tables.value_cutting import ModelWindow

READ: Final = 1024
"""Rows that are read, and parts that are written, at a time."""
PART: Final = "part"
"""The name of a line with an answer."""
ALL: Final = "Each line is the answer for a part of the rows. Give the answer for all of them."
ANSWER, FAULT = "teola_value", "teola_error"


def prompted(call: LlmCall) -> tuple[LlmCall, ...]:
    """The calls that are sent for a call of a plan. For an LLM_AGG these are two: one for its rows,
    and one that combines answers."""
    if call.group is None:
        return (call,)
    leaf = replace(
        call, instruction=call.prompt, names=("rows",), type=VARCHAR, group=None, listed=True
    )
    return leaf, replace(leaf, instruction=call.group.combine or f"{call.prompt}\n{ALL}")


def estimated_tokens(text: str) -> int:
    """Tokens of a text, where no tokenizer is at hand."""
    return -(-len(text) // 4)


@dataclass(slots=True)
class PartFilling:
    """Fills parts with lines. most: tokens of one. room: of the model's window (None: nobody tells
    it). least: lines of a part, as long as there are more. cut: lines that were shortened."""

    most: int
    room: int | None
    least: int
    count: Callable[[str], int]
    cut: int = 0

    def parts(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Parts of each group, in order. lines: group and text, by groups."""
        held: list[str] = []
        tokens, before = 0, -1
        for group, text in lines:
            line, size = self._fitted(text)
            full = tokens + size > self.most and len(held) >= self.least
            over = self.room is not None and tokens + size > self.room
            if held and (group != before or full or over):
                yield before, "".join(held)
                held, tokens = [], 0
            held.append(line)
            tokens, before = tokens + size, group
        if held:
            yield before, "".join(held)

    def _fitted(self, text: str) -> tuple[str, int]:
        """A line, cut so that a part has room for `least` lines, and its tokens."""
        size = self.count(text)
        longest = None if self.room is None else self.room // self.least
        if longest is None or size <= longest:
            return text, size
        self.cut += 1
        length = len(text)
        while size > longest:
            length = min(length - 1, int(length * longest / size))
            size = self.count(text[:length])
        return text[:length], size


def filling(call: LlmCall, most: int, least: int, window: ModelWindow | None) -> PartFilling:
    """The filling of a call's parts."""
    if window is None:
        return PartFilling(most, None, least, estimated_tokens)
    room = window.room(call)
    return PartFilling(min(most, room), room, least, window.count)


def combined(parts: int, line: int, most: int) -> tuple[int, int]:
    """Prompts that combine the answers of so many parts, and lines in them, about. line: tokens of
    an answer's. most: of a prompt."""
    wide, prompts, lines = max(2, most // line), 0, 0
    while parts > 1:
        lines += parts
        parts = -(-parts // wide)
        prompts += parts
    return prompts, lines


@dataclass(slots=True)
class GroupAsking:
    """Asks an LLM_AGG for the groups of a table."""

    asker: CallAsker
    ask: AskCall

    def run(self) -> None:
        """Give the table the columns of the call. Raises Stopped."""
        con, ask = self.asker.con, self.ask
        assert ask.call.group is not None
        leaf, combining = prompted(ask.call)
        done = f"{ask.table}_done"
        con.execute(
            f"CREATE OR REPLACE TABLE {done} "
            f"(teola_group BIGINT, {ANSWER} VARCHAR, {FAULT} VARCHAR)"
        )
        parts = self._asked("parts", leaf, self.rows_sql(), 1)
        lines = f"concat('\n{PART}: ', {canonical(ANSWER, VARCHAR)})"
        while self._settle(parts, done):
            parts = self._asked(
                "more",
                combining,
                f"SELECT teola_group, {lines} AS {LINES} FROM {parts} "
                f"WHERE {ANSWER} IS NOT NULL "
                f"AND teola_group NOT IN (SELECT teola_group FROM {done}) ORDER BY {ROW}",
                2,
            )
        self._join(done, leaf)
        for name in ("parts", "more", "done"):
            con.execute(f"DROP TABLE IF EXISTS {ask.table}_{name}")

    def rows_sql(self, *, empty: bool = False) -> str:
        """SQL of the rows of all groups, in order. empty: also those whose fields are all NULL."""
        ask = self.ask
        assert ask.call.group is not None
        guard = f" WHERE {ask.guard}" if ask.guard else ""
        return (
            f"SELECT g.teola_group, t.{LINES} FROM (SELECT {ROW} AS teola_group, "
            f"unnest({ask.fields[0]}) AS teola_member, "
            f"generate_subscripts({ask.fields[0]}, 1) AS teola_at FROM {ask.table}{guard}) g "
            f"JOIN {ask.call.group.rows} t ON t.{ROW} = g.teola_member "
            f"{'' if empty else f'WHERE NOT t.{ROW_EMPTY} '}ORDER BY g.teola_group, g.teola_at"
        )

    def fill(self, name: str, sql: str, parts: PartFilling) -> str:
        """Make a table of parts with the lines of `sql`. Returns its name."""
        import pyarrow as pa

        con, table = self.asker.con, f"{self.ask.table}_{name}"
        con.execute(
            f"CREATE OR REPLACE TABLE teola_new ({ROW} BIGINT, teola_group BIGINT, {LINES} VARCHAR)"
        )
        cursor = cursor_of(con)
        at = 0
        batch: list[tuple[int, str]] = []

        def write() -> None:
            groups, texts = zip(*batch, strict=True)
            rows = pa.table(
                {
                    "row": int_column(range(at, at + len(batch))),
                    "group": int_column(groups),
                    "text": text_column(texts),
                }
            )
            con.register("teola_batch", rows)
            con.execute("INSERT INTO teola_new SELECT * FROM teola_batch")
            con.unregister("teola_batch")

        try:
            for part in parts.parts(_lines(cursor, sql)):
                batch.append(part)
                if len(batch) >= READ:
                    write()
                    at, batch = at + len(batch), []
            if batch:
                write()
        finally:
            cursor.close()
        con.execute(f"DROP TABLE IF EXISTS {table}")
        con.execute(f"ALTER TABLE teola_new RENAME TO {table}")
        return table

    def _asked(self, name: str, call: LlmCall, sql: str, least: int) -> str:
        """Make a table of parts with their answers. Returns its name."""
        asker = self.asker
        assert self.ask.call.group is not None
        window = asker.window_of(call, look=not asker.closed)
        parts = filling(call, self.ask.call.group.part_tokens, least, window)
        table = self.fill(name, sql, parts)
        asked = AskCall(table, call, (LINES,), None, ANSWER, FAULT)
        asker.run(asked)
        asker.stage(asked).truncated += parts.cut
        return table

    def _settle(self, parts: str, done: str) -> bool:
        """Note the groups that have their answer. Returns whether there are others.

        A group has an error where a part has one: an answer for some of its rows is none for it. A
        part whose answer says nothing is left out.
        """
        con = self.asker.con
        con.execute(
            f"INSERT INTO {done} SELECT teola_group, "
            f"CASE WHEN count({FAULT}) = 0 THEN any_value({ANSWER}) END, arg_min({FAULT}, {ROW}) "
            f"FROM {parts} GROUP BY teola_group HAVING count({FAULT}) > 0 OR count({ANSWER}) <= 1"
        )
        ((left,),) = con.execute(
            f"SELECT count(*) FROM {parts} "
            f"WHERE teola_group NOT IN (SELECT teola_group FROM {done})"
        ).fetchall()
        return bool(left)

    def _join(self, done: str, leaf: LlmCall) -> None:
        """The table of groups gets the answers as columns."""
        con, ask = self.asker.con, self.ask
        value = typed(f"d.{ANSWER}", ask.call)
        ((unmatched,),) = con.execute(
            f"SELECT count(*) FROM {done} d WHERE d.{ANSWER} IS NOT NULL AND {value} IS NULL"
        ).fetchall()
        first = AskCall(f"{ask.table}_parts", leaf, (LINES,), None, ANSWER, FAULT)
        self.asker.stage(first).unmatched += int(unmatched)
        con.execute(
            f"CREATE OR REPLACE TABLE teola_new AS SELECT b.*, {value} AS {ask.value}, "
            f"d.{FAULT} AS {ask.error} FROM {ask.table} b "
            f"LEFT JOIN {done} d ON d.teola_group = b.{ROW} ORDER BY b.{ROW}"
        )
        con.execute(f"DROP TABLE {ask.table}")
        con.execute(f"ALTER TABLE teola_new RENAME TO {ask.table}")


def _lines(cursor: duckdb.DuckDBPyConnection, sql: str) -> Iterator[tuple[int, str]]:
    for batch in cursor.sql(sql).to_arrow_reader(READ):
        groups, texts = (column.to_pylist() for column in batch.columns)
        yield from zip(groups, texts, strict=True)
