"""The timeline and what it sums up: truly attributed, never hidden, a view for each query."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.serve.ui.page import Page
from tests.serve.ui.shapes import WIDTH

pytestmark = pytest.mark.browser

QUESTION = "Who looks after the lamp?"
STRUCK = """
const texts = [...document.querySelectorAll('.span text')];
return [...document.querySelectorAll('.wait-bar')].flatMap((bar) => {
  const b = bar.getBoundingClientRect();
  return texts.filter((text) => {
    const t = text.getBoundingClientRect();
    const over = text.compareDocumentPosition(bar) & Node.DOCUMENT_POSITION_FOLLOWING;
    return over && b.left < t.right && t.left < b.right && b.top < t.bottom && t.top < b.bottom;
  }).map((text) => text.textContent);
});
"""
HIDDEN = """
const e = document.activeElement, strip = document.querySelector('.inspector');
const bar = (e.querySelector('.bar, .box') ?? e).getBoundingClientRect();
const cover = strip?.getBoundingClientRect();
const header = document.querySelector('header').getBoundingClientRect();
const under = cover && bar.top < cover.bottom && cover.top < bar.bottom;
const hidden = under || bar.top < header.bottom || bar.bottom > innerHeight;
return hidden ? e.dataset.span ?? e.tagName : '';
"""


@pytest.fixture
def answered(page: Page) -> str:
    """The id of a query that has ended, whose view is open."""
    id = page.ended("advanced-rag", QUESTION)
    page.open(f"/queries/{id}")
    page.one("figure .node")
    return id


# --- where the time went ----------------------------------------------------------------------


def test_waiting_behind_its_own_work_counts_as_that_work(page: Page) -> None:
    """Two at a time of 40 calls: nothing of the query ever waits for anything but the query."""
    id = page.ask("wide", QUESTION)
    page.open(f"/queries/{id}")
    page.one(".summary li b")
    found = page.told(f"queries/{id}/timeline")
    behind = [s for s in found["critical_path"] if s["kind"] == "behind"]
    waited = sum(s["end"] - s["start"] for s in behind)
    assert waited > 0.5 * found["end_s"]
    assert {found["spans"][s["blocker"]]["engine"] for s in behind} == {"narrow"}
    widths = page.js(
        "return Object.fromEntries([...document.querySelectorAll('.share')].map((e) =>"
        "[e.getAttribute('class'), Number(e.getAttribute('width'))]))"
    )
    assert widths["share op-call"] > 900
    assert widths.get("share op-queued", 0) < 50


def test_a_query_whose_document_cannot_be_read_spent_its_time_on_that(page: Page) -> None:
    documents = [{"name": "notes.md", "text": "..."}]
    id = page.ask("naive-rag", QUESTION, documents=documents)
    page.open(f"/queries/{id}")
    page.state("failed")
    page.says("reading documents", ".summary")
    assert "reading documents" in page.text(".summary li:first-of-type")
    page.one(".span.is-failed[data-primitive=load]")
    assert "Nothing has run yet" not in page.text("main")


# --- what can be seen -------------------------------------------------------------------------


def test_no_name_of_what_ran_is_struck_through_by_what_waited(page: Page) -> None:
    page.open(f"/queries/{page.ask('wide', QUESTION)}")
    page.until(lambda: len(page.all(".span")) > WIDTH)
    for _ in range(5):  # until names fit into their bars
        page.click("[aria-label=Closer]")
    page.until(lambda: len(page.all(".span text")) > 10)
    assert len(page.all(".wait-bar")) > 10
    assert page.js(STRUCK) == []


def test_what_has_the_focus_is_never_covered(page: Page, answered: str) -> None:
    page.sized(1000, 420)
    page.open(f"/queries/{answered}")
    page.one("figure .node")
    page.tab_to(".span")
    page.keys(Keys.HOME)
    spans = len(page.all(".span"))
    assert spans > 10
    for _ in range(spans):
        page.until(lambda: page.js(HIDDEN) == "", 5)
        page.keys(Keys.ARROW_RIGHT)
    page.tab_to("figure .node")
    page.until(lambda: page.js(HIDDEN) == "", 5)


def test_nothing_is_covered_while_nothing_is_pointed_at(page: Page, answered: str) -> None:
    page.one(".notes .hint")
    assert page.all(".inspector") == []
    page.point(".span .bar")
    page.one(".inspector .what")
    css = "return getComputedStyle(document.querySelector('.inspector')).position"
    assert page.js(css) == "fixed"


def test_the_strip_makes_way_for_the_pointer(page: Page, answered: str) -> None:
    """What is pointed at near the window's lower end stays under the pointer."""
    page.sized(1000, 600)
    bar = page.one(".span .bar")
    page.js("scrollBy(0, arguments[0].getBoundingClientRect().bottom - innerHeight + 20)", bar)
    page.js(
        "const e = arguments[0], r = e.getBoundingClientRect();"
        "const at = {clientX: r.left + 1, clientY: r.top + 1, bubbles: true};"
        "e.dispatchEvent(new PointerEvent('pointermove', at));"
        "e.parentNode.dispatchEvent(new MouseEvent('mouseenter', at))",
        bar,
    )
    page.one(".inspector.above .what")
    top = "return document.querySelector('.inspector').getBoundingClientRect().top"
    assert page.js(top) < 100


def test_the_zoom_of_one_query_is_not_that_of_the_next(page: Page, answered: str) -> None:
    other = page.ask("advanced-rag", QUESTION)
    page.click("[aria-label=Closer]")
    page.click("figure:last-of-type [aria-label=Smaller]")
    page.until(lambda: page.text(".controls small") != "1.0×")
    page.go(f"/queries/{other}")
    page.until(lambda: other[:12] in page.text(".crumbs") and page.all("figure .node"))
    assert page.text(".controls small") == "1.0×"
    assert page.js("const s = document.querySelector('.timeline .scroll');"
                   "return s.scrollWidth <= s.clientWidth")  # fmt: skip


# --- time that passes -------------------------------------------------------------------------

STILL = "window.fetch = () => new Promise(() => {})"


def moves(page: Page, css: str) -> None:
    """What stands there counts on, though the server says nothing more."""
    page.one(css)
    page.js(STILL)
    before = float(page.text(css).split()[0])
    page.until(lambda: float(page.text(css).split()[0]) > before + 1)


def test_the_clock_of_a_running_query_does_not_wait_for_the_server(page: Page) -> None:
    id = page.ask("echo", "please wait", mode="background")
    page.open(f"/queries/{id}")
    page.one(".span.is-running")
    moves(page, ".head .facts .digits")
    page.open("/queries?app=echo&state=running")
    page.one(f"a[href$='{id}']")
    moves(page, ".queries tbody td.digits")
    page.open(f"/queries/{id}")
    page.click("button.danger")
    page.state("cancelled")
