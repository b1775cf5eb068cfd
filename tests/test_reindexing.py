"""Collections keep to their embedder, and are embedded anew for another one; real engines."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teola import App, EngineConfig, Runtime, collections
from teola.catalogue import load_app
from teola.errors import InputError, UnknownName
from tests.fake_embeddings import FakeEmbeddings

TEXTS = {
    "lamp": "The keeper looks after the lamp.",
    "tower": "The tower is 61 metres tall.",
    "boats": "The boats are moored in the harbour.",
}
Other = Callable[..., Runtime]


class Swapped(FakeEmbeddings):
    """A server that gives another model's vectors under the same name, once it is told to."""

    swapped = False

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.swapped:
            body = {**body, "input": [text[::-1] for text in body["input"]]}
        return super()._embeddings(body)


@pytest.fixture
def server() -> Iterator[Swapped]:
    with Swapped() as server:
        yield server


@pytest.fixture
def other(data_dir: Path) -> Iterator[Other]:
    """Makes runtimes on the same database with an embedder by URL."""
    made: list[Runtime] = []

    def make(server: FakeEmbeddings) -> Runtime:
        store = {"data_dir": data_dir, "dimensions": server.dimensions}
        engines = {
            "embedding": EngineConfig("openai-embedding", {"url": server.url}),
            "vectorstore": EngineConfig("vectorstore", store),
        }
        made.append(Runtime(engines))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()


def index(runtime: Runtime, tenant: str, *names: str) -> dict[str, Any]:
    given = [{"name": name, "text": TEXTS[name]} for name in names]
    return collections.index(given, collection="harbour", runtime=runtime, tenant=tenant)


def ask(runtime: Runtime, tenant: str) -> Any:
    app: App = copy.copy(load_app("naive-rag"))
    app.runtime = runtime
    question = "How tall is the tower?"
    return app.run(question=question, collection="harbour", tenant=tenant)


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_another_embedder_of_the_same_length_is_refused_until_the_collection_is_its(
    runtime: Runtime, other: Other, server: Swapped, tenant: str
) -> None:
    index(runtime, tenant, *TEXTS)
    by_url = other(server)
    with pytest.raises(InputError, match=r"`teola collections reindex harbour`") as refused:
        ask(by_url, tenant)
    assert "indexed with 'all-MiniLM-L6-v2@53aa51172d142c89" in str(refused.value)
    assert "not with 'fake-embedding@" in str(refused.value)
    with pytest.raises(InputError, match=r"not with 'fake-embedding@"):
        index(by_url, tenant, "lamp")
    told: list[tuple[int, int]] = []
    done = collections.reindex(
        "harbour", runtime=by_url, tenant=tenant, on_progress=lambda *step: told.append(step)
    )
    assert (done["documents"], done["chunks"], done["embedded"]) == (3, 3, 3)
    assert done["embedder"].startswith("fake-embedding@")
    assert told == [(3, 3)]
    assert ask(by_url, tenant)["sources"][0].document == "tower"
    with pytest.raises(InputError, match="not with 'all-MiniLM"):
        ask(runtime, tenant)
    assert collections.reindex("harbour", runtime=runtime, tenant=tenant)["embedded"] == 3
    assert collections.reindex("harbour", runtime=runtime, tenant=tenant)["embedded"] == 0
    assert ask(runtime, tenant)["sources"][0].document == "tower"
    assert index(runtime, tenant, *TEXTS)["known"] == 3


def test_an_embedder_of_another_length_has_its_own_table(
    runtime: Runtime, other: Other, tenant: str
) -> None:
    index(runtime, tenant, *TEXTS)
    with FakeEmbeddings(64) as server:
        by_url = other(server)
        with pytest.raises(InputError, match="collections reindex"):
            ask(by_url, tenant)
        collections.reindex("harbour", runtime=by_url, tenant=tenant)
        assert ask(by_url, tenant)["sources"][0].document == "tower"
        with pytest.raises(InputError, match="collections reindex"):
            ask(runtime, tenant)


def test_a_server_whose_model_has_become_another_one_is_found_out(
    other: Other, server: Swapped, tenant: str
) -> None:
    before = other(server)
    index(before, tenant, *TEXTS)
    assert ask(before, tenant)["sources"][0].document == "tower"
    server.swapped = True
    after = other(server)
    with pytest.raises(InputError, match="gives other vectors under that name now"):
        ask(after, tenant)
    assert collections.reindex("harbour", runtime=after, tenant=tenant)["embedded"] == 3
    assert ask(after, tenant)["sources"]


def test_the_sentence_is_embedded_once_and_not_for_each_query(
    other: Other, server: Swapped, tenant: str
) -> None:
    by_url = other(server)
    index(by_url, tenant, *TEXTS)
    for _ in range(3):
        ask(by_url, tenant)
    asked = [text for texts in server.asked for text in texts]
    assert len([text for text in asked if "lighthouse wrote" in text]) == 1


def test_documents_without_a_collection_are_each_their_embedders(
    runtime: Runtime, other: Other, server: Swapped, tenant: str
) -> None:
    for one in (runtime, other(server)):
        app: App = copy.copy(load_app("naive-rag"))
        app.runtime = one
        given = [{"name": "tower", "text": TEXTS["tower"]}]
        found = app.run(question="How tall is the tower?", documents=given, tenant=tenant)
        assert [hit.document for hit in found["sources"]] == ["tower"]
    with pytest.raises(InputError, match="each with its own embedder"):
        collections.reindex("documents", runtime=runtime, tenant=tenant)
    with pytest.raises(UnknownName, match="unknown collection 'ships'"):
        collections.reindex("ships", runtime=runtime, tenant=tenant)


def test_an_older_collection_of_two_embedders_is_searched_with_a_notice_until_it_is_reindexed(
    runtime: Runtime, admin: str, tenant: str
) -> None:
    index(runtime, tenant, *TEXTS)
    with psycopg.connect(admin, autocommit=True) as connection:
        forget = "UPDATE teola.collections SET embedder = NULL, sentence = NULL WHERE tenant = %s"
        connection.execute(forget, (tenant,))
        connection.execute(
            "UPDATE teola.documents SET pipeline = regexp_replace(pipeline, '^([^/]*/\\d+/\\d+).*',"
            " '\\1/gone@http://x/v1:384') WHERE tenant = %s AND name = 'lamp'",
            (tenant,),
        )
    (notice,) = [told for told in ask(runtime, tenant).notices if "several embedders" in told]
    assert "'gone@http://x/v1:384'" in notice
    assert collections.reindex("harbour", runtime=runtime, tenant=tenant)["embedded"] == 3
    assert not [told for told in ask(runtime, tenant).notices if "several" in told]
