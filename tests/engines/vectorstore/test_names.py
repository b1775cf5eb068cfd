"""Names that clients give: those that rows are found by fit into an index, others may be long."""

from __future__ import annotations

import random
import string

import pytest

from teola.engine import NAME_CHARACTERS
from teola.errors import InputError
from teola_engines.vectorstore import PgVector

from .conftest import Corner, Server, key, vectors

CHARACTERS = string.ascii_letters + string.digits
WIDE = [chr(0x1F300 + i) for i in range(600)]


def noise(length: int, characters: str | list[str] = CHARACTERS) -> str:
    """Text that nothing can compress."""
    return "".join(random.Random(length).choices(characters, k=length))


@pytest.mark.parametrize("field", ["tenant", "collection"])
@pytest.mark.parametrize("length", [NAME_CHARACTERS + 1, 3000, 1_000_000])
async def test_names_that_are_too_long(field: str, length: int, store: PgVector) -> None:
    corner = Corner(**{field: noise(length)})
    told = f"the name of the {field} has {length} characters, more than the 255"
    with pytest.raises(InputError, match=told):
        await corner.claim(store, key("a"))
    (result,) = await store.execute([corner.search(vectors(1))])
    assert isinstance(result, InputError) == (field == "tenant")


async def test_the_longest_names_fit_together(store: PgVector) -> None:
    corner = Corner(noise(NAME_CHARACTERS, WIDE), noise(NAME_CHARACTERS, WIDE[::-1]))
    await corner.index(store, key("a"), vectors(1))
    assert [one["name"] for one in await store.collections(corner.tenant)] == [corner.collection]


async def test_names_that_are_in_no_index_may_be_long(store: PgVector, corner: Corner) -> None:
    name = noise(100_000)
    document = await corner.index(store, key(name), vectors(1))
    search = corner.search(vectors(1), filters={"name": name}, documents=(document, noise(5000)))
    (result,) = await store.execute([search])
    assert [hit.document for hit in result["hits"][0]] == [name]
    assert await store.delete(corner.tenant, corner.collection, [noise(9000)]) == 0


async def test_what_exceeds_a_limit_of_postgresql_is_the_caller_s_fault(
    store: PgVector, corner: Corner, server: Server
) -> None:
    """The driver takes such errors for those of a lost connection."""
    database = store._started._database
    with pytest.raises(InputError, match="exceeds one of its limits") as caught:
        async with database.transaction(corner.tenant) as connection:
            await connection.execute(
                "INSERT INTO teola.collections (tenant, name) VALUES (%s, %s)",
                (corner.tenant, noise(10_000)),
            )
    assert str(server.data_dir) not in str(caught.value)
    assert "collections_tenant" not in str(caught.value)
