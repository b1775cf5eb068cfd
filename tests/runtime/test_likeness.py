"""What the instances of one engine must share, told by real servers and processes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from teola.errors import EngineUnavailable
from teola.runtime.engines import EngineConfig
from teola.runtime.likeness import check_alike
from teola.runtime.runtime import Runtime
from teola.testing.hash_engines import HashEmbedder
from tests.fake_embeddings import FakeEmbeddings
from tests.fake_openai import FakeOpenAI
from tests.planted import catches, edited
from tests.runtime.hosts.elsewhere import Embedder
from tests.runtime.pooled import asking, embedding, servers


def refused(config: EngineConfig, name: str = "llm") -> str:
    """Why a pool did not start; nothing of it is left, and it can be tried again."""
    with Runtime({name: config}) as runtime:
        app = embedding(runtime) if name == "embedding" else asking(runtime)
        given: Any = {"texts": ["a"]} if name == "embedding" else {"question": "Why?"}
        for _ in range(2):
            with pytest.raises(EngineUnavailable) as error:
                app.run(given)
            assert not error.value.retryable
        assert not runtime.live.hosts
        return str(error.value)


@catches(
    "pool-unchecked",
    "what instances have to share is not looked at",
    edited(Runtime._start, "if config.pool:", "if False:"),
)
def test_a_server_with_another_model_is_refused_at_start() -> None:
    with FakeOpenAI() as one, FakeOpenAI(model="other") as two:
        host = one.url.removeprefix("http://")
        config = EngineConfig("vllm", pool=[{"url": f"http://me:secret@{host}"}, {"url": two.url}])
        told = refused(config)
        assert told == (
            f"engine 'llm': instance 0 (fake-model at {one.url}) and instance 1 (other at "
            f"{two.url}) have different models ('fake-model' and 'other'): give both the same, "
            "otherwise they are two engines; one model under two names is named in each entry of "
            "the pool, as `model`; models that may answer for each other are declared so, by "
            'alike = "text"'
        )
        assert not one.calls + two.calls


def test_one_model_under_two_names_is_named_in_each_entry() -> None:
    with FakeOpenAI() as one, FakeOpenAI(model="other") as two:
        pool = [{"url": one.url, "model": "fake-model"}, {"url": two.url, "model": "other"}]
        config = EngineConfig("vllm", {"max_sequences": 1}, pool=pool)
        with Runtime({"llm": config}) as runtime:
            asking(runtime).batch([{"question": "a"}, {"question": "b"}])
        assert [call.body["model"] for call in one.calls + two.calls] == ["fake-model", "other"]


class OtherTokens(FakeOpenAI):
    """Has a token more of every text that is not plain."""

    def beside(self, seen: Any) -> object | None:
        found = super().beside(seen)
        if seen.path == "/tokenize" and isinstance(found, dict) and "🦉" in str(seen.body):
            return {**found, "tokens": [*found["tokens"], 7]}
        return found


class OtherTemplate(FakeOpenAI):
    """Ends each prompt with one character more."""

    def beside(self, seen: Any) -> object | None:
        found = super().beside(seen)
        if seen.path == "/tokenize" and isinstance(found, dict) and "messages" in seen.body:
            return {**found, "tokens": [*found["tokens"], ord("!")]}
        return found


class OtherBlocks(FakeOpenAI):
    """Keeps prefixes in blocks of 64."""

    def beside(self, seen: Any) -> object | None:
        found = super().beside(seen)
        return found.replace(b'"32"', b'"64"') if isinstance(found, bytes) else found


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (OtherTokens, "different tokenizers: give both the same, otherwise they are two engines"),
        (OtherTemplate, "different chat templates: give"),
        (OtherBlocks, r"different block sizes \(32 and 64\): give"),
    ],
)
def test_servers_that_read_prompts_differently_are_refused(
    other: type[FakeOpenAI], told: str
) -> None:
    with FakeOpenAI(tokenizes=True) as one, other(tokenizes=True) as two:
        assert re.search(told, refused(servers(one, two)))


def test_servers_that_read_prompts_alike_start() -> None:
    with (
        FakeOpenAI(tokenizes=True) as one,
        FakeOpenAI(tokenizes=True) as two,
        Runtime({"llm": servers(one, two)}) as runtime,
    ):
        assert asking(runtime).run(question="Why?").answer


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dimensions": 16}, r"different lengths of vectors \(8 and 16\)"),
        ({"model": "other"}, r"different models \('fake-embedding' and 'other'\): .* engines$"),
    ],
)
def test_embedders_must_make_vectors_that_can_be_compared(
    options: dict[str, Any], told: str
) -> None:
    with FakeEmbeddings(8) as one, FakeEmbeddings(**{"dimensions": 8, **options}) as two:
        assert re.search(told, refused(servers(one, two, type="openai-embedding"), "embedding"))


def test_embedders_that_are_alike_share_the_texts() -> None:
    with FakeEmbeddings(8) as one, FakeEmbeddings(8) as two:
        config = servers(one, two, type="openai-embedding", max_batch=2, concurrency=1)
        with Runtime({"embedding": config}) as runtime:
            found = embedding(runtime).run(texts=[f"text {i}" for i in range(8)])
        assert len(found.outputs["vectors"]) == 8
        assert all(len(server.asked) > 1 for server in (one, two))


class Named(HashEmbedder):
    def __init__(self, name: str = "embedding", *, identity: str) -> None:
        super().__init__()
        self.identity = identity


async def test_embedders_without_a_models_name_are_told_apart_by_their_identity() -> None:
    def made(*identities: str) -> list[Any]:
        return [Named(identity=identity) for identity in identities]

    await check_alike("embedding", made("a", "a"), named=False)
    with pytest.raises(EngineUnavailable, match=r"different models \('a' and 'b'\)"):
        await check_alike("embedding", made("a", "a", "b"), named=False)


async def test_each_is_compared_with_the_first_that_tells() -> None:
    engines: Any = [Named(identity=identity) for identity in ("", "a", "", "b")]
    with pytest.raises(EngineUnavailable, match=r"instance 1 .* and instance 3 .*different models"):
        await check_alike("embedding", engines, named=False)


async def test_names_of_embedding_models_cannot_be_waved_through() -> None:
    engines: Any = [Named(identity=identity) for identity in ("a", "b")]
    with pytest.raises(EngineUnavailable, match=r"different models \('a' and 'b'\)"):
        await check_alike("embedding", engines, named=True)


def test_what_runs_elsewhere_is_asked_there() -> None:
    """Nobody but the started one knows the length of its vectors."""
    config = EngineConfig(Wide, host="process", pool=[{"width": 4}, {"width": 6}])
    assert re.search(r"different lengths of vectors \(4 and 6\)", refused(config, "embedding"))


class Wide(Embedder):
    dimensions = 0

    def start(self) -> None:
        super().start()
        self.dimensions = self.width
