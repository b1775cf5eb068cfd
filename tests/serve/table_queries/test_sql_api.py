"""`POST /v1/sql`: what it gives, to whom, what it refuses, and what it takes at most."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola.errors import InputError
from teola.serve.table_queries import table_run
from teola.serve.table_queries.registered_tables import AnswersByTenant, answers_home
from teola.tables.workspace import Workspace
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.fake_openai import Hang
from tests.planted import catches, edited
from tests.serve.conftest import Served, soon
from tests.serve.table_queries.conftest import ROWS, TONE, Site
from tests.tables.sharing import url_of

KEYS = [
    "columns", "rows", "row_count", "state", "asked", "answered_before", "failed", "unmatched",
    "truncated", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "errors",
    "stages",
]  # fmt: skip


def sql(client: httpx.Client, query: str, **more: Any) -> httpx.Response:
    return client.post("/v1/sql", json={"query": query, **more})


def told(client: httpx.Client, query: str, **more: Any) -> dict[str, Any]:
    found = sql(client, query, **more)
    assert found.status_code == 200, found.text
    table: dict[str, Any] = found.json()
    return table


def events(text: str) -> list[tuple[str, Any]]:
    """Kinds and data of a stream's events."""
    parts = [part.splitlines() for part in text.split("\n\n") if part.startswith("id:")]
    return [(part[1][len("event: ") :], json.loads(part[2][len("data: ") :])) for part in parts]


def test_the_answer_is_that_of_the_command_and_is_asked_once(red: httpx.Client) -> None:
    found = told(red, TONE)
    assert set(found) == set(KEYS)
    assert found["columns"][1] == {"name": "tone", "type": "VARCHAR"}
    assert found["rows"] == [[i, "bad" if i % 4 else "good"] for i in range(ROWS)]
    assert (found["state"], found["asked"], found["row_count"]) == ("ok", ROWS, ROWS)
    again = sql(red, TONE)
    table = again.json()
    assert (table["asked"], table["answered_before"]) == (0, ROWS)
    kept = red.get(f"/v1/queries/{again.headers['x-query-id']}").json()
    assert (kept["app"], kept["state"], kept["mode"]) == ("query-tables", "ok", "sync")
    assert kept["asked"]["inputs"]["query"] == TONE
    assert kept["result"]["outputs"]["table"] == table


def test_what_it_took_is_in_its_usage(red: httpx.Client) -> None:
    found = sql(red, "SELECT LLM('Used?', text) FROM r WHERE id < 3")
    usage = red.get(f"/v1/queries/{found.headers['x-query-id']}").json()["result"]["usage"]
    table = found.json()
    assert usage["calls"] == table["asked"] == 3
    assert usage["prompt_tokens"] == table["prompt_tokens"] > 0
    taken = table["prompt_tokens"] + table["completion_tokens"]
    assert usage["cost"] == pytest.approx(taken / 1e6)


@catches(
    "answers-of-all-tenants",
    "the tenant is left out of the answers' key and file",
    edited(
        "teola.serve.table_queries.registered_tables:AnswersByTenant.path",
        "SHARED if self.shared else digest",
        "SHARED",
    ),
    edited(
        "teola.serve.table_queries.registered_tables:AnswersByTenant.owner",
        '"" if self.shared else tenant',
        '""',
    ),
)
def test_answers_of_another_tenant_are_never_seen(
    site: Site, red: httpx.Client, blue: httpx.Client
) -> None:
    query = "SELECT LLM('Whose?', text) FROM r WHERE id < 5"
    assert told(red, query)["asked"] == 5
    found = told(blue, query)
    assert (found["asked"], found["answered_before"]) == (5, 0)
    assert told(blue, query)["asked"] == 0
    for file in (site.folder / "answers").rglob("*.duckdb"):
        assert file.stat().st_mode & 0o77 == 0


