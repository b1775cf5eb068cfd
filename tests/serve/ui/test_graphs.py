"""The graphs of large and odd shapes: all of it seen at first, moved about in, and marked truly."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from selenium.webdriver import ActionChains

from tests.serve.ui.page import Page
from tests.serve.ui.shapes import WIDTH

pytestmark = pytest.mark.browser

E = "figure:last-of-type"
QUESTION = "Who looks after the lamp?"
INSIDE = """
const box = document.querySelector(arguments[0] + ' .scroll').getBoundingClientRect();
return [...document.querySelectorAll(arguments[0] + ' .node .box')].filter((e) => {
  const r = e.getBoundingClientRect();
  return r.left >= box.left - 1 && r.right <= box.right + 1 && r.top >= box.top - 1 &&
    r.bottom <= box.bottom + 1;
}).map((e) => e.closest('.node').dataset.id);
"""


@pytest.fixture
def large(page: Page) -> str:
    """The id of a query whose graph is wider than any window."""
    return page.ended("wide", QUESTION)


def shown(page: Page, id: str, at: str = "") -> None:
    page.open(f"/queries/{id}{f'?at={at}' if at else ''}")
    page.until(lambda: len(page.all(f"{E} .node")) > WIDTH)


def settled(page: Page, value: str) -> Any:
    """What a script gives once it gives the same for a while: all clicks are drawn then."""
    seen = [page.js(value)]

    def same() -> bool:
        time.sleep(0.3)
        seen.append(page.js(value))
        return bool(seen[-1] == seen[-2])

    page.until(same)
    return seen[-1]


def inside(page: Page) -> list[str]:
    """Primitives of the e-graph that are wholly within their box."""
    found: list[str] = page.js(INSIDE, E)
    return found


def test_all_of_a_large_graph_is_seen_at_first(page: Page, large: str) -> None:
    shown(page, large)
    page.until(lambda: len(inside(page)) == WIDTH + 1)


def test_it_is_seen_closer_dragged_and_whole_again(page: Page, large: str) -> None:
    shown(page, large)
    page.until(lambda: len(inside(page)) == WIDTH + 1)
    for _ in range(10):
        page.click(f"{E} [aria-label=Larger]")
    page.until(lambda: 0 < len(inside(page)) < WIDTH)
    left = f"return document.querySelector('{E} .scroll').scrollLeft"
    before = settled(page, left)
    assert before > 0, "what was in the middle stays there"
    box = page.one(f"{E} .scroll")
    drag = ActionChains(page.driver).move_to_element_with_offset(box, 0, 150)
    drag.click_and_hold().move_by_offset(-40, 0).move_by_offset(-80, 0).release().perform()
    page.until(lambda: page.js(left) == pytest.approx(before + 120, abs=2))
    assert "at=" not in page.fragment
    for button in page.all(f"{E} .controls button"):
        if button.text == "fit":
            button.click()
    page.until(lambda: len(inside(page)) == WIDTH + 1)


@pytest.mark.parametrize("k", [0, WIDTH - 1])
def test_a_link_leads_to_its_primitive(page: Page, large: str, k: int) -> None:
    at = f"look-{k}.call"
    shown(page, large, at)
    page.until(lambda: at in inside(page))
    height = page.one(f"{E} [data-id='{at}'] .box").rect["height"]
    assert height > 30, "its name can be read"


def critical(page: Page) -> set[tuple[str, str]]:
    """Edges of the e-graph that are drawn as steps of the critical path."""
    edges = page.all(f"{E} path.edge")
    return {
        (str(edge.get_dom_attribute("data-from")), str(edge.get_dom_attribute("data-to")))
        for edge in edges
        if "critical" in str(edge.get_dom_attribute("class"))
    }


def steps(found: dict[str, Any]) -> list[tuple[str, str]]:
    ids = [found["spans"][i]["primitive"] for i in found["critical_spans"]]
    return list(pairwise(ids))


def test_only_steps_of_the_critical_path_are_bold(page: Page) -> None:
    id = page.ask("shortcut", QUESTION)
    page.open(f"/queries/{id}")
    page.one(f"{E} .node.critical")
    assert len(page.all(f"{E} .node.critical")) == len(page.all(f"{E} path.edge")) == 3
    assert len(page.all(f"{E} path.edge.critical")) == 2
    assert critical(page) == {("begin.call", "go.call"), ("go.call", "end.call")}


def test_the_critical_path_has_no_gap(page: Page) -> None:
    id = page.ask("advanced-rag", QUESTION)
    page.open(f"/queries/{id}")
    page.one(f"{E} .node.critical")
    graph = page.told(f"queries/{id}/explanation")["e_graph"]
    ids = {p["id"] for p in graph["primitives"]}
    pairs = steps(page.told(f"queries/{id}/timeline"))
    assert critical(page) == {pair for pair in pairs if pair[0] in ids}
    assert len(page.all(".link.critical")) == len(pairs)


def test_head_and_graph_count_the_same_primitives(page: Page) -> None:
    id = page.ask("advanced-rag", QUESTION)
    page.open(f"/queries/{id}")
    page.one(f"{E} .node")
    graph = page.told(f"queries/{id}/explanation")["e_graph"]["primitives"]
    states = {
        span["primitive"]: span["state"]
        for span in page.told(f"queries/{id}/timeline")["spans"]
        if span["primitive"] not in ("load", "optimise")
    }
    ran = sum(state == "done" for state in states.values())
    caption = page.text(f"{E} figcaption small")
    assert page.text(".head .count") == caption
    assert ran < len(graph)
    assert caption == f"{ran} of {len(graph)} primitives ran"
    assert len(page.all(f"{E} .node")) == len(graph)
