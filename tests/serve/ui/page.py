"""The page as a person uses it: what is there, what it says, and keys and clicks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.conftest import PAGES

T = TypeVar("T")
WAIT_S = 120
_ENDED: dict[tuple[str, str, str], str] = {}
"""Ids by server, application and question."""
EXPECTED = "Failed to load resource"
"""What a browser says of every answer that is not 2xx, also of those that the page shows."""


class Page:
    """See the module. Everything that is looked for is waited for."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    # --- getting there ------------------------------------------------------------------------

    def forget(self) -> None:
        """Start anew, as somebody who has never been there."""
        self.driver.get(f"{self.url}/ui/icon.svg")
        self.driver.execute_script("localStorage.clear(); sessionStorage.clear()")
        self.driver.get_log("browser")

    def open(self, fragment: str = "/ask") -> None:
        """Load the page anew at a fragment."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/ui/#{fragment}")
        self.one("main > *")

    def go(self, fragment: str) -> None:
        """Follow a link within the page."""
        self.driver.execute_script("location.hash = arguments[0]", fragment)

    @property
    def fragment(self) -> str:
        return str(self.driver.execute_script("return location.hash"))

    def query_id(self) -> str:
        """Of the query that is shown."""
        self.until(lambda: self.fragment.startswith("#/queries/"))
        return self.fragment.removeprefix("#/queries/").partition("?")[0]

    def told(self, path: str) -> Any:
        """What the API says."""
        return httpx.get(f"{self.url}/v1/{path}", timeout=WAIT_S).json()

    def ask(
        self, app: str, question: str, documents: list[dict[str, str]] | None = None, **more: Any
    ) -> str:
        """Ask through the API, beside the page; the id."""
        inputs: dict[str, Any] = {"question": question}
        if app.endswith("rag"):
            pages = [{"name": n, "text": text} for n, text in PAGES.items()]
            inputs["documents"] = documents or pages
        url = f"{self.url}/v1/apps/{quote(app)}/queries"
        response = httpx.post(url, json={"inputs": inputs, **more}, timeout=WAIT_S)
        found = response.json()
        return str(found.get("query_id") or found["error"]["query_id"])

    def ended(self, app: str, question: str) -> str:
        """The id of such a query, which has ended: asked once at a server, for all tests that only
        look at it."""
        key = self.url, app, question
        if key not in _ENDED:
            _ENDED[key] = self.ask(app, question)
        return _ENDED[key]

    # --- looking --------------------------------------------------------------------------------

    def until(self, holds: Callable[[], T], limit_s: float = WAIT_S) -> T:
        """Wait until something is true, and return it."""
        waiting = WebDriverWait(
            self.driver, limit_s, 0.05, ignored_exceptions=[StaleElementReferenceException]
        )
        return waiting.until(lambda _: holds())

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.until(lambda: next(iter(self.all(css)), None))  # type: ignore[return-value]

    def text(self, css: str) -> str:
        """Of the first that fits, as it stands in the document."""
        return str(self.until(lambda: self.one(css).get_attribute("textContent")))

    def says(self, text: str, css: str = "main") -> None:
        """Wait until a text is there."""
        self.until(lambda: text in (self.one(css).get_attribute("textContent") or ""))

    def state(self, name: str) -> None:
        """Wait until the query shown is in this state."""
        self.one(f".head .badge.is-{name}")

    def js(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def complaints(self) -> list[str]:
        """What the browser's console has against the page."""
        entries = [json.loads(json.dumps(entry)) for entry in self.driver.get_log("browser")]
        bad = [e["message"] for e in entries if e["level"] in ("SEVERE", "WARNING")]
        return [message for message in bad if EXPECTED not in message]

    # --- doing ----------------------------------------------------------------------------------

    def click(self, css: str) -> None:
        found = self.one(css)
        self.js("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    def type(self, css: str, text: str) -> None:
        found = self.one(css)
        found.clear()
        found.send_keys(text)

    def point(self, css: str) -> None:
        """Move the pointer there, once nothing is being drawn any more."""
        found = self.one(css)
        self.driver.execute_async_script(
            "const [e, done] = arguments, next = requestAnimationFrame;"
            "next(() => next(() => next(() => {"
            "  e.scrollIntoView({block: 'center', inline: 'center'}); next(() => done()); })))",
            found,
        )
        ActionChains(self.driver).move_to_element(found).move_by_offset(1, 1).perform()

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def together(self, held: str, key: str) -> None:
        ActionChains(self.driver).key_down(held).send_keys(key).key_up(held).perform()

    def tab_to(self, css: str, most: int = 60) -> None:
        """Press Tab until the focus is there."""
        for _ in range(most):
            self.keys(Keys.TAB)
            if self.js("return document.activeElement.matches(arguments[0])", css):
                return
        raise AssertionError(f"Tab never leads to {css}")

    def narrow(self) -> None:
        """As wide as a small phone."""
        self.sized(360, 740, mobile=True)

    def sized(self, width: int, height: int, *, mobile: bool = False) -> None:
        """A window of so many px, until `wide`."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def wide(self) -> None:
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.prefer("light")

    def prefer(self, scheme: str) -> None:
        """What the system asks for: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
