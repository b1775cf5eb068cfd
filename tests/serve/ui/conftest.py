"""A headless Chromium, and a server with applications whose model writes one word after another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from teola import EngineConfig, Runtime
from teola.catalogue import load_app
from teola.runtime.python_engine import PythonEngine
from tests.fake_openai import FakeOpenAI
from tests.serve.conftest import Served, applications, serving
from tests.serve.ui.page import Page
from tests.serve.ui.shapes import grown, shortcut, wide

WORDS = (
    "The lamp is kept by Mara Quist, <b>not</b> by <script>document.title='owned'</script> anybody."
)
REWRITINGS = "who keeps the lamp\nwho looks after the lighthouse\nthe keeper of the lamp"
MISSING = "chromium and chromedriver are not installed: apt-get install chromium-driver"


def _answer(messages: Any) -> str:
    return REWRITINGS if "Rewritings:" in messages[-1]["content"] else WORDS


def programs() -> tuple[str, str] | None:
    found = shutil.which("chromium"), shutil.which("chromedriver")
    return (found[0], found[1]) if found[0] and found[1] else None


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    installed = programs()
    if installed is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = installed[0]
    profile = tmp_path_factory.mktemp("chromium")
    for argument in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "force-prefers-reduced-motion",
        "lang=en",
        "window-size=1280,900",
        f"user-data-dir={profile}",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, Service(installed[1]))
    found.set_script_timeout(60)
    yield found
    found.quit()


@pytest.fixture(scope="session")
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(_answer, token_delay_s=0.03) as server:
        yield server


@contextmanager
def slowly(model: FakeOpenAI) -> Iterator[None]:
    """Meanwhile it writes a word a second, so that a page is there before an answer is whole."""
    before, model.token_delay_s = model.token_delay_s, 1.0
    try:
        yield
    finally:
        model.token_delay_s = before


@pytest.fixture(scope="package")  # no longer: meanwhile the installed applications run there
def site(model: FakeOpenAI, data_dir: Path) -> Iterator[Served]:
    """The RAG applications with that model, and the small applications of other tests."""
    engines = {
        "llm": EngineConfig("openai", {"url": model.url}),
        "vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir}),
        "narrow": EngineConfig(PythonEngine, {"concurrency": 2}),
    }
    rag = {name: load_app(name) for name in ("naive-rag", "advanced-rag", "chat-rag")}
    shaped = {app.name: app for app in (wide(), shortcut(), grown())}
    apps = {**rag, **applications(), **shaped}
    # Times that are given, so that graphs are the same from the first query on.
    with (
        Runtime(engines, profile="paper-13b", learn=False) as runtime,
        serving(runtime, apps) as found,
    ):
        yield found


@pytest.fixture
def page(driver: webdriver.Chrome, site: Served) -> Iterator[Page]:
    """The page of `site`, nothing remembered; afterwards the console must be clean."""
    page = Page(driver, site.url)
    page.forget()
    yield page
    page.wide()
    assert page.complaints() == []
