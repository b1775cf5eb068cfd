"""Reading PostgreSQL: in a transaction that can only read, a row at a time, no long value whole.

    SELECT c0, CASE ... left(c1, n) ..., long values FROM (statement) AS rows (c0, c1) LIMIT n

The server measures every value of a type that has no bound and shortens it there: a client's
library takes whole rows, however long. Rows come one by one, until there are bytes enough. The role
that logs in must not be able to do more than read: see `_check_role`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from teola.errors import QueryCancelled, ToolError
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.stopped import LOOK_S, StatementStopped, Wanted

if TYPE_CHECKING:
    import psycopg

CHARACTER_BYTES: Final = 4
"""Bytes of a character in UTF-8, at most."""
BYTEA: Final = 17
TEXTS: Final = frozenset((19, 25, 1042, 1043))
"""name, text, char(n), varchar."""
SHORT: Final = frozenset(
    (16, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1266, 1700, 2950)
)
"""bool, int8, int2, int4, oid, float4, float8, date, time, timestamp, timestamptz, interval,
timetz, numeric (64 KiB at most), uuid: types whose values need no measure."""
CONNECT_S: Final = 5.0
"""Seconds that a server may take to answer at all."""
CUT_S: Final = 0.7
"""Seconds after a statement's limit at which the connection to a silent server is cut."""
ROLE: Final = """
SELECT rolsuper,
       rolbypassrls,
       EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
               WHERE g.rolname IN ('pg_read_server_files', 'pg_write_server_files',
                                   'pg_execute_server_program')
                 AND pg_has_role(current_user, g.oid, 'MEMBER')),
       (SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT LIKE 'pg\\_%'
          AND n.nspname <> 'information_schema' AND pg_has_role(current_user, c.relowner, 'MEMBER')
        LIMIT 1)
FROM pg_roles WHERE rolname = current_user
"""


def read_postgres(
    dsn: str,
    sql: str,
    limits: LookupLimits,
    *,
    trust_role: bool = False,
    set_local: Mapping[str, str] | None = None,
    wanted: Wanted | None = None,
) -> Rows:
    """Run one statement on the server.

    trust_role: take any role; otherwise a superuser, a role that passes row-level security or may
    read the server's files, and an owner of tables are refused. set_local: settings of the
    transaction, such as the tenant that a policy looks at. wanted: asked now and then whether
    anybody still waits; if nobody does, the server is told to stop. Raises ToolError, and
    QueryCancelled where nobody does.
    """
    result = Rows(limits)
    value_bytes, long_values = limits.value_bytes, 0
    how: Any = {"trust_role": trust_role, "set_local": set_local, "wanted": wanted}
    with opened_postgres(dsn, limits, **how) as reading:
        with reading.cursor(binary=True) as cursor:  # the extended protocol: one statement
            cursor.execute(f"SELECT * FROM ({sql}\n) AS found LIMIT 0".encode())
            columns = cursor.description or ()
            if not columns:
                raise ToolError("the statement has no columns: name what it shall give")
            result.columns = [column.name for column in columns]
            value_bytes = limits.value_bytes_among(len(columns))
            bounded = _bounded(sql, [column.type_code for column in columns], limits)
            rows = cast("Generator[tuple[Any, ...]]", cursor.stream(bounded.encode()))
            with closing(rows):  # tells the server to stop
                for *row, long_ones in rows:
                    if not result.add(row):
                        break
                    long_values += long_ones
        reading.rollback()
    if long_values:
        result.notes.append(
            f"values of more than {value_bytes:,} bytes (value_bytes, total_bytes) are cut to "
            f"{value_bytes // CHARACTER_BYTES:,} characters, or null where they are no text "
            f"(in these rows: {long_values}); ask for parts of them, or for fewer columns"
        )
    return result


