"""What a foreign embedding model is asked, and what is taken of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from teola.adapters.foreign_embedder import ForeignEmbedder
from teola.engine import Chunk, QueryContext, Request
from teola.errors import EngineError, InputError, OutputError, QueryCancelled
from teola.graph.ops import EmbeddingParams, Op


class Lengths:
    """Says a text's length and first letter, and whether it is searched for. asked: in order."""

    label, model = "Lengths", None

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def vectors(self, role: str, texts: list[str]) -> list[list[float]]:
        self.asked.append((role, texts))
        if "bad" in texts:
            raise ValueError("bad")
        return [[len(text), ord(text[0]), 1 + (role == "query")] for text in texts]

    async def documents(self, texts: list[str]) -> list[list[float]]:
        return self.vectors("document", texts)

    async def queries(self, texts: list[str]) -> list[list[float]]:
        return self.vectors("query", texts)

    def close(self) -> None: ...


def request(role: str, texts: Sequence[Any], id: str = "q") -> Request:
    params: Any = EmbeddingParams(role=role)  # type: ignore[arg-type]
    return Request(Op.EMBEDDING, params, {"texts": texts}, QueryContext(id), id)


def unit(role: str, text: str) -> Any:
    vector = np.array([len(text), ord(text[0]), 1 + (role == "query")], np.float32)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("seed", range(10))
async def test_each_text_is_embedded_once_for_what_it_is_wanted_for(seed: int) -> None:
    chance, source = Random(seed), Lengths()
    most = chance.randint(1, 4)
    engine = ForeignEmbedder(source=source, max_batch=most)
    wanted = [
        (chance.choice(["query", "document"]), [chance.choice("abcdefg") * 2 for _ in range(n)])
        for n in (0, 1, 3, 5)
    ]
    found: Any = await engine.execute([request(*one) for one in wanted])
    for (role, texts), result in zip(wanted, found, strict=True):
        vectors = [unit(role, text) for text in texts]
        assert np.allclose(result["vectors"], vectors) if texts else result == {"vectors": []}
    for role in ("document", "query"):
        asked = [texts for asked_role, texts in source.asked if asked_role == role]
        distinct = dict.fromkeys(t for own, texts in wanted if own == role for t in texts)
        assert asked == [[*distinct][at : at + most] for at in range(0, len(distinct), most)]


async def test_a_text_that_is_not_taken_fails_its_own_request() -> None:
    engine = ForeignEmbedder(source=Lengths())
    requests = [request("query", ["a"]), request("query", ["bad"]), request("query", ["c"])]
    one, bad, other = await engine.execute(requests)
    assert isinstance(bad, EngineError)
    assert np.allclose([one["vectors"][0], other["vectors"][0]], [unit("query", t) for t in "ac"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("why", "again"), [(ConnectionError("busy"), True), (TimeoutError(), True), (KeyError(), False)]
)
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_who_is_busy_is_asked_once_for_a_batch(
    why: Exception, again: bool, count: int
) -> None:
    """Another try may come later. What would fail again is asked for each request by itself."""

    class Fails(Lengths):
        def vectors(self, role: str, texts: list[str]) -> list[list[float]]:
            self.asked.append((role, texts))
            raise why

    source = Fails()
    found = await ForeignEmbedder(source=source).execute(
        [request("query", [f"{k}"]) for k in range(count)]
    )
    assert [error.retryable for error in found if isinstance(error, EngineError)] == [again] * count
    assert len(source.asked) == (1 if again or count == 1 else 1 + count)


async def test_nothing_is_asked_for_whom_nobody_waits() -> None:
    source = Lengths()
    engine, requests = ForeignEmbedder(source=source, max_batch=1), [request("query", ["a", "b"])]
    requests[0].context.life.over = True
    with pytest.raises(QueryCancelled):
        await engine.execute(requests)
    assert source.asked == []


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ([[1, 2]], "1 vectors where 2 vectors were asked for"),
        ([[1], [1, 2]], "no vectors of equal length"),
        ([[], []], "2 vectors where"),
        ([1, 2], "an array of shape"),
        ([[1, float("nan")], [1, 1]], "not finite"),
        ([[1, 1e39], [1, 1]], "not finite"),
        ([[1, 2], [3, 4]], "vectors of 2 numbers where they had 3 before"),
    ],
)
async def test_what_are_no_vectors_is_told(raw: Any, told: str) -> None:
    source = Lengths()
    engine = ForeignEmbedder(source=source)
    await engine.start()
    assert (engine.dimensions, engine.identity) == (3, "Lengths:3")
    source.vectors = lambda role, texts: raw  # type: ignore[method-assign]
    (error,) = await engine.execute([request("query", ["a", Chunk("d", 0, "b", "n")])])
    assert isinstance(error, OutputError)
    assert told in str(error)


@pytest.mark.parametrize("name", ["max_batch", "concurrency", "max_tokens"])
def test_sizes_begin_at_one(name: str) -> None:
    assert ForeignEmbedder(source=Lengths(), **{name: 1})
    with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
        ForeignEmbedder(source=Lengths(), **{name: 0})
