"""The corpus: what it finds, that it is indexed once, and what happens when things change."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from teola.engine import BatchEngine, EngineKind
from teola.errors import EngineError, EngineUnavailable, InputError, UnknownName
from teola.graph.ops import Op
from teola_engines.vectorstore import EmbeddedPostgres
from teola_engines.websearch import Corpus
from teola_engines.websearch.corpus_indexing import words_in
from teola_engines.websearch.corpus_tables import INDEXING_LOCK

from .conftest import ask, execute, request
from .indexing import searching, told


@pytest.fixture(scope="module")
def database(data_dir: Path) -> Iterator[str]:
    """DSN of the superuser of the tests' server."""
    embedded = EmbeddedPostgres(data_dir)
    try:
        yield embedded.start()[0]
    finally:
        embedded.close()


@pytest.fixture
def rows(database: str) -> Callable[..., list[Any]]:
    def rows(statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("SET search_path TO teola_corpus_1, public")
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    return rows


@pytest.fixture
def folder(harbour: Path, tmp_path: Path) -> Path:
    """A corpus folder of the test's own, with the pages of the harbour."""
    shutil.copytree(harbour, tmp_path / "corpus")
    return tmp_path / "corpus"


async def refused(engine: Corpus) -> str:
    with pytest.raises((EngineUnavailable, UnknownName)) as caught:
        await engine.start()
    await engine.close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is found ----------------------------------------------------------------------------


async def test_pages_are_found_by_words_and_by_meaning(data_dir: Path, harbour: Path) -> None:
    async with searching(data_dir, harbour) as engine:
        assert isinstance(engine, BatchEngine)
        assert (engine.spec.kind, engine.spec.ops) == (EngineKind.WEBSEARCH, {Op.WEB_SEARCH})
        asked = ("Who keeps the lamp?", "When do fishmongers start work?", "kittiwake")
        lamp, market, boats = await ask(engine, *asked)
    assert lamp[0].document == "The lighthouse"
    assert lamp[0].id == (harbour / "lighthouse.md").as_uri()
    assert lamp[0].text.startswith("The lamp of the lighthouse is looked after by Mara Quist")
    assert lamp[0].metadata == {"url": lamp[0].id, "title": "The lighthouse", "rank": 1}
    assert 0 < lamp[0].score <= 1
    assert market[0].document == "market.txt", (
        "found by meaning: it shares no word but its stop words"
    )
    assert boats[0].document == "Boats", "found by its word: no model knows this ship"


async def test_what_has_nothing_to_do_with_the_query_is_not_found(
    data_dir: Path, harbour: Path
) -> None:
    async with searching(data_dir, harbour) as engine:
        nothing, blank = await ask(engine, "Gödel's incompleteness theorems", "  ")
    assert nothing == blank == []


async def test_a_batch_answers_each_request_as_alone(data_dir: Path, harbour: Path) -> None:
    asked = [request("lamp", "boats", top_k=1), request("herring", top_k=3), request("lamp")]
    wrong = request("lamp")._replace(inputs={"queries": [1]})
    async with searching(data_dir, harbour) as engine:
        together = await execute(engine, *asked, wrong)
        alone = [(await execute(engine, one))[0] for one in asked]
    assert together[:3] == alone
    assert [len(hits) for hits in together[0]["hits"]] == [1, 1]
    assert isinstance(together[3], EngineError)


async def test_scores_are_as_defined(
    data_dir: Path, rows: Callable[..., list[Any]], folder: Path
) -> None:
    """BM25 as in the textbook, cosine distances, and the fusion of both ranks."""
    for i in range(12):
        text = f"gull {'gull ' * (i % 4)}{'rock ' * (i % 3)}{'sand ' * i}end{i}"
        (folder / f"page{i:02}.txt").write_text(text)
    async with searching(data_dir, folder, language="simple") as engine:
        (hits,) = await ask(engine, "gull rock", top_k=15)
        assert engine._shared is not None
        (query,) = engine._shared.embed(["gull rock"], "query")
        corpus = await engine._indexed()
    stored = rows("SELECT passage, term, count, length FROM terms WHERE corpus = %s", corpus)
    counts = {(passage, term): count for passage, term, count, _ in stored}
    lengths = {passage: length for passage, _, _, length in stored}
    assert all(n == sum(counts[k] for k in counts if k[0] == p) for p, n in lengths.items())
    assert rows("SELECT passages, words FROM corpora WHERE id = %s", corpus) == [
        (len(lengths), sum(lengths.values()))
    ]
    by_words = _bm25(counts, lengths, ("gull", "rock"))
    embedded = rows("SELECT id, embedding::text FROM passages WHERE corpus = %s", corpus)
    far = {id: 1 - np.dot(json.loads(vector), query) for id, vector in embedded}
    by_meaning = sorted((id for id in far if far[id] < 0.8), key=lambda id: (far[id], id))
    expected: Counter[int] = Counter()
    for ranking in (by_words, by_meaning):
        for rank, passage in enumerate(ranking, 1):
            expected[passage] += 61 / 2 / (60 + rank)
    urls = dict(
        rows(
            "SELECT p.id, d.url FROM passages p JOIN documents d ON d.id = p.document "
            "WHERE p.corpus = %s",
            corpus,
        )
    )
    assert len(by_words) == 12
    assert len(hits) == len(expected)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(
        {urls[passage]: score for passage, score in expected.items()}
    )
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def _bm25(
    counts: dict[tuple[int, str], int], lengths: dict[int, int], asked: tuple[str, ...]
) -> list[int]:
    """The passages that have any of the words, best first."""
    mean = sum(lengths.values()) / len(lengths)
    scores: Counter[int] = Counter()
    for word in asked:
        having = [passage for passage, term in counts if term == word]
        idf = math.log(1 + (len(lengths) - len(having) + 0.5) / (len(having) + 0.5))
        for passage in having:
            count = counts[passage, word]
            norm = 1.2 * (1 - 0.75 + 0.75 * lengths[passage] / mean)
            scores[passage] += idf * count * (1.2 + 1) / (count + norm)
    return sorted(scores, key=lambda passage: (-scores[passage], passage))


def test_words_are_told_apart_where_code_joins_them() -> None:
    assert (
        words_in("os.path/__init__  asyncio.gather(Straße)\0")
        == "os path init asyncio gather strasse"
    )


# --- the index --------------------------------------------------------------------------------


async def test_what_is_unchanged_is_not_read_again(
    data_dir: Path, rows: Callable[..., list[Any]], folder: Path, harbour: Path
) -> None:
    def stored() -> dict[str, int]:
        return dict(rows("SELECT url, id FROM documents WHERE url LIKE %s", f"{folder.as_uri()}/%"))

    def sizes() -> tuple[Any, ...]:
        statement = "SELECT passages, words FROM corpora WHERE source = %s"
        (found,) = rows(statement, folder.as_uri())
        return found

    async with searching(data_dir, folder) as engine:
        before = stored()
        assert len(before) == 3
        three = sizes()
    (folder / "boats.md").rename(folder / "ships.md")
    (folder / "market.txt").write_text("The market is closed.")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "new.md").write_text("# Tides\n\nHigh water is at noon.")
    (folder / "copy.md").write_bytes((folder / "lighthouse.md").read_bytes())
    async with searching(data_dir, folder) as engine:
        after = stored()
        (tides,) = await ask(engine, "When is high water?", top_k=1)
        (closed,) = await ask(engine, "fish market", top_k=9)
    uri = folder.as_uri()
    assert after[f"{uri}/copy.md"] == before[f"{uri}/lighthouse.md"], (
        "the same bytes, the first name"
    )
    assert after[f"{uri}/ships.md"] == before[f"{uri}/boats.md"]
    assert after.keys() == {
        f"{uri}/{n}" for n in ("copy.md", "ships.md", "market.txt", "deep/er/new.md")
    }
    assert tides[0].document == "Tides"
    assert "The market is closed." in [hit.text for hit in closed]
    assert not any("five in the morning" in hit.text for hit in closed)
    (folder / "copy.md").unlink()
    (folder / "deep" / "er" / "new.md").unlink()
    shutil.copy(harbour / "market.txt", folder)
    async with searching(data_dir, folder):
        assert sizes() == three


