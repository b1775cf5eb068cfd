"""Answers that have come and are not in the answers file yet, in a log beside it.

    answers come ──▶ FILE.came-0 ──╮ turn     what comes during a write of the answers file
    answers come ──▶ FILE.came-1 ◀─╯          goes to the other log; the first is emptied after it

A write of the answers file takes milliseconds, so answers share one. A line of the log takes
microseconds: it is with the operating system when `add` returns, and outlives the process, which
may be killed before the write. It is not forced onto the disk: where the machine loses its power,
answers since the last write of the answers file are lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

MODE: Final = 0o600
"""Only the user reads it, as the answers file."""


class LoggedAnswers(NamedTuple):
    """Answers of one line, each with the fields of a StoredAnswer. at: when they came, in UTC."""

    operator: str
    at: datetime
    answers: list[list[Any]]


class ArrivalLog:
    """The log beside an answers file. Its caller sees to it that no two methods run at once."""

    def __init__(self, answers_file: Path) -> None:
        self._paths = [answers_file.with_name(f"{answers_file.name}.came-{k}") for k in (0, 1)]
        self._files: list[int | None] = [None, None]
        self._lengths = [0, 0]
        self._at = 0
        """Which of the two is written."""
        self._broken = False

    def add(self, operator: str, answers: Sequence[tuple[Any, ...]]) -> None:
        """Note answers that have come. If that fails, as on a full disk, no more are noted, and the
        write of the answers file will tell."""
        if self._broken or not answers:
            return
        now = datetime.now(UTC).replace(tzinfo=None)
        line = json.dumps([operator, now.isoformat(), answers]).encode() + b"\n"
        try:
            written = os.write(self._opened(self._at), line)
        except OSError:
            written = 0
        self._broken = written < len(line)
        self._lengths[self._at] += written

    def _opened(self, k: int) -> int:
        file = self._files[k]
        if file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
            file = self._files[k] = os.open(self._paths[k], flags, MODE)
        return file

    def turn(self) -> None:
        """A write of the answers file begins, of all that have come."""
        self._at = 1 - self._at

    def written(self) -> None:
        """That write has ended well: what came before it is in the answers file."""
        k = 1 - self._at
        file = self._files[k]
        if file is not None and self._lengths[k]:
            with suppress(OSError):  # then they are read again, and found in the answers file
                os.ftruncate(file, 0)
            self._lengths[k] = 0

    def left(self) -> Iterator[LoggedAnswers]:
        """The answers that a killed process left, before any are added. A line that is not whole
        ends a file: the last one of a killed process, or any where the machine stopped."""
        for path in self._paths:
            try:
                lines = path.read_bytes().split(b"\n")
            except FileNotFoundError:
                continue
            for line in lines[:-1]:
                try:
                    operator, at, answers = json.loads(line)
                    logged = LoggedAnswers(operator, datetime.fromisoformat(at), answers)
                except (ValueError, TypeError):
                    break
                yield logged

    def remove(self) -> None:
        """Delete the files: all of it is in the answers file, or shall not get there."""
        self.close()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files, and delete those that are empty."""
        for k, file in enumerate(self._files):
            if file is not None:
                os.close(file)
                if not self._lengths[k]:
                    self._paths[k].unlink(missing_ok=True)
        self._files, self._lengths = [None, None], [0, 0]
