"""Shipped engines keep the contract of engines, and one that breaks a promise is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.common.tiny_model import make_model
from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    Request,
    SequenceHandle,
    Usage,
)
from teola.errors import EngineError, InputError
from teola.graph import Op
from teola.graph.ops import EmbeddingParams
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


class Lonely(HashEmbedder):
    """Does one request at a time."""

    async def execute(self, requests: Sequence[Request]) -> Any:
        first, *others = await super().execute(requests)
        return [first, *(EngineError("too many") for _ in others)]


class Useless(HashEmbedder):
    async def execute(self, requests: Sequence[Request]) -> Any:
        return [EngineError("out of order")] * len(requests)


class Rounds(HashEmbedder):
    """Computes a little otherwise in larger batches. by: how much."""

    def __init__(self, by: float = 0.01) -> None:
        super().__init__()
        self.by = by

    async def execute(self, requests: Sequence[Request]) -> Any:
        more = self.by * (len(requests) - 1)
        results: Any = await super().execute(requests)
        found = [result["vectors"] for result in results]
        return [{"vectors": [[x + more for x in v] for v in vectors]} for vectors in found]


class Interrupted(HashEmbedder):
    """Is of no use after a batch that was cancelled."""

    cancelled = False

    async def execute(self, requests: Sequence[Request]) -> Any:
        if self.cancelled:
            return [EngineError("cancelled")] * len(requests)
        try:
            return await super().execute(requests)
        except asyncio.CancelledError:
            self.cancelled = True
            raise


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


class Says(HashModel):
    """Streams these pieces, whatever it is asked."""

    def __init__(self, *pieces: Delta) -> None:
        super().__init__()
        self.pieces = pieces

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        for piece in self.pieces:
            yield piece


LAST = Delta("", "stop", Usage(9, 1))


class Counting(HashModel):
    """counted: tokens of any text."""

    def __init__(self, counted: Any) -> None:
        super().__init__()
        self.counted = counted

    def count_tokens(self, text: str) -> int:
        return self.counted  # type: ignore[no-any-return]


class Nameless(HashModel):
    """Gives handles of other prompts."""

    async def prefill(self, call: Call) -> SequenceHandle:
        return replace(await super().prefill(call), parts=())


class Worn(HashModel):
    """Answers otherwise after a call that was aborted."""

    aborted = False

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        try:
            yield Delta("worn" if self.aborted else "a word")
            yield LAST
        except GeneratorExit:
            self.aborted = True
            raise


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        (lambda: object(), "has no `spec`"),
        (Reversed, "results are to be in the order of the requests"),
        (Short, "gave 1 results for 2 requests, not one for each"),
        (Words, "not a vector .a list of numbers. for each text"),
        (Forgiving, "embedding without any input gave .*, and no error"),
        (Breaks, "after a request that failed, embedding gave EngineError"),
        (Lonely, "embedding number 1 of a batch failed: too many"),
        (Useless, "embedding failed: EngineError: out of order"),
        (Rounds, "embedding number 0 of a batch gave .*, and alone"),
        (Interrupted, "after a batch that was cancelled, embedding gave EngineError"),
        (Endless, "its last Delta has the finish_reason None"),
        (Untold, "its last Delta has no usage"),
        (Long, "generated 100 tokens, more than max_tokens=64"),
        (Mixed, "two calls at once gave"),
        (Headless, "in two pieces a prompt is answered"),
        (Retrying, "is no matter of another try: no schema"),
        (partial(Says, LAST, LAST), "it streams on after a Delta with a finish_reason"),
        (Says, "its stream ended without a Delta"),
        (partial(Says, Delta("x", "done", Usage(9, 1))), "the finish_reason 'done'"),
        (partial(Counting, 0), "count_tokens gave 0 for a sentence"),
        (partial(Counting, True), "count_tokens gave True for a sentence"),
        (partial(Counting, 1.5), "count_tokens gave 1.5 for a sentence"),
        (Nameless, "prefill gave .*, whose parts are not those of its call"),
        (Worn, "after a call that was aborted it gave 'worn"),
    ],
)
def test_an_engine_that_breaks_a_promise_is_told(engine: Callable[[], Any], told: str) -> None:
    with pytest.raises(ContractBroken, match=f"^engine .*{told}"):
        check_engine(engine)


def test_requests_for_other_operations_have_to_be_given() -> None:
    with pytest.raises(InputError, match=r"no requests for sql: .*samples={Op.SQL: \["):
        check_engine(Unknown)


def test_requests_that_are_given_take_the_place_of_those_that_are_known() -> None:
    made = HashEmbedder()
    texts = [["x"] * 3, ["y"] * 5]
    samples = [(EmbeddingParams("query"), {"texts": some}) for some in texts]
    check_engine(lambda: made, samples={Op.EMBEDDING: samples})
    assert {3, 5, 8} == set(made.batches[:3])


def test_where_chance_decides_results_are_not_compared() -> None:
    with pytest.raises(ContractBroken):
        check_engine(Rounds)
    for engine in (Rounds, Mixed, Headless):
        check_engine(engine, repeatable=False)


def test_numbers_that_differ_by_rounding_are_equal() -> None:
    check_engine(partial(Rounds, 1e-5))


class Keeps(HashModel):
    """Notes which handles are given up."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[SequenceHandle] = []

    def release(self, handle: SequenceHandle) -> None:
        self.released.append(handle)


def test_an_engine_is_closed_and_gives_up_what_it_kept() -> None:
    for made in (HashEmbedder(), Reversed(), Keeps(), Says()):
        with suppress(ContractBroken):
            check_engine(lambda made=made: made)  # type: ignore[misc]
        assert (made.started, made.closed) == (1, 1)
        if isinstance(made, Keeps):
            assert [len(handle.parts) for handle in made.released] == [1]


async def test_it_may_be_checked_where_a_loop_runs() -> None:
    check_engine(HashReranker)
