"""Keys, addresses and options of engines for search services, and what stays secret."""

from __future__ import annotations

import logging

import pytest

from teola.errors import EngineUnavailable, InputError, UnknownName
from teola_engines.websearch import Google, SearXNG, Tavily
from tests.fake_search import ENGINE_ID, KEY, FakeSearch, Reply

from .conftest import LAMP, Started, ask, each_service, engine_of, execute, failure, request

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
