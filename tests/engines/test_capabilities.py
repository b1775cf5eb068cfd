"""What the engines that come along can besides, before they are started."""

from __future__ import annotations

from typing import Any

import pytest

from teola import engine as protocols
from teola.engine import (
    CallsServer,
    DigestsWeights,
    EstimatesTokens,
    FindsByMeaning,
    HasDatabase,
    HasDimensions,
    HasIdentity,
    Interruptible,
    KeepsOutputs,
    KeepsSequences,
    MakesKeys,
    NamesModel,
    ReadsPrompts,
    Reindexes,
    RetriesEmpty,
    StandsFor,
    TellsMemory,
    TellsPrefixes,
    TextVectors,
    Tokenizes,
    Travels,
    WarmsUp,
    near,
)
from teola.runtime.documents import estimates
from teola.runtime.engines import ENGINE_TYPES, EngineConfig
from teola.runtime.hosts.local import LocalHost
from teola.runtime.hosts.process import ProcessEngine

CAPABILITIES = {
    CallsServer,
    DigestsWeights,
    EstimatesTokens,
    FindsByMeaning,
    HasDatabase,
    HasDimensions,
    HasIdentity,
    Interruptible,
    KeepsOutputs,
    KeepsSequences,
    MakesKeys,
    NamesModel,
    ReadsPrompts,
    Reindexes,
    RetriesEmpty,
    StandsFor,
    TellsMemory,
    TellsPrefixes,
    Tokenizes,
    Travels,
    WarmsUp,
}
URL = {"url": "http://127.0.0.1:1/v1"}
OPTIONS: dict[str, dict[str, Any]] = {
    "cross-encoder": {"model": "/nowhere"},
    "openai": URL,
    "openai-embedding": {**URL, "model": "m", "dimensions": 8},
    "searxng": {"url": "http://127.0.0.1:1"},
    "sql": {"path": "/nowhere"},
    "transformers": {"model": "/nowhere"},
    "vllm": URL,
    "vllm-inprocess": {"model": "/nowhere"},
}
HAVE: dict[str, set[type]] = {
    "documents": {WarmsUp},
    "embedding": {DigestsWeights, HasDimensions, HasIdentity, Tokenizes, Travels},
    "openai": {CallsServer, MakesKeys, NamesModel, RetriesEmpty},
    "openai-embedding": {
        CallsServer,
        EstimatesTokens,
        HasDimensions,
        HasIdentity,
        NamesModel,
        Tokenizes,
        Travels,
    },
    "sql": {FindsByMeaning},
    "sql-databases": {FindsByMeaning},
    "transformers": {KeepsSequences, MakesKeys, ReadsPrompts, TellsPrefixes},
    "vectorstore": {
        HasDatabase,
        HasDimensions,
        KeepsSequences,  # a `release` of other things
        Reindexes,
    },
    "vllm": {MakesKeys, NamesModel, ReadsPrompts, TellsMemory, TellsPrefixes},
    "vllm-inprocess": {KeepsSequences, MakesKeys, ReadsPrompts, TellsMemory, TellsPrefixes},
}


def made(name: str) -> Any:
    return EngineConfig(name, OPTIONS.get(name, {})).make(name)


@pytest.mark.parametrize("name", ENGINE_TYPES.offered())
def test_an_engine_has_just_these(name: str) -> None:
    engine = made(name)
    assert {one for one in CAPABILITIES if isinstance(engine, one)} == HAVE.get(name, set())


@pytest.mark.parametrize("name", ["embedding", "openai-embedding"])
def test_documents_are_split_alike_wherever_the_embedding_engine_runs(name: str) -> None:
    recipe = EngineConfig(name, OPTIONS.get(name, {})).recipe(name)
    assert estimates(ProcessEngine(recipe)) == estimates(recipe.make()) == (name != "embedding")


@pytest.mark.parametrize("name", ["embedding", "vllm", "rerank"])
def test_who_stands_for_an_engine_elsewhere_has_what_that_one_has(name: str) -> None:
    recipe = EngineConfig(name, OPTIONS.get(name, {})).recipe(name)
    far, here = LocalHost(ProcessEngine(recipe), 0), LocalHost(recipe.make(), 0)
    assert type(near(far.engine)) is type(here.engine)
    assert near(here.engine) is here.engine
    for host in (far, here):
        have = HAVE.get(name, set())
        assert host.tells_memory == (TellsMemory in have)
        assert (host.vectors is not None) == (HasDimensions in have)
        assert (host.tokenizer is not None) == (Tokenizes in have)
        assert (host.named is not None) == (NamesModel in have)
        assert not host.keeps
    assert far.interruptible is False


class Plain:
    """Has no capability."""

    spec = EngineConfig("rerank").make("rerank").spec

    def start(self) -> None: ...

    def close(self) -> None: ...

    async def execute(self, requests: Any) -> Any: ...


class Stubborn(Plain):
    interruptible = False


class Keeping(Plain):
    keeps = True


def test_hosts_go_by_what_an_engine_says() -> None:
    plain, stubborn, keeping = (LocalHost(kind(), 0) for kind in (Plain, Stubborn, Keeping))
    assert (plain.interruptible, stubborn.interruptible) == (True, False)
    assert (plain.keeps, keeping.keeps) == (False, True)
    assert plain.count_tokens("twelve chars") == 4


def test_a_store_tells_the_dimensions_that_it_was_given() -> None:
    host = LocalHost(EngineConfig("vectorstore", {"dimensions": 8}).make("vectorstore"), 0)
    assert host.vectors is not None
    assert host.vectors.dimensions == 8


def test_all_capabilities_are_tested() -> None:
    begin = list(vars(protocols)).index("Interruptible")
    end = list(vars(protocols)).index("near")
    types = [v for v in list(vars(protocols).values())[begin:end] if isinstance(v, type)]
    found = {one for one in types if getattr(one, "_is_protocol", False)}
    assert found - {TextVectors} == CAPABILITIES, "vectors are given to engines"
