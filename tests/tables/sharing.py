"""A run of its own process over a table of rows, with answers in a database.

    python -m tests.tables.sharing DSN TOLD ROWS SLOW_S LEASE_S

Each prompt that the model is asked is a line of the file TOLD; the model takes SLOW_S for it. The
last line that is printed is the report.
"""

from __future__ import annotations

import json
import sys
import time
from urllib.parse import quote, urlencode

import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from teola import tables
from tests.tables.oracle import FunctionAsker

SQL = "SELECT a, LLM('q', a) AS k FROM t"


def url_of(dsn: str, **others: str) -> str:
    """The same as a URL, with other settings put in."""
    settings = {**conninfo_to_dict(dsn), **others}
    database = settings.pop("dbname")
    return f"postgresql:///{quote(str(database))}?{urlencode(settings)}"


def main(dsn: str, told: str, rows: str, slow_s: str, lease_s: str) -> None:
    """The run."""
    with open(told, "a", buffering=1) as file:

        def answer(_: str, values: list[str]) -> tuple[str, None]:
            file.write(f"{values[0]}\n")
            time.sleep(float(slow_s))
            return f"v{values[0]}", None

        made = tables.sql(
            SQL,
            {"t": pa.table({"a": list(range(int(rows)))})},
            ask_rows=FunctionAsker(answer, 64),
            answers=dsn,
            answers_lease_s=float(lease_s),
        )
        print("ready", flush=True)
        sys.stdin.readline()
        done = made.run()
        assert done.rows == [(at, f"v{at}") for at in range(int(rows))]
        print(json.dumps(dict(done.report)))


if __name__ == "__main__":
    main(*sys.argv[1:])
