"""What engines for search services make of refusals, silence and garbage."""

from __future__ import annotations

import asyncio
import time

import pytest

from teola.errors import EngineBusy, EngineUnavailable, OutputError
from tests import fake_search as fake
from tests.fake_search import FakeSearch, Hang, Reply, Reset

from .conftest import (
    BOATS,
    LAMP,
    SERVICES,
    Started,
    ask,
    each_service,
    engine_of,
    execute,
    failure,
    request,
)

REFUSALS = [
    ("google", fake.GOOGLE_BAD_KEY, "refuses the API key (400): check GOOGLE_API_KEY"),
    ("google", fake.GOOGLE_QUOTA, "refuses more searches (429): its quota is used up"),
    ("google", fake.GOOGLE_DAILY_LIMIT, "refuses more searches (403): its quota is used up"),
    ("google", fake.GOOGLE_NOT_ENABLED, "enable the Custom Search API for its project"),
    ("google", fake.google_error(400, "Invalid Value", "invalid"), "check GOOGLE_CSE_ID"),
    ("google", Reply(403, b"Forbidden"), "refuses the API key (403)"),
    ("searxng", fake.SEARXNG_NO_JSON, "add json to search.formats in its settings.yml"),
    ("searxng", Reply(404, "<h1>Not Found</h1>", "text/html"), "has no search there (404)"),
    (
        "searxng",
        Reply(200, fake.searxng_answer("q", [], [["brave", "too many requests"]])),
        "found nothing, and 1 of its engines did not answer",
    ),
    ("tavily", fake.TAVILY_BAD_KEY, "refuses the API key (401): check TAVILY_API_KEY"),
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


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("google", Reply(429, {"error": {"errors": "many", "details": [1]}})),
        ("google", fake.google_error(403, "Rate Limit Exceeded", "userRateLimitExceeded")),
        ("searxng", fake.SEARXNG_LIMITED),
        ("tavily", fake.TAVILY_TOO_FAST),
        ("tavily", Reply(503, headers={"retry-after": "7"})),
    ],
)
async def test_who_takes_no_more_searches_now_is_waited_for(
    name: str, reply: Reply, started: Started
) -> None:
    with FakeSearch(name, [LAMP]) as service:
        service.script(reply)
        async with started(service) as engine:
            error = failure(await execute(engine, request("secret question")))
    assert isinstance(error, EngineBusy)
    assert error.after_s == (7.0 if reply.status == 503 else None)
    assert "takes no more searches now" in str(error)


async def test_a_proxy_is_not_asked_for_this_machine(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with FakeSearch("searxng", [LAMP]) as service:
        async with started(service) as engine:
            assert len((await ask(engine, "lamp"))[0]) == 1


@each_service
@pytest.mark.parametrize("status", [408, 500])
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
        async with started(service, timeout_s=0.5) as engine:
            error = failure(await execute(engine, request("secret question")))
            assert "did not answer within 0.5 s" in str(error)
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
