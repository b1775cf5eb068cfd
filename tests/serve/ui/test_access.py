"""Whoever uses the page: with keys only, on a phone, in dark colours, by ear, with an API key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from teola import Runtime
from teola.serve.access.auth import KeyFile
from tests.fake_openai import FakeOpenAI
from tests.serve.conftest import applications, serving
from tests.serve.ui.conftest import slowly
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

QUESTION = "Who looks after the lamp?"
VIEWS = ["/ask?app=advanced-rag", "/queries", "/engines"]

NAMELESS = """
return [...document.querySelectorAll(`a, button, input, select, textarea, [role=option], [role=img],
  [role=listbox], svg:not([aria-hidden]), meter, dialog`)].filter((e) => {
    const labelled = (e.getAttribute('aria-labelledby') ?? '').split(' ')
      .some((id) => id && document.getElementById(id)?.textContent.trim());
    const label = e.labels?.length && [...e.labels].some((l) => l.textContent.trim());
    return !(labelled || label || e.getAttribute('aria-label')?.trim() || e.textContent.trim() ||
      e.closest('[aria-hidden=true]'));
  }).map((e) => e.outerHTML.slice(0, 120));
"""
TWICE = """
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
return ids.filter((id, i) => ids.indexOf(id) !== i);
"""
HEADINGS = "return [...document.querySelectorAll('main h1')].length"
PALE = """
const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
const pen = canvas.getContext('2d', { willReadFrequently: true });
const rgb = (colour) => {
  pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) =>
    v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * x + .7152 * y + .0722 * z;
};
const ground = (e) => {
  for (; e; e = e.parentElement) {
    const found = rgb(getComputedStyle(e).backgroundColor);
    if (found[3] > 240) return found;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('main *, header *')].filter((e) =>
  !e.closest('svg, .unseen, button:disabled, option') && e.checkVisibility() &&
  [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
).map((e) => {
  const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
  return [(a + .05) / (b + .05), e.outerHTML.slice(0, 90)];
}).filter(([ratio]) => ratio < 4.5);
"""


@pytest.fixture
def answered(page: Page) -> str:
    return f"/queries/{page.ended('advanced-rag', QUESTION)}"


# --- keys -----------------------------------------------------------------------------------


def test_a_question_is_asked_and_looked_into_with_keys_only(page: Page) -> None:
    page.open("/ask?app=echo")
    page.one("#input-question")
    page.keys("/")
    page.keys("please wait")
    page.together(Keys.CONTROL, Keys.ENTER)
    page.state("running")
    page.one(".span.is-running")
    page.tab_to("button.danger")
    page.keys(Keys.ENTER)
    page.state("cancelled")
    page.keys("q")
    page.until(lambda: page.fragment == "#/queries")
    page.tab_to(".queries a")
    page.keys(Keys.ENTER)
    page.until(lambda: page.fragment.startswith("#/queries/"))


def test_arrows_lead_through_timeline_and_graphs(page: Page, answered: str) -> None:
    page.open(answered)
    page.one("figure .node")
    page.tab_to(".span")
    first = page.js("return document.activeElement.dataset.primitive")
    page.says(first.replace("_", " "), ".inspector")
    page.keys(Keys.ARROW_RIGHT)
    page.until(lambda: page.js("return document.activeElement.dataset.primitive") != first)
    page.keys(Keys.END, Keys.ENTER)
    last = page.js("return document.activeElement.dataset.primitive")
    page.until(lambda: page.fragment.endswith(f"?at={last}"))
    page.keys(Keys.ESCAPE)
    page.tab_to("figure .node")
    top = page.js("return document.activeElement.dataset.id")
    page.keys(Keys.ARROW_DOWN)
    below = page.until(lambda: page.js("return document.activeElement.dataset.id"))
    assert below != top
    page.says(str(top), ".inspector p")
    page.keys(Keys.ARROW_UP)
    page.until(lambda: page.js("return document.activeElement.dataset.id") == top)


def test_the_focus_is_seen(page: Page, answered: str) -> None:
    for view in [*VIEWS, answered]:
        page.open(view)
        page.one("main h1")
        for _ in range(12):
            page.keys(Keys.TAB)
            seen = page.js(
                """const e = document.activeElement, s = getComputedStyle(e);
                const outer = getComputedStyle(e.closest('label, .choice') ?? e);
                const box = e.querySelector?.('.bar, .box');
                return s.outlineStyle !== 'none' || outer.outlineStyle !== 'none' ||
                  (box && getComputedStyle(box).strokeWidth === '3px') || e === document.body ||
                  e.outerHTML.slice(0, 120);"""
            )
            assert seen is True, seen


def test_help_lists_the_shortcuts_and_switches_them_off(page: Page) -> None:
    page.open("/ask")
    page.one(".ask")
    page.keys("?")
    page.one("dialog[open]")
    page.says("Queries", "dialog .keys")
    page.click("dialog input[type=checkbox]")
    page.keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))
    page.js("document.activeElement.blur()")
    page.keys("q")
    page.keys(Keys.TAB)
    assert page.fragment.startswith("#/ask")
    page.open("/ask")
    page.js("document.getElementById('help').showModal()")
    assert page.one("dialog input[type=checkbox]").is_selected() is False


def test_the_skip_link_leads_to_the_content(page: Page) -> None:
    page.open("/queries")
    page.one("main h1")
    page.keys(Keys.TAB)
    assert page.js("return document.activeElement.className") == "skip"
    page.keys(Keys.ENTER)
    assert page.js("return document.activeElement.id") == "main"
    assert page.fragment == "#/queries"


# --- eyes -----------------------------------------------------------------------------------


def test_dark_follows_the_system_and_the_switch(page: Page) -> None:
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    page.prefer("light")
    page.open("/ask")
    light = page.js(ground)
    page.prefer("dark")
    dark = page.until(lambda: page.js(ground) != light and page.js(ground))
    page.keys("t")
    page.until(lambda: page.js(ground) == light)
    page.open("/queries")
    assert page.js(ground) == light  # the choice is kept
    page.click("[aria-label='Light or dark']")
    page.until(lambda: page.js(ground) == dark)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_text_stands_out_from_its_ground(page: Page, answered: str, scheme: str) -> None:
    page.prefer(scheme)
    for view in [*VIEWS, answered]:
        page.open(view)
        page.one("main h1")
        assert page.js(PALE) == []


def test_a_phone_scrolls_only_downwards(page: Page, answered: str) -> None:
    page.narrow()
    for view in [*VIEWS, answered]:
        page.open(view)
        page.one("main h1")
        if view == answered:
            page.one("figure .node")
            page.one(".span")
        assert page.js("return document.documentElement.scrollWidth") <= 360
        wide = page.js(
            """return [...document.querySelectorAll('main *')].filter((e) =>
              e.getBoundingClientRect().right > 361 && !e.closest('.scroll, pre, .unseen'))
              .map((e) => e.outerHTML.slice(0, 90))"""
        )
        assert wide == []
    assert page.js("const b = document.querySelector('.timeline .scroll');"
                   "b.scrollLeft = 50; return b.clientWidth") < 300  # fmt: skip


# --- ears -----------------------------------------------------------------------------------


def test_everything_has_a_name_and_ids_are_unique(page: Page, answered: str) -> None:
    for view in [*VIEWS, "/ask?app=count", answered]:
        page.open(view)
        page.one("main h1")
        if view == answered:
            page.one("figure .node")
        else:
            page.until(lambda: not page.all("main .wait"))
        assert page.js(NAMELESS) == []
        assert page.js(TWICE) == []
        assert page.js(HEADINGS) == 1
        assert len(page.all("main")) == len(page.all("header nav[aria-label]")) == 1
        assert page.all("[aria-live=polite]")


def test_the_end_of_a_query_is_announced(page: Page, model: FakeOpenAI) -> None:
    with slowly(model):
        page.open(f"/queries/{page.ask('naive-rag', QUESTION, mode='background')}")
        page.state("running")
    page.says("The answer is there", "[role=status].unseen")


# --- keys of the other kind -----------------------------------------------------------------


@pytest.fixture
def guarded(
    driver: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, str]]:
    keys = KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    secret = keys.create("alice", "red")
    with Runtime() as runtime, serving(runtime, applications(), keys) as served:
        page = Page(driver, served.url)
        page.forget()
        yield page, secret
        assert page.complaints() == []


def test_the_page_asks_for_a_key_and_keeps_it_in_the_tab(guarded: tuple[Page, str]) -> None:
    page, secret = guarded
    page.open("/ask?app=echo")
    page.type("#key", "teola_wrong")
    page.click("button.main")
    page.says("does not know this key", "[role=alert]")
    page.type("#key", secret)
    page.click("button.main")
    page.type("#input-question", "hello")
    page.click("button.main")
    page.state("ok")
    page.says("you said: hello", ".answer")
    page.driver.refresh()
    page.says("you said: hello", ".answer")
    kept = "return [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie]"
    local, session, cookie = page.js(kept)
    assert secret in session
    assert secret not in local + cookie
    assert secret not in page.driver.current_url
    page.click("header button.wide-only")
    page.one("#key")
    assert secret not in page.js(kept)[1]


def test_a_server_that_is_gone_is_said_to_be(driver: webdriver.Chrome) -> None:
    with Runtime() as runtime, serving(runtime, applications()) as served:
        page = Page(driver, served.url)
        page.forget()
        page.open("/queries")
        page.one("main h1")
    page.says("does not answer", "[role=alert]")
    assert page.complaints() == []


# --- what a program that checks pages would say -------------------------------------------------

MISNAMED = """
const plain = (text) =>
  text.toLowerCase().replace(/[^\\p{L}\\p{N} ]/gu, '').replace(/\\s+/g, ' ').trim();
return [...document.querySelectorAll('a, button, [role=option]')].filter((e) => {
  const name = e.getAttribute('aria-label');
  const texts = [...e.querySelectorAll('text')].map((t) => t.textContent).join(' ');
  const seen = texts || e.innerText || '';
  return name && plain(seen) && !plain(name).includes(plain(seen));
}).map((e) => e.outerHTML.slice(0, 120));
"""
STUCK = """
return [...document.querySelectorAll('main *')].filter((e) => {
  const s = getComputedStyle(e);
  const may = (how) => how === 'auto' || how === 'scroll';
  const scrolls = may(s.overflowY) && e.scrollHeight > e.clientHeight + 1 ||
    may(s.overflowX) && e.scrollWidth > e.clientWidth + 1;
  return scrolls && e.checkVisibility() && e.tabIndex < 0 &&
    !e.querySelector('a, button, input, select, textarea');
}).map((e) => e.outerHTML.slice(0, 90));
"""
SMALL = """
return [...document.querySelectorAll('main button, main a.button, main summary')].filter((e) =>
  e.checkVisibility() && e.getBoundingClientRect().height < 24
).map((e) => e.outerHTML.slice(0, 90));
"""


def test_names_contain_what_is_seen(page: Page, answered: str) -> None:
    for view in [*VIEWS, answered]:
        page.open(view)
        page.one("main h1")
        if view == answered:
            page.one("figure .node")
        assert page.js(MISNAMED) == []


def test_what_scrolls_can_be_scrolled_with_keys(page: Page, answered: str) -> None:
    page.sized(390, 700, mobile=True)
    page.open(answered)
    page.one("figure .node")
    for _ in range(4):
        page.click("figure:last-of-type [aria-label=Larger]")
        page.click(".timeline ~ *, [aria-label=Closer]")
    page.until(lambda: page.js("const e = document.querySelector('.timeline .scroll');"
                               "return e.scrollWidth > e.clientWidth"))  # fmt: skip
    assert page.js(STUCK) == []
    assert len(page.all(".scroll[tabindex='0'][role=region][aria-label]")) == 3


def test_buttons_of_a_phone_are_large_enough(page: Page, answered: str) -> None:
    page.narrow()
    page.open(answered)
    page.one(".pass .name")
    assert page.js(SMALL) == []
