"""No tenant sees another's rows, whatever a query asks for."""

from __future__ import annotations

import psycopg
import pytest

from teola.engine import QueryContext, Request, Scope
from teola.errors import InputError
from teola.graph.ops import Op, SearchParams
from teola_engines.vectorstore import PgVector
from teola_engines.vectorstore.schema import TENANT_TABLES

from .conftest import Corner, Server, connected, key, pieces, vectors

FORCED = """
SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
    (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'tenant')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
WHERE c.relnamespace = 'teola'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname
"""


async def test_every_table_with_a_tenant_forces_row_level_security(
    store: PgVector, server: Server
) -> None:
    assert server.rows(FORCED) == [(table, True, 1) for table in sorted(TENANT_TABLES)]


async def test_the_role_for_queries_sees_one_tenants_rows(
    store: PgVector, corner: Corner, server: Server
) -> None:
    """Without any condition in the statement: the barrier itself is tried."""
    stranger = Corner()
    await corner.index(store, key("mine"), vectors(2))
    await stranger.index(store, key("canary"), vectors(2))
    (pending,) = await stranger.claim(store, key("pending"))
    await store.execute([one.search(vectors(1)) for one in (corner, stranger)])
    for table in TENANT_TABLES:
        seen = f"SELECT DISTINCT tenant FROM teola.{table}"
        with psycopg.connect(server.query) as connection:
            assert connection.execute(seen).fetchall() == []
            connection.execute("SELECT set_config('teola.tenant', %s, true)", (corner.tenant,))
            assert connection.execute(seen).fetchall() == [(corner.tenant,)]
            connection.commit()
            assert connection.execute(seen).fetchall() == [], "the tenant outlived its transaction"
    with psycopg.connect(server.query) as connection:
        connection.execute("SELECT set_config('teola.tenant', %s, true)", (corner.tenant,))
        changed = connection.execute("UPDATE teola.documents SET name = 'x' WHERE name = 'canary'")
        assert changed.rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE teola.documents SET tenant = %s", (stranger.tenant,))
    with psycopg.connect(server.query) as connection:
        connection.execute("SELECT set_config('teola.sweep', 'on', true)")
        rows = connection.execute("SELECT id FROM teola.documents WHERE died IS NULL").fetchall()
        assert rows == [(pending.document,)], "the sweep sees unfinished documents and no others"


async def test_a_connection_forgets_the_tenant_with_the_transaction(
    store: PgVector, server: Server, corner: Corner
) -> None:
    await corner.index(store, key("a"), vectors(2))
    count = "SELECT count(*), pg_backend_pid() FROM teola.chunks"
    async with connected(server.admin, server.query) as database:
        async with database.transaction(corner.tenant) as connection:
            chunks, first = await (await connection.execute(count)).fetchone() or (0, 0)
            assert chunks == 2
        async with database.reading() as connection:
            assert await (await connection.execute(count)).fetchone() == (0, first)


async def test_a_batch_of_many_tenants_keeps_them_apart(store: PgVector) -> None:
    corners = [Corner(query=f"q{i}") for i in range(4)]
    values, requests = vectors(4), []
    for i, corner in enumerate(corners):
        (claim,) = await corner.claim(store, key("same name"), owner=corner.query)
        await store.expect(corner.query, {claim.document: 2})
        chunks = pieces(claim.document, 2, name=f"canary-{i}")
        requests.append(corner.ingestion(chunks, [values[i], -values[i]]))
    assert all(not isinstance(result, Exception) for result in await store.execute(requests))
    searches = [corner.search(values, top_k=10) for corner in corners]
    for i, result in enumerate(await store.execute(searches)):
        texts = {hit.text for hits in result["hits"] for hit in hits}
        assert texts == {f"canary-{i} 0", f"canary-{i} 1"}
        assert [len(hits) for hits in result["hits"]] == [2] * 4


async def test_foreign_documents_can_be_neither_named_nor_filled_nor_deleted(
    store: PgVector, corner: Corner
) -> None:
    stranger = Corner(collection=corner.collection)
    document = await stranger.index(store, key("canary"), vectors(2))
    (claim,) = await stranger.claim(store, key("pending"))
    (found,) = await store.execute([corner.search(vectors(1), documents=(document,))])
    assert found == {"hits": [[]]}
    (stored,) = await store.execute([corner.ingestion(pieces(claim.document, 1), vectors(1))])
    assert isinstance(stored, Exception)
    assert await store.delete(corner.tenant, corner.collection, [document]) == 0
    assert await store.documents(corner.tenant, corner.collection) == []


@pytest.mark.parametrize("tenant", ["", "someone-else", "a\0b"])
async def test_a_scope_outside_the_querys_tenant_is_refused(
    store: PgVector, corner: Corner, tenant: str
) -> None:
    inputs = {"vectors": vectors(1), "scope": Scope(tenant, "papers")}
    context = QueryContext("q1", corner.tenant)
    request = Request(Op.SEARCHING, SearchParams(1), inputs, context, "key")
    (result,) = await store.execute([request])
    assert isinstance(result, InputError)
