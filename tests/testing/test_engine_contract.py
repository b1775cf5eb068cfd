"""Shipped engines keep the contract of engines, and one that breaks a promise is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.common.tiny_model import make_model
from teola.engine import Call, Delta, EngineKind, EngineSpec, Request, Usage
from teola.errors import EngineError, InputError
from teola.graph import Op
from teola.runtime.python_engine import PythonEngine
from teola.testing import ContractBroken, ScriptedModel, check_engine
from teola.testing.hash_engines import HashEmbedder, HashModel, HashReranker
from teola_engines.documents import FileLoader
from teola_engines.embedding import MiniLM, OpenAIEmbeddings
from teola_engines.llm import ExtractiveReader, OpenAIServer, TransformersModel
from teola_engines.rerank import MaxSim
from teola_engines.vectorstore import PgVector
from tests.engines.vectorstore.conftest import temporary_folder
from tests.engines.websearch.conftest import BOATS, LAMP, SERVICES, engine_of
from tests.fake_embeddings import FakeEmbeddings
from tests.fake_openai import FakeOpenAI
from tests.fake_search import FakeSearch


@pytest.mark.parametrize(
    "engine",
    [
        PythonEngine,
        HashEmbedder,
        HashReranker,
        ScriptedModel({"check": "It is the keeper."}),
        ExtractiveReader,
        pytest.param(MaxSim, marks=pytest.mark.slow),
        pytest.param(MiniLM, marks=pytest.mark.slow),
        pytest.param(FileLoader, marks=pytest.mark.slow),
    ],
)
def test_shipped_engines_keep_their_contract(engine: Any) -> None:
    check_engine(engine)


@pytest.mark.slow
def test_so_does_a_model_of_transformers(tmp_path: Path) -> None:
    folder = make_model(tmp_path, hidden=64, layers=2, heads=2, vocabulary=1024)
    check_engine(lambda: TransformersModel(model=str(folder)))


def test_so_do_clients_of_servers() -> None:
    with FakeOpenAI() as server:
        check_engine(lambda: OpenAIServer(url=server.url, model=server.model))
    with FakeEmbeddings() as server:
        check_engine(lambda: OpenAIEmbeddings(url=server.url, model=server.model))


@pytest.mark.parametrize("name", SERVICES)
def test_so_do_clients_of_search_services(name: Any) -> None:
    with FakeSearch(name) as service:
        service.pages = [LAMP, BOATS]
        check_engine(lambda: engine_of(service))


@pytest.mark.server
def test_so_does_the_store(servers: None) -> None:
    with temporary_folder() as folder:
        check_engine(lambda: PgVector(data_dir=folder, dimensions=16))


# --- engines that break one promise ---------------------------------------------------------


class Reversed(HashEmbedder):
    """The results of the last request first."""

    async def execute(self, requests: Sequence[Request]) -> Any:
        return list(await super().execute(requests))[::-1]


class Short(HashEmbedder):
    async def execute(self, requests: Sequence[Request]) -> Any:
        return list(await super().execute(requests))[:1]


class Words(HashEmbedder):
    async def execute(self, requests: Sequence[Request]) -> Any:
        return [{"vectors": r.inputs["texts"]} for r in requests]


class Forgiving(HashEmbedder):
    """Takes a request without inputs."""

    async def execute(self, requests: Sequence[Request]) -> Any:
        full = [r for r in requests if r.inputs]
        found = iter(await super().execute(full) if full else ())
        return [next(found) if r.inputs else {"vectors": []} for r in requests]


class Breaks(HashEmbedder):
    """Is of no use after a failure."""

    broken = False

    async def execute(self, requests: Sequence[Request]) -> Any:
        self.broken |= any(not r.inputs for r in requests)
        if self.broken:
            return [EngineError("broken")] * len(requests)
        return await super().execute(requests)


class Unknown(HashEmbedder):
    """Of an operation that the check knows nothing of."""

    def __init__(self) -> None:
        self.spec = EngineSpec("sql", EngineKind.SQL, frozenset({Op.SQL}))


class Endless(HashModel):
    """Never says why it ends."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        yield Delta("a word")


class Untold(HashModel):
    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        yield Delta("a word", "stop")


class Long(HashModel):
    """Heeds no max_tokens."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        yield Delta("many words", "stop", Usage(9, 100))


class Mixed(HashModel):
    """Answers by how many calls there are."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.generating += 1
        await asyncio.sleep(0)
        yield Delta(f"{self.generating}", "stop", Usage(9, 1))
        self.generating -= 1


class Headless(HashModel):
    """Forgets what was computed ahead."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        text = "".join(part.text for part in call.parts)
        yield Delta(self.text(text, call.decode), "stop", Usage(9, 1))


class Retrying(HashModel):
    """Says of a schema that another try may help."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        if call.decode.schema:
            raise EngineError("no schema", retryable=True)
        yield Delta("a word", "stop", Usage(9, 1))


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        (lambda: object(), "has no `spec`"),
        (Reversed, "results are to be in the order of the requests"),
        (Short, "gave 1 results for 2 requests, not one for each"),
        (Words, "not a vector .a list of numbers. for each text"),
        (Forgiving, "embedding without any input gave .*, and no error"),
        (Breaks, "after a request that failed, embedding gave EngineError"),
        (Endless, "its last Delta has the finish_reason None"),
        (Untold, "its last Delta has no usage"),
        (Long, "generated 100 tokens, more than max_tokens=64"),
        (Mixed, "two calls at once gave"),
        (Headless, "in two pieces a prompt is answered"),
        (Retrying, "is no matter of another try: no schema"),
    ],
)
def test_an_engine_that_breaks_a_promise_is_told(engine: Callable[[], Any], told: str) -> None:
    with pytest.raises(ContractBroken, match=f"^engine .*{told}"):
        check_engine(engine)


def test_requests_for_other_operations_have_to_be_given() -> None:
    with pytest.raises(InputError, match=r"no requests for sql: .*samples={Op.SQL: \["):
        check_engine(Unknown)
