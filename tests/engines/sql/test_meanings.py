"""Values found by meaning: 'the Big Apple' finds 'New York', where an engine embeds texts."""

from __future__ import annotations

import logging
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teola import App, EngineConfig, Runtime, Sql
from teola.config import read
from teola.engine import EngineKind, EngineResult, EngineSpec, Request
from teola.errors import EngineError
from teola.graph.ops import Op
from teola.runtime.engines import DEFAULTS
from teola.runtime.text_vectors import EmbeddedTexts
from teola_engines.sql import meanings
from teola_engines.sql.indexed_values import IndexedValues
from teola_engines.sql.meanings import Meanings
from tests.planted import catches, edited

MEANT = {"the Big Apple": "New York", "Big Apple": "New York", "big apple": "New York"} | {
    "cars": "automobiles",
    "vehicles": "automobiles",
}
WORKS = ("link", "values", "query")


def vector(text: str) -> list[float]:
    """One place of a thousand, the same for texts that mean the same."""
    made = [0.0] * 1000
    made[int.from_bytes(sha256(MEANT.get(text, text).encode()).digest()[:4]) % 1000] = 2.0
    return made


class Synonyms:
    """An embedder of few words. asked: the texts of each batch."""

    spec = EngineSpec("embedding", EngineKind.EMBEDDING, frozenset({Op.EMBEDDING}))

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.broken = False

    def start(self) -> None: ...

    def close(self) -> None: ...

    def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        self.asked += [list(request.inputs["texts"]) for request in requests]
        if self.broken:
            return [EngineError("out of words", retryable=False) for _ in requests]
        return [{"vectors": [vector(t) for t in r.inputs["texts"]]} for r in requests]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "ads.db")) as connection, connection:
        connection.execute("CREATE TABLE ads (id INTEGER, kind TEXT, town TEXT, phone TEXT)")
        connection.execute("CREATE TABLE people (name TEXT)")
        rows = [(0, "automobiles", "New York", "secret"), (1, "furniture", "Boston", "secret")]
        connection.executemany("INSERT INTO ads VALUES (?, ?, ?, ?)", rows)
        people = [(f"person {n}",) for n in range(30)]
        connection.executemany("INSERT INTO people VALUES (?)", people)
    return tmp_path / "ads.db"


class Asked:
    """Asks a database of a runtime that has an embedder."""

    def __init__(self, runtime: Runtime, embedder: Synonyms) -> None:
        self.runtime, self.embedder = runtime, embedder
        self._apps = {
            work: App(
                work,
                Sql(engine="ads", work=work, tell_errors=True),  # type: ignore[arg-type]
                inputs={"sql" if work == "query" else "text": "text"},
                outputs={"result": "result"},
                runtime=runtime,
            )
            for work in WORKS
        }
        self.result: Any = None

    def __call__(self, work: str, text: str) -> dict[str, Any]:
        self.result = self._apps[work].run({"sql" if work == "query" else "text": text})
        found: dict[str, Any] = self.result["result"]
        return found

    def indexed(self) -> None:
        (engine,) = self.runtime.engines("ads")
        engine._index.wait(20.0)  # type: ignore[attr-defined]

    def values(self, text: str) -> list[tuple[str, str, str]]:
        found = self("values", text)["values"]
        return [(one["table"], one["column"], one["value"]) for one in found]


@contextmanager
def asking(path: Path, embedder: Synonyms | None = None, **options: Any) -> Iterator[Asked]:
    embedder = embedder or Synonyms()
    given = {"path": str(path), "data_dir": path.parent / "values", **options}
    engines: Any = {"ads": EngineConfig("sql", given), "embedding": lambda: embedder}
    with Runtime(engines) as runtime:
        ask = Asked(runtime, embedder)
        ask("query", "SELECT 1")
        if given.get("values", True):
            ask.indexed()
        yield ask


