"""Hints: what people know of a database and the database does not say, in one YAML file.

    tables:
      berths:
        about: where boats lie
        columns: {depth: metres at low tide}
    metrics:
      deepest: {sql: MAX(depth), table: berths, about: the deepest berth}
    synonyms:
      berths: [moorings, places]
    joins: [berths.boat_id = boats.id]
    examples:
      - {question: How deep is the deepest berth?, sql: SELECT MAX(depth) FROM berths}

They are checked against the database when they are read: a name that is not there, or a statement
that the filter refuses, is an error with the line and column where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teola.errors import InputError, ToolError
from teola.sql.dialects import dialect_named
from teola.sql.select_only import select_only
from teola.sql.sql_schema import Schema, folded_tables
from teola.sql.written_names import table_name_text

if TYPE_CHECKING:
    from yaml.nodes import Node

MOST_BYTES: Final = 2**20
MOST_NODES: Final = 20_000
"""Values that one file may have; a value counts each time that an alias repeats it."""
KEYS: Final = ("tables", "metrics", "synonyms", "joins", "examples")


@dataclass(frozen=True, slots=True)
class Example:
    """A question with a statement that answers it."""

    question: str
    sql: str


@dataclass(frozen=True, slots=True)
class Metric:
    """A named figure, as a piece of SQL. table: the table that it is computed from ("": the SQL
    names its tables)."""

    name: str
    sql: str
    table: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class SqlHints:
    """See the module. abouts: by table and by table.column. synonyms: other words for a table, a
    table.column or a metric."""

    abouts: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    joins: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()


NO_HINTS: Final = SqlHints()


def read_hints(path: str | Path, dialect: str, schema: Schema) -> SqlHints:
    """The hints in a file. Raises InputError, which says where something is wrong."""
    place = Path(path).expanduser()
    try:
        large = place.stat().st_size > MOST_BYTES
        text = "" if large else place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise InputError(f"hints {place.name!r} cannot be read: {reason}") from None
    if large:
        raise InputError(f"hints {place.name}: the file is larger than {MOST_BYTES:,} bytes")
    return parse_hints(text, place.name, dialect, schema)


def parse_hints(text: str, name: str, dialect: str, schema: Schema) -> SqlHints:
    """The hints in the text of a file called `name`. Raises InputError."""
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is no YAML"
        raise InputError(f"hints {name}{at}: {problem}") from None
    except RecursionError:
        raise InputError(f"hints {name}: they nest too deeply") from None
    return _Reading(name, dialect, schema).hints(node)


class _Reading:
    """Reads the hints of one file."""

    def __init__(self, name: str, dialect: str, schema: Schema) -> None:
        self.name, self.dialect, self.schema = name, dialect, schema
        self._left = MOST_NODES
        sql_dialect = dialect_named(dialect)
        self._known, self._tables = sql_dialect, folded_tables(schema, sql_dialect)

    def hints(self, node: Node | None) -> SqlHints:
        if node is None:
            return NO_HINTS
        parts: dict[str, Node] = {}
        for key, at, value in self._pairs(node, "hints"):
            if key not in KEYS:
                raise self._unknown("key", key, KEYS, at)
            parts[key] = value
        abouts = dict(self._tables_of(parts["tables"])) if "tables" in parts else {}
        metrics = tuple(self._metrics(parts["metrics"])) if "metrics" in parts else ()
        names = {metric.name for metric in metrics}
        return SqlHints(
            abouts,
            metrics,
            dict(self._synonyms(parts["synonyms"], names)) if "synonyms" in parts else {},
            tuple(self._joins(parts["joins"])) if "joins" in parts else (),
            tuple(self._examples(parts["examples"])) if "examples" in parts else (),
        )

    # --- its parts --------------------------------------------------------------------------------

    def _tables_of(self, node: Node) -> Iterator[tuple[str, str]]:
        for table, at, value in self._pairs(node, "tables"):
            full = self._table(table, at)
            for key, key_at, inner in self._pairs(value, f"the table {table}"):
                if key == "about":
                    yield full, self._text(inner, "about")
                elif key == "columns":
                    for column, column_at, about in self._pairs(inner, "columns"):
                        yield (
                            f"{full}.{self._column(full, column, column_at)}",
                            self._text(about, f"the column {column}"),
                        )
                else:
                    raise self._unknown("key", key, ("about", "columns"), key_at)

    def _metrics(self, node: Node) -> Iterator[Metric]:
        for name, at, value in self._pairs(node, "metrics"):
            keys: dict[str, str] = {}
            for key, key_at, inner in self._pairs(value, f"the metric {name}"):
                if key not in ("sql", "table", "about"):
                    raise self._unknown("key", key, ("sql", "table", "about"), key_at)
                keys[key] = self._text(inner, key)
                if key == "table":
                    keys[key] = self._table(keys[key], inner)
            if "sql" not in keys:
                raise self._wrong(f"the metric {name!r} needs `sql`", at)
            tables = [keys["table"]] if "table" in keys else self._named_in(keys["sql"])
            written = ", ".join(table_name_text(table, self._known) for table in tables)
            source = f" FROM {written}" if tables else ""
            metric = f"the metric {name!r}" + ("" if tables else " (which names no `table`)")
            self._runs(f"SELECT {keys['sql']}{source}", metric, at)
            yield Metric(name, keys["sql"], keys.get("table", ""), keys.get("about", ""))

    def _synonyms(self, node: Node, metrics: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for name, at, value in self._pairs(node, "synonyms"):
            meant = name if name in metrics else self._named(name, at)
            yield meant, tuple(self._text(word, "a synonym") for word in self._items(value))

    def _joins(self, node: Node) -> Iterator[str]:
        for item in self._items(node):
            text = self._text(item, "a join")
            sides = [side.strip() for side in text.split("=")]
            if len(sides) != 2:
                raise self._wrong("a join is written table.column = table.column", item)
            for side in sides:
                if "." not in side or side in self._tables:
                    raise self._wrong(f"{side!r} is no table.column", item)
            yield " = ".join(self._named(side, item) for side in sides)

    def _examples(self, node: Node) -> Iterator[Example]:
        for item in self._items(node):
            keys: dict[str, str] = {}
            for key, at, inner in self._pairs(item, "an example"):
                if key not in ("question", "sql"):
                    raise self._unknown("key", key, ("question", "sql"), at)
                keys[key] = self._text(inner, key)
                if key == "sql":
                    self._runs(keys[key], "an example", inner)
            if len(keys) < 2:
                raise self._wrong("an example needs `question` and `sql`", item)
            yield Example(keys["question"], keys["sql"])

    # --- names and statements ---------------------------------------------------------------------

    def _table(self, name: str, at: Node) -> str:
        folded_table = self._tables.get(self._known.folded(name, quoted=True))
        if folded_table is None:
            raise self._unknown("table", name, self.schema.names, at)
        return folded_table.name

    def _column(self, table: str, name: str, at: Node) -> str:
        columns = self.schema.tables.get(table) or ()
        folded = {self._known.folded(column, quoted=True): column for column in columns}
        spelled = folded.get(self._known.folded(name, quoted=True))
        if spelled is None:
            raise self._unknown(f"column of {table}", name, columns, at)
        if f"{table}.{spelled}" in self.schema.private:
            raise self._wrong(f"the column {table}.{spelled} is private", at)
        return spelled

    def _named(self, name: str, at: Node) -> str:
        """The spelled name of a table, or of a table.column."""
        if self._known.folded(name, quoted=True) in self._tables:
            return self._table(name, at)
        table, dot, column = name.rpartition(".")
        if not dot:
            raise self._unknown("table", name, self.schema.names, at)
        full = self._table(table, at)
        return f"{full}.{self._column(full, column, at)}"

    def _named_in(self, sql: str) -> list[str]:
        """Tables that a metric's SQL names before a column, as in berths.depth."""
        text = self._known.folded(sql)
        tables = (
            table.name
            for key, table in self._tables.items()
            if re.search(rf'(?<![\w.]){re.escape(key)}"?\s*\.', text)
        )
        return list(dict.fromkeys(tables))

    def _runs(self, sql: str, subject: str, at: Node) -> None:
        try:
            select_only(sql, self.dialect, self.schema)
        except ToolError as error:
            raise self._wrong(f"{subject} does not run: {error}", at) from None

    # --- nodes ------------------------------------------------------------------------------------

    def _pairs(self, node: Node, subject: str) -> Iterator[tuple[str, Node, Node]]:
        from yaml.nodes import MappingNode

        self._spend(node)
        if not isinstance(node, MappingNode):
            raise self._wrong(f"{subject}: this is a mapping, `name: value`", node)
        seen: set[str] = set()
        for key, value in node.value:
            name = self._text(key, f"a name in {subject}")
            if name in seen:
                raise self._wrong(f"{name!r} stands twice in {subject}", key)
            seen.add(name)
            yield name, key, value

    def _items(self, node: Node) -> Iterator[Node]:
        from yaml.nodes import SequenceNode

        self._spend(node)
        if not isinstance(node, SequenceNode):
            raise self._wrong("this is a list", node)
        yield from node.value

    def _text(self, node: Node, subject: str) -> str:
        from yaml.nodes import ScalarNode

        self._spend(node)
        if not isinstance(node, ScalarNode) or not str(node.value).strip():
            raise self._wrong(f"{subject} is a text", node)
        return str(node.value).strip()

    def _spend(self, node: Node) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._wrong(f"the file has more than {MOST_NODES:,} values", node)

    def _wrong(self, message: str, at: Node) -> InputError:
        mark: Any = at.start_mark
        return InputError(f"hints {self.name}:{mark.line + 1}:{mark.column + 1}: {message}")

    def _unknown(self, kind: str, name: str, valid: Any, at: Node) -> InputError:
        listed = list(valid)
        near = get_close_matches(name, listed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        shown = f" (there are {', '.join(sorted(listed)[:20])})" if listed and not near else ""
        return self._wrong(f"there is no {kind} {name!r}{hint}{shown}", at)
