"""Engines for search services, each against a server that answers as the real one documents."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from teola.engine import BatchEngine, EngineKind
from teola.errors import EngineError, EngineUnavailable, InputError, OutputError, UnknownName
from teola.graph.ops import Op
from teola_engines.websearch import Google, SearXNG, Tavily
from tests import fake_search as fake
from tests.fake_search import ENGINE_ID, KEY, FakeSearch, Hang, Reply, Reset, Result

from .conftest import SERVICES, Started, ask, engine_of, execute, request

LAMP = Result("https://harbour.example/lamp", "The lamp", "Mara Quist keeps the lamp.", 0.98)
BOATS = Result("https://harbour.example/boats", "Boats", "Fourteen boats are moored here.", 0.5)
MANY = [
    Result(f"https://harbour.example/{i}", f"Page {i}", f"Text {i}", 1 / (i + 1))
    for i in range(120)
]

each_service = pytest.mark.parametrize("name", SERVICES)


def failure(results: list[object]) -> EngineError:
    """The error of the only result: one line, without the key and without what was asked."""
    (error,) = results
    assert isinstance(error, EngineError)
    message = str(error)
    assert "\n" not in message
    assert KEY not in message
    assert "secret question" not in message
    return error


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


# --- what goes wrong --------------------------------------------------------------------------

REFUSALS = [
    ("google", fake.GOOGLE_BAD_KEY, "refuses the API key (400): check GOOGLE_API_KEY"),
    ("google", fake.GOOGLE_QUOTA, "refuses more searches (429): its quota is used up"),
    ("google", fake.GOOGLE_DAILY_LIMIT, "refuses more searches (403): its quota is used up"),
    ("google", fake.GOOGLE_NOT_ENABLED, "enable the Custom Search API for its project"),
    ("google", fake.google_error(400, "Invalid Value", "invalid"), "check GOOGLE_CSE_ID"),
    ("google", Reply(403, b"Forbidden"), "refuses the API key (403)"),
    ("google", Reply(429, {"error": {"errors": "many", "details": [1]}}), "its quota is used up"),
    ("searxng", fake.SEARXNG_NO_JSON, "add json to search.formats in its settings.yml"),
    ("searxng", fake.SEARXNG_LIMITED, "refuses more searches (429)"),
    ("searxng", Reply(404, "<h1>Not Found</h1>", "text/html"), "has no search there (404)"),
    (
        "searxng",
        Reply(200, fake.searxng_answer("q", [], [["brave", "too many requests"]])),
        "found nothing, and 1 of its engines did not answer",
    ),
    ("tavily", fake.TAVILY_BAD_KEY, "refuses the API key (401): check TAVILY_API_KEY"),
    ("tavily", fake.TAVILY_TOO_FAST, "refuses more searches (429): its quota is used up"),
    ("tavily", fake.TAVILY_PLAN_LIMIT, "refuses more searches (432): its quota is used up"),
    ("tavily", fake.TAVILY_SPENT, "refuses more searches (433): its quota is used up"),
    ("tavily", fake.tavily_error(400, "Invalid topic"), "refuses the search as invalid (400)"),
    *((name, Reply(401), "refuses") for name in SERVICES),
    *((name, Reply(301, headers={"location": "http://x"}), "has moved (301)") for name in SERVICES),
]


@pytest.mark.parametrize(("name", "reply", "told"), REFUSALS)
async def test_a_refusal_says_what_to_do_and_is_final(
    name: str, reply: Reply, told: str, started: Started
) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(reply)
        async with started(service) as engine:
            error = failure(await execute(engine, request("secret question")))
        assert len(service.seen) == 1
    assert told in str(error)
    assert not error.retryable


@each_service
@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
async def test_a_service_in_trouble_may_be_asked_again(
    name: str, status: int, started: Started
) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(Reply(status, b"<html>upstream</html>", "text/html"))
        async with started(service) as engine:
            error = failure(await execute(engine, request("secret question")))
            assert f"failed ({status}): try again later" in str(error)
            assert error.retryable
            assert len((await ask(engine, "lamp"))[0]) == 1


GARBAGE = [
    b"",
    b"<html>Please log in</html>",
    b"\xff\xfe\x00",
    b"null",
    b"[1, 2]",
    b"{}",
    b'{"results": null, "items": 7}',
    b'{"results": ["a", "b"], "items": [3]}',
    b'{"results": {"url": "x"}, "items": "x", "kind": "customsearch#search"}',
    b"[" * 100_000,
]


@each_service
@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_named_as_such(name: str, body: bytes, started: Started) -> None:
    with FakeSearch(name) as service:
        service.script(Reply(200, body))
        async with started(service) as engine:
            error = failure(await execute(engine, request("secret question")))
    assert isinstance(error, OutputError)
    assert "check its url" in str(error)
    assert not error.retryable


@each_service
async def test_fields_of_wrong_types_are_left_out(name: str, started: Started) -> None:
    entries = [
        {"url": 3, "link": None},
        {"url": LAMP.url, "link": LAMP.url, "title": ["x"], "content": 7, "score": "high"},
        {"url": BOATS.url, "link": BOATS.url, "snippet": "a\ud800b", "content": "a\ud800b"},
    ]
    raw = {"results": [{**e, "score": float("nan")} for e in entries], "items": entries}
    with FakeSearch(name) as service:
        service.script(Reply(200, raw))
        async with started(service) as engine:
            (hits,) = await ask(engine, "lamp")
    assert [(hit.id, hit.text, hit.score) for hit in hits] == [
        (LAMP.url, LAMP.url, 1.0),
        (BOATS.url, "a?b", 0.5),
    ]


@each_service
async def test_an_endless_answer_is_given_up(name: str, started: Started) -> None:
    with FakeSearch(name) as service:
        service.script(Reply(200, b'{"results": "' + b"x" * 5_000_000))
        async with started(service) as engine:
            error = failure(await execute(engine, request("secret question")))
    assert "sent more than search results" in str(error)


@each_service
async def test_silence_ends_with_the_time_limit(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(Hang())
        async with started(service, timeout_s=0.2) as engine:
            error = failure(await execute(engine, request("secret question")))
            assert "did not answer within 0.2 s" in str(error)
            assert error.retryable
            assert len((await ask(engine, "lamp"))[0]) == 1


@each_service
async def test_silence_ends_with_the_deadline(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(Hang())
        async with started(service) as engine:
            began = time.monotonic()
            asked = request("secret question", deadline_s=0.2)
            error = failure(await execute(engine, asked))
            assert time.monotonic() - began < 5
            assert "did not answer before the query's deadline" in str(error)
            assert not error.retryable
            late = failure(await execute(engine, request("secret question", deadline_s=-1)))
            assert "the query's deadline has passed" in str(late)
        assert len(service.seen) == 1


@each_service
async def test_a_search_that_is_not_wanted_any_more_is_cancelled(
    name: str, started: Started
) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(Hang())
        async with started(service) as engine:
            running = asyncio.ensure_future(execute(engine, request("a")))
            assert await asyncio.to_thread(service.arrived.wait, 10)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not others
            assert len((await ask(engine, "lamp"))[0]) == 1


@each_service
async def test_a_connection_that_breaks_off(name: str, started: Started) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(Reset())
        async with started(service) as engine:
            error = failure(await execute(engine, request("secret question")))
    assert "broke off" in str(error)
    assert error.retryable


@each_service
async def test_nobody_at_the_address(name: str) -> None:
    with FakeSearch(name) as service:
        engine = engine_of(service)
    await engine.start()
    try:
        error = failure(await execute(engine, request("secret question")))
    finally:
        await engine.close()
    assert isinstance(error, EngineUnavailable)
    assert "no connection to" in str(error)
    assert "check the network and its url" in str(error)


# --- settings ---------------------------------------------------------------------------------

MISSING = [
    (
        Google(),
        "Google needs an API key",
        "set GOOGLE_API_KEY, or give its engine the option 'api_",
    ),
    (Google(api_key=KEY), "its cx", "set GOOGLE_CSE_ID, or give its engine the option 'engine_id'"),
    (
        Tavily(),
        "Tavily needs an API key",
        "set TAVILY_API_KEY, or give its engine the option 'api_",
    ),
    (SearXNG(), "SearXNG needs the url of a server", "set SEARXNG_URL, or give its engine the opt"),
    (SearXNG(url="search.example"), "the url of 'searxng' must look like https://host", ""),
    (SearXNG(url="ftp://search.example"), "must look like https://host", ""),
]


@pytest.mark.parametrize(("engine", "what", "told"), MISSING)
async def test_a_missing_setting_is_named_at_the_start(
    engine: Google | SearXNG | Tavily, what: str, told: str
) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        await engine.start()
    await engine.close()
    message = str(caught.value)
    assert what in message
    assert told in message
    assert "\n" not in message
    assert KEY not in message
    assert not caught.value.retryable


async def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("GOOGLE_CSE_ID", ENGINE_ID)
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    for name, make in (("google", Google), ("tavily", Tavily)):
        with FakeSearch(name, [LAMP]) as service:
            engine = make(url=service.url)
            await engine.start()
            assert len((await ask(engine, "lamp"))[0]) == 1
            await engine.close()
    with FakeSearch("searxng", [LAMP]) as service:
        monkeypatch.setenv("SEARXNG_URL", f"{service.url}/search")
        searx = SearXNG()
        await searx.start()
        assert len((await ask(searx, "lamp"))[0]) == 1
        await searx.close()


async def test_options_are_sent_as_the_services_want_them(started: Started) -> None:
    with FakeSearch("google", [LAMP]) as service:
        async with started(service, language="en", country="gb", safe=True) as engine:
            await ask(engine, "lamp", top_k=2)
    sent = service.seen[0].fields
    assert (sent["lr"], sent["gl"], sent["safe"], sent["num"]) == ("lang_en", "gb", "active", "2")
    assert "key" not in sent, "addresses end up in logs"
    with FakeSearch("searxng", [LAMP]) as service:
        async with started(service, language="de-CH", engines="brave", safe=2) as engine:
            await ask(engine, "lamp")
    sent = service.seen[0].fields
    assert (sent["language"], sent["engines"], sent["safesearch"]) == ("de-CH", "brave", "2")
    with FakeSearch("tavily", [LAMP]) as service:
        async with started(service, depth="advanced", include_domains=["x.org"]) as engine:
            await ask(engine, "lamp")
    sent = service.seen[0].fields
    assert (sent["search_depth"], sent["include_domains"]) == ("advanced", ["x.org"])
    assert "exclude_domains" not in sent


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown depth 'deep'.*valid: advanced, basic"):
        Tavily(depth="deep")
    with pytest.raises(UnknownName, match="unknown topic"):
        Tavily(topic="weather")
    for wrong in ({"timeout_s": 0}, {"concurrency": 0}):
        with pytest.raises(InputError, match="timeout_s must be positive"):
            SearXNG(**wrong)  # type: ignore[arg-type]


@each_service
async def test_logs_hold_neither_key_nor_question(
    name: str, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeSearch(name, [LAMP]) as service:
        async with started(service) as engine:
            await ask(engine, "secret question")
            service.script(Reply(500), Reply(401))
            await execute(engine, request("secret question"), request("secret question"))
    assert "HTTP Request" in caplog.text
    for secret in (KEY, "secret", ENGINE_ID):
        assert secret not in caplog.text


async def test_an_engine_that_is_not_started_says_so() -> None:
    with FakeSearch("tavily") as service:
        error = failure(await execute(engine_of(service), request("secret question")))
    assert "is not started" in str(error)