@catches(
    "all-columns-embedded",
    "columns with many texts are embedded",
    edited(IndexedValues._embedded, "FEW_TEXTS,", "10**6,"),
)
def test_what_no_letters_find_is_found_by_meaning(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teola_engines.sql.indexed_values.FEW_TEXTS", 20)
    with asking(path, private=["ads.phone"]) as ask:
        assert ask.values("the Big Apple") == [("ads", "town", "New York")]
        assert ask.values("new york") == [("ads", "town", "New York")]
        assert ask.values("zebra") == []
        linked = ask("link", "How many cars are there in the big apple?")["values"]
        assert {(one["text"], one["value"]) for one in linked} == {
            ("cars", "automobiles"),
            ("big apple", "New York"),
        }
        # What it asked stands in the query's trace.
        (inner,) = ask.result.trace.inner
        assert (inner.app, inner.state) == ("text-vectors", "ok")
        (near,) = ask("query", "SELECT id FROM ads WHERE kind = 'vehicles'")["near"]
        assert (near["text"], near["value"]) == ("vehicles", "automobiles")
        embedded = {text for batch in ask.embedder.asked for text in batch}
        assert {"New York", "Boston", "automobiles", "furniture"} <= embedded
        assert not embedded & {"secret", "person 1"}


@catches(
    "old-vectors",
    "vectors of texts that are gone are left",
    edited(IndexedValues._build, 'glob(f"{before.path.stem}*")', "glob(before.path.name)"),
)
def test_vectors_are_kept_as_long_as_the_index(path: Path) -> None:
    folder = path.parent / "values"
    with asking(path) as ask:
        (file,) = folder.glob("*.npz")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with asking(path) as ask:
        assert ask.embedder.asked == []
        assert ask.values("cars") == [("ads", "kind", "automobiles")]
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE towns (name TEXT)")
            connection.execute("INSERT INTO towns VALUES ('Chicago')")
        (engine,) = ask.runtime.engines("ads")
        engine._read_tables()  # type: ignore[attr-defined]
        ask.indexed()
        assert ask.values("the Big Apple") == [("ads", "town", "New York")]
        assert any("Chicago" in batch for batch in ask.embedder.asked)
        assert not file.exists()


def test_without_an_engine_or_a_wish_nothing_is_embedded(path: Path) -> None:
    with asking(path, embeddings=False) as ask:
        assert ask.values("cars") == []
        assert not ask("link", "How many cars are there?")["values"]
        assert (ask.embedder.asked, ask.result.trace.inner) == ([], [])
    with asking(path, values=False) as ask:
        assert (ask.values("cars"), ask.embedder.asked) == ([], [])
    default = Runtime({**DEFAULTS, "ads": EngineConfig("sql", {"path": str(path)})})
    assert not EmbeddedTexts(default).configured
    text = '[databases.ads]\npath = "ads.db"\n'
    for engines, wanted in (("", None), ('[engines.embedding]\ntype = "embedding"\n', True)):
        (path.parent / "teola.toml").write_text(text + engines)
        configs = read(path.parent / "teola.toml").engine_configs(DEFAULTS)
        assert configs["ads"].options.get("embeddings") is wanted
        assert configs["databases"].options["named"]["ads"].get("embeddings") is wanted


def test_a_broken_embedder_costs_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embedder = Synonyms()
    embedder.broken = True
    with caplog.at_level(logging.WARNING), asking(path, embedder) as ask:
        assert ask.values("automobile") == [("ads", "kind", "automobiles")]
        assert ask.values("cars") == ask.values("cars") == []
        assert len(embedder.asked) == 1  # it is not tried again at every question
        assert "not found by meaning: " in caplog.text
        assert "out of words" in caplog.text
    embedder.broken = False
    with asking(path, embedder) as ask:
        embedder.broken = True
        assert not ask("link", "How many cars are there?")["values"]


def test_texts_count_by_how_near_words_are_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(texts: Sequence[str]) -> list[np.ndarray]:
        """All vectors lie in one corner, as those of some models do."""
        return [np.asarray([*vector(text), 10.0]) for text in texts]

    columns = [
        ("ads", "kind", ["automobiles", "furniture"]),
        ("ads", "also", ["automobiles", "1999-01-01"]),
        ("ads", "town", ["Boston", "New York"]),
    ]
    monkeypatch.setattr(meanings, "MOST_TEXTS", 3)
    made = Meanings.build(columns, embed)
    assert made.texts == ["automobiles", "furniture"]
    made.save(tmp_path / "vectors.npz")
    read = Meanings.load(tmp_path / "vectors.npz")
    assert read is not None
    for one in (made, read):
        cars, boats = one.find(embed(["cars", "boats"]), 3)
        assert [value[:3] for value in cars] == [
            ("ads", "kind", "automobiles"),
            ("ads", "also", "automobiles"),
        ]
        assert boats == []
    assert list(read.find([[1.0, 0.0]], 3)) == [[]]  # of another model
    (tmp_path / "vectors.npz").write_bytes(b"PK\3\4 half a file")
    assert Meanings.load(tmp_path / "vectors.npz") is None


def crossing(*likenesses: float) -> list[list[float]]:
    """Vectors that are so alike to the first axis."""
    return [[likeness, (1 - likeness**2) ** 0.5, 0.0] for likeness in likenesses]


def known(*likenesses: float) -> Meanings:
    """Texts `t0`, `t1`, ... that are so alike to what is asked, before nothing that is."""
    texts = [f"t{n}" for n in range(len(likenesses))]
    places = [[("a", "b")] for _ in texts]
    vectors, background = crossing(*likenesses), [[0.0, 0.0, 1.0]]
    return Meanings(texts, places, meanings.unit(vectors), meanings.unit(background))


@pytest.mark.parametrize(
    ("likenesses", "found"),
    [
        ([0.5, 0.95, 0.86], ["t1", "t2"]),
        ([0.95, 0.84], ["t0"]),
        ([0.41, 0.39], ["t0"]),
        ([0.39, 0.2], []),
        ([0.9, 0.9], ["t0", "t1"]),
    ],
)
def test_texts_count_that_are_about_as_near_as_the_nearest(
    likenesses: list[float], found: list[str]
) -> None:
    (values,) = known(*likenesses).find([[2.0, 0.0, 0.0]], 9)
    assert [value.value for value in values] == found
    scores = [value.score for value in values]
    assert scores == sorted((round(one, 3) for one in likenesses), reverse=True)[: len(found)]


def test_each_vector_has_texts_of_its_own_and_no_more_than_are_asked_for() -> None:
    both = Meanings(
        ["x", "y"],
        [[("a", "b"), ("c", "d")], [("e", "f")]],
        meanings.unit([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        meanings.unit([[0.0, 0.0, 1.0]]),
    )
    first, second, none = both.find([[1, 0, 0], [0, 3, 0], [0, 0, 1]], 2)
    assert [value[:3] for value in first] == [("a", "b", "x"), ("c", "d", "x")]
    assert [value[:3] for value in second] == [("e", "f", "y")]
    assert none == []
    (cut,) = both.find([[1, 0, 0]], 1)
    assert [value[:3] for value in cut] == [("a", "b", "x")]
    assert list(both.find([[1, 0], [0, 1]], 2)) == [[], []]


def test_columns_are_embedded_as_long_as_all_of_one_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A text counts once, and one without letters not at all."""
    monkeypatch.setattr(meanings, "MOST_TEXTS", 3)
    monkeypatch.setattr(meanings, "BATCH", 2)
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[1.0, 0.0] for _ in texts]

    columns = [
        ("t", "a", ["x", "7"]),
        ("t", "b", ["y", "x", "z"]),
        ("u", "c", ["z", "w"]),
        ("u", "d", ["x"]),
    ]
    made = Meanings.build(columns, embed)
    assert asked == [list(meanings.UNCONNECTED), ["x", "y"], ["z"]]
    assert made.texts == ["x", "y", "z"]
    assert made.places == [[("t", "a"), ("t", "b")], [("t", "b")], [("t", "b")]]
    monkeypatch.setattr(meanings, "MOST_BYTES", 2 * 4 * 2)  # two vectors of two numbers
    assert Meanings.build(columns, embed).texts == ["x"]
    assert list(Meanings.build([], embed).find([[1.0, 0.0]], 3)) == [[]]