def test_answers_in_a_database_are_apart_by_tenant_and_wait_for_nobody(
    site: Site,
    red: httpx.Client,
    blue: httpx.Client,
    servers: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with temporary_folder() as folder, closing(EmbeddedPostgres(folder)) as embedded:
        home = answers_home(url_of(embedded.start()[0]), None)
        monkeypatch.setattr(site.tables, "answers", AnswersByTenant(home))
        query = "SELECT LLM('Where?', text) FROM r WHERE id < 5"
        assert told(red, query)["asked"] == 5
        assert told(red, query)["answered_before"] == 5
        assert told(blue, query)["asked"] == 5
        assert site.tables.answers.path("red") is None


def test_a_home_of_answers_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not at mysql://"):
        answers_home("mysql://host/db", None)
    with pytest.raises(InputError, match="cannot be reached"):
        answers_home("postgresql://nobody@127.0.0.1:1/db", None)
    assert answers_home(False, tmp_path) is None
    assert answers_home(str(tmp_path), None) == tmp_path


def test_answers_are_shared_where_the_configuration_says_so(tmp_path: Any) -> None:
    shared = AnswersByTenant(tmp_path, shared=True)
    assert shared.path("red") == shared.path("blue")
    assert shared.owner("red") == shared.owner("blue") == ""
    apart = AnswersByTenant(tmp_path)
    assert apart.path("red") != apart.path("blue")
    assert apart.owner("red") != apart.owner("blue")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "reads what was not given"),
        ("SELECT * FROM '/etc/passwd'", "is a file"),
        ("SELECT * FROM glob('/*')", "reads what was not given"),
        ("SELECT * FROM nobody", "unknown table 'nobody' in line 1, column 15 (valid: big, cha"),
        ("SELECT * FROM blues", "unknown table 'blues'"),
        ("SELECT * FROM information_schema.tables", "unknown table 'information_schema.tables'"),
        ("SELECT * FROM pg_catalog.pg_class", "unknown table 'pg_catalog.pg_class'"),
        ("SELECT * FROM duckdb_settings()", "reads what was not given"),
        ("SELECT current_setting('temp_directory')", "only the registered tables can be read"),
        ("SELECT pg_get_viewdef(oid) FROM r", "only the registered tables can be read"),
        ("ATTACH 'x.duckdb'", "write a SELECT"),
        ("COPY r TO 'x.csv'", "write a SELECT"),
        ("SET memory_limit = '9GB'", "write a SELECT"),
        ("SELECT 1; SELECT 2", "one"),
        ("SELECT nope FROM r", "Candidate bindings"),
        ("SELECT LLM('T?', text, choices := 'x') FROM r", "choices"),
        ("SELECT LLM('T?', text, model := 'nobody') FROM r", "unknown model 'nobody'"),
        ("SELECT CAST(text AS INTEGER) FROM r", "onver"),
        (f"SELECT {'(' * 4000}1{')' * 4000}", ""),
        (f"SELECT '{'x' * 10_000}'", "characters, more than the 10,000"),
        ("SELECT LLM('T?', text) FROM big", "41 rows, more than the 40"),
        ("SELECT LLM('T?', text) AS k, count(*) FROM big GROUP BY k", "41 questions to ask"),
        ("SELECT * FROM big", "41 rows, more than the 40"),
        ("SELECT id, repeat(text, 20) FROM r", "larger than the 6,000 bytes"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_asked(
    site: Site, red: httpx.Client, query: str, says: str
) -> None:
    before = len(site.asked)
    refused = sql(red, query)
    assert refused.status_code == 422, refused.text
    message = refused.json()["error"]["message"]
    assert says in message
    assert str(site.folder) not in message
    assert len(site.asked) == before


@pytest.mark.parametrize("fetched", [1, 7, 500])
def test_a_result_is_as_large_however_it_is_fetched(
    red: httpx.Client, monkeypatch: pytest.MonkeyPatch, fetched: int
) -> None:
    monkeypatch.setattr(table_run, "FETCHED", fetched)
    found = told(red, f"SELECT id, repeat('x', {4_800 // ROWS}) AS x FROM r ORDER BY id")
    assert [row[0] for row in found["rows"]] == [*range(ROWS)]
    refused = sql(red, f"SELECT id, repeat('x', {6_600 // ROWS}) AS x FROM r")
    assert refused.status_code == 422
    assert "larger than the 6,000 bytes" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"most_calls": 41}, "more than the 40 that are taken"),
        ({"most_calls": 1.5}, "most_calls"),
        ({"on_error": "ignore"}, "on_error"),
        ({"max_errors": -1}, "max_errors"),
        ({"deadline_s": 1e9}, "deadline_s"),
        ({"most_cots": 1}, "most_cots"),
        ({"background": True, "stream": True}, "not both"),
    ],
)
def test_wrong_options_are_refused(red: httpx.Client, more: dict[str, Any], says: str) -> None:
    refused = sql(red, "SELECT 1", **more)
    assert refused.status_code == 422
    assert says in refused.json()["error"]["message"]


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'{"query": 1}', b'{"query": "\\ud800"}'])
def test_bodies_that_are_none_are_refused(red: httpx.Client, sent: bytes) -> None:
    assert red.post("/v1/sql", content=sent).status_code == 422