async def test_two_starts_at_once_index_once(
    data_dir: Path, rows: Callable[..., list[Any]], folder: Path
) -> None:
    engines = [Corpus(folder=folder, data_dir=data_dir, dtype="float32") for _ in range(2)]
    await asyncio.gather(*(engine.start() for engine in engines))
    try:
        one, two = [await ask(engine, "Who keeps the lamp?") for engine in engines]
    finally:
        for engine in engines:
            await engine.close()
    assert one == two
    stored = rows("SELECT count(*) FROM documents WHERE url LIKE %s", f"{folder.as_uri()}/%")
    assert stored == [(3,)]


async def test_a_start_that_was_broken_off_is_continued(
    data_dir: Path, rows: Callable[..., list[Any]], folder: Path
) -> None:
    for i in range(40):
        (folder / f"more{i:02}.txt").write_text(f"Page number {i} of the log. " * 30)
    counting = ("SELECT count(*) FROM documents WHERE url LIKE %s", f"{folder.as_uri()}/%")
    engine = Corpus(folder=folder, data_dir=data_dir, dtype="float32")
    with told(5) as some:
        starting = asyncio.ensure_future(engine.start())
        await some.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await engine.close()
    assert 3 < rows(*counting)[0][0] < 43
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"
    assert rows(locks, INDEXING_LOCK) == [(0,)]
    async with searching(data_dir, folder) as engine:
        assert rows(*counting) == [(43,)]
        (hits,) = await ask(engine, "Who keeps the lamp?", top_k=1)
    assert hits[0].document == "The lighthouse"


