"""Log lines on standard error: JSON for programs, one coloured line an event for people.

Nothing that a query brings or gets is ever written: no prompt, input, answer or document name, no
key, and no error's text, which may quote one; of an error the type is told, and where in the code
it was. Libraries may say anything in a message, so of theirs only the place and the level is told.
A line never waits for whoever reads it: a thread writes them.
"""

from __future__ import annotations

import json
import logging
import os
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TextIO

from teola.runtime.observe.noting import working_for
from teola.serve.observe.aside import Aside

WAITING: Final = 10_000
"""Lines that may wait for a reader who is slow; further ones are dropped."""
FLUSH_S: Final = 2.0
MESSAGE: Final = 500
"""Characters of a message."""
FRAMES: Final = 8
OURS: Final = ("teola", "teola_engines", "teola_apps", "uvicorn")
"""Loggers whose messages hold nothing of a query."""
QUIET: Final = ("uvicorn", "opentelemetry")
"""Loggers that say as much at INFO as we do, or too often."""
_LIBRARIES: Final = tuple(
    {*sysconfig.get_paths().values(), *site.getsitepackages(), os.path.dirname(os.__file__)}
    - {sysconfig.get_path("data"), sysconfig.get_path("scripts")}
)
_STYLES: Final = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


LogForm = Literal["json", "text"]
"""How lines are written."""


@contextmanager
def logging_to(stream: TextIO, form: LogForm | None = None) -> Iterator[None]:
    """Meanwhile everything that is logged goes to `stream`; by default as text on a terminal, else
    as JSON."""
    terminal = stream.isatty()
    chosen = form or ("text" if terminal else "json")
    coloured = terminal and "NO_COLOR" not in os.environ
    lines = Lines(stream, as_json if chosen == "json" else AsText(coloured))
    root, ours = logging.getLogger(), logging.getLogger("teola")
    levels = {logger: logger.level for logger in (ours, *map(logging.getLogger, QUIET))}
    root.addHandler(lines)
    ours.setLevel(logging.INFO)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # never told
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(lines)
        for logger, level in levels.items():
            logger.setLevel(level)
        lines.close()


class Lines(logging.Handler):
    """Writes a line for each record, in a thread. line: makes it, without its end."""

    def __init__(self, stream: TextIO, line: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._stream, self._line = stream, line
        self._aside: Aside[str] = Aside("teola-logs", self._write, WAITING)
        self._told_dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises, and never waits."""
        try:
            line = self._line(record)
        except Exception as error:  # noqa: BLE001 - a line that cannot be made must harm nobody
            line = json.dumps({"event": "log_failed", "error_type": type(error).__name__})
        self._aside.put(line)

    def close(self) -> None:
        """Write what waits."""
        self._aside.close(FLUSH_S)
        super().close()

    def _write(self, lines: list[str]) -> None:
        if (dropped := self._aside.dropped) > self._told_dropped:
            lines.append(json.dumps({"event": "log_lines_dropped", "count": dropped}))
            self._told_dropped = dropped
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads them any more
            pass


def as_json(record: logging.LogRecord) -> str:
    """One line: time, level and event, then the event's fields, or what a plain record says."""
    second, fraction = divmod(record.created, 1)
    when = f"{_second(int(second))}.{int(1e3 * fraction):03d}Z"
    return _encode({"time": when, "level": record.levelname.lower(), **fields(record)})


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    """The time to the second, in UTC; most lines share theirs with the line before."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}"


_encode: Final = json.JSONEncoder(default=lambda value: type(value).__name__).encode


class AsText:
    """Lines for people."""

    def __init__(self, coloured: bool) -> None:
        self._coloured = coloured

    def __call__(self, record: logging.LogRecord) -> str:
        named = fields(record)
        noted = _is_note(record)
        text = message(record) if noted else named.pop("message", "")
        rest = "" if noted else _pairs(named)
        when = f"{datetime.fromtimestamp(record.created):%H:%M:%S}"
        text, rest = _printable(text), _printable(rest)
        if not self._coloured:
            text = f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text
            return " ".join(part for part in (when, text, rest) if part)
        style = _STYLES.get(min(record.levelno, logging.ERROR), "")
        return f"{_DIM}{when}{_PLAIN} {style}{text}{_PLAIN} {_DIM}{rest}{_PLAIN}".rstrip()


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says, by name: an event of ours, or a plain record."""
    if _is_note(record):
        return {"event": record.event, **record.fields}  # type: ignore[attr-defined]
    named: dict[str, Any] = {"event": "log", "logger": record.name}
    if _may_be_told(record):
        named["message"] = message(record)
    named["where"] = f"{record.filename}:{record.lineno}"
    if queries := working_for.get():
        named |= {"query_id": queries[0]} if len(queries) == 1 else {"query_ids": queries}
    if record.exc_info and record.exc_info[1]:
        named |= failure(record.exc_info[1])
    return named


def _is_note(record: logging.LogRecord) -> bool:
    return record.name.startswith("teola") and isinstance(getattr(record, "fields", None), dict)


def failure(error: BaseException) -> dict[str, Any]:
    """An error without its text: types of it and its causes, and where it was raised."""
    kinds: list[str] = []
    at: BaseException | None = error
    while at is not None and len(kinds) < FRAMES:
        kinds.append(type(at).__name__)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames]
    return {"error_type": kinds[0], "causes": kinds[1:], "raised_at": where}


def message(record: logging.LogRecord) -> str:
    """The first line of a record's message, with types of errors in the place of their texts."""
    args = record.args
    if isinstance(args, Mapping):
        arguments: Any = {key: _without_text(value) for key, value in args.items()}
    else:
        arguments = tuple(map(_without_text, args or ()))
    text = str(_without_text(record.msg))
    lines = (text % arguments if arguments else text).strip().splitlines()
    return lines[0][:MESSAGE] if lines else ""


def _without_text(value: Any) -> Any:
    return type(value).__name__ if isinstance(value, BaseException) else value


def _may_be_told(record: logging.LogRecord) -> bool:
    """Ours, or the operator's own code: not what is installed."""
    if record.name.partition(".")[0] in OURS:
        return True
    return not record.pathname.startswith(_LIBRARIES)


def _pairs(named: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in named.items() if key != "event")


def _printable(text: str) -> str:
    """`text` without what could steer a terminal or begin a line of its own."""
    return "".join(c if c.isprintable() else "�" for c in text)
