"""Runs attacks and honest statements through the filter and the readers.

    python -m experiments.sql_safety --json
    python -m experiments.sql_safety --queries FILE --json

Without a file: three databases of a harbour are made, and all attacks (`attacks.py`) and honest
statements (`honest.py`) run on them; canaries tell whether anything has changed, and after what was
stopped the next statement has to be answered. With one: its statements run (`queries.py`).
`--json` prints what became of the attacks, or of FILE, on standard output, and all else (honest
statements, canaries) in words on standard error. Exit status 1: an attack was answered, a canary
changed, a statement ended late, or an honest one was not answered.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from experiments.sql_safety import canaries, harbour, queries
from experiments.sql_safety.attacks import HIDDEN, attacks
from experiments.sql_safety.honest import honest
from experiments.sql_safety.running import Outcome, Statement, run
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.sql_rows import LookupLimits
from teola_engines.vectorstore import EmbeddedPostgres

DIALECTS: Final = ("sqlite", "duckdb", "postgres")


class Servers:
    """One embedded PostgreSQL, started when it is first needed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack, self._dsn = folder, stack, ""

    def superuser(self) -> str:
        """Its superuser's DSN."""
        if not self._dsn:
            embedded = EmbeddedPostgres(self._folder)
            self._stack.callback(embedded.close)
            self._dsn = embedded.start()[0]
        return self._dsn


@contextmanager
def servers() -> Iterator[Servers]:
    """In a folder of their own, which goes."""
    folder = Path(tempfile.mkdtemp(prefix="teola-sql-"))
    try:
        with ExitStack() as stack:
            yield Servers(folder, stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own(limits: LookupLimits, dialects: Sequence[str] = DIALECTS) -> dict[str, Any]:
    """Attacks and honest statements on the harbour's databases."""
    hostile, kind, changed, lame = Outcome(), Outcome(), [], []
    with servers() as made, tempfile.TemporaryDirectory(prefix="teola-sql-") as name:
        folder = Path(name)
        for dialect in dialects:
            if dialect == "postgres":
                admin = made.superuser()
                where = harbour.make_server(admin)
            else:
                admin = ""
                where = str(harbour.make_file(folder / f"harbour.{dialect}", dialect))

            def seen(admin: str = admin) -> dict[str, Any]:
                files = canaries.of_folder(folder)
                tables = (*harbour.ALLOWED, *HIDDEN)
                return files | (canaries.of_server(admin, tables) if admin else {})

            _answers(dialect, where, limits)  # so that no attack's time has a process's start in it
            before = seen()
            for sql in attacks(dialect, str(folder)):
                stopped = len(hostile.stopped)
                _add(hostile, run([Statement(dialect, sql, where, harbour.SCHEMA)], limits))
                if len(hostile.stopped) > stopped and not _answers(dialect, where, limits):
                    lame.append({"after": sql, "dialect": dialect})
            changed += [f"{dialect}: {name}" for name in canaries.differences(before, seen())]
            asked = [Statement(dialect, s, where, harbour.SCHEMA) for s in honest(dialect)]
            _add(kind, run(asked, limits))
    return {
        **hostile.told(),
        "answered": [{"sql": one.sql, "dialect": one.dialect} for one in hostile.answered],
        "canaries": changed,
        "late": hostile.slow,
        "not_answered_after": lame,
        "honest": kind.told(),
    }


def _answers(dialect: str, where: str, limits: LookupLimits) -> bool:
    found = look_up(SqlAddress(dialect, where), "SELECT count(*) FROM berths", limits)
    return found.rows == [[6]]


def _add(whole: Outcome, part: Outcome) -> None:
    whole.answered += part.answered
    whole.refused += part.refused
    whole.stopped += part.stopped
    whole.failed += part.failed
    whole.slow += part.slow


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(
        "experiments.sql_safety", description="Attacks and honest statements on SQL databases"
    )
    parser.add_argument("--queries", type=Path, metavar="FILE", help="run its statements instead")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--seconds", type=float, default=5.0, help="that one statement may take")
    parser.add_argument("--dialect", choices=DIALECTS, help="only this one (without --queries)")
    options = parser.parse_args(argv)
    limits = LookupLimits(seconds=options.seconds)
    if options.queries:
        with servers() as made:
            outcome = run(queries.statements(options.queries, made.superuser), limits)
        told = outcome.told()
        good = True
    else:
        told = own(limits, (options.dialect,) if options.dialect else DIALECTS)
        bad = ("run", "canaries", "late", "not_answered_after")
        poor = ("refused", "stopped", "failed")
        good = not any(told[key] for key in bad) and not any(told["honest"][key] for key in poor)
    if options.json:
        print(json.dumps({key: told[key] for key in Outcome().told()}))
        if not options.queries:
            _show(told, sys.stderr)
    else:
        _show(told, sys.stdout)
    return 0 if good else 1


def _show(told: dict[str, Any], to: TextIO) -> None:
    for about, part in (
        ("statements" if "honest" not in told else "attacks", told),
        ("honest", told.get("honest")),
    ):
        if part is None:
            continue
        counts = {key: len(part[key]) for key in ("refused", "stopped", "failed")}
        others = ", ".join(f"{number} {key}" for key, number in counts.items())
        print(f"{about}: {part['run']} run, {others}", file=to)
    for key in ("answered", "canaries", "late", "not_answered_after"):
        for one in told.get(key, ()):
            print(f"{key}: {one}", file=to)
    for key in ("refused", "stopped", "failed"):
        for one in told.get("honest", {}).get(key, ()):
            print(f"honest, {key}: {one}", file=to)


if __name__ == "__main__":
    sys.exit(main())
