"""Asking in a browser: tokens as they come, uploads, refusals, cancelling."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from tests.conftest import PAGES
from tests.fake_openai import FakeOpenAI
from tests.serve.ui.conftest import WORDS, slowly
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

QUESTION = "Who looks after the lamp?"
ODD = "<img src=x onerror=document.title='owned'>.md"


def fill(page: Page, app: str, question: str = QUESTION) -> None:
    page.open(f"/ask?app={app}")
    page.type("#input-question", question)


def paste(page: Page, text: str = PAGES["lighthouse.md"]) -> None:
    page.click(".drop button[aria-expanded]")
    page.type("#pasted", text)
    page.click(".paste button")


def test_the_form_comes_from_the_schema(page: Page) -> None:
    page.open("/ask?app=advanced-rag")
    about = page.told("apps/advanced-rag")
    page.one("#input-question[required]")
    page.one("#files-documents")
    page.click("details.more summary")
    for name, schema in about["parameters"]["properties"].items():
        field = page.one(f"[id='param-{name}']")
        default = schema["default"]
        if isinstance(default, int) and not isinstance(default, bool):
            assert field.get_attribute("type") == "number"
            assert field.get_attribute("placeholder") == str(default)
        if "enum" in schema:
            options = [o.get_attribute("value") for o in field.find_elements(By.TAG_NAME, "option")]
            assert options == ["", *schema["enum"]]
    page.click("input[value=count]")
    page.one("#input-names")
    page.one("#input-unit")
    assert page.fragment == "#/ask?app=count"


def test_tokens_come_one_after_another_and_stay_text(page: Page, model: FakeOpenAI) -> None:
    fill(page, "naive-rag")
    paste(page)
    with slowly(model):
        page.click("button.main")
        page.state("running")
        early = page.until(lambda: page.text(".answer.coming"))
    assert len(early) < len(WORDS)
    page.state("ok")
    page.until(lambda: page.text(".answer").strip() == WORDS)
    assert page.driver.title == "Query · Teola"
    assert page.all("main script, main .answer b") == []
    page.says("pasted-1.md", ".sources")
    assert QUESTION in page.text(".question")


def test_files_are_uploaded_and_their_names_stay_text(page: Page, tmp_path: Path) -> None:
    (tmp_path / ODD).write_text(f"{PAGES['lighthouse.md']}\nOnly here: {tmp_path.name}.")
    (tmp_path / "boats.md").write_text(PAGES["boats.md"])
    fill(page, "naive-rag")
    for name in (ODD, "boats.md"):
        page.one("#files-documents").send_keys(str(tmp_path / name))
    page.says(ODD, ".files")
    page.click(".files li:last-child button")
    page.until(lambda: len(page.all(".files li")) == 1)
    page.click("button.main")
    page.state("ok")
    page.says(f"{ODD}, section “The lighthouse”", ".sources")
    assert page.all("main img") == []
    assert page.driver.title == "Query · Teola"


def test_parameters_and_passes_go_along(page: Page) -> None:
    fill(page, "naive-rag")
    paste(page)
    page.click("details.more summary")
    page.type("[id='param-search.top_k']", "1")
    page.click("#passes option[value=none]")
    page.click("button.main")
    page.state("ok")
    id = page.query_id()
    page.says("ran without passes", "section[aria-labelledby=h-passes]")
    graph = page.told(f"queries/{id}/explanation")["p_graph"]["primitives"]
    assert len(page.all("figure:first-of-type .node")) == len(graph)
    assert len(page.told(f"queries/{id}")["result"]["outputs"]["sources"]) == 1


def test_cancelling_ends_the_query(page: Page) -> None:
    fill(page, "echo", "please wait")
    page.click("button.main")
    page.state("running")
    page.one(".span.is-running")
    page.click("button.danger")
    page.state("cancelled")
    page.says("was cancelled", "section[aria-labelledby=h-answer] .note")
    assert page.all(".error, [role=alert]") == []
    assert page.told(f"queries/{page.query_id()}")["state"] == "cancelled"
    assert page.all("button.danger") == []


@pytest.mark.parametrize(
    ("app", "question", "told"),
    [
        ("echo", "", "question is needed"),
        ("naive-rag", QUESTION, "Add a document"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_sent(
    page: Page, app: str, question: str, told: str
) -> None:
    fill(page, app, question)
    page.click("button.main")
    page.says(told, "[role=alert]")
    assert page.fragment.startswith("#/ask")


def test_what_the_server_refuses_is_said_in_its_words(page: Page) -> None:
    fill(page, "naive-rag")
    paste(page)
    page.click("details.more summary")
    page.type("[id='param-search.top_k']", "0")
    page.click("button.main")
    page.says("top_k", "[role=alert]")


def test_a_failure_says_which_component(page: Page) -> None:
    fill(page, "echo", "fail")
    page.click("button.main")
    page.state("failed")
    page.says("bad luck", "[role=alert]")
    page.one(".span.is-failed")


def test_a_lost_connection_is_taken_up_after_the_last_event(page: Page) -> None:
    page.open("/queries")
    page.js(
        """
        window.seen = [];
        const before = window.fetch;
        window.fetch = (url, options) => {
          const last = options?.headers?.get("last-event-id");
          if (last) window.seen.push(Number(last));
          return before(url, options);
        };
        const read = ReadableStreamDefaultReader.prototype.read;
        window.breaks = 0;
        ReadableStreamDefaultReader.prototype.read = function () {
          if (window.breaks === 2) {
            window.breaks = 3;
            this.cancel();
            return Promise.reject(new TypeError("network error"));
          }
          if (window.breaks < 2) window.breaks += 1;
          return read.call(this);
        };
        """
    )
    page.go(f"/queries/{page.ask('naive-rag', QUESTION, mode='background')}")
    page.state("ok")
    page.until(lambda: page.text(".answer").strip() == WORDS)
    assert page.js("return window.breaks") == 3
    assert page.js("return window.seen").pop(0) > 0
