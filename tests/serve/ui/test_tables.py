"""A query over tables in a browser: plan, progress, cost, rows, failed rows, cancel."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from selenium import webdriver

from teola import EngineConfig, Runtime
from teola.price import Price
from teola.serve.table_queries.registered_tables import AnswersByTenant, RegisteredTables
from teola.tables.sources import source_of
from tests.fake_openai import Fail, FakeOpenAI, Hang
from tests.serve.conftest import Served, applications, serving
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

QUERY = "SELECT title, LLM('Is it sad?', review) AS sad FROM reviews"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, FakeOpenAI]]:
    """A server with a table of reviews, and its model."""
    folder = tmp_path_factory.mktemp("shelf")
    rows = "".join(f"<b>Film {i}</b>,review {i}\n" for i in range(30))
    (folder / "reviews.csv").write_text(f"title,review\n{rows}")
    tables = RegisteredTables(
        {"reviews": source_of(folder / "reviews.csv")}, answers=AnswersByTenant(folder / "answers")
    )
    with (
        FakeOpenAI("No.") as model,
        Runtime(
            {"llm": EngineConfig("openai", {"url": model.url})},
            prices={"fake-model": Price(prompt=1.0, answer=2.0)},
            learn=False,
        ) as runtime,
        serving(runtime, applications(), tables=tables) as served,
    ):
        model.cursed["review 7"] = Fail(400, "this one is bad")
        yield served, model


def asked(served: Served, query: str, page: Page) -> None:
    """Ask in the background, and open what is shown of it."""
    body = {"query": query, "background": True}
    id = httpx.post(f"{served.url}/v1/sql", json=body, timeout=60).json()["query_id"]
    page.open(f"/queries/{id}")


def test_what_a_query_over_tables_shows(
    driver: webdriver.Chrome, shelf: tuple[Served, FakeOpenAI]
) -> None:
    served, _ = shelf
    page = Page(driver, served.url)
    page.forget()
    asked(served, QUERY, page)
    page.says("partial", ".badge")
    page.says(QUERY, ".question")
    page.says("rows with the same values are one question", "[data-testid=rewrites]")
    page.says("30 of 30", "[data-testid=stages]")
    page.says("Cost so far: 0.000", "[data-testid=total]")
    page.says("this one is bad", "[data-testid=failed]")
    assert len(page.all("[data-testid=rows] tbody tr")) == 30
    assert page.all("[data-testid=rows] td")[0].text == "<b>Film 0</b>", "texts, never markup"
    page.go("/queries")
    page.says("Is it sad?", ".queries")
    assert page.complaints() == []


def test_one_that_runs_is_cancelled(
    driver: webdriver.Chrome, shelf: tuple[Served, FakeOpenAI]
) -> None:
    served, model = shelf
    model.cursed = {"Is it long?": Hang()}
    page = Page(driver, served.url)
    page.forget()
    asked(served, QUERY.replace("sad", "long"), page)
    page.one("button.danger")
    page.says("0 of 30", "[data-testid=stages]")
    page.one("button.danger").click()
    page.says("What was answered is kept", "section .note")
    page.says("cancelled", ".badge")
    assert page.complaints() == []
