"""What a collection holds, and searches of it while it changes."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import psycopg

from experiments.indexing.files import Change
from teola import App, Embedding, Indexing, Runtime, Search, component
from teola.engine import Hit

TOP_K = 8
PAUSE_S = 0.02
"""Between the two searches of a query, and between two queries."""
CONTENTS = """
SELECT d.name, k.index, k.body, d.metadata, k.embedding::real[]
FROM teola.chunks k JOIN teola.documents d ON d.id = k.document
JOIN teola.collections c ON c.id = d.collection
WHERE c.name = %s AND d.ready AND d.died IS NULL ORDER BY d.name, k.index
"""
TOLERANCE = 1e-4
"""Of a number of a vector: those of a text depend a little on its company in the batch."""


def equal(dsn: str, collection: str, other: str) -> bool:
    """Whether two collections hold the same chunks of the same documents, and of each only one
    version."""
    with psycopg.connect(dsn) as connection:
        found = [connection.execute(CONTENTS, (name,)).fetchall() for name in (collection, other)]
    (one, first), (two, second) = (
        ([row[:4] for row in rows], np.array([row[4] for row in rows])) for rows in found
    )
    return one == two and bool(np.allclose(first, second, atol=TOLERANCE))


def searching(runtime: Runtime) -> App:
    """An application whose queries search twice, and wait in between."""

    async def wait(question: str, early: list[Hit]) -> str:
        await asyncio.sleep(PAUSE_S)
        return question

    template = (
        Indexing()
        >> Embedding(inputs={"texts": "question"})
        >> Search("early", top_k=TOP_K, outputs={"hits": "early"})
        >> component(wait, outputs=["again"])
        >> Embedding("embed_again", inputs={"texts": "again"}, outputs={"vectors": "more"})
        >> Search("late", top_k=TOP_K, inputs={"vectors": "more"}, outputs={"hits": "late"})
    )
    return App(
        "twice",
        template,
        inputs={"question": "text", "documents": "documents"},
        outputs={"early": "early", "late": "late"},
        runtime=runtime,
    )


def mixed(hits: Iterable[Hit], change: Change, folder: str) -> bool:
    """Whether an answer has passages of two versions of one file."""
    before: dict[str, set[bool]] = {}
    for hit in hits:
        name = hit.document.removeprefix(f"{folder}/")
        texts = change.before.get(name, ""), change.after.get(name, "")
        old, new = (" ".join(hit.text.split()) in " ".join(text.split()) for text in texts)
        if not old and not new:
            raise AssertionError(f"a passage of {name} is of no version: {hit.text!r}")
        if old is not new:
            before.setdefault(name, set()).add(old)
    return any(len(versions) == 2 for versions in before.values())


class Searches:
    """Queries about what changes, one after another, in a thread, as long as it is entered."""

    def __init__(self, app: App, collection: str, change: Change, folder: str) -> None:
        self._app, self._collection, self._change, self._folder = app, collection, change, folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._search)
        self._error: Exception | None = None
        self.asked = self.mixed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _search(self) -> None:
        chance, names = random.Random(0), self._change.touched
        try:
            while not self._over.wait(PAUSE_S):
                number = int(chance.choice(names)[-9:-4])
                self._ask(f"Who keeps lamp {number}, and where does its oil come from?")
        except Exception as error:  # noqa: BLE001 - raised again where the block ends
            self._error = error

    def _ask(self, question: str) -> None:
        asked: Mapping[str, Any] = {"question": question, "collection": self._collection}
        result = self._app.run(asked)
        if not result["early"] or not result["late"]:
            raise AssertionError(f"nothing was found for {question!r}")
        self.asked += 1
        self.mixed += mixed([*result["early"], *result["late"]], self._change, self._folder)
