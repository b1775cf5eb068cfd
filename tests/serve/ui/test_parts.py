"""What a query grew: parts of a kind together, each of them when one asks for it."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.serve.ui.page import Page
from tests.serve.ui.shapes import TOPICS, TURNS

pytestmark = pytest.mark.browser

OUTSIDE = """
return [...document.querySelectorAll('.part svg')].filter((svg) => {
  const whole = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('rect')].some((rect) => {
    const r = rect.getBoundingClientRect();
    return r.width <= 0 || r.left < whole.left - 1 || r.right > whole.right + 1;
  });
}).length;
"""


@pytest.fixture
def grown(page: Page) -> str:
    """The id of a query that grew, whose view is open."""
    id = page.ended("grown", "What about it?")
    page.open(f"/queries/{id}")
    page.one("[aria-labelledby=h-parts] .part")
    return id


def test_parts_of_a_kind_are_one_row_until_one_asks_for_them(page: Page, grown: str) -> None:
    assert [row.text.split("\n")[0] for row in page.all(".part.kind .name")] == [
        f"each/item ×{TOPICS}"
    ]
    page.says(f"{TOPICS + (TOPICS - 1) * TURNS} parts with", "[aria-labelledby=h-parts]")
    page.says(f"{TOPICS - 1} ok", ".part.kind")
    page.says("1 failed", ".part.kind")
    page.click(".part.kind .name")
    page.until(lambda: len(page.all(".part:not(.kind)")) == TOPICS)
    page.click(".part:not(.kind) button.name")
    page.until(lambda: len(page.all(".part.kind")) == 2)
    page.says(f"loop/turn ×{TURNS}", ".parts .parts .parts .part.kind")
    assert page.js(OUTSIDE) == 0
    page.click(".part.kind .name")
    page.until(lambda: len(page.all(".part")) == 1)
    assert page.complaints() == []


def test_primitives_of_parts_stand_in_the_lanes_of_their_engines(page: Page, grown: str) -> None:
    spans = page.told(f"queries/{grown}/timeline")["spans"]
    of_parts = [k for k, one in enumerate(spans) if "/" in one["primitive"] and one["engine"]]
    assert of_parts
    k = of_parts[0]
    page.point(f'.span[data-span="{k}"]')
    page.says(spans[k]["primitive"], ".inspector")
    page.says(f"on {spans[k]['engine']}", ".inspector")
    page.says(
        "could not be known before it ran: each adds to it", "[aria-labelledby=h-passes] .lead"
    )


def test_rows_open_by_key_and_say_so(page: Page, grown: str) -> None:
    button = page.one(".part.kind .name")
    assert button.get_attribute("aria-expanded") == "false"
    button.send_keys(Keys.ENTER)
    page.one(".part.kind .name[aria-expanded=true]")
    assert "16 parts from" in (page.one(".part.kind svg").get_attribute("aria-label") or "")


def test_a_query_that_grew_nothing_has_no_parts(page: Page) -> None:
    id = page.ask("wide", "Why?")
    page.open(f"/queries/{id}")
    page.one("figure .node")
    assert page.all("[aria-labelledby=h-parts]") == []
    assert page.told(f"queries/{id}/timeline")["parts"] == {
        "kinds": [],
        "more": {"parts": 0, "failed": 0},
    }
