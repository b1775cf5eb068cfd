"""Reading PostgreSQL: in a transaction that can only read, a row at a time, no long value whole.

    SELECT c0, CASE ... left(c1, n) ..., long values FROM (statement) AS rows (c0, c1) LIMIT n

The server measures every value of a type that has no bound and shortens it there: a client's
library takes whole rows, however long. Rows come one by one, until there are bytes enough.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any, Final, cast

from teola.errors import ToolError
from teola.tools.sql_rows import LookupLimits, Rows

CHARACTER_BYTES: Final = 4
"""At most, in UTF-8."""
BYTEA: Final = 17
TEXTS: Final = frozenset((19, 25, 1042, 1043))
"""name, text, char(n), varchar."""
SHORT: Final = frozenset(
    (16, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1266, 1700, 2950)
)
"""bool, int8, int2, int4, oid, float4, float8, date, time, timestamp, timestamptz, interval,
timetz, numeric (64 KiB at most), uuid: types whose values need no measure."""


def read_postgres(dsn: str, sql: str, limits: LookupLimits) -> Rows:
    """Run one statement on the server. Raises ToolError."""
    import psycopg

    options = (
        f"-c statement_timeout={int(limits.seconds * 1000)} -c default_transaction_read_only=on"
    )
    found = Rows(limits)
    value_bytes, long_values = limits.value_bytes, 0
    wait_s = max(2, int(limits.seconds))
    try:
        with psycopg.connect(dsn, options=options, connect_timeout=wait_s) as reading:
            reading.read_only = True
            with reading.cursor(binary=True) as cursor:  # the extended protocol: one statement
                cursor.execute(f"SELECT * FROM ({sql}\n) AS found LIMIT 0".encode())
                columns = cursor.description or ()
                if not columns:
                    raise ToolError("the statement has no columns: name what it shall give")
                found.columns = [column.name for column in columns]
                value_bytes = limits.value_bytes_among(len(columns))
                bounded = _bounded(sql, [column.type_code for column in columns], limits)
                rows = cast("Generator[tuple[Any, ...]]", cursor.stream(bounded.encode()))
                with closing(rows):  # tells the server to stop
                    for *row, long_ones in rows:
                        if not found.add(row):
                            break
                        long_values += long_ones
            reading.rollback()
    except psycopg.errors.QueryCanceled:
        raise ToolError(limits.late) from None
    except psycopg.Error as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ToolError(f"the database says: {said}") from None
    if long_values:
        found.notes.append(
            f"values of more than {value_bytes:,} bytes (value_bytes, total_bytes) are cut to "
            f"{value_bytes // CHARACTER_BYTES:,} characters, or null where they are no text "
            f"(in these rows: {long_values}); ask for parts of them, or for fewer columns"
        )
    return found


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