@contextmanager
def opened_postgres(
    dsn: str,
    limits: LookupLimits,
    *,
    trust_role: bool = False,
    set_local: Mapping[str, str] | None = None,
    wanted: Wanted | None = None,
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection in a transaction that can only read, for limited seconds, and thrown away then.
    Errors of PostgreSQL become ToolError, without the DSN. wanted: see `read_postgres`."""
    import psycopg

    milliseconds = int(limits.seconds * 1000)
    options = (
        f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} "
        f"-c idle_in_transaction_session_timeout={milliseconds + 5_000} "
        "-c default_transaction_read_only=on"
    )
    wait_s = max(2, int(min(limits.seconds, CONNECT_S)))
    until = monotonic() + limits.seconds
    given_up = threading.Event()
    try:
        with psycopg.connect(dsn, options=options, connect_timeout=wait_s) as reading:
            until = monotonic() + limits.seconds
            with _watched(reading, limits.seconds + CUT_S, wanted, given_up):
                reading.read_only = True
                if not trust_role:
                    _check_role(reading)
                for name, value in (set_local or {}).items():
                    reading.execute("SELECT set_config(%s, %s, true)", (name, value))
                yield reading
    except psycopg.errors.QueryCanceled:
        if given_up.is_set():
            raise QueryCancelled("nobody waits for this statement any more") from None
        raise StatementStopped(limits.late, "time", limits.seconds) from None
    except psycopg.Error as error:
        if given_up.is_set():
            raise QueryCancelled("nobody waits for this statement any more") from None
        if monotonic() > until + CUT_S / 2:
            raise StatementStopped(limits.late, "time", limits.seconds) from None
        raise ToolError(f"the database says: {_said(error, dsn)}") from None


def may_fill_disks(dsn: str, limits: LookupLimits, *, trust_role: bool = False) -> bool:
    """Whether a statement of this role may write temporary files of any size on the server: it has
    no `temp_file_limit`, which only a superuser can set. Raises ToolError."""
    with opened_postgres(dsn, limits, trust_role=trust_role) as reading:
        row = reading.execute("SELECT current_setting('temp_file_limit')").fetchone()
    return row == ("-1",)


def _said(error: psycopg.Error, dsn: str) -> str:
    """The first line of an error, in which no password stands."""
    from psycopg.conninfo import conninfo_to_dict

    message = next(iter(str(error).splitlines()), type(error).__name__)
    with contextlib.suppress(Exception):
        if password := conninfo_to_dict(dsn).get("password"):
            message = message.replace(str(password), "***")
    return message.replace(dsn, "its address")


@contextmanager
def _watched(
    connection: psycopg.Connection[Any],
    seconds: float,
    wanted: Wanted | None,
    given_up: threading.Event,
) -> Iterator[None]:
    """Shut the connection's socket after so many seconds: a server may hang, and a client waits
    without end. Before that, ask the server to stop what nobody waits for any more."""
    line = socket.socket(fileno=os.dup(connection.pgconn.socket))
    ended, until = threading.Event(), monotonic() + seconds

    def watch() -> None:
        cut_at = until
        while not ended.wait(min(LOOK_S, max(0.0, cut_at - monotonic()))):
            if monotonic() >= cut_at:
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
                return
            if wanted is not None and not given_up.is_set() and not wanted():
                given_up.set()
                cut_at = min(until, monotonic() + CUT_S)
                with contextlib.suppress(Exception):  # the socket is cut all the same
                    connection.cancel_safe(timeout=CUT_S)

    watching = threading.Thread(target=watch, name="sql-watch", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        line.close()


def _check_role(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Raises ToolError for a role that may do more than read what it was given."""
    row = connection.execute(ROLE).fetchone()
    superuser, passes_policies, files, owned = row or (True, True, True, None)
    why = (
        "is a superuser"
        if superuser
        else "passes row-level security"
        if passes_policies
        else "may read or write the server's files"
        if files
        else f"owns {owned}"
        if owned
        else ""
    )
    if why:
        raise ToolError(
            f"the role that logs in {why}: give it one that can only read "
            "(CREATE ROLE reader LOGIN; GRANT SELECT ON ... TO reader), or set trust_role"
        )


def _bounded(sql: str, types: list[int], limits: LookupLimits) -> str:
    """The statement with no long value in it, and the number of those in a column of its own."""
    names = [f"c{i}" for i in range(len(types))]
    value_bytes = limits.value_bytes_among(len(types))
    shown, measured = [], ["0"]
    for name, kind in zip(names, types, strict=True):
        if kind in SHORT:
            shown.append(name)
        elif kind == BYTEA:  # only its length is shown, so it does not come
            shown.append(f"'(' || octet_length({name}) || ' bytes)'")
        else:
            too_long = f"octet_length({name}::text) > {value_bytes}"
            part = f"left({name}::text, {value_bytes // CHARACTER_BYTES})"
            cut = part if kind in TEXTS else "NULL"
            shown.append(f"CASE WHEN {too_long} THEN {cut} ELSE {name} END")
            measured.append(f"coalesce(({too_long})::int, 0)")
    # OFFSET 0 keeps the server from computing an expression of the statement once for its measure
    # and once more for its value.
    inner = f"SELECT * FROM ({sql}\n) AS found OFFSET 0"
    return (
        f"SELECT {', '.join(shown)}, {' + '.join(measured)} "
        f"FROM ({inner}) AS rows ({', '.join(names)}) LIMIT {limits.rows + 1}"
    )
