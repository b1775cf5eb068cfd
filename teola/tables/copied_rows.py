"""Rows of another database, copied to a table of DuckDB a batch at a time.

A column has the type of its values, which later batches may widen where no value changes by it:
NULLs become anything, decimals get more digits, whole numbers become floating ones as long as those
have them exactly. What else differs is an error: DuckDB would cast it in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from teola.errors import InputError
from teola.tables.duckdb_schema import quoted

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

EXACT: Final = 2**53
"""Whole numbers up to this are exact as a DOUBLE."""
DIGITS: Final = 38
"""Digits of a DECIMAL, at most."""


def copy_rows(
    con: duckdb.DuckDBPyConnection, name: str, columns: list[str], batches: Iterator[list[Any]]
) -> None:
    """Make the table `name` of rows, given in batches. Raises InputError where a column has values
    of several types."""
    import duckdb
    import pyarrow as pa

    schema: pa.Schema | None = None
    for batch in batches:
        try:
            arrays = [_array(values) for values in zip(*batch, strict=True)]
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise InputError(f"table {name!r} has a column of several types: {error}") from None
        table = pa.Table.from_arrays(arrays, columns)
        try:
            if schema is None:
                schema = table.schema
                _put(con, f"CREATE TABLE {quoted(name)} AS SELECT * FROM teola_rows", table)
                continue
            wider = _widened(con, name, schema, table)
            _put(con, f"INSERT INTO {quoted(name)} SELECT * FROM teola_rows", table.cast(wider))
            schema = wider
        except (duckdb.Error, pa.ArrowException) as error:
            raise InputError(f"table {name!r} has a column of several types: {error}") from None
    if schema is None:
        listed = ", ".join(f"{quoted(column)} VARCHAR" for column in columns)
        con.execute(f"CREATE TABLE {quoted(name)} ({listed})")


def _array(values: Sequence[Any]) -> pa.Array:
    """Values of one column. Raises TypeError, too, for texts beside bytes: pyarrow makes bytes of
    them."""
    import pyarrow as pa

    array = pa.array(values)
    if pa.types.is_binary(array.type) and any(isinstance(value, str) for value in values):
        raise TypeError("texts and bytes")
    return array


def _put(con: duckdb.DuckDBPyConnection, sql: str, table: pa.Table) -> None:
    con.register("teola_rows", table)
    try:
        con.execute(sql)
    finally:
        con.unregister("teola_rows")


def _widened(
    con: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, table: pa.Table
) -> pa.Schema:
    """Widen the table so that it holds a further batch, too. Returns its schema."""
    import pyarrow as pa

    types = []
    for at, new in enumerate(table.schema.types):
        old, column = schema.types[at], schema.names[at]
        common = _common(old, new)
        if common is None:
            raise InputError(
                f"table {name!r} has a column of several types: {column} is {old} first, and {new} "
                "later; make it one in a view"
            )
        if common != old:
            _alter(con, name, column, old, common)
        types.append(common)
    return pa.schema(list(zip(schema.names, types, strict=True)))


def _common(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """A type that holds all values of both types unchanged; None: there is none."""
    import pyarrow as pa

    kinds = pa.types
    if old == new or kinds.is_null(new):
        return old
    if kinds.is_null(old):
        return new
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        scale = max(old.scale, new.scale)
        whole = max(old.precision - old.scale, new.precision - new.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= DIGITS else None
    if {old, new} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if kinds.is_list(old) and kinds.is_list(new):
        inner = _common(old.value_type, new.value_type)
        return pa.list_(inner) if inner is not None else None
    return None


def _alter(
    con: duckdb.DuckDBPyConnection, name: str, column: str, old: pa.DataType, new: pa.DataType
) -> None:
    """Give a column of the table a wider type."""
    import pyarrow as pa

    called = quoted(column)
    if old == pa.int64():
        ((wrong,),) = con.execute(
            f"SELECT count(*) FROM {quoted(name)} WHERE {called} NOT BETWEEN {-EXACT} AND {EXACT}"
        ).fetchall()
        if wrong:
            raise InputError(
                f"table {name!r} has a column of several types: {column} has whole numbers that "
                "are not exact beside others; make it one in a view"
            )
    con.register("teola_wider", pa.schema([(column, new)]).empty_table())
    try:
        ((_, type, *_),) = con.execute("DESCRIBE SELECT * FROM teola_wider").fetchall()
    finally:
        con.unregister("teola_wider")
    using = f"CAST(NULL AS {type})" if pa.types.is_null(old) else f"CAST({called} AS {type})"
    con.execute(f"ALTER TABLE {quoted(name)} ALTER COLUMN {called} TYPE {type} USING {using}")
