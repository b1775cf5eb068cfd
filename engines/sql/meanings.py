"""Vectors of a database's texts, by which 'cars' finds 'automobiles'.

Only columns with few texts are embedded, those with the fewest first, as far as there is room:
kinds, states, cities and not names of people. A text counts as meant where it is much nearer to
what was asked than words are that have nothing to do with it; so models whose vectors all lie in
one corner need no threshold of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from .value_index import FoundValue

MeaningVectors = NDArray[np.float32]
EmbedsTexts = Callable[[list[str]], Sequence[Any]]
"""Gives a vector for each text."""
FEW_TEXTS: Final = 1_000
"""Distinct texts of a column that is embedded."""
MOST_TEXTS: Final = 10_000
"""Distinct texts of a database that are embedded."""
MOST_BYTES: Final = 16 * 2**20
"""Of the vectors of a database; with many dimensions fewer texts have room."""
BATCH: Final = 256
"""Texts of one request."""
LEAST: Final = 0.4
"""Where a likeness has to be between that of words without any connection (0) and identity (1)."""
NEAREST: Final = 0.1
"""How much less alike than the nearest text another one may be to count."""
UNCONNECTED: Final = (
    "river", "Tuesday", "mathematics", "violin", "concrete", "election", "soup", "glacier",
    "password", "uncle", "orbit", "tax", "feather", "silence", "copper", "rehearsal",
)  # fmt: skip
"""Words by which it is told how near any two words are to a model."""


class Meanings:
    """Texts with their vectors; made once, read from any thread.

    texts: each once. places: of each, its (table, column)s. vectors: [texts, dimensions].
    background: [words, dimensions], of UNCONNECTED. Vectors have length 1.
    """

    def __init__(
        self,
        texts: Sequence[str],
        places: Sequence[Sequence[tuple[str, str]]],
        vectors: MeaningVectors,
        background: MeaningVectors,
    ) -> None:
        self.texts, self.places = texts, places
        self._vectors, self._background = vectors, background

    @classmethod
    def build(
        cls, columns: Iterable[tuple[str, str, Sequence[str]]], embed: EmbedsTexts
    ) -> Meanings:
        """Of columns that come with the fewest texts first. Raises what `embed` raises."""
        background = unit(embed(list(UNCONNECTED)))
        room = min(MOST_TEXTS, MOST_BYTES // (4 * background.shape[1]))
        places: dict[str, list[tuple[str, str]]] = {}
        for table, column, texts in columns:
            wanted = [text for text in texts if any(map(str.isalpha, text))]
            new = sum(text not in places for text in wanted)
            if len(places) + new > room:
                break
            for text in wanted:
                places.setdefault(text, []).append((table, column))
        texts = list(places)
        parts = [unit(embed(texts[at : at + BATCH])) for at in range(0, len(texts), BATCH)]
        vectors = np.concatenate(parts) if parts else background[:0]
        return cls(texts, list(places.values()), vectors, background)

    def find(self, asked: Sequence[Any], limit: int) -> Iterator[list[FoundValue]]:
        """For each vector, texts that may be meant, the nearest first. score: LEAST to 1."""
        wanted = unit(asked)
        if not self.texts or wanted.shape[1] != self._vectors.shape[1]:
            yield from ([] for _ in asked)
            return
        usual = (wanted @ self._background.T).mean(axis=1, keepdims=True)
        scores = (wanted @ self._vectors.T - usual) / np.maximum(1.0 - usual, 1e-6)
        for row in scores:
            best = float(row.max())
            order = np.argsort(-row, kind="stable")[:limit]
            near = [i for i in order if row[i] >= max(LEAST, best - NEAREST)]
            found = (
                FoundValue(table, column, self.texts[i], round(min(1.0, float(row[i])), 3))
                for i in near
                for table, column in self.places[i]
            )
            yield list(found)[:limit]

    # --- as a file --------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write it to a file that only this user may read."""
        growing = path.with_name(f"{path.name}.{uuid4().hex}")
        told = json.dumps([self.texts, self.places]).encode()
        try:
            with os.fdopen(
                os.open(growing, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb"
            ) as to:
                np.savez(
                    to,
                    texts=np.frombuffer(told, np.uint8),
                    vectors=self._vectors,
                    background=self._background,
                )
            growing.replace(path)
        finally:
            growing.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Meanings | None:
        """As it was saved; None: there is no such file, or it cannot be read."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                texts, places = json.loads(stored["texts"].tobytes())
                vectors, background = stored["vectors"], stored["background"]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        return cls(texts, [[(t, c) for t, c in some] for some in places], vectors, background)


def unit(vectors: Sequence[Any]) -> MeaningVectors:
    """They, each of length 1 (a vector of nothing stays one), [vectors, dimensions]."""
    found = np.asarray(vectors, np.float32)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
