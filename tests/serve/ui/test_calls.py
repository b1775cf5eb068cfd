"""What LLM instances keep, and why calls went where they went, in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.serve.conftest import Served
from tests.serve.pairs import ask, paired
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

NO_WIDER = "return document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def pair() -> Iterator[Served]:
    with paired() as found:
        for _ in range(2):
            ask(found)
        yield found


@pytest.fixture
def looked(driver: webdriver.Chrome, pair: Served) -> Iterator[Page]:
    page = Page(driver, pair.url)
    page.forget()
    yield page
    page.wide()
    assert page.complaints() == []


def test_an_instance_shows_what_it_keeps_and_finds(looked: Page) -> None:
    told = {one["name"]: one for one in looked.told("engines")["engines"]}["llm"]
    looked.open("/engines")
    looked.one(".engine .held")
    for one, bar in zip(told["instances"], looked.all(".engine .held"), strict=True):
        part = round(100 * one["kv_held_tokens"] / one["kv_capacity_tokens"])
        label = f"Instance {one['instance']} keeps {part} % of what it can keep"
        assert bar.get_attribute("aria-label") == label
    busy = max(told["instances"], key=lambda one: one["kv_held_tokens"])
    looked.says(f"keeps {busy['kv_held_tokens']:,} of 3,200 tokens, assumed", ".instances")
    hits = busy["recent_hits"]
    ratio = f"{round(100 * hits['found_tokens'] / hits['prompt_tokens'])} %"
    looked.says(ratio, ".instances")
    looked.says("ask", ".by-app")
    looked.says(ratio, ".by-app")


def test_a_query_shows_where_its_calls_went_and_why(looked: Page, pair: Served) -> None:
    id = ask(pair)
    (call,) = looked.told(f"queries/{id}/timeline")["calls"]
    looked.open(f"/queries/{id}")
    looked.says(call["why"], ".calls")
    looked.says(f"llm #{call['instance']}", ".calls")
    looked.says(f"found {call['found_tokens']:,} of {call['prompt_tokens']:,} tokens", ".calls")
    looked.point(".calls .name")
    looked.one(f".node.lit[data-id='{call['primitive']}']")
    looked.says(call["why"], ".inspector")
    looked.click(".calls .name")
    looked.until(lambda: looked.fragment.endswith(f"?at={call['primitive']}"))


def test_a_call_that_is_held_says_so(driver: webdriver.Chrome) -> None:
    with paired("graph_aware", prefill_s_per_token=0.06) as slow:
        page = Page(driver, slow.url)
        page.forget()
        id = ask(slow, app="twice", mode="background")
        page.open(f"/queries/{id}")
        page.says("waits llm", ".calls")
        page.says("another call of its program computes what they share", ".calls")
        page.go("/engines")
        page.says("1 held", ".engine .figures")
        page.go(f"/queries/{id}")
        page.state("ok")
        page.until(lambda: len(page.all(".calls li")) == 2)
        page.says("; then instance", ".calls li:last-child")
        assert page.complaints() == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_a_phone_is_wide_enough(looked: Page, pair: Served, scheme: str) -> None:
    id = ask(pair)
    looked.prefer(scheme)
    looked.narrow()
    looked.open("/engines")
    looked.one(".engine .held")
    assert looked.js(NO_WIDER)
    for css in (".instances", ".by-app"):
        box, card = looked.one(css).rect, looked.one(".engine").rect
        assert box["x"] + box["width"] <= card["x"] + card["width"]
    looked.open(f"/queries/{id}")
    looked.one(".calls .name")
    assert looked.js(NO_WIDER)
    fill, ground = (
        looked.js(f"return getComputedStyle(document.querySelector('{css}')).{what}")
        for css, what in ((".calls .name", "color"), (".card", "backgroundColor"))
    )
    assert fill != ground
