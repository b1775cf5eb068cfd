"""What was learned, kept on disk: a file for each engine, model and machine, one for components.

Files are replaced as a whole, so that a crash leaves the old one. A file that cannot be read is as
good as none: what stands in it can be learned again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Self

from teola.data_folder import named_folder
from teola.errors import InputError
from teola.learning import Learner, Lessons
from teola.runtime.engines import EngineConfig
from teola.runtime.machine import hardware
from teola.runtime.observe.noting import note

log = logging.getLogger(__name__)

COMPONENTS: Final = "components.json"
KEPT_S: Final = 60.0
"""Lessons are written at the end, and so often before."""


@dataclass(frozen=True)
class Memento:
    """One file: whose lessons, and what they are. made_on: the machine."""

    path: Path
    engine: str
    kind: str
    made_on: Mapping[str, Any]
    lessons: Lessons


class Memory:
    """Lessons of one runtime in a folder, which is made when there is something to keep. Raises
    InputError if it cannot be."""

    def __init__(self, folder: str | Path, learner: Learner) -> None:
        self.folder, self.learner = Path(folder).expanduser(), learner
        if reason := unusable(self.folder):
            raise InputError(f"cannot keep what is learned in {str(folder)!r}: {reason}")
        self._paths: dict[str, tuple[Path, str]] = {}
        self._known: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._written = -1
        record = _read(self.folder / COMPONENTS)
        if record is not None:
            learner.recall(record.lessons)

    @classmethod
    def of(cls, learn: bool | str | Path, learner: Learner | None) -> Self | None:
        """In the folder that `learn` names, if it names one and somebody learns."""
        named = learner is not None and not isinstance(learn, bool)
        return cls(str(learn), learner) if named and learner else None

    def recall(
        self, engine: str, config: EngineConfig, loop: asyncio.AbstractEventLoop | None = None
    ) -> bool:
        """Teach the learner what is kept of an engine, the first time that it is asked for; whether
        there is something. loop: on which to write down what is learned, from time to time."""
        if loop is not None and self._loop is None:
            self._loop = loop
            loop.call_later(KEPT_S, self._again, loop)
        if engine not in self._paths:
            factory = config.factory
            named = isinstance(factory, str)
            kind = str(factory) if named else getattr(factory, "__name__", repr(factory))
            name = re.sub(r"[^\w.-]", "_", engine)
            self._paths[engine] = self.folder / f"{name}-{_digest(engine, kind, config)}.json", kind
            record = _read(self._paths[engine][0])
            if record is not None:
                self._known.add(engine)
                self.learner.recall(record.lessons)
        return engine in self._known

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.learner.lessons.epoch != self._written:
            loop.run_in_executor(None, self._write, self.learner.snapshot())
        loop.call_later(KEPT_S, self._again, loop)

    def keep(self) -> None:
        """Write everything that is known by now."""
        self._write(self.learner.snapshot())

    def _write(self, lessons: Lessons) -> None:
        self._written = lessons.epoch
        for engine, (path, kind) in self._paths.items():
            if engine in lessons.engines:
                own = Lessons(lessons.epoch, {engine: lessons.engines[engine]})
                _write(path, engine, kind, own)
        if lessons.habits:
            _write(self.folder / COMPONENTS, "", "", Lessons(lessons.epoch, {}, lessons.habits))


def mementos_in(folder: Path) -> Iterator[Memento]:
    """Everything that is kept in a folder, by name."""
    for path in sorted(folder.glob("*.json")):
        found = _read(path)
        if found is not None:
            yield found


def unusable(folder: Path) -> str:
    """Why nothing can be kept in a folder that is there or is to be made; empty where it can."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        return f"{there} is no folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"


def make_private(folder: Path) -> None:
    """Make what is missing of a folder, for nobody else to look into. Root's parents of it can be
    passed through: the embedded PostgreSQL, whose data may come to lie beside it, runs as another
    account then."""
    passed = 0o711 if os.geteuid() == 0 else 0o700
    for parent in reversed(folder.parents):
        if not parent.exists():
            parent.mkdir(mode=passed, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def default_folder(data_dir: str | Path | None = None) -> Path:
    """Where a server keeps what it learns unless it is told: with its data."""
    import platformdirs

    folder = data_dir or named_folder() or platformdirs.user_data_path("teola")
    return Path(folder).expanduser() / "learned"


def _digest(engine: str, kind: str, config: EngineConfig) -> str:
    """A digest of an engine's name, and of what its times depend on: how it is made, in whatever
    order its pool is listed, and the machine."""
    recipe = {
        "engine": engine,
        "type": kind,
        "options": dict(config.options),
        "pool": sorted(config.pool, key=partial(json.dumps, sort_keys=True, default=repr)),
    }
    digested = json.dumps(
        {**recipe, "host": config.host, **hardware()}, sort_keys=True, default=repr
    )
    return hashlib.blake2b(digested.encode(), digest_size=6).hexdigest()


def _read(path: Path) -> Memento | None:
    try:
        data = json.loads(path.read_text())
        lessons = Lessons.from_json(data["lessons"], path.name)
        return Memento(path, data["engine"], data["type"], data["machine"], lessons)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        message = "what was learned cannot be read from %(path)s: %(error)s"
        note(log, logging.WARNING, "lessons_unreadable", message, path=str(path), error=str(error))
        return None


def _write(path: Path, engine: str, kind: str, lessons: Lessons) -> None:
    data = {"engine": engine, "type": kind, "machine": hardware(), "lessons": lessons.to_json()}
    try:
        make_private(path.parent)
        with NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
            try:
                json.dump(data, file, indent=1)
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        message = "what was learned cannot be written to %(path)s: %(error)s"
        note(log, logging.WARNING, "lessons_unwritten", message, path=str(path), error=str(error))
