"""Answering in a browser what queries ask: by forms, about calls of tools, from the list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from teola import Runtime
from tests.serve.conftest import Served, serving, soon
from tests.serve.journal.conftest import Serve, dsn, postgres, serve  # noqa: F401
from tests.serve.journal.test_people import LOG
from tests.serve.journal.test_people import apps as cut_off
from tests.serve.ui.page import Page
from tests.serve.ui.questions import Decides, questions
from tests.serve.ui.test_access import MISNAMED, NAMELESS, PALE, SMALL, STUCK, TWICE

pytestmark = pytest.mark.browser

NO_WIDER = "return document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def asking() -> Iterator[Served]:
    with Runtime({"llm": lambda: Decides()}) as runtime, serving(runtime, questions()) as found:
        yield found


@pytest.fixture
def page(driver: webdriver.Chrome, asking: Served) -> Iterator[Page]:
    page = Page(driver, asking.url)
    page.forget()
    yield page
    page.wide()
    with httpx.Client(base_url=asking.url) as client:
        for one in client.get("/v1/queries?state=waiting").json()["queries"]:
            client.delete(f"/v1/queries/{one['query_id']}")
    assert page.complaints() == []


def ask(page: Page, app: str, **inputs: Any) -> str:
    """The id of a query that waits."""
    body = {"inputs": inputs or {"question": "tides"}, "mode": "sync"}
    response = httpx.post(f"{page.url}/v1/apps/{app}/queries", json=body, timeout=60)
    assert response.json()["state"] == "waiting"
    return str(response.json()["query_id"])


def opened(page: Page, app: str) -> str:
    """The same, looked at."""
    id = ask(page, app)
    page.open(f"/queries/{id}")
    page.state("waiting")
    page.one(".asks")
    return id


def press(page: Page, label: str) -> None:
    """Click a button of the question."""
    page.until(lambda: [b for b in page.all(".asks button") if b.text == label])[0].click()


def retype(page: Page, css: str, text: str) -> None:
    """Select all that is in a field, and type: what clears a field at once is no key."""
    page.one(css).send_keys(Keys.CONTROL + "a" + Keys.NULL + text)


def answer(page: Page) -> Any:
    """What the application was told."""
    page.state("ok")
    return json.loads(page.text(".answer").strip().removeprefix("told "))


# --- forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "label", "value"),
    [("choice", "ask again", "ask again"), ("flag", "Yes", True), ("flag", "No", False)],
)
def test_choices_are_buttons(page: Page, app: str, label: str, value: Any) -> None:
    opened(page, app)
    assert "About tides: <img src=x" in page.text(".asks-what")
    assert page.all("main img") == []
    press(page, label)
    assert answer(page) == value
    assert page.all(".asks") == []


@pytest.mark.parametrize(
    ("app", "typed", "value"),
    [
        ("text", '"well", she said', '"well", she said'),
        ("text", "42", "42"),
        ("lines", "one\ntwo\n", ["one", "two"]),
        ("json", '{"a": [1]}', {"a": [1]}),
    ],
)
def test_texts_and_json_are_typed(page: Page, app: str, typed: str, value: Any) -> None:
    opened(page, app)
    page.type(".asks textarea", typed)
    press(page, "Send")
    assert answer(page) == value


def test_an_object_has_a_field_for_each_property(page: Page) -> None:
    id = opened(page, "fields")
    press(page, "Send")
    page.says("to is needed", ".asks [role=alert]")
    page.type(f"[id='{id}-ask.ask-to']", "Mara")
    page.type(f"[id='{id}-ask.ask-copies']", "0")
    page.click(f"[id='{id}-ask.ask-urgent'] option[value=true]")
    page.click(f"[id='{id}-ask.ask-folder'] option[value=drafts]")
    press(page, "Send")
    page.says("does not fit the question at $.copies: 0 is less than", ".asks [role=alert]")
    retype(page, f"[id='{id}-ask.ask-copies']", "2")
    press(page, "Send")
    assert answer(page) == {"to": "Mara", "copies": 2, "urgent": True, "folder": "drafts"}


def test_what_does_not_fit_can_be_mended(page: Page) -> None:
    opened(page, "number")
    page.type(".asks input[type=number]", "0")
    press(page, "Send")
    page.says("0 is less than the minimum of 1", ".asks [role=alert]")
    retype(page, ".asks input[type=number]", "7")
    press(page, "Send")
    assert answer(page) == 7


def test_a_query_that_was_asked_here_waits_and_goes_on(page: Page) -> None:
    page.open("/ask?app=choice")
    page.type("#input-question", "wind")
    page.click("button.main")
    page.state("waiting")
    page.says("The query waits for an answer", "[role=status].unseen")
    press(page, "no")
    assert answer(page) == "no"


def test_what_others_answer_is_seen(page: Page) -> None:
    id = opened(page, "choice")
    url = f"{page.url}/v1/queries/{id}/answers"
    assert httpx.post(url, json={"answer": "yes"}).status_code == 200
    assert answer(page) == "yes"
    assert page.all(".asks") == []


def test_a_query_that_waits_can_be_cancelled(page: Page) -> None:
    opened(page, "choice")
    page.click("button.danger")
    page.state("cancelled")
    assert page.all(".asks") == []


# --- calls of tools -------------------------------------------------------------------------


def test_a_call_is_approved(page: Page) -> None:
    opened(page, "agent")
    assert "May send be called?" in page.text(".asks-what")
    assert "The lamp is out." in page.text(".call")
    press(page, "Approve")
    page.says("sent 'The lamp is out.' to Mara, 1 times", ".answer")
    page.says("1 call", ".steps summary")
    page.one(".steps summary").click()
    page.says("agent called send", ".steps .finished")
    page.says("sent 'The lamp is out.' to Mara", ".steps .finished p")


def test_a_call_is_edited(page: Page) -> None:
    opened(page, "agent")
    press(page, "Edit …")
    field = page.one(".asks-form input[type=text]")
    assert field.get_attribute("value") == "Mara", "it begins with what the model wrote"
    retype(page, ".asks-form input[type=text]", "Jon")
    retype(page, ".asks-form input[type=number]", "3")
    press(page, "Approve with these")
    page.says("sent 'The lamp is out.' to Jon, 3 times", ".answer")


def test_a_call_is_rejected_for_a_reason(page: Page) -> None:
    opened(page, "agent")
    press(page, "Reject …")
    page.type(".asks-form textarea", "not on Sundays")
    press(page, "Reject it")
    page.says("a person rejected it: not on Sundays", ".answer")


def test_what_was_cut_off_is_explained(
    driver: webdriver.Chrome,
    serve: Serve,  # noqa: F811
) -> None:
    LOG.clear()
    body = {"inputs": {"question": "ebb\u202eedit\x1b[2J"}, "mode": "background"}
    with serve(cut_off()) as (_, client):
        id = client.post("/v1/apps/stuck/queries", json=body).json()["query_id"]
        soon(lambda: LOG == ["stuck"])
    with serve(cut_off()) as (served, _):
        page = Page(driver, served.url)
        page.forget()
        page.open(f"/queries/{id}")
        page.state("waiting")
        page.says("Look where it works whether it was done", ".asks")
        page.says("ebb\ufffdedit\u241b[2J", ".asks .call dd")
        press(page, "It is done …")
        page.type(".asks-form textarea", "seen it")
        press(page, "Go on with this")
        page.state("ok")
        page.says("seen it", ".answer")
        assert page.complaints() == []
    assert LOG == ["stuck"]


# --- all that wait --------------------------------------------------------------------------


def test_all_that_wait_are_listed_and_answered(page: Page) -> None:
    page.open("/queries")
    page.keys("w")
    page.says("No query waits for people", ".empty")
    ids = [ask(page, "text"), ask(page, "several", list=["a", "b"])]
    page.until(lambda: len(page.all(".asks")) == 3)
    page.says("3 questions", ".facts")
    assert [one for one in ids if one[:8] in page.text("main")] == ids
    mine = f"[id='{ids[0]}-ask.ask-answer']"
    page.type(mine, "half a thought")
    ask(page, "flag")
    page.until(lambda: len(page.all(".asks")) == 4)  # what was typed is still there
    assert page.one(mine).get_attribute("value") == "half a thought"
    page.click(f"section[aria-labelledby='h-{ids[0]}'] .asks button.main")
    page.until(lambda: len(page.all(".asks")) == 3)
    first = f"[id='{ids[1]}-each/item/0/ask.ask-answer']"
    page.type(first, "one")
    page.click(f"form:has({first}) button")
    page.until(lambda: len(page.all(".asks")) == 2)
    page.type(f"[id='{ids[1]}-each/item/1/ask.ask-answer']", "two")
    page.click(f"section[aria-labelledby='h-{ids[1]}'] .asks button.main")
    page.until(lambda: len(page.all(".asks")) == 1)
    results = [page.told(f"queries/{id}")["result"]["outputs"]["answer"] for id in ids]
    assert results == ['told "half a thought"', ["one", "two"]]


def test_somebody_was_faster(page: Page) -> None:
    id = ask(page, "choice")
    page.open("/waiting")
    page.one(".asks button")
    script = (
        "window.held = fetch; window.fetch = (url, o) => o?.method === 'POST' ? held(url, o) : "
    )
    page.js(f"{script} new Promise(() => {{}})")  # it does not hear of it
    httpx.post(f"{page.url}/v1/queries/{id}/answers", json={"answer": "no"})
    press(page, "yes")
    page.says("waits for no answer", ".asks [role=alert]")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_everybody_can_use_it(page: Page, scheme: str) -> None:
    page.prefer(scheme)
    for app in ("agent", "fields", "choice", "text"):
        ask(page, app)
    id = opened(page, "agent")
    for fragment in ("/waiting", f"/queries/{id}"):
        page.open(fragment)
        press(page, "Edit …")
        assert page.js(PALE) == []
        for found in (NAMELESS, TWICE, MISNAMED):
            assert page.js(found) == []
        page.narrow()
        for found in (SMALL, STUCK):
            assert page.js(found) == []
        assert page.js(NO_WIDER)
        assert all(one.rect["height"] < 40 for one in page.all("header nav a")), "one line each"
        page.wide()
        page.prefer(scheme)
