"""The index of one database's texts, made in the background and anew when its tables change.

    of(tables) ─▶ a thread ─▶ a file for tables like these, if there is none ─▶ `find` looks there
                    ▲                         │
                    │                         ▼
                    ╰── other tables by now ◀─┴─ where there is an engine for embeddings: vectors
                                                 of texts, in a second file ─▶ `meant` looks there

A file is named by the database and by the shape of its tables: their names, columns, and about how
many rows they have; one of vectors by the model, too. Several processes may use it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from time import monotonic, time
from typing import Final

from teola.engine import TextVectors
from teola.errors import EngineError, QueryCancelled, TeolaError
from teola.sql.sql_tables import SqlTable, rounded
from teola.sql.stopped import Wanted

from .meanings import FEW_TEXTS, MOST_TEXTS, Meanings
from .value_index import FoundValue, ValueIndex

INDEXED_S: Final = 1.0
"""That first questions wait for an index; a large one takes longer."""
ASKED_S: Final = 1.0
"""That a question waits for vectors of its own texts."""
AGAIN_S: Final = 300.0
"""After which texts are embedded again, where that failed."""
FOR_NOBODY: Final = "default"
"""The tenant that texts of a database are embedded for: they are the same for all."""
LEFT_S: Final = 3600.0
"""After which a file is deleted that somebody else left."""
ColumnTexts = Callable[[Sequence[SqlTable], Wanted], Iterator[tuple[str, str, list[str]]]]
"""Tables, columns and their texts. It stops with QueryCancelled when they are not wanted."""

log = logging.getLogger(__name__)


class IndexedValues:
    """folder: of its files. place: says which database it is. texts: reads the database. vectors:
    embeds texts (None: there is no engine for that). Thread-safe."""

    def __init__(
        self, folder: Path, place: str, texts: ColumnTexts, vectors: TextVectors | None = None
    ) -> None:
        self._folder, self._texts, self._vectors = folder, texts, vectors
        self._meanings: Meanings | None = None
        self._again_at = 0.0
        self._place = sha256(place.encode()).hexdigest()[:24]
        self._index: ValueIndex | None = None
        self._tables: tuple[SqlTable, ...] = ()
        self._thread: threading.Thread | None = None
        self._patient_until: float | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def of(self, tables: Sequence[SqlTable]) -> None:
        """Find texts of these tables, as soon as they are indexed."""
        with self._lock:
            self._tables = tuple(tables)
            self._begin()

    def find(self, text: str, limit: int) -> list[FoundValue]:
        """ColumnTexts like this one, the most alike first; none while there is no index."""
        index = self._index
        if index is None:
            return []
        if not index.path.exists():  # somebody has deleted it
            with self._lock:
                self._begin()
        return index.find(text, limit)

    def meant(
        self, texts: Sequence[str], limit: int, tenant: str, wanted: Wanted
    ) -> list[list[FoundValue]]:
        """For each of these texts, texts of the database that it may mean, the nearest first; none
        while there are no vectors, or where the engine for them does not answer in time."""
        meanings, vectors = self._meanings, self._vectors
        if vectors is None or not texts:
            return [[] for _ in texts]
        if meanings is None:
            if self._thread is None and monotonic() > self._again_at:
                with self._lock:
                    self._begin()
            return [[] for _ in texts]
        until = monotonic() + ASKED_S
        try:
            asked = vectors(
                texts, "query", tenant=tenant, wanted=lambda: wanted() and monotonic() < until
            )
        except QueryCancelled:
            return [[] for _ in texts]
        except TeolaError as error:
            log.warning("values are found by their letters only, since embedding failed: %s", error)
            return [[] for _ in texts]
        return list(meanings.find(asked, limit))

    def wait(self, seconds: float | None = None) -> None:
        """Wait for an index that was just begun. seconds: so long; None: INDEXED_S from the first
        question on, so that those which come later do not wait for one that takes long."""
        thread = self._thread
        if thread is None:
            return
        if self._patient_until is None:
            self._patient_until = monotonic() + INDEXED_S
        thread.join(max(0.0, self._patient_until - monotonic()) if seconds is None else seconds)

    def close(self) -> None:
        """Stop indexing, until `of` is called again."""
        self._closed.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _begin(self) -> None:
        if self._thread is None:
            self._closed.clear()
            self._patient_until = None
            self._thread = threading.Thread(target=self._run, name="values", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            done: tuple[SqlTable, ...] | None = None
            while (tables := self._next(done)) is not None:
                self._build(tables)
                done = tables
        except (EngineError, QueryCancelled, OSError, sqlite3.Error) as error:
            if not self._closed.is_set():
                log.warning("no texts of a database are found, since indexing failed: %s", error)
            with self._lock:
                self._thread = None

    def _next(self, done: tuple[SqlTable, ...] | None) -> tuple[SqlTable, ...] | None:
        """The tables to be indexed; None: those that are done, and the thread ends."""
        with self._lock:
            if self._tables is done or self._closed.is_set():
                self._thread = None
                return None
            return self._tables

    def _build(self, tables: Sequence[SqlTable]) -> None:
        shape = [(t.name, rounded(t.rows), [c.name for c in t.columns]) for t in tables]
        state = sha256(repr(shape).encode()).hexdigest()[:16]
        index = ValueIndex(self._folder / f"{self._place}-{state}.db")
        if not index.path.exists():
            index.build(self._texts(tables, lambda: not self._closed.is_set()))
        before, self._index = self._index, index
        if before is not None and before.path != index.path:
            self._meanings = None
            for gone in self._folder.glob(f"{before.path.stem}*"):
                gone.unlink(missing_ok=True)
        vectors = self._vectors
        mine = {index.path}
        if vectors is not None:
            path = index.path.with_name(f"{index.path.stem}-{vectors.identity}.npz")
            mine.add(path)
            self._meanings = self._embedded(tables, index, path, vectors)
        for left in self._folder.glob(f"{self._place}-*"):
            with suppress(FileNotFoundError):
                if left not in mine and left.stat().st_mtime < time() - LEFT_S:
                    left.unlink()

    def _embedded(
        self, tables: Sequence[SqlTable], index: ValueIndex, path: Path, vectors: TextVectors
    ) -> Meanings | None:
        """Vectors of the texts of an index, made where they are not there yet; None: they cannot be
        made, which is told: texts are found by their letters all the same."""
        found = Meanings.load(path)
        if found is not None:
            return found
        columns = index.columns(FEW_TEXTS, MOST_TEXTS)
        if not columns:
            self._again_at = inf
            return None

        def wanted() -> bool:
            return not self._closed.is_set() and self._tables is tables

        try:
            found = Meanings.build(
                columns, lambda texts: vectors(texts, "document", tenant=FOR_NOBODY, wanted=wanted)
            )
        except QueryCancelled:
            return None
        except TeolaError as error:
            self._again_at = monotonic() + AGAIN_S
            log.warning("texts of a database are not found by meaning: %s", error)
            return None
        found.save(path)
        return found
