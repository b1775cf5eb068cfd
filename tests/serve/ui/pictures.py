"""Takes the pictures of the page for the documentation: `python -m tests.serve.ui.pictures`.

The applications are the installed ones on the embedded defaults; what they are asked about is this
project's own documentation.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from teola import EngineConfig, Runtime
from teola.catalogue import load_app
from tests.serve.conftest import serving
from tests.serve.ui.conftest import MISSING, programs
from tests.serve.ui.page import Page

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "architecture.md"
QUESTION = "What happens when the last instance of an engine fails?"


def browser() -> webdriver.Chrome:
    """Headless, 1360 px wide, without animations."""
    options = webdriver.ChromeOptions()
    found = programs()
    if found is None:
        raise SystemExit(MISSING)
    options.binary_location = found[0]
    for argument in ("headless=new", "no-sandbox", "force-prefers-reduced-motion", "lang=en"):
        options.add_argument(f"--{argument}")
    options.add_argument("--window-size=1360,900")
    return webdriver.Chrome(options, Service(found[1]))


def take(page: Page, name: str, folder: Path, height: int | None = None) -> None:
    """A picture of the window, or of so much of the page."""
    if height is not None:
        page.driver.set_window_size(1360, height)
    page.driver.save_screenshot(str(folder / f"ui-{name}.png"))
    page.driver.set_window_size(1360, 900)


def fill(page: Page, app: str) -> None:
    """Fill in the form."""
    page.open(f"/ask?app={app}")
    page.type("#input-question", QUESTION)
    page.one("#files-documents").send_keys(str(DOCUMENT))
    page.one(".files li")


def session(page: Page, folder: Path) -> None:
    """All the pictures."""
    page.forget()
    page.prefer("light")
    page.ask("naive-rag", QUESTION)  # the first query of all is slow
    fill(page, "advanced-rag")
    take(page, "ask", folder, 860)
    page.click("button.main")
    page.state("ok")
    page.one("figure .node")
    id = page.query_id()
    path = page.told(f"queries/{id}/timeline")["critical_path"]
    waited = [s for s in path if s["kind"] in ("queued", "behind")]
    longest = max(waited, key=lambda s: s["end"] - s["start"])["primitive"]
    page.open(f"/queries/{id}")
    page.one("figure .node")
    for scheme, name in (("light", "query"), ("dark", "query-dark")):
        page.prefer(scheme)
        page.driver.set_window_size(1360, 2480)
        for which in ("p", "e"):
            page.click(f"figure[data-graph={which}] .controls button:last-of-type")
        page.js("scrollTo(0, 0)")
        page.point(f".span[data-primitive='{longest}'] .bar")  # what is held on to covers more
        page.one("figure .node.lit")
        take(page, name, folder, 2480)
    page.go("/engines")
    page.one(".engine")
    take(page, "engines-dark", folder, 1060)
    page.prefer("light")
    for app in ("naive-rag", "advanced-rag", "naive-rag"):
        fill(page, app)
        page.click("button.main")
        page.state("ok")
    page.go("/engines")
    page.one(".engine")
    take(page, "engines", folder, 1060)
    page.go("/queries")
    page.one(".queries tbody tr")
    take(page, "queries", folder, 700)
    page.narrow()
    page.go(f"/queries/{id}")
    page.one("figure .node")
    page.driver.save_screenshot(str(folder / "ui-phone.png"))
    page.go("/queries")
    page.one(".queries tbody tr")
    page.driver.save_screenshot(str(folder / "ui-phone-queries.png"))
    page.wide()


def main(folder: Path) -> None:
    """Write ui-*.png to `folder`."""
    with tempfile.TemporaryDirectory(prefix="teola-pictures-") as place:
        Path(place).chmod(0o755)
        engines = {"vectorstore": EngineConfig("vectorstore", {"data_dir": Path(place) / "data"})}
        apps = {name: load_app(name) for name in ("advanced-rag", "naive-rag")}
        with Runtime(engines) as runtime, serving(runtime, apps) as served:
            driver = browser()
            try:
                session(Page(driver, served.url), folder)
            finally:
                driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