async def test_files_that_are_no_documents_are_left_out(data_dir: Path, folder: Path) -> None:
    (folder / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "data").write_bytes(b"\0\1\2\xff")
    (folder / "empty.md").write_text("")
    (folder / ".hidden.md").write_text("# Secret\n\nA hidden page about the lamp.")
    (folder / "page.html").write_text(
        "<title>Ferry</title><p>The ferry to the island leaves at ten."
    )
    async with searching(data_dir, folder) as engine:
        (ferry, lamp) = await ask(engine, "When does the ferry leave?", "lamp", top_k=9)
    assert ferry[0].document == "page.html"
    assert "Secret" not in [hit.document for hit in lamp]


# --- what goes wrong --------------------------------------------------------------------------


async def test_a_folder_that_is_none(data_dir: Path, tmp_path: Path) -> None:
    told = await refused(Corpus(folder=tmp_path / "missing", data_dir=data_dir))
    assert "does not exist or is no folder: give one with documents" in told
    told = await refused(Corpus(folder=tmp_path, data_dir=data_dir))
    assert "holds no files: put documents into it" in told
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "data").write_bytes(b"\0\1\2\xff")
    told = await refused(Corpus(folder=tmp_path, data_dir=data_dir))
    assert "nothing in the corpus folder can be read" in told
    assert ".jpg files are not supported" in told


async def test_one_page_among_files_that_cannot_be_read_is_a_corpus(
    data_dir: Path, tmp_path: Path
) -> None:
    for suffix in ("jpg", "png", "zip"):
        (tmp_path / f"file.{suffix}").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "page.md").write_text("# The lighthouse\n\nAnna keeps the lamp of the lighthouse.")
    for _ in ("indexed now", "indexed before"):
        async with searching(data_dir, tmp_path) as engine:
            (hits,) = await ask(engine, "Who keeps the lamp?")
        assert [hit.document for hit in hits] == ["The lighthouse"]


async def test_a_language_that_postgresql_does_not_know(data_dir: Path, harbour: Path) -> None:
    told = await refused(Corpus(folder=harbour, data_dir=data_dir, language="englsh"))
    assert "unknown language 'englsh' in the corpus; did you mean 'english'?" in told


async def test_a_database_that_is_not_there(harbour: Path) -> None:
    told = await refused(Corpus(folder=harbour, dsn="postgresql://u:hunter2@127.0.0.1:1/db"))
    assert "127.0.0.1:1/db is unavailable" in told
    assert "hunter2" not in told


async def test_a_server_of_the_users_own(database: str, harbour: Path) -> None:
    engine = Corpus(folder=harbour, dsn=database, dtype="float32")
    await engine.start()
    try:
        (hits,) = await ask(engine, "Who keeps the lamp?", top_k=1)
    finally:
        await engine.close()
    assert hits[0].document == "The lighthouse"


async def test_lost_connections_are_made_again(
    data_dir: Path, rows: Callable[..., list[Any]], harbour: Path
) -> None:
    async with searching(data_dir, harbour) as engine:
        await ask(engine, "lamp")
        rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        (hits,) = await ask(engine, "lamp", top_k=1)
    assert hits[0].document == "The lighthouse"


async def test_the_role_that_searches_may_change_nothing(data_dir: Path, harbour: Path) -> None:
    async with searching(data_dir, harbour) as engine:
        assert engine._database is not None
        async with engine._database.reading() as connection:
            for statement in ("DELETE FROM documents", "CREATE TABLE x ()"):
                with pytest.raises(psycopg.Error):
                    async with connection.transaction():
                        await connection.execute(statement)


async def test_nothing_is_left_open(
    data_dir: Path, rows: Callable[..., list[Any]], harbour: Path
) -> None:
    open_now = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    before = rows(open_now)
    async with searching(data_dir, harbour) as engine:
        await ask(engine, "lamp")
    await engine.close()
    assert rows(open_now) <= before
    (error,) = await execute(engine, request("lamp"))
    assert "not started" in str(error)


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(InputError, match="a dsn or a data_dir, not both"):
        Corpus(dsn="postgresql://localhost/x", data_dir="/tmp/x")
