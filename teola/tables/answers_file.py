"""Answers in a DuckDB file.

A file has one writer: others are told who has it. What is written is on the disk when `add`
returns. What comes between two writes is in a log beside it (`arrivals`), and where its process was
killed, the next one that opens the file reads that. Only its user can read them, and what DuckDB
writes beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teola.errors import InputError
from teola.tables.answer_table import AnswerTable, StoredAnswer
from teola.tables.arrival_log import ArrivalLog
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb

VERSION: Final = 1
FILE: Final = "answers.duckdb"


class AnswersInUse(InputError):
    """Somebody else writes an answers file."""


_open: dict[str, str] = {}
_lock = threading.Lock()
_masking = threading.RLock()


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """While it is entered, new files can be read by their user only.

    DuckDB makes its log (`.wal`) with the first write, and again after each checkpoint.
    """
    with _masking:  # the mask is the process's
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)


class AnswersFile(AnswerTable):
    """name: that the file has on the connection. Raises InputError where the file is another
    version's, somebody else's, or none."""

    kept = True

    def __init__(
        self, con: duckdb.DuckDBPyConnection, path: Path, name: str = "teola_kept"
    ) -> None:
        self.con, self.path = con, path
        self._attached = False
        self.place(name, "")
        self.arrivals: ArrivalLog = ArrivalLog(path)
        self._attach(path)

    def writing(self) -> AbstractContextManager[None]:
        """A context that is entered around each write."""
        return private_files()

    def _attach(self, path: Path) -> None:
        import duckdb

        full = str(path.absolute())
        with _lock:
            if full in _open:
                raise AnswersInUse(
                    f"the answers file {path} is in use by another query of this process: wait "
                    "for it, or give another file"
                )
            _open[full] = full
        new = not path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if new and not os.access(path.parent, os.W_OK):
                raise PermissionError(EACCES, "no permission")
            with private_files():
                self.con.execute(f"ATTACH {literal(full)} AS {self.schema}")
                self._attached = True
                if not new:
                    with contextlib.suppress(PermissionError):  # somebody else's
                        path.chmod(0o600)
                self._check_version(path)
                self.create_more()
                self._take_arrivals(new)
        except duckdb.Error as error:
            self.close()
            raise _why_not(path, error, new) from None
        except OSError as error:
            self.close()
            raise InputError(
                f"the answers file {path} cannot be made: {error.strerror or error}"
            ) from None
        except BaseException:
            self.close()
            raise

    def _check_version(self, path: Path) -> None:
        names = {
            row[0]
            for row in self.con.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = ?",
                [self.schema],
            ).fetchall()
        }
        if not names:
            self.create()
            self.con.execute(f"CREATE TABLE {self.schema}.about AS SELECT {VERSION} AS version")
            self.con.execute(f"CHECKPOINT {self.schema}")
            return
        if not {"about", "answers", "operators", "runs"} <= names:
            raise InputError(f"{path} holds other tables: give a file of its own to --answers")
        rows = self.con.execute(f"SELECT version FROM {self.schema}.about").fetchall()
        if rows != [(VERSION,)]:
            raise InputError(
                f"the answers file {path} is of version {rows[0][0] if rows else '?'}, this is "
                f"version {VERSION}: give another file, or delete it"
            )

    def _take_arrivals(self, new: bool) -> None:
        """Write what a killed process had only noted. new: the file is, so a log beside it is of
        one that somebody has deleted."""
        for operator, at, answers in self.arrivals.left() if not new else ():
            written = {
                key
                for (key,) in self.con.execute(
                    f"SELECT key FROM {self.answers} WHERE operator = $1 AND asked_at >= $2",
                    [operator, at],
                ).fetchall()
            }
            stored = [StoredAnswer(*answer) for answer in answers]
            missing = [answer for answer in stored if answer.key not in written]
            if missing:
                self.insert(self.con, operator, missing, at)
        self.arrivals.remove()

    def close(self) -> None:
        """Let go of the file."""
        self.arrivals.close()
        if self._attached:
            with contextlib.suppress(Exception), private_files():
                self.con.execute(f"DETACH {self.schema}")
            self._attached = False
        with _lock:
            _open.pop(str(self.path.absolute()), None)


def _why_not(path: Path, error: Exception, new: bool) -> InputError:
    text = str(error)
    if "could not set lock" in text.lower() or "conflicting lock" in text.lower():
        holder = re.search(r"PID (\d+)", text)
        by = f" by process {holder.group(1)}" if holder else ""
        return AnswersInUse(
            f"the answers file {path} is in use{by}: wait for it, or give another file"
        )
    if new:
        return InputError(f"the answers file {path} cannot be made: {text.splitlines()[0]}")
    return InputError(
        f"{path} is no answers file: give another one, or delete it ({text.splitlines()[0]})"
    )
