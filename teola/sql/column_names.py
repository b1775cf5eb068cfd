"""Which column a name means, as far as that is known without the database.

Long because a name is followed outwards through every kind of scope.

    SELECT b.boat, depht FROM berths b       there is no column 'depht'; did you mean 'depth'?

A name is looked up in the SELECTs around it, from the innermost, in what stands behind their FROM.
Where one of these sources is not known (a function, a PIVOT), any name may be right. Private
columns are the other way round: what might read one is refused, also from a SELECT further out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from teola.errors import LONGEST_NAME, ToolError
from teola.sql.dialects.dialect import SqlDialect
from teola.sql.dialects.postgres import POSTGRES
from teola.sql.sql_schema import Columns, FoldedTable
from teola.sql.with_scopes import part_name, visible_parts
from teola.sql.written_names import name_text

if TYPE_CHECKING:
    from sqlglot import exp

MOST_LISTED_COLUMNS: Final = 40


@dataclass(frozen=True, slots=True)
class _Source:
    """A source in FROM: its name there, its columns, and its private columns if it is a table."""

    alias: str
    columns: Columns
    private: frozenset[str] = frozenset()


class ColumnNames:
    """Checks the names of columns in one statement. tables: tables by folded name."""

    def __init__(
        self, tree: exp.Expr, dialect: SqlDialect, tables: Mapping[str, FoldedTable]
    ) -> None:
        from sqlglot import exp

        self.dialect, self.tables = dialect, tables
        self._sources: dict[int, tuple[_Source, ...]] = {}
        self._outputs: dict[int, Columns] = {}
        self._aliases: dict[int, frozenset[str]] = {}
        self._around: dict[int, tuple[exp.Expr, exp.Expr | None]] = {}
        secret = any(table.private for table in tables.values())
        self.guards = secret and any(self._private(table) for table in tree.find_all(exp.Table))
        """Whether a table with private columns is read."""

    def check(self, node: exp.Expr) -> None:
        """Raises ToolError."""
        from sqlglot import exp

        if isinstance(node, exp.Column):
            if isinstance(node.this, exp.Identifier):
                self._column(node, self._folded(node.this))
            else:
                self._star_of(node)
                if self.guards:
                    self._star(node)
        elif not self.guards:
            return
        elif isinstance(node, exp.Star):
            counted = isinstance(node.parent, exp.Anonymous) and node.parent.name.lower() == "count"
            if not counted and not isinstance(node.parent, exp.Column):
                self._star(node)
        elif isinstance(node, (exp.Pivot, exp.Columns)) or (
            isinstance(node, exp.Anonymous) and node.name.lower() == "columns"
        ):
            raise ToolError("a table with private columns takes no PIVOT, UNPIVOT or COLUMNS here")
        elif isinstance(node, exp.Join):
            self._join(node)
        elif isinstance(node, (exp.Table, exp.Subquery)):
            alias = node.args.get("alias")
            renamed = alias is not None and alias.args.get("columns")
            if renamed and any(source.private for source in self._item(node)):
                raise ToolError("columns of a table with private ones keep their names here")
        elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
            self._method(node)
        elif isinstance(node, exp.Lambda):  # DuckDB may read a -> b as a step into JSON
            for name in node.expressions:
                self._outside(node, (self._folded(name),))

    # --- private columns --------------------------------------------------------------------------

    def _private(self, table: exp.Table) -> frozenset[str]:
        folded_table = self._table(table)
        return folded_table.private if folded_table is not None else frozenset()

    def _star(self, node: exp.Expr) -> None:
        from sqlglot import exp

        table = self._folded(node.args.get("table")) if isinstance(node, exp.Column) else ""
        parent = node.parent
        if isinstance(parent, exp.Dot) and isinstance(parent.this, exp.Expr):
            table = self.dialect.folded(parent.this.name)
        select = node.find_ancestor(exp.Select)
        while select is not None:
            meant = [s for s in self._of(select) if not table or s.alias == table]
            for source in meant:
                if source.private:
                    raise ToolError(
                        f"* would read private columns ({', '.join(sorted(source.private))}): "
                        "name the columns"
                    )
            if not table or any(source.columns is not None for source in meant):
                return
            select = select.find_ancestor(exp.Select)  # LATERAL (SELECT p.*)

    def _join(self, join: exp.Join) -> None:
        from sqlglot import exp

        select = join.find_ancestor(exp.Select)
        private = frozenset[str]().union(
            *(source.private for source in (self._of(select) if select is not None else ()))
        )
        used = {self._folded(name) for name in join.args.get("using") or ()}
        if private and (join.method == "NATURAL" or used & private):
            raise ToolError("a join by private columns is not taken: say ON which columns")

    def _method(self, dot: exp.Dot) -> None:
        """Refuse private columns in `email.lower()`, where sqlglot makes bare names of columns."""
        from sqlglot import exp

        for name in dot.this.find_all(exp.Identifier):
            above = name.parent
            qualifies = isinstance(above, exp.Dot) and above.this is name and above is not dot
            if not qualifies and not isinstance(above, (exp.Column, exp.Table, exp.TableAlias)):
                self._outside(name, (self._folded(name),))

    def _outside(self, node: exp.Expr, parts: tuple[str, ...]) -> None:
        """Refuse a name that may be a private column's in any SELECT around it."""
        from sqlglot import exp

        select = node.find_ancestor(exp.Select)
        while select is not None:
            self._spare(parts, self._of(select))
            select = select.find_ancestor(exp.Select)

    def _spare(self, parts: tuple[str, ...], sources: tuple[_Source, ...]) -> None:
        """Refuse a name that may be a private column's of these sources."""
        for source in sources:
            if not source.private:
                continue
            secret = source.private | self.dialect.free_columns
            if len(parts) == 1:
                may_be = parts[0] in secret or parts[0] == source.alias
            elif len(parts) == 2:
                may_be = (
                    parts[0] in source.private
                    or (parts[0] == source.alias and parts[1] in secret)
                    or (self.dialect.methods and parts[1] == source.alias)  # main.patients
                )
            else:
                may_be = not secret.isdisjoint(parts)
            if may_be:
                self._refuse_private(".".join(parts))

    def _refuse_private(self, name: str) -> None:
        raise ToolError(f"the column {name!r} is private: leave it out")

    def _star_of(self, column: exp.Column) -> None:
        """Raises ToolError for the columns of a table that is not there."""
        from sqlglot import exp

        table, node = self._folded(column.args.get("table")), column.parent
        nearest: list[str] = []
        while table and node is not None:
            if isinstance(node, exp.Pivot):
                return
            if isinstance(node, exp.Select):
                aliases = [source.alias for source in self._of(node)]
                if table in aliases:
                    return
                nearest = nearest or aliases
            node = node.parent
        if table and not self.dialect.methods:  # DuckDB takes those of a struct
            raise ToolError(
                f"there is no table {table[:LONGEST_NAME]!r} in this FROM{_meant(table, nearest)}"
            )

    # --- names ------------------------------------------------------------------------------------

    def _column(self, column: exp.Column, name: str) -> None:
        from sqlglot import exp

        table = self._folded(column.args.get("table"))
        parts = tuple(self._folded(part) for part in column.parts)
        if self.guards and len(parts) > 2:
            self._outside(column, parts)
        nearest: list[_Source] = []
        skipped = maybe = False  # maybe: it may also be a name of a SELECT further out
        for node, parent in self._scopes_around(column):
            if isinstance(parent, exp.With):
                skipped = True  # what WITH belongs to is not seen from its parts
            elif isinstance(parent, exp.Lambda):
                if parts[0] in {self._folded(p) for p in parent.expressions}:
                    return
            elif isinstance(parent, exp.Comprehension):
                variable = self._folded(parent.args.get("expression"))
                if parts[0] == variable and node is not parent.args.get("iterator"):
                    return
            elif isinstance(parent, exp.Pivot):
                return
            elif isinstance(parent, exp.Select):
                if not skipped:
                    sources = self._of(parent)
                    unsure = self.guards and self._may_be_outside(parts, sources)
                    if maybe or unsure:
                        self._spare(parts, sources)
                    maybe = maybe or self._is_in(name, table, sources)
                    maybe = maybe or (not table and name in self._aliases_of(parent))
                    if maybe and not unsure:
                        return
                    nearest = nearest or list(sources)
                skipped = False
            elif isinstance(parent, exp.SetOperation):
                ordering = node is not parent.this and node is not parent.expression
                if ordering and not skipped and not table:
                    outputs = self._outputs_of(parent)
                    maybe = maybe or outputs is None or name in outputs
                    if maybe and not self.guards:
                        return
                skipped = False
        if not maybe:
            self._unknown(column, name, table, nearest)

    def _scopes_around(self, node: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """What may give names their meaning, from the innermost, each with the child that the node
        stands in."""
        while True:
            node, scope = self._scope_around(node)
            if scope is None:
                return
            yield node, scope
            node = scope

    def _scope_around(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
        """The innermost. Remembered for all on the way: a condition of a hundred parts is a
        hundred nodes deep, and each of its columns stands in them."""
        from sqlglot import exp

        scopes = (exp.With, exp.Lambda, exp.Comprehension, exp.Pivot, exp.Select, exp.SetOperation)
        way: list[exp.Expr] = []
        while (parent := node.parent) is not None and not isinstance(parent, scopes):
            if (known := self._around.get(id(parent))) is not None:
                node, parent = known
                break
            way.append(parent)
            node = parent
        for passed in way:
            self._around[id(passed)] = (node, parent)
        return node, parent

    def _is_in(self, name: str, table: str, sources: tuple[_Source, ...]) -> bool:
        """Whether a source may have the column. Raises ToolError for a private column, and for one
        that a named source does not have."""
        if table:
            named = [source for source in sources if source.alias == table]
            if named:  # SQLite takes two of one name, such as a function's and an alias like it
                hides = lambda source: (name in source.private, len(source.private))  # noqa: E731
                return self._has(max(named, key=hides), name)
            return self.dialect.methods and self._is_in(table, "", sources)  # a field of a column
        for source in sources:
            if name in source.private or (source.private and name == source.alias):
                self._refuse_private(name)
        if any(source.columns is not None and name in source.columns for source in sources):
            return True
        if name in self.dialect.free_columns and any(source.private for source in sources):
            self._refuse_private(name)  # rowid may be the name of a key
        if any(source.columns is None for source in sources):
            return True
        return name in self.dialect.free_columns or any(name == s.alias for s in sources)

    def _may_be_outside(self, parts: tuple[str, ...], sources: tuple[_Source, ...]) -> bool:
        """Whether a name that these sources may have is not surely theirs: a database that does not
        find it there looks further out."""
        named = [s for s in sources if s.alias == parts[0]] if len(parts) > 1 else []
        name = parts[1] if named else parts[0]
        return not any(s.columns is not None and name in s.columns for s in named or sources)

    def _has(self, source: _Source, name: str) -> bool:
        own = source.columns is not None and name in source.columns
        free = name in self.dialect.free_columns and not own
        if name in source.private or (source.private and free):
            self._refuse_private(f"{source.alias}.{name}")
        if source.columns is None or name in source.columns or name in self.dialect.free_columns:
            return True
        raise ToolError(
            f"there is no column {name[:LONGEST_NAME]!r} in {source.alias!r}"
            f"{_meant(name, source.columns)}"
        )

    def _unknown(self, column: exp.Column, name: str, table: str, nearest: list[_Source]) -> None:
        if table:
            aliases = [source.alias for source in nearest]
            raise ToolError(
                f"there is no table {table[:LONGEST_NAME]!r} in this FROM{_meant(table, aliases)}"
            )
        if column.this.args.get("quoted") and self.dialect.texts_in_quotes:
            return
        if self.dialect.methods and name == "all":  # GROUP BY ALL
            return
        everything = [name for source in nearest for name in source.columns or ()]
        hidden = {name for source in nearest for name in source.private}
        shown = [name for name in dict.fromkeys(everything) if name not in hidden]
        where = f" in {', '.join(source.alias for source in nearest[:5])}" if nearest else ""
        raise ToolError(f"there is no column {name[:LONGEST_NAME]!r}{where}{_meant(name, shown)}")

    # --- sources ----------------------------------------------------------------------------------

    def _of(self, select: exp.Select) -> tuple[_Source, ...]:
        """The sources of a SELECT."""
        if id(select) not in self._sources:
            self._sources[id(select)] = ()  # while they are looked up
            self._sources[id(select)] = tuple(self._from(select))
        return self._sources[id(select)]

    def _from(self, node: exp.Expr) -> Iterator[_Source]:
        first = node.args.get("from_")
        if first is not None:
            yield from self._item(first.this)
        for join in node.args.get("joins") or ():
            yield from self._item(join.this)
        for lateral in node.args.get("laterals") or ():
            yield from self._item(lateral)

    def _item(self, item: exp.Expr) -> Iterator[_Source]:
        from sqlglot import exp

        alias = item.args.get("alias")
        named = self._folded(alias.this) if alias is not None and alias.this is not None else ""
        columns: Columns = None
        private: frozenset[str] = frozenset()
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            named = named or self._folded(item.this)
            part = self._part(item)
            if part is not None:
                columns = _renamed(
                    self._outputs_of(part.this), part.args.get("alias"), self._folded
                )
            elif (folded_table := self._table(item)) is not None:
                columns, private = folded_table.columns, folded_table.private
        elif isinstance(item, exp.Subquery) and isinstance(item.this, (exp.Table, exp.Subquery)):
            inner = tuple(self._item(item.this))  # brackets around what stands behind FROM
            if not named:
                yield from inner
                yield from self._from(item)
                return
            private = frozenset[str]().union(*(source.private for source in inner))
            listed = [source.columns for source in inner if source.columns is not None]
            if len(listed) == len(inner):
                columns = tuple(name for names in listed for name in names)
        elif isinstance(item, (exp.Subquery, exp.Lateral)) and isinstance(item.this, exp.Query):
            columns = self._outputs_of(item.this)
        else:
            if self.dialect.fields_call:
                columns = _columns_of_call(item, named)
            named = named or self._called(item)
        if item.args.get("pivots"):
            columns = None
        yield _Source(named, _renamed(columns, alias, self._folded), private)
        yield from self._from(item)

    def _called(self, item: exp.Expr) -> str:
        """The name of a function in the place of a table, which it has there without an alias."""
        from sqlglot import exp

        call = item.this if isinstance(item, (exp.Table, exp.Lateral)) else item
        return self.dialect.folded(call.name) if isinstance(call, exp.Anonymous) else ""

    def _part(self, table: exp.Table) -> exp.CTE | None:
        if table.args.get("db"):
            return None
        name = self._folded(table.this)
        for part in visible_parts(table):
            if self._folded(part_name(part)) == name:
                return part
        return None

    def _table(self, table: exp.Table) -> FoldedTable | None:
        from sqlglot import exp

        if not isinstance(table.this, exp.Identifier) or self._part(table) is not None:
            return None
        schema = self._folded(table.args.get("db"))
        return self.tables.get(f"{schema}.{self._folded(table.this)}".lstrip("."))

    def _outputs_of(self, query: exp.Expr) -> Columns:
        """Names of a query's columns."""
        if id(query) not in self._outputs:
            self._outputs[id(query)] = None  # of a part that reads itself
            self._outputs[id(query)] = self._outputs_now(query)
        return self._outputs[id(query)]

    def _outputs_now(self, query: exp.Expr) -> Columns:
        from sqlglot import exp

        if isinstance(query, exp.Subquery):
            return self._outputs_of(query.this)
        if isinstance(query, exp.SetOperation):
            return self._outputs_of(query.this)
        if not isinstance(query, exp.Select):
            return None
        names: list[str] = []
        for column in query.expressions:
            star = isinstance(column, exp.Column) and isinstance(column.this, exp.Star)
            if star or isinstance(column, exp.Star):
                if isinstance(column, exp.Star) and any(column.args.values()):
                    return None
                table = self._folded(column.args.get("table")) if star else ""
                for source in self._of(query):
                    if not table or source.alias == table:
                        if source.columns is None:
                            return None
                        names += source.columns
            elif isinstance(column, exp.Alias):
                names.append(self._folded(column.args["alias"]))
            elif isinstance(column, exp.Column):
                names.append(self._folded(column.this))
            else:
                return None  # each database names it in its own way
        return tuple(names)

    def _aliases_of(self, select: exp.Select) -> frozenset[str]:
        from sqlglot import exp

        if id(select) not in self._aliases:
            self._aliases[id(select)] = frozenset(
                self._folded(column.args["alias"])
                for column in select.expressions
                if isinstance(column, exp.Alias)
                and isinstance(column.args["alias"], exp.Identifier)
            )
        return self._aliases[id(select)]

    def _folded(self, identifier: exp.Expr | None) -> str:
        if identifier is None:
            return ""
        return self.dialect.folded(identifier.name, bool(identifier.args.get("quoted")))


def _columns_of_call(item: exp.Expr, named: str) -> Columns:
    """Columns of a PostgreSQL function that stands in the place of a table. They are returned even
    where there may be more: f.other would call a function of that name with what f gives."""
    from sqlglot import exp

    call = item.this if isinstance(item, (exp.Table, exp.Lateral)) else item
    if not isinstance(call, (exp.Anonymous, exp.Unnest)):
        return None
    name = "unnest" if isinstance(call, exp.Unnest) else call.name.lower()
    if name.endswith(("_each", "_each_text")):
        names: tuple[str, ...] = ("key", "value")
    elif "_array_elements" in name:
        names = ("value",)
    else:
        several = isinstance(call, exp.Unnest) and len(call.expressions) > 1
        names = (name if several else named or name,)
    return (*names, "ordinality")


def _renamed(
    columns: Columns, alias: exp.Expr | None, folded: Callable[[exp.Expr], str]
) -> Columns:
    """Columns under the names that an alias gives to the first of them."""
    aliases = list(alias.args.get("columns") or ()) if alias is not None else []
    if not aliases:
        return columns
    names = tuple(folded(name) for name in aliases)
    return names if columns is None else names + columns[len(names) :]


def _meant(name: str, candidates: list[str] | tuple[str, ...]) -> str:
    for spelled in candidates:
        if spelled != name and spelled.lower() == name.lower():
            return f"; write it in quotes: {name_text(spelled, POSTGRES)}"  # others fold it
    near = get_close_matches(name[:LONGEST_NAME], candidates, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not candidates:
        return ""
    if len(candidates) > MOST_LISTED_COLUMNS:
        return f"; there are {len(candidates)}"
    return f"; there are {', '.join(candidates)}"
