"""The form: what is kept of a question and asked again, what is refused where it is typed, and
texts in any direction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PAGES
from tests.serve.ui.page import Page
from tests.serve.ui.test_asking import QUESTION, fill, paste

pytestmark = pytest.mark.browser

ARABIC = "من يعتني بالمصباح؟"
LONG = f"{'a long name of a document about lamps ' * 4}and boats.md"
DIRECTION = "return getComputedStyle(document.querySelector(arguments[0])).direction"


def focused(page: Page) -> str:
    return str(page.js("return document.activeElement.id"))


# --- the question stays -----------------------------------------------------------------------


def test_a_question_is_there_after_a_reload_and_can_be_asked_again(page: Page) -> None:
    fill(page, "naive-rag")
    paste(page)
    page.click("details.more summary")
    page.type("[id='param-search.top_k']", "1")
    page.click("#passes option[value=none]")
    page.click("button.main")
    page.state("ok")
    id = page.query_id()
    page.open(f"/queries/{id}")
    page.state("ok")
    assert page.text(".question") == QUESTION
    page.says("pasted-1.md", ".inputs")
    page.click(".head a.button")
    page.until(lambda: page.one("#input-question").get_property("value") == QUESTION)
    assert page.one("[id='param-search.top_k']").get_property("value") == "1"
    assert page.one("#passes").get_property("value") == "none"
    page.says("pasted-1.md", ".files")
    page.click("button.main")
    page.until(lambda: page.query_id() != id)
    page.state("ok")
    first, again = (page.told(f"queries/{one}")["asked"] for one in (id, page.query_id()))
    assert first == again


def test_what_was_not_kept_is_asked_for(page: Page, tmp_path: Path) -> None:
    (tmp_path / "lighthouse.md").write_text(PAGES["lighthouse.md"])
    fill(page, "naive-rag")
    page.one("#files-documents").send_keys(str(tmp_path / "lighthouse.md"))
    page.one(".files li")
    page.click("button.main")
    page.state("ok")
    page.says("documents too large, or a file", ".inputs")
    page.click(".head a.button")
    page.says("Give again: documents", ".ask .note")


def test_what_was_asked_can_be_deleted(page: Page) -> None:
    id = page.ask("echo", "nobody must know")
    page.open(f"/queries/{id}")
    page.says("nobody must know", ".question")
    page.click(".inputs summary")
    page.click(".inputs button")
    page.until(lambda: not page.all(".question, .inputs"))
    assert "asked" not in page.told(f"queries/{id}")
    page.open(f"/queries/{id}")
    page.state("ok")
    assert page.all(".question, .inputs") == []


# --- what is optional -------------------------------------------------------------------------


def test_a_conversation_has_a_first_turn(page: Page) -> None:
    """Its history may be left out, so the form does not ask for one."""
    fill(page, "chat-rag")
    paste(page, f"{PAGES['lighthouse.md']}\nThe first turn of a conversation.")
    assert page.one("#input-history").get_dom_attribute("required") is None
    assert "needed" not in page.text("label[for=input-history]")
    page.click("button.main")
    page.state("ok")
    assert "lamp" in page.text(".question")


# --- what is wrong, where it is typed -----------------------------------------------------------


def wrong(page: Page, id: str) -> str:
    """What stands below a field that is marked, has the focus, and says why."""
    page.one(f"[id='{id}'][aria-invalid=true]")
    page.until(lambda: focused(page) == id)
    described = str(page.one(f"[id='{id}']").get_dom_attribute("aria-describedby")).split()
    return page.text(f"[id='{described[-1]}'][role=alert]")


def test_an_empty_question_leads_to_its_field(page: Page) -> None:
    page.open("/ask?app=echo")
    page.one("#input-question")
    page.click("button.main")
    assert "question is needed" in wrong(page, "input-question")
    page.type("#input-question", "h")
    page.until(lambda: not page.all("[aria-invalid=true], [role=alert]"))


def test_a_missing_document_leads_to_the_files(page: Page) -> None:
    fill(page, "naive-rag")
    page.click("button.main")
    assert "Add a document" in wrong(page, "files-documents")


def test_what_is_no_json_leads_to_its_field_though_that_is_folded(page: Page) -> None:
    fill(page, "naive-rag")
    paste(page)
    page.click("details.more summary")
    page.type("#input-filters", "{")
    page.click("details.more summary")
    page.click("button.main")
    assert "filters must be JSON" in wrong(page, "input-filters")


def test_a_file_that_is_no_text_is_refused_when_it_is_chosen(page: Page, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    (tmp_path / "empty.md").write_bytes(b"")
    (tmp_path / "wide.txt").write_text("sixteen bits", "utf-16")
    (tmp_path / "boats.md").write_text(PAGES["boats.md"])
    fill(page, "naive-rag")
    names = ("photo.png", "empty.md", "wide.txt", "boats.md")
    page.one("#files-documents").send_keys("\n".join(str(tmp_path / name) for name in names))
    page.until(lambda: len(page.all(".files li")) == 2)
    assert [one.text for one in page.all(".files .name")] == ["wide.txt", "boats.md"]
    told = page.text(".field > .error[role=alert]")
    assert "photo.png is left out: it is a binary file" in told
    assert "empty.md is left out: it is empty" in told
    page.click("button.main")
    page.state("ok")


# --- texts in any direction, and long names -----------------------------------------------------


def test_texts_run_in_their_own_direction(page: Page) -> None:
    fill(page, "echo", ARABIC)
    assert page.js(DIRECTION, "#input-question") == "rtl"
    page.click("button.main")
    page.state("ok")
    page.one(".answer")
    assert page.js(DIRECTION, ".question") == "rtl"
    assert page.js("return document.querySelector('.answer').dir") == "auto"
    assert page.js(DIRECTION, "body") == "ltr"


def test_a_long_name_is_cut_with_an_ellipsis(page: Page, tmp_path: Path) -> None:
    (tmp_path / LONG).write_text(f"{PAGES['lighthouse.md']}\nOnly here: {tmp_path.name}.")
    fill(page, "naive-rag")
    page.one("#files-documents").send_keys(str(tmp_path / LONG))
    name = page.one(".files .name")
    assert name.get_dom_attribute("title") == LONG
    box: dict[str, Any] = page.js(
        "const e = arguments[0], s = getComputedStyle(e);"
        "return {cut: s.textOverflow, wide: e.scrollWidth > e.clientWidth, high: e.clientHeight}",
        name,
    )
    assert box["cut"] == "ellipsis"
    assert box["wide"]
    assert box["high"] < 40
    page.click("button.main")
    page.state("ok")
    shown = page.text(".sources li b")
    assert shown == f"…{LONG[-119:]}, section “The lighthouse”"
