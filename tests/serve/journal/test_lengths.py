"""Texts of clients that are longer than PostgreSQL's indexes take (a third of a page, 2,704 bytes):
none becomes a column that is indexed."""

from __future__ import annotations

import secrets

import pytest

from tests.serve.journal.conftest import ECHO, Serve, ask, ended, rows

INDEXED = """
SELECT DISTINCT a.attrelid::regclass::text || '.' || a.attname
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE starts_with(i.indrelid::regclass::text, 'teola_journal.') AND a.atttypid = 'text'::regtype
ORDER BY 1
"""
LONGEST = """
SELECT max(length(id)), max(length(tenant)), max(length(key)) FROM teola_journal.queries
"""


@pytest.mark.parametrize("length", [1, 2_704, 8_200, 60_000])
def test_a_key_of_any_length_names_one_query(serve: Serve, dsn: str, length: int) -> None:
    """Of letters that cannot be compressed."""
    key = secrets.token_urlsafe(length)[:length]
    other = key[:-1] + ("A" if key[-1] != "A" else "B")
    with serve() as (_, client):
        first = ask(client, "hello", key)
        assert first.status_code == 202, first.text
        again = ask(client, "hello", key)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json()["query_id"] == first.json()["query_id"]
        assert ask(client, "hello", other).json()["query_id"] != first.json()["query_id"]
        assert ended(client, first.json()["query_id"])["state"] == "ok"
    assert rows(dsn, LONGEST) == [(32, len("default"), 64)]


def test_long_texts_of_a_query_are_stored_and_long_names_are_none(serve: Serve) -> None:
    long = secrets.token_urlsafe(20_000)[:20_000]
    with serve() as (_, client):
        id = ask(client, long).json()["query_id"]
        assert ended(client, id)["result"]["outputs"] == {"answer": f"you said: {long}"}
        for more in ({"passes": long}, {"overrides": {long: 1}}, {"inputs": {long: "x"}}):
            body = {"inputs": {"question": "x"}, "mode": "background", **more}
            assert client.post(ECHO, json=body).status_code == 422
        assert client.get("/v1/queries", params={"app": long}).json() == {"queries": []}
        assert client.get("/v1/queries", params={"state": long}).json() == {"queries": []}
        for path in (f"/v1/queries/{long}", f"/v1/queries/{long}/events", f"/v1/apps/{long}"):
            assert client.get(path).status_code == 404


def test_no_other_text_is_indexed(made: str) -> None:
    """Ids are ours, tenants the operator's (64 characters), keys of clients digests, those of steps
    and questions cut (LONGEST_KEY): a column that is indexed from now on must be as short."""
    ours = ("asks.id", "asks.query", "files.query", "queries.id", "queries.key", "queries.tenant")
    ours += ("steps.key", "steps.query")
    assert [name for (name,) in rows(made, INDEXED)] == [f"teola_journal.{one}" for one in ours]
