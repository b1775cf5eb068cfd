"""What a database gave, in a browser: rows, SQL, attempts, a chart."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from teola import EngineConfig, Runtime
from teola.testing import ScriptedModel
from teola_apps.text_to_sql import app
from tests.serve.conftest import serving
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

WRONG = "SELECT nme, length FROM boats"
SQL = "SELECT name, length FROM boats"
BOATS = (("<b>Petrel</b>", 9.5), ("=1+1", 30.0), ("Skua", 10.25))


def said(sql: str) -> str:
    return f"Explanation: All <i>boats</i>.\n```sql\n{sql}\n```"


@pytest.fixture
def asked(driver: webdriver.Chrome, tmp_path: Path) -> Iterator[Page]:
    """The page, where a question was asked."""
    path = tmp_path / "boats.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE boats (name TEXT, length REAL)")
        connection.executemany("INSERT INTO boats VALUES (?, ?)", BOATS)
    replies: Any = [said(WRONG), said(SQL)]
    model = ScriptedModel({"write_1": replies, "write_2": replies, "answer": "Three boats."})
    named = {"harbour": {"path": str(path), "values": False}}
    engines: Any = {"llm": model, "databases": EngineConfig("sql-databases", {"named": named})}
    with Runtime(engines) as runtime, serving(runtime, {app.name: app}) as served:
        page = Page(driver, served.url)
        page.forget()
        page.open("/ask")
        page.one("#input-question").send_keys("Which boats are there in the harbour now?")
        page.one("button.main").click()
        page.says("Three boats.", ".answer")
        yield page
    assert page.complaints() == []


def test_rows_are_sorted_sql_is_marked_and_attempts_are_told(asked: Page) -> None:
    def first_cells() -> list[str]:
        return [one.text for one in asked.all("[data-testid=rows] tbody td:first-child")]

    assert first_cells() == [name for name, _ in BOATS], "texts, never markup"
    asked.all("[data-testid=rows] th button")[1].click()
    asked.until(lambda: first_cells() == ["<b>Petrel</b>", "Skua", "=1+1"])
    asked.all("[data-testid=rows] th button")[1].click()
    asked.until(lambda: first_cells() == ["=1+1", "Skua", "<b>Petrel</b>"])
    assert [one.text for one in asked.all("[data-testid=sql] mark")] == ["boats"]
    asked.says("All <i>boats</i>.", ".note")
    assert len(asked.all(".chart rect")) == 3
    asked.driver.execute_script("document.querySelector('.attempts').open = true")
    asked.says("did you mean 'name'", "[data-testid=attempts]")
    assert len(asked.all("[data-testid=attempts] li")) == 4
    csv = asked.driver.execute_async_script(
        "const done = arguments[0]; import('./js/rows.js').then((m) => "
        "done(m.csvOf(['n', 'x'], [['=1+1', -2], ['a\"b', null]])))"
    )
    assert csv == 'n,x\r\n\'=1+1,-2\r\n"a""b",'
    assert asked.one("[data-testid=keep]").text == "Keep this"
