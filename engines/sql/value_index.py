"""Finds texts of a database that look like a text: `MANHATTAN` finds `Manhattan`.

Distinct texts of columns stand in a file of SQLite's, in a full-text index of trigrams. A search
takes the texts that share trigrams with what was asked, and ranks them anew by the share of
trigrams that they have in common.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from math import log
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote
from uuid import uuid4

CANDIDATES: Final = 400
"""Texts that are ranked anew."""
ASKED: Final = 5
"""Trigrams that candidates are looked for by."""
LEAST: Final = 0.2
"""Likeness from 0 to 1 below which a text is not like another one."""
LONGEST_TEXT: Final = 200
"""Characters of a text that are kept and looked for."""
GRAM: Final = 3


class FoundValue(NamedTuple):
    """A text of a column. score: likeness, from 0 to 1."""

    table: str
    column: str
    value: str
    score: float


class ValueIndex:
    """An index in a file that only this user may read. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def build(self, columns: Iterable[tuple[str, str, Iterable[str]]]) -> int:
        """Write it anew, from tables, columns and their texts. How many texts it has."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        growing = self.path.with_name(f"{self.path.name}.{uuid4().hex}")
        os.close(os.open(growing, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        count = 0
        try:
            with closing(sqlite3.connect(growing)) as connection, connection:
                connection.execute("PRAGMA journal_mode=OFF")
                connection.execute("CREATE TABLE places (id INTEGER PRIMARY KEY, t TEXT, c TEXT)")
                connection.execute(
                    "CREATE VIRTUAL TABLE texts USING fts5(value, place UNINDEXED, "
                    "tokenize='trigram', detail=none, columnsize=0)"
                )
                for place, (table, column, values) in enumerate(columns):
                    connection.execute(
                        "INSERT INTO places VALUES (?, ?, ?)", (place, table, column)
                    )
                    rows = [(value[:LONGEST_TEXT], place) for value in values if value.strip()]
                    connection.executemany("INSERT INTO texts VALUES (?, ?)", rows)
                    count += len(rows)
            growing.replace(self.path)
        finally:
            growing.unlink(missing_ok=True)
        return count

    def columns(self, most: int, most_of_all: int) -> list[tuple[str, str, list[str]]]:
        """Tables, columns and texts of columns with up to `most` texts, the fewest first, as long
        as they have no more than `most_of_all` together. Raises sqlite3.Error."""
        with closing(self._opened()) as connection:
            counted = connection.execute(
                "SELECT id, t, c, texts FROM places JOIN (SELECT place, count(*) AS texts "
                "FROM texts GROUP BY place) ON place = id WHERE texts <= ? ORDER BY texts, id",
                (most,),
            )
            found: dict[int, tuple[str, str, list[str]]] = {}
            for id, table, column, count in counted:
                most_of_all -= count
                if most_of_all < 0:
                    break
                found[id] = (table, column, [])
            rows = connection.execute(
                "SELECT place, value FROM texts WHERE place IN (SELECT value FROM json_each(?))",
                (json.dumps(list(found)),),
            )
            for id, value in rows:
                found[id][2].append(value)
        return list(found.values())

    def find(self, text: str, limit: int) -> list[FoundValue]:
        """Texts like this one, the most alike first; none of a file that is not there."""
        written = text.replace("\0", " ").strip()[:LONGEST_TEXT]
        asked = _folded(written)
        wanted = grams(asked)
        if not asked:
            return []
        try:
            with closing(self._opened()) as connection:
                candidates = _candidates(connection, written)
        except (sqlite3.Error, UnicodeError):  # deleted, or not a text that a database can have
            return []
        found = [
            FoundValue(table, column, value, _likeness(asked, wanted, _folded(value)))
            for value, table, column in candidates
        ]
        alike = [one for one in found if one.score >= LEAST]
        return sorted(alike, key=lambda one: (-one.score, len(one.value), one))[:limit]

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)


def _candidates(connection: sqlite3.Connection, asked: str) -> list[tuple[str, str, str]]:
    """Texts that share trigrams with `asked`, as it is written: SQLite folds case by itself, and
    neither white space nor `ß`."""
    if len(asked) < GRAM:
        return _beginning(connection, asked)
    chosen = sorted({asked[at : at + GRAM] for at in _spread(len(asked) - GRAM + 1)})
    words = ['"' + gram.replace('"', '""') + '"' for gram in chosen]
    counted = "SELECT count(*) FROM texts WHERE texts MATCH ?"
    counts = [connection.execute(counted, (word,)).fetchone()[0] for word in words]
    (last,) = connection.execute("SELECT max(id) FROM texts_content").fetchone()
    # Not by FTS5's own rank: without sizes of columns it reads and cuts every text that matches.
    hits = " UNION ALL ".join(
        ["SELECT rowid AS id, ? AS weight FROM texts WHERE texts MATCH ?"] * len(words)
    )
    sql = (
        f"SELECT value, t, c FROM (SELECT id AS hit FROM ({hits}) GROUP BY id "
        "ORDER BY sum(weight) DESC, id LIMIT ?) CROSS JOIN texts ON texts.rowid = hit "
        "JOIN places ON places.id = texts.place"
    )
    weights = [_weight(count, last or 0) for count in counts]
    told = [value for pair in zip(weights, words, strict=True) for value in pair]
    return connection.execute(sql, (*told, CANDIDATES)).fetchall()


def _beginning(connection: sqlite3.Connection, asked: str) -> list[tuple[str, str, str]]:
    """Texts that begin with `asked`, which is shorter than a trigram."""
    escaped = asked.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    # LIKE ignores the case of ASCII letters only.
    cases = sorted({f"{case}%" for case in (escaped.lower(), escaped.upper(), escaped.title())})
    alike = " OR ".join(["value LIKE ? ESCAPE '\\'"] * len(cases))
    sql = (
        "SELECT value, t, c FROM texts JOIN places ON places.id = texts.place "
        f"WHERE {alike} LIMIT ?"
    )
    return connection.execute(sql, (*cases, CANDIDATES)).fetchall()


def _folded(text: str) -> str:
    """A text without regard to case and white space."""
    return " ".join(text.split()).casefold()


def _weight(count: int, of: int) -> float:
    """What a trigram tells that so many of the texts have: the less, the more have it."""
    return max(1e-6, log((of - count + 0.5) / (count + 0.5)))


def _spread(count: int) -> list[int]:
    """Some of so many places, evenly: a few trigrams find the candidates as well as all of them."""
    return [round(n * (count - 1) / (ASKED - 1)) for n in range(ASKED)]


def grams(text: str) -> frozenset[str]:
    """The trigrams of a text."""
    return frozenset([text[at : at + GRAM] for at in range(len(text) - GRAM + 1)])


def _likeness(asked: str, wanted: frozenset[str], value: str) -> float:
    if value == asked:
        return 1.0
    own = grams(value)
    if not wanted or not own:
        return 0.5 if value.startswith(asked) else 0.0
    common = len(wanted & own)
    return common / (len(wanted) + len(own) - common)
