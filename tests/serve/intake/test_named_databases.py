"""Databases over HTTP: by their names in the configuration, for those who may ask them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola import EngineConfig, Runtime
from teola.config import Configuration
from teola.errors import QueryFailed
from teola.serve.access.auth import KeyFile
from teola.testing import ScriptedModel
from teola_apps.text_to_sql import app
from tests.planted import catches, edited
from tests.serve.conftest import Served, serving

SQL = "SELECT name FROM boats ORDER BY name"
REPLY = f"Explanation: All names.\n```sql\n{SQL}\n```"
MODEL = ScriptedModel(
    {"write_1": lambda call: REPLY, "write_2": lambda call: REPLY, "answer": lambda call: "Boats."}
)
ASKED = "Which boats are there in the register?"


def made(path: Path, boat: str) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE boats (name TEXT)")
        connection.execute("INSERT INTO boats VALUES (?)", (boat,))
    return str(path)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Served, Any]]:
    """A server with a database of red's, one of blue's, and one of everybody's."""
    folder = tmp_path_factory.mktemp("house")
    hints = folder / "hints.yaml"
    hints.write_text("tables: {boats: {about: that were seen}}\n")
    tables = {
        "reds": {"path": made(folder / "red.db", "Petrel"), "tenants": ["red"]},
        "blues": {"path": made(folder / "blue.db", "Skua"), "tenants": ["blue"]},
        "alls": {"path": made(folder / "all.db", "Tern"), "hints": str(hints)},
    }
    configs = Configuration.model_validate({"databases": tables}).engine_configs()
    options = {**configs["databases"].options, "data_dir": str(folder / "values")}
    engines: Any = {"llm": MODEL, "databases": EngineConfig("sql-databases", options)}
    keys = KeyFile(folder / "keys.json")
    tokens = {tenant: keys.create(tenant, tenant) for tenant in ("red", "blue")}
    with Runtime(engines) as runtime, serving(runtime, {app.name: app}, keys) as served:
        yield folder, served, tokens


@pytest.fixture
def red(house: tuple[Path, Served, Any]) -> Iterator[httpx.Client]:
    _, served, tokens = house
    headers = {"authorization": f"Bearer {tokens['red']}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=60) as client:
        yield client


def asked(client: httpx.Client, **inputs: Any) -> httpx.Response:
    body = {"inputs": {"question": ASKED, **inputs}}
    return client.post("/v1/apps/text-to-sql/queries", json=body)


def test_a_tenant_asks_what_is_open_to_it(red: httpx.Client) -> None:
    for database, boat in (("reds", "Petrel"), ("alls", "Tern")):
        found = asked(red, database=database, hints="alls")
        assert found.status_code == 200, found.text
        outputs = found.json()["outputs"]
        assert (outputs["rows"], outputs["answer"]) == ([[boat]], "Boats.")
    assert "that were seen" in MODEL.of("write_1")[-1].prompt
    inputs = red.get("/v1/apps/text-to-sql").json()["inputs"]["properties"]
    assert inputs["database"]["anyOf"][0]["enum"] == ["alls", "reds"]
    chat = {"model": "text-to-sql", "messages": [{"role": "user", "content": ASKED}]}
    said = red.post("/v1/chat/completions", json={**chat, "database": "reds"})
    assert said.json()["choices"][0]["message"]["content"] == "Boats.", said.text


@catches(
    "any-database-over-http",
    "a client names any file as a database",
    edited("teola.serve.intake.named_databases:NamedDatabases.check", "value not in mine", "False"),
)
@pytest.mark.parametrize("name", ["database", "hints"])
def test_and_nothing_else(
    house: tuple[Path, Served, Any], red: httpx.Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, _, _ = house
    monkeypatch.setenv("HOUSE_DSN", str(folder / "blue.db"))
    monkeypatch.chdir(folder)
    before = len(MODEL.calls)
    wrong = [
        "blues", "BLUES", "blues ", "blue.db", "./blue.db", str(folder / "blue.db"),
            "secret:HOUSE_DSN",         "secret:HOME", "file:blue.db", f"file://{folder}/blue.db", "postgresql://localhost/x",
        "postgres://a:b@10.0.0.1/x", "/etc/passwd", "../house/blue.db", "reds/../blues", "reds\n",
        ":memory:", "hints.yaml", str(folder / "hints.yaml"), "~/x.db", "*", "x" * 5000,
    ]  # fmt: skip
    chat = {"model": "text-to-sql", "messages": [{"role": "user", "content": ASKED}]}
    for value in wrong:
        inputs = {"database": "reds", name: value}
        for found in (
            asked(red, **inputs),
            red.post("/v1/chat/completions", json={**chat, **inputs}),
        ):
            assert found.status_code in (400, 422), (value, found.text)
            assert "Skua" not in found.text
            assert "no database" in found.text
            assert "a:b@" not in found.text
            assert str(folder) not in found.text or str(folder) in value
    for odd in (["reds"], {"name": "reds"}, 1, True):
        assert asked(red, **{"database": "reds", name: odd}).status_code == 422
    form = {"request": '{"inputs": {"question": "Which boats are there in the end?"}}'}
    fields = {name: (None, text) for name, text in {**form, "database": "blue.db"}.items()}
    posted = red.post("/v1/apps/text-to-sql/queries", files=fields)
    assert posted.status_code == 422, posted.text
    assert "say by the input 'database'" in asked(red).text
    for mode in ("background", "stream"):
        body = {"inputs": {"question": ASKED, "database": "./blue.db"}, "mode": mode}
        assert red.post("/v1/apps/text-to-sql/queries", json=body).status_code == 422
    assert len(MODEL.calls) == before


def test_the_engine_of_a_server_opens_no_path_either(house: tuple[Path, Served, Any]) -> None:
    """Also where an application of the server's own would hand one on."""
    folder, served, _ = house
    assert served.runtime.configs["databases"].options["paths"] is False
    for database in (str(folder / "blue.db"), "secret:HOME", "blues"):
        with pytest.raises(QueryFailed, match="there is no database") as refused:
            app.run({"question": ASKED, "database": database}, tenant="red")
        assert "Skua" not in str(refused.value)
