"""A database as an engine: its tables, its values, and statements that only read it.

Long because the five operations share one schema, one filter and one reader.

    query    {"sql"}   ─▶ filter ─▶ plan, if its cost is bounded ─▶ rows
    explain  {"sql"}   ─▶ filter ─▶ plan
    schema   {}        ─▶ tables, columns, keys, comments, samples
    values   {"text"}  ─▶ texts of the database that look like this one
    link     {"text"}  ─▶ tables, values and examples that a question is about

See `teola/sql` for what is safe about it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

from teola.engine import EngineKind, EngineResult, EngineSpec, Request, TextVectors, any_wanted
from teola.errors import LONGEST_NAME, EngineError, EngineUnavailable, InputError, ToolError
from teola.graph.ops import Op, SqlParams, SqlWork
from teola.sql.dialects import dialect_named
from teola.sql.hints import NO_HINTS, SqlHints, read_hints
from teola.sql.linking import ALIKE, FindsMeanings, Linker
from teola.sql.lookup import SERVERS, SqlAddress, look_up
from teola.sql.postgres_catalogue import describe_postgres, plan_postgres
from teola.sql.postgres_reader import may_fill_disks
from teola.sql.select_only import select_only
from teola.sql.sql_children import children, mentioned
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_schema import Schema
from teola.sql.sql_tables import SqlTable, rounded, schema_of, tables_as_json, tables_from_json
from teola.sql.statement_facts import facts_of
from teola.sql.stopped import StatementStopped, Wanted

from .indexed_values import IndexedValues
from .value_index import FoundValue

log = logging.getLogger(__name__)

DEFAULT: Final = LookupLimits()
READING: Final = LookupLimits(100_001, 20.0, 2**20, 64 * 2**20)
"""Limits of reading tables and values, which no model asks for."""
MOST_VALUES: Final = 100_000
"""Distinct texts of a column; one with more is not indexed."""
AGAIN_S: Final = 5.0
"""After which tables are read again, where a statement names one that is not known."""
FRESH_S: Final = 60.0
"""After which tables are read again before a question that asks for them."""
AHEAD_S: Final = FRESH_S / 2
"""After which they are read again beside a question, so that those after it need not wait."""
MAIN: Final = {"sqlite": "", "duckdb": "", "postgres": "public"}
WAITED_S: Final = 1.0
"""That a question waits for tables older than FRESH_S; then it takes those that are known."""
NEAR_VALUES: Final = 3
"""Values told for a text that a statement without rows looks for."""
MOST_LINKERS: Final = 8
"""Files of hints whose links are remembered."""
TEXTUAL: Final = ("char", "text", "clob", "string", "enum")


class SqlDatabase:
    """One database of SQLite, DuckDB or PostgreSQL.

    path: of a file. secret: name of the environment's variable that has a path or a DSN. dialect:
    that it has to be; None: as it is found. hints: file with what people know of it
    (teola/sql/hints.py). examples: whether questions that were kept for it are looked for; None:
    once one was kept here. private: columns that are never read, as table.column. tenants: who may
    ask; none: everybody. set_local: settings of PostgreSQL for each statement, in which {tenant}
    stands for the query's; samples and values are off then, since they would be read for all.
    trust_role: see docs/text-to-sql.md. rows, seconds, value_bytes, total_bytes, memory_bytes: see
    LookupLimits. max_plan_cost: of a statement's plan, in the database's own unit (of SQLite: rows
    of tables that are read as a whole); None: any. values: whether texts are indexed, in the
    background, in `data_dir`. embeddings: whether texts of columns with few of them are embedded,
    so that they are found by meaning, too; None: where an engine `embedding` is configured.
    """

    def __init__(
        self,
        name: str = "database",
        *,
        path: str | None = None,
        secret: str | None = None,
        dialect: str | None = None,
        hints: str | Path | None = None,
        examples: bool | None = None,
        private: Sequence[str] = (),
        tenants: Sequence[str] = (),
        set_local: Mapping[str, str] | None = None,
        trust_role: bool = False,
        rows: int = DEFAULT.rows,
        seconds: float = DEFAULT.seconds,
        value_bytes: int = DEFAULT.value_bytes,
        total_bytes: int = DEFAULT.total_bytes,
        memory_bytes: int = DEFAULT.memory_bytes,
        max_plan_cost: float | None = None,
        values: bool = True,
        data_dir: str | Path | None = None,
        embeddings: bool | None = None,
        concurrency: int = 8,
    ) -> None:
        if (path is None) == (secret is None):
            raise InputError(f"database {name!r}: give a path or a secret, and not both")
        if max_plan_cost is not None and not max_plan_cost > 0:
            raise InputError(f"database {name!r}: max_plan_cost must be positive")
        if dialect is not None:
            dialect_named(dialect)
        self._dialect, self._hints_file, self._examples = dialect, hints, examples
        self._limits = LookupLimits(rows, seconds, value_bytes, total_bytes, memory_bytes)
        self._path, self._secret = path, secret
        self._private, self._tenants = tuple(private), frozenset(tenants)
        self._set_local, self._trust_role = dict(set_local or {}), trust_role
        self._max_plan_cost = max_plan_cost
        self._values, self._data_dir = values and not self._set_local, data_dir
        self._embeddings, self._vectors = embeddings, cast("TextVectors | None", None)
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.SQL,
            ops=frozenset({Op.SQL}),
            max_batch=1,
            concurrency=concurrency,
            description="a database that is only read",
        )
        self._address: SqlAddress | None = None
        self._tables: tuple[SqlTable, ...] = ()
        self._schema = Schema.of([])
        self._read_at, self._begun_at, self._epoch = 0.0, 0.0, 0
        self._linkers: dict[object, Linker] = {}
        self._sampled = not self._set_local
        self._index: IndexedValues | None = None
        self._reading: Future[None] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def open_to(self, tenant: str) -> bool:
        """Whether a tenant may ask."""
        return not self._tenants or tenant in self._tenants

    @property
    def hints_file(self) -> str | Path | None:
        """As configured."""
        return self._hints_file

    def find_by_meaning(self, vectors: TextVectors) -> None:
        """See `FindsByMeaning`."""
        wanted = vectors.configured if self._embeddings is None else self._embeddings
        self._vectors = vectors if wanted else None

    def start(self) -> None:
        """Find the database and read its tables. Raises EngineUnavailable, which does not show a
        DSN, and InputError for a private column that is not there, or hints that do not fit."""
        where = self._path
        if where is None:
            where = os.environ.get(str(self._secret))
            if not where:
                raise EngineUnavailable(
                    f"database {self.spec.name!r}: set its address as {self._secret}",
                    retryable=False,
                )
        self._closed.clear()
        self._tables, self._schema, self._index = (), Schema.of([]), None
        try:
            self._address = SqlAddress.of(where)
            if self._dialect not in (None, self._address.dialect):
                raise InputError(
                    f"database {self.spec.name!r} is one of {self._address.dialect}, and its "
                    f"dialect is configured as {self._dialect}"
                )
            self._read_tables()
            self._tell_of_disks()
            # Its words are known before the first question.
            self._linker(self._hints_file).link("tables")
        except ToolError as error:
            said = self._said(error)
            if self._secret is not None and not where.startswith(SERVERS):
                said = (
                    f"what {self._secret} says cannot be opened: write a path, or "
                    "postgresql://USER@HOST/DATABASE"
                )
            raise EngineUnavailable(
                f"database {self.spec.name!r}: {said}", retryable=False
            ) from None

    def _tell_of_disks(self) -> None:
        """Of a server whose disk nothing protects: no limit of ours bounds its temporary files."""
        address, trusted = self._found, self._trust_role
        if address.dialect == "postgres" and may_fill_disks(
            address.where, self._reading_limits, trust_role=trusted
        ):
            log.warning(
                "database %s: its role has no temp_file_limit, so a statement may fill the "
                "server's disk: ALTER ROLE ... SET temp_file_limit = '1GB'",
                self.spec.name,
            )

    def _said(self, error: Exception) -> str:
        """What is wrong, without the address if that is a secret: it may have a password."""
        said = str(error)
        if self._secret is None or self._address is None:
            return said
        where = self._address.where
        for form in (where, where[:LONGEST_NAME]):
            said = said.replace(form, f"what {self._secret} says")
        return said

    def close(self) -> None:
        """Stop indexing and reading tables. Nothing else is open between two statements."""
        self._closed.set()
        with self._lock:
            reading, self._reading = self._reading, None
        if reading is not None:
            wait([reading], WAITED_S)
        if self._index is not None:
            self._index.close()

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """See the module. `result` of a query has `columns`, `rows`, `truncated`, `tables` that it
        read and perhaps a `note`; where params.tell_errors, also what is wrong with a statement is
        a result: `error`, and `limit` of one that was stopped; and of one without rows `near`,
        values like the texts that it looks for."""
        return [self._executed(request) for request in requests]

    def _executed(self, request: Request) -> EngineResult | Exception:
        params = request.params
        assert isinstance(params, SqlParams)
        if not self.open_to(request.context.tenant):
            return EngineError(f"there is no database {self.spec.name!r} for this tenant")
        try:
            return {"result": self._result(request, params)}
        except InputError as error:  # hints that do not fit
            return EngineError(str(error))
        except ToolError as error:
            if not params.tell_errors:
                return EngineError(self._said(error))
            limit = error.limit if isinstance(error, StatementStopped) else ""
            return {"result": {"error": self._said(error), "limit": limit}}

    def _result(self, request: Request, params: SqlParams) -> dict[str, Any]:
        if params.work is SqlWork.SCHEMA:
            self._keep_fresh()
            return {"dialect": self._found.dialect, "tables": tables_as_json(self._tables)}
        if params.work is SqlWork.VALUES:
            text = str(request.inputs["text"])
            found = self._alike(request, [text], params.max_rows)[text]
            return {"values": [one._asdict() for one in found]}
        if params.work is SqlWork.LINK:
            return self._linked(request)
        sql = self._filtered(str(request.inputs["sql"]))
        tables = list(facts_of(sql, self._found.dialect, self._schema).tables)
        settings = {
            name: value.replace("{tenant}", request.context.tenant)
            for name, value in self._set_local.items()
        }
        if params.work is SqlWork.EXPLAIN:
            plan = self._plan(sql, settings)
            refused = self._too_dear(plan)
            return {"sql": sql, "tables": tables, **plan} | (
                {"refused": refused} if refused else {}
            )
        if self._max_plan_cost is not None and (why := self._too_dear(self._plan(sql, settings))):
            raise ToolError(why)
        rows = look_up(
            self._found,
            sql,
            replace(self._limits, rows=min(self._limits.rows, params.max_rows)),
            self._schema,
            trust_role=self._trust_role,
            set_local=settings,
            wanted=lambda: any_wanted([request]),
        )
        result = {**rows.result(), "sql": sql, "tables": tables}
        if params.tell_errors and not rows.rows and (near := self._near(request, sql)):
            result["near"] = near
        return result

    @property
    def _found(self) -> SqlAddress:
        if self._address is None:
            raise EngineUnavailable(f"database {self.spec.name!r} is not started")
        return self._address

    def _filtered(self, sql: str) -> str:
        """The statement as it runs; tables that are not known may be new. Raises ToolError."""
        try:
            return select_only(sql, self._found.dialect, self._schema)
        except ToolError as error:
            if not str(error).startswith(("there is no table", "there is no column")):
                raise
        self._refresh(AGAIN_S)
        return select_only(sql, self._found.dialect, self._schema)

    def _plan(self, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
        address = self._found
        if address.dialect == "postgres":
            return plan_postgres(
                address.where,
                sql,
                self._limits,
                trust_role=self._trust_role,
                set_local=settings,
            )
        answer = children.ask(
            "plan",
            self._limits,
            mentioned(self._schema, sql),
            dialect=address.dialect,
            path=address.where,
            sql=sql,
        )
        plan: dict[str, Any] = answer["result"]
        return plan

    def _find(self, text: str, limit: int) -> list[FoundValue]:
        return self._index.find(text, limit) if self._index else []

    def _meant(self, request: Request, texts: Sequence[str], limit: int) -> list[list[FoundValue]]:
        """Values that each of these texts may mean, by vectors."""
        if self._index is None:
            return [[] for _ in texts]
        return self._index.meant(
            texts, limit, request.context.tenant, lambda: any_wanted([request])
        )

    def _meaning_of(self, request: Request) -> FindsMeanings | None:
        return partial(self._meant, request) if self._vectors is not None else None

    def _alike(
        self, request: Request, texts: Sequence[str], limit: int
    ) -> dict[str, list[FoundValue]]:
        """For each text values like it, the most alike first: by their letters, and by meaning
        where no letters are much alike."""
        found = {text: self._find(text, limit) for text in texts}
        vague = [text for text, near in found.items() if not near or near[0].score < ALIKE]
        for text, meant in zip(vague, self._meant(request, vague, limit), strict=True):
            known = {one[:3] for one in meant}
            both = [*meant, *(one for one in found[text] if one[:3] not in known)]
            found[text] = sorted(both, key=lambda one: -one.score)[:limit]
        return found

    def _near(self, request: Request, sql: str) -> list[dict[str, Any]]:
        """For texts that a statement looks for and the database has not as they stand: those that
        are like them."""
        texts = facts_of(sql, self._found.dialect, self._schema).texts
        return [
            {"text": text, **value._asdict()}
            for text, alike in self._alike(request, texts, NEAR_VALUES).items()
            if all(value.value != text for value in alike)
            for value in alike
        ]

    def _linked(self, request: Request) -> dict[str, Any]:
        """See `Linked`; with `database`, what it is called, and `kept`, whether questions may have
        been kept for it in the collection `collection`."""
        self._keep_fresh()
        if self._index is not None:
            self._index.wait()
        asked, chosen = str(request.inputs["text"]), request.inputs.get("chosen") or ()
        linker = self._linker(request.inputs.get("hints") or self._hints_file)
        if not linker.tables:
            rights = self._found.dialect == "postgres"
            raise ToolError(
                f"the database {self.spec.name!r} has no tables that can be read"
                + (": GRANT SELECT on some to its role" if rights else "")
            )
        linked = linker.link(asked, self._find, map(str, chosen), meant=self._meaning_of(request))
        kept = self._kept_mark(request.context.tenant)
        return {
            "database": self.spec.name,
            "dialect": self._found.dialect,
            **asdict(linked),
            "collection": self.collection,
            "kept": kept.exists() if self._examples is None else self._examples,
        }

    @property
    def collection(self) -> str:
        """Of documents that are questions with SQL, which were kept for this database."""
        return f"text-to-sql {self.spec.name}"

    def note_kept(self, tenant: str) -> None:
        """Note that an example was kept."""
        mark = self._kept_mark(tenant)
        mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark.touch(0o600)

    def _kept_mark(self, tenant: str) -> Path:
        whose = sha256(repr((tenant, self.collection)).encode()).hexdigest()
        return self._folder / f"kept-{whose[:32]}"

    @property
    def _folder(self) -> Path:
        return Path(self._data_dir) if self._data_dir else _data_dir()

    def _linker(self, hints: str | Path | None) -> Linker:
        """Remembered by the tables, and by the file of hints as it is now. Raises InputError."""
        key: object = (self._epoch, None)
        if hints is not None:
            try:
                state = Path(hints).expanduser().stat()
                key = (self._epoch, str(hints), state.st_mtime_ns, state.st_size)
            except (OSError, ValueError):
                key = (self._epoch, str(hints))  # reading it says what is wrong
        with self._lock:
            found = self._linkers.get(key)
        if found is None:
            read = NO_HINTS if hints is None else self._hints(hints)
            found = Linker(self._shown(), read, dialect_named(self._found.dialect))
            with self._lock:
                while len(self._linkers) >= MOST_LINKERS:
                    del self._linkers[next(iter(self._linkers))]
                self._linkers[key] = found
        return found

    def _shown(self) -> list[SqlTable]:
        """Tables that a prompt may show: those that can be read, without private columns."""
        private = frozenset(self._private)
        return [
            replace(
                table,
                columns=tuple(c for c in table.columns if f"{table.name}.{c.name}" not in private),
            )
            for table in self._tables
            if not table.note
        ]

    def _hints(self, path: str | Path) -> SqlHints:
        return read_hints(path, self._found.dialect, self._schema)

    def _too_dear(self, plan: Mapping[str, Any]) -> str:
        """Why a statement would be refused for its cost ("": it would not)."""
        most = self._max_plan_cost
        if most is None or plan["cost"] <= most:
            return ""
        scans = ", ".join(plan["scans"]) or "it joins too much"
        return (
            f"its plan costs {plan['cost']:,.0f}, and {most:,.0f} may be spent "
            f"(max_plan_cost): narrow what is read as a whole ({scans})"
        )

    # --- tables and values ------------------------------------------------------------------------

    def _keep_fresh(self) -> None:
        """Read the tables again where they are too old for a question, and beside it where they
        will soon be. Raises ToolError."""
        now = monotonic()
        if now - self._read_at > FRESH_S:
            self._refresh(FRESH_S, WAITED_S)
        elif now - self._begun_at > AGAIN_S:  # what failed is not begun again by each question
            self._read_again(AHEAD_S)

    def _refresh(self, after_s: float, wait_s: float | None = None) -> None:
        """Read the tables again, if that was not done in the last `after_s` seconds. wait_s: for
        how long that is waited for; what is known holds then. Raises ToolError."""
        reading = self._read_again(after_s)
        if reading is not None:
            with suppress(TimeoutError):
                reading.result(wait_s)

    def _read_again(self, after_s: float) -> Future[None] | None:
        """Begin to read the tables, once for all who ask; None: they are not so old."""
        with self._lock:
            if monotonic() - self._read_at <= after_s or self._closed.is_set():
                return None
            if self._reading is None or self._reading.done():
                self._reading, self._begun_at = Future(), monotonic()
                args = (self._reading,)
                threading.Thread(target=self._read, args=args, name="tables", daemon=True).start()
            return self._reading

    def _read(self, reading: Future[None]) -> None:
        try:
            self._read_tables()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            reading.set_exception(error)
        else:
            reading.set_result(None)

    def _read_tables(self) -> None:
        """Raises ToolError."""
        try:
            tables = self._described(sampled=self._sampled)
        except StatementStopped:
            if not self._sampled:
                raise
            self._sampled = False  # a view took the whole process with it
            tables = self._described(sampled=False)
        with self._lock:
            schema = schema_of(tables, self._private, MAIN[self._found.dialect])
            before, self._tables, self._read_at = self._tables, tables, monotonic()
            if _lasting(tables) == _lasting(before):
                return
            if not schema.alike(self._schema):
                self._schema = schema  # of which it is remembered what was checked by it
            self._epoch += 1
            self._linkers.clear()
            if self._values:
                if self._index is None:
                    place = f"{self._found.dialect} {self._found.where} {self._private}"
                    self._index = IndexedValues(self._folder, place, self._texts, self._vectors)
                self._index.of(tables)

    def _described(self, *, sampled: bool) -> tuple[SqlTable, ...]:
        address, limits = self._found, self._reading_limits
        if address.dialect == "postgres":
            return describe_postgres(
                address.where,
                limits,
                self._private,
                trust_role=self._trust_role,
                sampled=sampled,
                wanted=self._open,
            )
        answer = children.ask(
            "tables",
            limits,
            wanted=self._open,
            dialect=address.dialect,
            path=address.where,
            private=list(self._private),
            sampled=sampled,
        )
        return tables_from_json(answer["result"])

    @property
    def _reading_limits(self) -> LookupLimits:
        return replace(READING, memory_bytes=self._limits.memory_bytes)

    def _open(self) -> bool:
        return not self._closed.is_set()

    def _texts(
        self, tables: Sequence[SqlTable], wanted: Wanted
    ) -> Iterator[tuple[str, str, list[str]]]:
        """Texts of each column that may be told. Raises QueryCancelled."""
        for table in tables:
            for column in table.columns:
                textual = any(word in column.type.lower() for word in TEXTUAL)
                if not textual or table.note or f"{table.name}.{column.name}" in self._private:
                    continue
                name = ".".join(f'"{part}"' for part in _parts(table.name, self._found.dialect))
                quoted = '"' + column.name.replace('"', '""') + '"'
                sql = f"SELECT DISTINCT {quoted} FROM {name} WHERE {quoted} IS NOT NULL"
                try:
                    rows = look_up(
                        self._found,
                        sql,
                        self._reading_limits,
                        self._schema,
                        trust_role=self._trust_role,
                        wanted=wanted,
                    )
                except ToolError:
                    continue  # too much of it, or a view that fails: it is found by nothing
                if not rows.truncated and len(rows.rows) <= MOST_VALUES:
                    yield table.name, column.name, [str(value) for (value,) in rows.rows]


def _lasting(tables: Sequence[SqlTable]) -> list[SqlTable]:
    """What of tables does not change with each row."""
    return [replace(table, rows=rounded(table.rows)) for table in tables]


def _parts(name: str, dialect: str) -> list[str]:
    """A table's schema and name, as they stand in quotes."""
    parts = name.split(".", 1) if dialect != "sqlite" else [name]
    return [part.replace('"', '""') for part in parts]


def _data_dir() -> Path:
    import platformdirs

    return platformdirs.user_data_path("teola") / "sql-values"
