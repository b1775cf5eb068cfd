"""Engines of which nothing is remembered are measured when they start, where that is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from teola import EngineConfig, Runtime
from teola.engine import EngineResult, Request
from teola.errors import EngineError
from teola.graph import Op
from teola.learning import EngineTimes
from teola.runtime import probing
from teola.runtime.engines import DEFAULTS
from teola.runtime.profiler import QUICK
from teola.runtime.remembering import mementos_in
from teola.testing.hash_engines import HashEmbedder, HashModel, MemoryStore
from tests.fake_embeddings import FakeEmbeddings
from tests.fake_openai import FakeOpenAI
from tests.planted import catches, edited

EMBEDDING = {"embedding": DEFAULTS["embedding"]}


def started(runtime: Runtime, *names: str) -> dict[str, EngineTimes]:
    """What is known of the engines `names` when they have been started."""
    runtime.start(runtime.ensure(names)).result()
    assert runtime.learner is not None
    return dict(runtime.learner.lessons.engines)


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """What was logged of engines, and about what."""
    told = ("engine_probed", "probe_failed", "engine_started")
    found = [(getattr(one, "event", ""), getattr(one, "fields", {})) for one in caplog.records]
    return [(event, fields) for event, fields in found if event in told]


@catches(
    "probed-again",
    "an engine is probed although it is remembered",
    edited(probing.probe_engine, "or memory.recall(", "or not memory.recall("),
)
def test_an_embedder_is_probed_once_and_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "teola")
    with Runtime(EMBEDDING, learn=tmp_path / "learned") as runtime:
        found = started(runtime, "embedding")["embedding"]
        profile = runtime.profile_for(["embedding"]).engines["embedding"]
    assert 2 <= found.seen <= len(QUICK.batches)
    assert found.varied == {Op.EMBEDDING}
    assert found.costs[Op.EMBEDDING].per_token_s > 0
    assert profile.source == f"learned from {found.seen} batches"
    assert profile.costs == found.costs
    (kept,) = mementos_in(tmp_path / "learned")
    assert (kept.engine, kept.lessons.engines) == ("embedding", {"embedding": found})
    with Runtime(EMBEDDING, learn=tmp_path / "learned") as runtime:
        assert started(runtime, "embedding") == {"embedding": found}
    names = [event for event, _ in events(caplog)]
    assert names == ["engine_probed", "engine_started", "engine_started"]


def test_what_is_remembered_is_known_without_a_start(tmp_path: Path) -> None:
    with Runtime(EMBEDDING, learn=tmp_path) as runtime:
        found = started(runtime, "embedding")["embedding"]
    with Runtime(EMBEDDING, learn=tmp_path) as runtime:
        entry = runtime.profile_for(["embedding"]).engines["embedding"]
        assert not runtime.runs(["embedding"])
    assert entry.costs == found.costs


def test_a_language_model_is_probed_by_few_short_calls(tmp_path: Path) -> None:
    with Runtime({"llm": HashModel}, learn=tmp_path) as runtime:
        found = started(runtime, "llm", "judge")
        model: Any = runtime.host("llm").engine
    assert found["llm"].step is not None
    assert found["llm"].seen == len(QUICK.prompts) + len(QUICK.sequences)
    assert found["judge"] == found["llm"], "it has the same instances"
    assert len(model.prompts) == 1 + len(QUICK.prompts) + 2 * sum(QUICK.sequences)


@pytest.mark.parametrize("learn", [True, False])
def test_nothing_is_probed_where_nothing_is_kept(learn: bool) -> None:
    model = HashModel()
    with Runtime({"llm": lambda: model}, learn=learn) as runtime:
        runtime.start(runtime.ensure(["llm"])).result()
    assert model.prompts == []


def asked(server: FakeOpenAI, probe: bool | None, folder: Path) -> int:
    """How many requests a server gets when an engine that is its client starts."""
    config = EngineConfig("openai-embedding", {"url": server.url}, probe=probe)
    with Runtime({"embedding": config}, learn=folder) as runtime:
        known = started(runtime, "embedding")
    assert bool(known) == bool(probe)
    return len(server.requests)


@catches(
    "probed-for-money",
    "an engine by URL is probed although nobody asked for it",
    edited(probing._is_wanted, "return not config.elsewhere", "return True"),
)
def test_a_server_is_not_probed(tmp_path: Path) -> None:
    with FakeEmbeddings() as server, FakeEmbeddings() as other:
        assert asked(server, None, tmp_path / "a") == asked(other, False, tmp_path / "b")


def test_a_server_is_probed_if_it_is_said(tmp_path: Path) -> None:
    with FakeEmbeddings() as server, FakeEmbeddings() as other:
        assert asked(server, True, tmp_path / "a") >= 3 + asked(other, None, tmp_path / "b")


@pytest.mark.parametrize(
    ("config", "elsewhere"),
    [
        (EngineConfig("openai", {}), True),
        (EngineConfig("vllm", pool=[{"url": "http://a:1/v1"}, {"url": "http://b:1/v1"}]), True),
        (EngineConfig("vectorstore", {"dsn": "postgresql://x"}), True),
        (EngineConfig("vectorstore"), False),
        (EngineConfig("extractive"), False),
        (EngineConfig(HashModel), False),
    ],
)
def test_what_runs_elsewhere(config: EngineConfig, elsewhere: bool) -> None:
    assert config.elsewhere is elsewhere


class Broken(HashEmbedder):
    """Fails as it is told, or never answers."""

    def __init__(self, how: Exception | None) -> None:
        super().__init__()
        self.how = how

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        if self.how is None:
            await asyncio.Event().wait()
        raise self.how or AssertionError


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (EngineError("out of memory"), "out of memory"),
        (KeyError("texts"), "KeyError: 'texts'"),
        (None, "it takes more than 0 s"),
    ],
)
def test_a_probe_that_fails_is_a_warning(
    how: Exception | None,
    told: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "PROBING_S", 0.05)
    with Runtime({"embedding": lambda: Broken(how)}, learn=tmp_path) as runtime:
        assert started(runtime, "embedding") == {}
        assert runtime.runs(["embedding"])
    assert events(caplog) == [("probe_failed", {"engine": "embedding", "error": told})]
    assert [one.levelno for one in caplog.records if one.name == probing.__name__] == [30]


def test_a_runtime_that_closes_ends_a_probe(tmp_path: Path) -> None:
    engine = Broken(None)
    with Runtime({"embedding": lambda: engine}, learn=tmp_path) as runtime:
        starting: Any = runtime.start(runtime.ensure(["embedding"]))
        while not engine.started:
            pass
    assert starting.cancelled() or starting.exception() is not None
    assert engine.closed == 1


def test_what_cannot_be_measured_alone_is_not_probed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Runtime({"vectorstore": MemoryStore}, learn=tmp_path) as runtime:
        assert started(runtime, "documents", "python") == {}
    assert events(caplog) == []
