"""What searches are asked and what is made of their answers, without a service."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import EngineAway, EngineBusy, EngineError
from teola_engines.websearch import Google, SearXNG, Tavily
from teola_engines.websearch.answers import (
    LONGEST_SNIPPET,
    Page,
    hits,
    is_web_address,
    pages,
    plain,
    shortened,
)
from tests.fake_search import ENGINE_ID, KEY, google_error


def page(url: str, score: float | None = None) -> Page:
    return Page(url, f"title of {url}", "text", score)


@pytest.mark.parametrize(("top_k", "found"), [(1, "a"), (2, "ab"), (3, "abc"), (4, "abc")])
def test_each_address_counts_once(top_k: int, found: str) -> None:
    listed = [page("a"), page("a", 0.9), page("b", 0.0), page("a"), page("c")]
    chosen = hits(listed, top_k)
    assert [hit.id for hit in chosen] == [*found]
    scores = [1.0, 0.0, 1 / 3]  # what a service says, also 0, else 1 / rank
    assert [hit.score for hit in chosen] == scores[: len(found)]
    assert [hit.metadata["rank"] for hit in chosen] == [*range(1, len(found) + 1)]


@pytest.mark.parametrize(
    ("said", "score"),
    [(0, 0.0), (7, 7.0), (0.5, 0.5), (True, None), ("1", None), (None, None),
     (float("inf"), None), (float("nan"), None), pytest.param(10**309, None, id="too large")],
)  # fmt: skip
def test_a_score_is_a_number(said: object, score: float | None) -> None:
    entry = {"u": "http://a.b", "t": "T", "x": "text", "s": said}
    assert [*pages([entry], "u", "t", "x", "s")] == [Page("http://a.b", "T", "text", score)]
    assert [*pages([entry], "u", "t", "x")] == [Page("http://a.b", "T", "text")]


def test_a_snippet_has_a_longest_length() -> None:
    for length in (LONGEST_SNIPPET, LONGEST_SNIPPET + 1):
        entry = {"u": "http://a.b", "x": "x" * length}
        (found,) = pages([entry], "u", "t", "x")
        assert (found.title, found.text) == ("", "x" * LONGEST_SNIPPET)


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://a", True), ("https://a.b:8/c?d", True), ("HTTPS://a", True),
        ("ftp://a", False), ("http://", False), ("http:///path", False), ("https://:80", False),
        ("a.b", False), ("http://[::1", False), ("", False),
    ],
)  # fmt: skip
def test_a_link_is_a_web_address_with_a_host(url: str, is_one: bool) -> None:
    assert is_web_address(url) is is_one


@pytest.mark.parametrize(
    ("limit", "short"),
    [(7, "one two"), (6, "one"), (4, "one"), (3, "one"), (2, "on"), (13, "one two three"),
     (12, "one two")],
)  # fmt: skip
def test_a_question_is_cut_behind_its_last_whole_word(limit: int, short: str) -> None:
    assert shortened(" one\n two  three ", limit) == short


def test_a_field_is_one_line() -> None:
    assert plain(" a\x00b\x7f\x85\n c\ud800 ") == "a b c?"
    assert plain(["a"]) == plain(None) == ""


# --- what services are sent ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("top_k", "asked"),
    [
        (1, [(1, 1)]),
        (10, [(1, 10)]),
        (11, [(1, 10), (11, 1)]),
        (20, [(1, 10), (11, 10)]),
        (100, [(n, 10) for n in range(1, 101, 10)]),
        (101, [(n, 10) for n in range(1, 101, 10)]),
    ],
)
def test_google_is_asked_for_whole_pages_and_the_rest(
    top_k: int, asked: list[tuple[int, int]]
) -> None:
    calls = Google(api_key=KEY, engine_id=ENGINE_ID).asks("lamp", top_k)
    assert [(call.params["start"], call.params["num"]) for call in calls] == asked
    assert all({"lr", "gl", "safe"}.isdisjoint(call.params) for call in calls)


@pytest.mark.parametrize("end", ["", "/", "/search", "/search/"])
def test_a_searxng_is_asked_at_its_search(end: str) -> None:
    engine = SearXNG(url=f"http://a.b/x{end}", safe=0, time_range="day", categories="it")
    (call,) = engine.asks("lamp", 5)
    assert (call.method, call.url) == ("POST", "http://a.b/x/search")
    options = {"safesearch": "0", "time_range": "day", "categories": "it"}
    assert call.data == {"q": "lamp", "format": "json", **options}


def test_sites_to_search_only_and_those_not_to_search() -> None:
    engine = Tavily(api_key=KEY, include_domains=["a.b"], exclude_domains=["c.d", "e.f"])
    (call,) = engine.asks("lamp", 20)
    assert call.body is not None
    assert (call.body["include_domains"], call.body["exclude_domains"]) == (["a.b"], ["c.d", "e.f"])
    assert call.body["max_results"] == 20


def test_an_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "of the environment")
    engine = Tavily(api_key=f" {KEY} ")
    engine.settle()
    (call,) = engine.asks("lamp", 1)
    assert call.headers["authorization"] == f"Bearer {KEY}"


# --- what refusals stand for --------------------------------------------------------------------


def kind_of(status: int) -> tuple[type[EngineError], bool, str]:
    """The error of a status that no service gives a meaning of its own."""
    if status in (429, 503):
        return EngineBusy, True, "takes no more searches now"
    if status in (502, 504):
        return EngineAway, True, "is out of reach behind its gateway"
    if status == 408 or status >= 500:
        return EngineError, True, "failed"
    told = {401: "refuses access", 403: "refuses access"}
    told |= dict.fromkeys((400, 422), "refuses the search as invalid")
    moved = "has moved" if status < 400 else "has no search there"
    return EngineError, False, told.get(status, moved)


def test_every_status_has_its_error() -> None:
    engine = SearXNG(url="http://a.b")
    for status in (*range(300, 403), *range(404, 429), *range(430, 600)):
        with pytest.raises(EngineError) as caught:
            engine._read(status, b"", 7.0)
        kind, retryable, told = kind_of(status)
        assert (type(caught.value), caught.value.retryable) == (kind, retryable), status
        assert str(caught.value).startswith(f"searxng at a.b {told} ({status})")


@pytest.mark.parametrize(
    ("engine", "status", "body"),
    [
        (SearXNG(url="http://a.b"), 429, None),
        (SearXNG(url="http://a.b"), 503, None),
        (Tavily(), 429, None),
        (Google(), 429, None),
        (Google(), 403, google_error(403, "Too fast", "rateLimitExceeded").raw),
    ],
)
def test_who_says_when_to_come_back_is_believed(
    engine: SearXNG | Tavily | Google, status: int, body: bytes | None
) -> None:
    for after_s in (None, 0.0, 7.0):
        with pytest.raises(EngineBusy) as caught:
            engine._read(status, body or b"", after_s)
        assert caught.value.after_s == after_s


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (400, {"details": [{"reason": "API_KEY_INVALID"}]}, "check GOOGLE_API_KEY"),
        (400, {"errors": [{"reason": "keyExpired"}]}, "check GOOGLE_API_KEY"),
        (401, {}, "check GOOGLE_API_KEY"),
        (403, {"details": [3, {"reason": ["x"]}, {"reason": "quotaExceeded"}]}, "quota is used up"),
        (429, {"message": "Queries per day"}, "quota is used up"),
        (403, {"message": "Queries per day"}, "enable the Custom Search API"),
        (429, {"message": "Queries per minute"}, "takes no more searches now (429)"),
        (400, {"message": "x"}, "check GOOGLE_CSE_ID"),
    ],
)
def test_what_google_says_in_its_errors(status: int, error: dict[str, Any], told: str) -> None:
    engine = Google()
    found = engine.refusal(status, {"error": error})
    assert told in str(found)
    bodies: list[Any] = [None, 5, [], {"error": "x"}, {"error": None}]
    for body in bodies:
        assert (engine.refusal(418, body), engine.refusal(500, body)) == (None, None)
