"""A server that is killed while a query runs: the page says so, and finds it again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.serve.process import ready
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

APPS = """
import asyncio
from teola import App, component

@component(outputs="answer")
async def say(question: str) -> str:
    await asyncio.sleep(600)
    return question

slow = App("slow", template=say, inputs={"question": "text"}, outputs={"answer": "answer"})
"""


@pytest.fixture
def doomed(
    driver: webdriver.Chrome, tmp_path: Path
) -> Iterator[tuple[Page, subprocess.Popen[str]]]:
    """A page of a server, and the server's process."""
    file = tmp_path / "slow.py"
    file.write_text(APPS)
    configuration = tmp_path / "teola.toml"
    configuration.write_text("[server]\njournal = false\n")
    words = [f"{file}:slow", "--config", str(configuration)]
    with ready(words, tmp_path / "stderr.log") as (process, url):
        page = Page(driver, url)
        page.forget()
        yield page, process
        page.driver.get("about:blank")


def test_a_server_that_is_gone_is_said_to_be_gone(
    doomed: tuple[Page, subprocess.Popen[str]],
) -> None:
    page, process = doomed
    page.open("/ask?app=slow")
    page.type("#input-question", "are you there?")
    page.click("button.main")
    page.state("running")
    page.one(".span.is-running")
    process.kill()
    page.says("trying again, ", ".head .note")
    page.state("lost")
    page.says("connection to the server was lost", ".error[role=alert]")
    assert "Failed to fetch" not in page.text("main")
    assert page.all("button.danger, .answer.coming, running-clock") == []
    assert "are you there?" in page.text(".question")
    page.until(lambda: [b for b in page.all(".head button") if b.text == "Look again"])[0].click()
    page.says("does not answer", ".error[role=alert]")
    page.state("lost")
