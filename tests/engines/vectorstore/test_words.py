"""Hybrid searches: what has words of the question beside the nearest, in the same scope."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import numpy as np
import psycopg
import pytest

from teola.engine import Chunk, Hit, QueryContext, Request
from teola.errors import InputError
from teola.graph.ops import Op, SearchParams
from teola_engines.vectorstore import PgVector, indexing, lexical
from teola_engines.vectorstore.lexical import fused

from .conftest import DIMENSIONS, Corner, Server, key, vectors

FAR = -np.ones(DIMENSIONS, np.float32)
NEAR = np.ones(DIMENSIONS, np.float32)


def hybrid(corner: Corner, question: str, top_k: int = 3, **options: Any) -> Request:
    language = options.pop("language", "simple")
    near = options.pop("near", [NEAR])
    inputs = {"vectors": near, "scope": corner.scope(**options), "question": question}
    context = QueryContext(uuid.uuid4().hex, corner.tenant)
    return Request(Op.SEARCHING, SearchParams(top_k, language), inputs, context, "k")


async def index(
    store: PgVector, corner: Corner, name: str, texts: list[str], **metadata: Any
) -> None:
    """Texts that are ever farther from NEAR."""
    (claim,) = await corner.claim(store, key(name, **metadata), owner="indexer")
    await store.expect("indexer", {claim.document: len(texts)})
    chunks = [Chunk(claim.document, i, text, name) for i, text in enumerate(texts)]
    values = [
        NEAR + FAR * (i + 1) / (len(texts) + 1) + vectors(1)[0] * i for i in range(len(texts))
    ]
    (result,) = await store.execute([corner.ingestion(chunks, values)])
    assert not isinstance(result, Exception), result
    await store.release("indexer")


async def ask(store: PgVector, *requests: Request) -> list[list[Hit]]:
    results = await store.execute(requests)
    for request in requests:
        await store.release(request.context.query_id)
    return [hits for result in results for hits in result["hits"]]


TEXTS = [
    "The harbour has a lamp.",
    "The keeper has a cat.",
    "The cat has a bed.",
    "Each ship has a number.",
    "The ship QX-77 sank off the cape.",
]


async def test_what_has_rare_words_of_the_question_comes_beside_the_nearest(
    store: PgVector, corner: Corner
) -> None:
    await index(store, corner, "a", TEXTS)
    (near,) = await ask(store, corner.search([NEAR], top_k=2))
    assert [hit.text for hit in near] == TEXTS[:2]
    assert [hit.lexical for hit in near] == [None, None]
    (hits,) = await ask(store, hybrid(corner, "What of the QX-77?", top_k=2))
    assert {hit.text for hit in hits} == {TEXTS[0], TEXTS[4]}
    by_text = {hit.text: hit for hit in hits}
    assert by_text[TEXTS[4]].lexical > by_text[TEXTS[0]].lexical > 0  # "the" counts a little
    (hits,) = await ask(store, hybrid(corner, "lamp", top_k=3))
    assert (hits[0].text, hits[0].score) == (TEXTS[0], 1.0)  # first in both lists
    assert [hit.lexical for hit in hits[1:]] == [0.0, 0.0]


async def test_lexical_scores_are_those_of_bm25(store: PgVector, corner: Corner) -> None:
    await index(store, corner, "a", ["lamp lamp sea", "lamp sea ship", "ship sea cat bed", "cat"])
    (hits,) = await ask(store, hybrid(corner, "lamp cat", top_k=4))
    sizes = {"lamp lamp sea": 2, "lamp sea ship": 3, "ship sea cat bed": 4, "cat": 1}
    usual = sum(sizes.values()) / 4
    idf = np.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    assert len(hits) == 4
    for hit in hits:
        times = 2 if hit.text == "lamp lamp sea" else 1
        wanted = idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * sizes[hit.text] / usual))
        assert hit.lexical == pytest.approx(wanted)


async def test_words_are_searched_in_the_scope_only(store: PgVector, corner: Corner) -> None:
    await index(store, corner, "a", TEXTS, lang="en")
    await index(store, corner, "b", ["QX-77 in another document"], lang="de")
    stranger = Corner()
    await index(store, stranger, "c", ["QX-77 of somebody else"])
    await index(store, Corner(corner.tenant, "other"), "d", ["QX-77 in another collection"])
    everywhere = hybrid(corner, "QX-77", top_k=50)
    named = hybrid(corner, "QX-77", top_k=50, filters={"name": "b"})
    filtered = hybrid(corner, "QX-77", top_k=50, filters={"lang": "en"})
    nothing = hybrid(corner, "QX-77", top_k=50, documents=())
    found = [
        {hit.document for hit in hits} for hits in await ask(store, everywhere, named, filtered)
    ]
    assert found == [{"a", "b"}, {"b"}, {"a"}]
    assert await ask(store, nothing) == [[]]


@pytest.mark.parametrize(
    "question",
    ["", "?!", "it's & | ! ( ) <-> :* 'x\\' \\", "a\0b", "x" * 20_000, "http://a.b/c?d=1&e='2'|3"],
)
async def test_no_question_is_read_as_operators(
    store: PgVector, corner: Corner, question: str
) -> None:
    await index(store, corner, "a", TEXTS)
    (hits,) = await ask(store, hybrid(corner, question, top_k=2))
    assert [hit.text for hit in hits] == TEXTS[:2]


async def test_a_wrong_search_fails_alone_and_says_why(store: PgVector, corner: Corner) -> None:
    await index(store, corner, "a", TEXTS)
    wrong = hybrid(corner, "lamp", language="klingon")
    mute = hybrid(corner, "lamp")
    mute = mute._replace(inputs={k: v for k, v in mute.inputs.items() if k != "question"})
    good, german = hybrid(corner, "lamp"), hybrid(corner, "lamps", language="english")
    results = await store.execute([wrong, mute, good, german])
    assert isinstance(results[0], InputError)
    assert "no text search configuration 'klingon': choose one of " in str(results[0])
    assert isinstance(results[1], InputError)
    assert "`question`" in str(results[1])
    assert results[2]["hits"][0][0].text == TEXTS[0]
    assert results[3]["hits"][0][0].lexical > 0  # stemmed


async def test_a_large_collection_gets_an_index_of_its_text_once(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    many = [f"Row {i} has the word w{i}." for i in range(1_200)]
    await index(store, corner, "a", [*many, "The ship QX-77 sank."])
    names = "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE indexrelname ~ %s"
    pattern = "^chunks_text_{}_".format(
        server.rows("SELECT id FROM teola.collections WHERE tenant = %s", corner.tenant)[0][0]
    )
    question = hybrid(corner, "What became of the QX-77 that has a row?", top_k=5)
    (before,) = await ask(store, question)
    await store.settle()
    assert [name for name, _ in server.rows(names, pattern)] == [pattern[1:] + "simple"]
    (after,) = await ask(other, question)
    await other.settle()
    for hits in (before, after):
        assert max(hits, key=lambda hit: hit.lexical or 0.0).text == "The ship QX-77 sank."
    await other.close()  # sessions hand in their statistics at their end, or seconds later
    for _ in range(60):
        if server.rows(names, pattern)[0][1]:
            break
        await asyncio.sleep(0.5)
        await ask(store, question)
    assert server.rows(names, pattern)[0][1] > 0, "the index was not used"
    assert await store.delete(corner.tenant, corner.collection, None) == 1
    assert server.rows(names, pattern) == []


async def test_a_language_of_one_s_own_may_have_any_name(
    store: PgVector, corner: Corner, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "TEXT_FROM", 1)
    server.rows('CREATE TEXT SEARCH CONFIGURATION public."My-Own" (COPY = pg_catalog.english)')
    try:
        await index(store, corner, "a", TEXTS)
        question = hybrid(corner, "Which lamps?", language="My-Own")
        assert (await ask(store, question))[0][0].lexical > 0
        await store.settle()
        names = "SELECT relname FROM pg_class WHERE relname LIKE '%%My-Own'"
        ((name,),) = server.rows(names)
        async with await psycopg.AsyncConnection.connect(server.admin) as connection:
            assert await lexical.complete(connection, name)
        await store.delete(corner.tenant, corner.collection, None)
        assert server.rows(names) == []
    finally:
        server.rows('DROP TEXT SEARCH CONFIGURATION public."My-Own" CASCADE')


@pytest.mark.parametrize("restored", [False, True])
async def test_without_leave_for_an_index_the_search_goes_on_and_says_so(
    store: PgVector,
    corner: Corner,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    restored: bool,
) -> None:
    """Also where the index is there: a backup that is restored brings it along."""
    await index(store, corner, "a", [f"Row {i}." for i in range(1_000)] + ["QX-77"])
    if restored:
        await ask(store, hybrid(corner, "QX-77"))
        await store.settle()
        await index(store, corner, "b", ["One more."])  # asks for an index anew
        await store.settle()
    server.rows("ALTER FUNCTION ts_match_vq(tsvector, tsquery) NOT LEAKPROOF")
    try:
        with caplog.at_level(logging.WARNING, "teola_engines"):
            (hits,) = await ask(store, hybrid(corner, "QX-77"))
            await store.settle()
    finally:
        server.rows("ALTER FUNCTION ts_match_vq(tsvector, tsquery) LEAKPROOF")
    assert "QX-77" in {hit.text for hit in hits}
    assert "LEAKPROOF" in caplog.text


async def test_words_are_found_in_other_capitals(store: PgVector, corner: Corner) -> None:
    texts = ["Über Москва lag Nebel.", "Der Wärter schläft.", f"{'Ⱥ' * 1022} is long."]
    await index(store, corner, "a", [*TEXTS, *texts])
    for question, text in (("über", texts[0]), ("МОСКВА", texts[0]), ("WÄRTER", texts[1])):
        (hits,) = await ask(store, hybrid(corner, question, top_k=8))
        assert max(hits, key=lambda hit: hit.lexical or 0.0).text == text
    (hits,) = await ask(store, hybrid(corner, "Ⱥ" * 1022))
    assert hits


def test_fusing_ranks() -> None:
    def hit(id: str, lexical_score: float | None = None) -> Hit:
        return Hit(id, "d", id, 0.5, lexical=lexical_score)

    near = [hit("a"), hit("b"), hit("c")]
    words = [hit("c", 3.0), hit("d", 2.0), hit("b", 1.0)]
    found = fused(near, words, 2)
    assert [h.id for h in found] == ["c", "a"]
    assert [h.lexical for h in found] == [3.0, 0.0]
    assert found[0].score == pytest.approx(61 / 2 * (1 / 63 + 1 / 61))
    assert fused(near, [], 3)[0].score == pytest.approx(0.5)
    assert lexical.RANK_CONSTANT == 60