def test_a_server_without_tables_says_how_to_have_some(client: httpx.Client) -> None:
    refused = client.post("/v1/sql", json={"query": "SELECT 1"})
    assert refused.status_code == 422
    assert "[tables.NAME]" in refused.json()["error"]["message"]


def test_the_text_of_a_query_reads_nothing_behind_the_parser(
    site: Site, red: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB itself opens no other file, should a query get past the check of its text."""
    from teola.tables import query_text

    monkeypatch.setattr(query_text, "_check_table", lambda *_: None)
    other = site.folder / "keys.json"
    refused = sql(red, f"SELECT * FROM read_text('{other}')")
    assert refused.status_code == 422
    assert "disabled by configuration" in refused.json()["error"]["message"]


def test_most_calls_and_most_cost_end_it_partial(red: httpx.Client) -> None:
    query = "SELECT LLM('Long?', text) FROM r"
    found = told(red, query, most_calls=7)
    assert (found["state"], found["asked"], found["row_count"]) == ("partial", 7, 7)
    assert found["reason"] == "most_calls of 7 is reached"
    found = told(
        red, "SELECT LLM('Dear?', text, max_tokens := 8) FROM r WHERE id < 12", most_cost=1e-4
    )
    assert found["state"] == "partial"
    assert 0 < found["asked"] < 12
    assert "this query has taken or reserved" in found["reason"]


def test_the_budget_of_the_key_holds(site: Site) -> None:
    with site.client("poor") as poor:
        found = told(poor, "SELECT LLM('Poor?', text, max_tokens := 8) FROM r")
        assert found["state"] == "partial"
        assert 0 < found["asked"] < ROWS
        assert "key 'carol' today" in found["reason"]
        more = told(poor, "SELECT LLM('More?', text, max_tokens := 8) FROM r")
        assert more["asked"] < found["asked"]


@pytest.mark.parametrize("how", ["body", "header"])
def test_events_tell_its_plan_progress_and_rows(red: httpx.Client, how: str) -> None:
    body = {"query": f"SELECT id, LLM('By {how}?', text) AS s FROM r", "stream": how == "body"}
    headers = {"accept": "text/event-stream"} if how == "header" else {}
    found = events(red.post("/v1/sql", json=body, headers=headers).text)
    kinds = [kind for kind, _ in found]
    assert (kinds.count("plan"), kinds[-1]) == (1, "done")
    assert kinds.index("plan") < kinds.index("progress") < kinds.index("rows")
    plan = dict(found)["plan"]
    assert {one["rule"] for one in plan["rewrites"]} == {"dedup", "warm", "sort"}
    first, *_, last = [data for kind, data in found if kind == "progress"]
    assert (first["to_ask"], first["ended"], last["ended"]) == (ROWS, 0, ROWS)
    assert last["cost"] > 0
    table = found[-1][1]
    assert set(table) == set(KEYS)
    assert table["asked"] == ROWS


def test_a_client_that_leaves_ends_its_query(site: Site, red: httpx.Client) -> None:
    site.model.cursed["Hang?"] = Hang()
    body = {"query": "SELECT LLM('Hang?', text) FROM r WHERE id < 3", "stream": True}
    before = len(site.asked)
    with red.stream("POST", "/v1/sql", json=body) as response:
        id = response.headers["x-query-id"]
        soon(lambda: len(site.asked) > before)
    soon(lambda: red.get(f"/v1/queries/{id}").json()["state"] == "cancelled")
    assert site.model.wait(lambda: site.model.in_flight == 0)
    assert told(red, "SELECT 1 AS one")["rows"] == [[1]]  # the answers are free again


def test_in_the_background_it_is_followed_and_cancelled(
    site: Site, red: httpx.Client, blue: httpx.Client
) -> None:
    site.model.cursed["Wait?"] = Hang()
    asked = sql(red, "SELECT LLM('Wait?', text) FROM r WHERE id < 3", background=True)
    assert asked.status_code == 202
    where = asked.headers["location"]
    assert blue.get(where).status_code == blue.delete(where).status_code == 404
    soon(lambda: site.model.in_flight > 0)
    assert red.get(where).json()["state"] == "running"
    assert red.delete(where).json()["state"] == "cancelled"
    assert site.model.wait(lambda: site.model.in_flight == 0)
    assert events(red.get(f"{where}/events").text)[-1][0] == "error"


@pytest.mark.slow
def test_a_statement_of_duckdb_ends_with_its_deadline(red: httpx.Client) -> None:
    endless = "SELECT count(*) FROM r a, range(1000000) b, range(1000000) c"
    late = sql(red, endless, deadline_s=0.3)
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "deadline"
    assert told(red, "SELECT count(*) FROM r")["rows"] == [[ROWS]]


@catches(
    "file-without-end",
    "tables of a query fill a server's disk",
    edited("teola.serve.table_queries.table_run:TableRun._work", ", in_file=False", ""),
)
def test_no_tables_are_in_a_file_that_nothing_bounds(
    red: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, close = list[list[Path]](), Workspace.close

    def looked(self: Workspace) -> None:
        files.append([*self.folder.rglob("*.duckdb")])
        close(self)

    monkeypatch.setattr(Workspace, "close", looked)
    told(red, "SELECT LLM('Used?', text) FROM r WHERE id < 3")
    assert files
    assert not any(files)


def test_a_table_that_changes_is_read_anew_and_its_place_is_not_told(
    site: Site, red: httpx.Client
) -> None:
    file = site.folder / "changing.csv"
    assert told(red, "SELECT text FROM changing")["rows"] == [["gentle"]]
    file.write_text("id,text,more\n1,loud,x\n2,long,y\n")
    assert told(red, "SELECT text, more FROM changing")["rows"] == [["loud", "x"], ["long", "y"]]
    file.write_text('id,text\n1,"never ends\n')
    os.utime(file, (1, 1))
    refused = sql(red, "SELECT text FROM changing")
    assert refused.status_code == 422
    assert "[changing]" in refused.json()["error"]["message"]
    assert str(site.folder) not in refused.text


def test_rows_whose_call_failed_are_told(site: Site, red: httpx.Client, served: Served) -> None:
    from tests.fake_openai import Fail

    site.model.cursed["text 1 is"] = Fail(400, "this prompt is bad")
    query = "SELECT id, LLM('Fails?', text) AS f FROM r WHERE id < 4"
    found = told(red, query)
    assert (found["state"], found["failed"], found["rows"][1]) == ("partial", 1, [1, None])
    assert "this prompt is bad" in found["errors"][0]["error"]
    failed = sql(red, query, on_error="fail")
    assert failed.status_code == 502
    assert "a row failed" in failed.json()["error"]["message"]
    site.model.cursed.clear()
