"""What engines for search services find, on servers that answer as the real ones document."""

from __future__ import annotations

from teola.engine import BatchEngine, EngineKind
from teola.graph.ops import Op
from tests.fake_search import FakeSearch, Reply, Result

from .conftest import BOATS, LAMP, Started, ask, each_service, execute, request

MANY = [
    Result(f"https://harbour.example/{i}", f"Page {i}", f"Text {i}", 1 / (i + 1))
    for i in range(120)
]


# --- what is found ----------------------------------------------------------------------------


@each_service
async def test_hits_carry_address_title_snippet_and_rank(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP, BOATS]) as service:
        async with started(service) as engine:
            assert isinstance(engine, BatchEngine)
            assert (engine.spec.kind, engine.spec.ops) == (EngineKind.WEBSEARCH, {Op.WEB_SEARCH})
            ((lamp, boats),) = await ask(engine, "Who keeps the lamp?")
    assert (lamp.id, lamp.document, lamp.text) == (LAMP.url, LAMP.title, LAMP.text)
    assert lamp.metadata == {"url": LAMP.url, "title": LAMP.title, "rank": 1}
    assert boats.metadata["rank"] == 2
    assert lamp.score > boats.score > 0
    assert service.queries == ["Who keeps the lamp?"]


@each_service
async def test_nothing_found_is_no_error(name: str, started: Started) -> None:
    with FakeSearch(name) as service:
        async with started(service) as engine:
            assert await ask(engine, "zxqw", "vbnm") == [[], []]


@each_service
async def test_a_blank_query_is_not_sent(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP]) as service:
        async with started(service) as engine:
            assert [len(hits) for hits in await ask(engine, " ", "lamp")] == [0, 1]
        assert service.queries == ["lamp"]


@each_service
async def test_no_more_than_asked_for(name: str, started: Started) -> None:
    with FakeSearch(name, MANY) as service:
        async with started(service) as engine:
            (hits,) = await ask(engine, "page", top_k=3)
    assert [hit.id for hit in hits] == [one.url for one in MANY[:3]]


async def test_google_gives_up_to_a_hundred_in_pages_of_ten(started: Started) -> None:
    with FakeSearch("google", MANY) as service:
        async with started(service) as engine:
            (some,) = await ask(engine, "page", top_k=25)
            asked = sorted((int(s.fields["start"]), int(s.fields["num"])) for s in service.seen)
            (most,) = await ask(engine, "page", top_k=200)
    assert [hit.document for hit in some] == [one.title for one in MANY[:25]]
    assert asked == [(1, 10), (11, 10), (21, 5)]
    assert [hit.document for hit in most] == [one.title for one in MANY[:100]]


async def test_tavily_gives_at_most_twenty(started: Started) -> None:
    with FakeSearch("tavily", MANY) as service:
        async with started(service) as engine:
            (hits,) = await ask(engine, "page", top_k=50)
    assert len(hits) == 20


@each_service
async def test_each_address_once_and_only_web_addresses(name: str, started: Started) -> None:
    odd = [
        Result("javascript:alert(1)", "Click me", "x"),
        Result("file:///etc/passwd", "Local", "x"),
        Result("http://[broken", "Broken", "x"),
        LAMP,
        Result(LAMP.url, "The lamp again", "The same page."),
        Result("https://harbour.example/bare", "", "A page without a title\x00\x1b[31m."),
        Result("https://harbour.example/empty", "Only a title", ""),
    ]
    with FakeSearch(name, odd) as service:
        async with started(service) as engine:
            (hits,) = await ask(engine, "lamp", top_k=9)
    assert [hit.document for hit in hits] == [
        "The lamp",
        "https://harbour.example/bare",
        "Only a title",
    ]
    assert [hit.metadata["rank"] for hit in hits] == [1, 2, 3]
    assert hits[1].text == "A page without a title [31m."
    assert hits[2].text == "Only a title"


@each_service
async def test_a_long_question_is_cut_at_a_word(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP]) as service:
        async with started(service) as engine:
            await ask(engine, "lighthouse " * 400)
            await ask(engine, "x" * 5000)
    limit = {"google": 2000, "searxng": 1000, "tavily": 400}[name]
    words, letters = service.queries
    assert set(words.split()) == {"lighthouse"}
    assert limit - 11 < len(words) <= limit
    assert letters == "x" * limit


# --- many at once -----------------------------------------------------------------------------


@each_service
async def test_queries_and_requests_are_sent_side_by_side(name: str, started: Started) -> None:
    with FakeSearch(
        name, lambda q: [Result(f"https://x.example/{q}", q, q)], rendezvous=5
    ) as service:
        async with started(service) as engine:
            one, two = await execute(engine, request("a", "b", "c"), request("d", "e"))
    assert [[hit.text for hit in hits] for hits in one["hits"]] == [["a"], ["b"], ["c"]]
    assert [[hit.text for hit in hits] for hits in two["hits"]] == [["d"], ["e"]]


@each_service
async def test_a_failed_request_leaves_the_others_alone(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP]) as service:
        async with started(service) as engine:
            service.script(Reply(500))
            results = await execute(engine, request("a"), request("b"))
            failed = [one for one in results if isinstance(one, Exception)]
            assert len(failed) == 1
            assert sum(isinstance(one, dict) for one in results) == 1
            wrong = request("a")._replace(op=Op.SEARCHING)
            results = await execute(engine, wrong._replace(inputs={}), request("b"))
    assert "takes op web_search with `queries`" in str(results[0])
    assert len(results[1]["hits"][0]) == 1
