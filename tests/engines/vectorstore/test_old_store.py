"""A store that Teola wrote before documents had versions opens, answers and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest

from teola import App, Embedding, EngineConfig, Indexing, Runtime, Search
from teola.collections import index, list_documents, tidy
from teola.reindexing import reindex
from teola_apps import naive_rag
from teola_engines.embedding.model import borrowed
from teola_engines.vectorstore import EmbeddedPostgres

from . import old_store

DTYPE = "float32"


@pytest.fixture
def runtime(cluster: Path) -> Iterator[Runtime]:
    """On a store of then."""
    database = EmbeddedPostgres(cluster)
    try:
        admin, _ = database.start()
        with borrowed(dtype=DTYPE) as model:
            old_store.write(admin, model.embed, model.identity)
        engines = {name: EngineConfig(name, {"dtype": DTYPE}) for name in ("embedding", "rerank")}
        engines["llm"] = EngineConfig("extractive", {"dtype": DTYPE})
        engines["vectorstore"] = EngineConfig("vectorstore", {"data_dir": str(cluster)})
        with Runtime(engines) as runtime:
            yield runtime
    finally:
        database.close()


def names(runtime: Runtime, collection: str) -> list[str]:
    return [str(one["name"]) for one in list_documents(collection, runtime=runtime)]


def hybrid(runtime: Runtime) -> App:
    return App(
        "hybrid",
        Indexing() >> Embedding(inputs={"texts": "question"}) >> Search(mode="hybrid", top_k=9),
        inputs={"question": "text", "documents": "documents"},
        outputs={"hits": "hits"},
        runtime=runtime,
    )


def test_an_old_store_opens_answers_and_goes_on(runtime: Runtime) -> None:
    assert names(runtime, "harbour") == ["keepers.txt"] * 2 + ["boats.txt"] * 2
    assert names(runtime, "documents") == ["loose.txt"]

    app = copy(naive_rag.app)
    app.runtime = runtime
    asked = {"question": "Who is the keeper of the lamp?", "collection": "harbour"}
    answer = str(app.run(asked).answer)
    assert "is Carl." in answer
    assert "is Cora now." in answer
    words = hybrid(runtime)
    (best, *_) = words.run(question="fourteen boats", collection="harbour")["hits"]
    assert best.text == "Fourteen boats are moored in the harbour."

    given = {"name": "keepers.txt", "text": "The keeper of the lamp is Moa."}
    done = index([given], collection="harbour", runtime=runtime)
    assert (done["new"], done["replaced"]) == (1, ["keepers.txt"])
    assert names(runtime, "harbour") == ["boats.txt"] * 2 + ["keepers.txt"]
    assert app.run(asked).answer == "“The keeper of the lamp is Moa.”"

    assert tidy("harbour", runtime=runtime) == ["boats.txt"]
    assert names(runtime, "harbour") == ["boats.txt", "keepers.txt"]
    hits = words.run(question="twelve boats", collection="harbour")["hits"]
    assert [hit.text for hit in hits if hit.document == "boats.txt"] == [
        "Fourteen boats are moored in the harbour."
    ]


def test_an_old_collection_of_two_embedders_serves_until_it_is_embedded_anew(
    runtime: Runtime,
) -> None:
    app = copy(naive_rag.app)
    app.runtime = runtime
    asked = {"question": "How often does high water come?", "collection": "two"}
    before = app.run(asked)
    assert [notice for notice in before.notices if "teola collections reindex two" in notice]
    assert "tides.txt" in {hit.document for hit in before["sources"]}
    reindex("two", runtime=runtime)
    after = app.run(asked)
    assert not [notice for notice in after.notices if "reindex" in notice]
    assert after["sources"][0].document == "tides.txt"
    assert after.answer == "“High water comes twice a day.”"
    assert names(runtime, "two") == ["market.txt", "tides.txt"]
