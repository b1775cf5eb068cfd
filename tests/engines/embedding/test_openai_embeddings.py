"""Embeddings over HTTP, from a real server that answers as OpenAI documents it.

Long because what a server may answer is a test each.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from teola.engine import Chunk, QueryContext, Request
from teola.errors import (
    EngineAway,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    InputError,
    OutputError,
    QueryCancelled,
    UnknownName,
)
from teola.graph.ops import EmbeddingParams, Op
from teola_engines.embedding import OpenAIEmbeddings
from teola_engines.embedding.openai_embeddings import MOST_TEXTS, MOST_TOKENS, read
from teola_engines.openai import probe
from teola_engines.openai.connection import Connection
from teola_engines.openai.wire import BadRequest
from tests.fake_embeddings import FakeEmbeddings, as_base64, vector_of
from tests.fake_openai import Fail, Hang, Seen
from tests.planted import catches, edited

SECRET = "the launch code"


@asynccontextmanager
async def started(server: FakeEmbeddings, **options: Any) -> AsyncIterator[OpenAIEmbeddings]:
    engine = OpenAIEmbeddings(url=server.url, **options)
    try:
        await engine.start()
        server.requests.clear()
        yield engine
    finally:
        await engine.close()


def a_request(*texts: Any, context: QueryContext | None = None) -> Request:
    return Request(
        Op.EMBEDDING,
        EmbeddingParams("document"),
        {"texts": list(texts)},
        context or QueryContext("q"),
        "k",
    )


def unit(text: str, dimensions: int) -> Any:
    vector = np.array(vector_of(text, dimensions), np.float32)
    return vector / np.linalg.norm(vector)


# --- the server of the tests ------------------------------------------------------------------


def test_the_fake_answers_as_documented() -> None:
    with FakeEmbeddings(2) as server:
        asked = {"model": "fake-embedding", "input": ["a b", "a b"]}
        plain = httpx.post(f"{server.url}/embeddings", json=asked)
        packed = httpx.post(f"{server.url}/embeddings", json={**asked, "encoding_format": "base64"})
    vector = vector_of("a b", 2)
    assert plain.headers["content-type"] == "application/json"
    assert json.loads(plain.content) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": vector},
            {"object": "embedding", "index": 1, "embedding": vector},
        ],
        "model": "fake-embedding",
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }
    assert packed.json()["data"][1]["embedding"] == as_base64(vector)
    assert as_base64([1.0, -2.0]) == "AACAPwAAAMA="  # two float32, the lower byte first


# --- what is asked, and what comes of it ------------------------------------------------------


@pytest.mark.parametrize("encoding_format", ["base64", "float"])
@pytest.mark.parametrize("only_floats", [False, True])
async def test_texts_become_unit_vectors(encoding_format: Any, only_floats: bool) -> None:
    with FakeEmbeddings(16, only_floats=only_floats) as server:
        async with started(server, encoding_format=encoding_format) as engine:
            asked = a_request("one text", Chunk("d", 0, "another text", "n"))
            (found,) = await engine.execute([asked])
            assert isinstance(found, dict)
            for vector, text in zip(found["vectors"], ["one text", "another text"], strict=True):
                assert vector.dtype == np.float32
                assert vector == pytest.approx(unit(text, 16), abs=1e-6)
            (seen,) = server.requests
    assert seen.body == {
        "model": "fake-embedding",
        "input": ["one text", "another text"],
        "encoding_format": encoding_format,
    }


async def test_it_tells_what_others_need_to_know() -> None:
    with FakeEmbeddings(12) as server:
        assert OpenAIEmbeddings(url=server.url).dimensions == 0
        async with started(server) as engine:
            assert (engine.dimensions, engine.max_tokens, engine.estimates) == (12, 8192, True)
            assert engine.identity == f"fake-embedding@{server.url}:12"
            assert len(engine.encode("x" * 17)) == len(engine.encode("ä" * 10)) == 5


async def test_a_server_s_own_limit_of_tokens_holds() -> None:
    with FakeEmbeddings() as server:
        server.models = {"data": [{"id": "fake-embedding", "max_model_len": 512}]}
        async with started(server) as engine:
            assert engine.max_tokens == 512
        async with started(server, max_tokens=100) as engine:
            assert engine.max_tokens == 100
        server.models = {"data": [{"id": "other", "max_model_len": 7}, {"id": "fake-embedding"}]}
        async with started(server, model="fake-embedding") as engine:
            assert engine.max_tokens == 8192, "not that of another model"


async def test_shorter_vectors_are_asked_for() -> None:
    with FakeEmbeddings(16) as server:
        async with started(server, dimensions=4) as engine:
            assert engine.dimensions == 4
            await engine.execute([a_request("text")])
            assert server.requests[0].body["dimensions"] == 4


async def test_equal_texts_are_sent_once_and_many_in_several_requests() -> None:
    with FakeEmbeddings() as server:
        async with started(server, max_batch=3) as engine:
            found = await engine.execute([a_request("a", "b", "a"), a_request("b", "c", "d", "")])
            assert server.asked == [["a", "b", "c"], ["d", " "]]
            first, second = (result["vectors"] for result in found)  # type: ignore[index]
            assert (first[0] == first[2]).all()
            assert (first[1] == second[0]).all()
            assert len(second) == 4


async def test_no_request_is_larger_than_the_api_takes() -> None:
    with FakeEmbeddings(context_tokens=10**6) as server:
        async with started(server, max_tokens=10**6) as engine:
            long = ["x" * (MOST_TOKENS * 2), "y" * (MOST_TOKENS * 2), "z"]
            await engine.execute([a_request(*long)])
            assert [len(texts) for texts in server.asked] == [1, 2]


async def test_vectors_are_in_the_order_of_their_indexes() -> None:
    def shuffled(answer: dict[str, Any]) -> object:
        return {**answer, "data": answer["data"][::-1]}

    with FakeEmbeddings(16) as server:
        async with started(server) as engine:
            server.spoil(shuffled)
            (found,) = await engine.execute([a_request("one", "two")])
            assert found["vectors"][0] == pytest.approx(unit("one", 16))  # type: ignore[index]


async def test_what_is_no_request_for_vectors_fails_alone() -> None:
    with FakeEmbeddings() as server:
        async with started(server) as engine:
            bad, good = await engine.execute([a_request("fine", 7), a_request("fine")])
            assert isinstance(bad, EngineError)
            assert isinstance(good, dict)
            assert await engine.execute([a_request(7)]) != []
            assert server.asked == [["fine"]]


async def test_a_text_that_is_too_long_fails_its_request_only() -> None:
    with FakeEmbeddings(context_tokens=20) as server:
        async with started(server) as engine:
            bad, good = await engine.execute([a_request("x" * 200), a_request("fine")])
            assert isinstance(good, dict)
            assert isinstance(bad, EngineError)
            assert "longer than model 'fake-embedding'" in str(bad)
            assert "smaller chunk_size" in str(bad)
            assert not bad.retryable


class Particular(FakeEmbeddings):
    """Refuses requests that hold a bad text, and quotes it; `broken`: each, with what came last."""

    broken = False

    def refusal(self, seen: Seen) -> Fail | None:
        texts = seen.body.get("input", [])
        if self.broken:
            return Fail(500, f"cannot embed {texts[-1]!r}")
        bad = next((text for text in texts if text.startswith("bad")), None)
        return Fail(400, f"cannot embed {bad!r}") if bad else super().refusal(seen)


@catches(
    "bad-for-all",
    "a text that a server does not take fails those of all others",
    edited(OpenAIEmbeddings.execute, "(BadRequest, TooLong)", "TooLong"),
)
@catches(
    "quoted-to-all",
    "what a server says of one tenant's text is told to another",
    edited(OpenAIEmbeddings.execute, 'error.said = ""', "pass"),
)
async def test_a_text_that_is_refused_is_its_own_tenant_s_alone() -> None:
    mine, other = QueryContext("q"), QueryContext("o", tenant="other")
    with Particular() as server:
        async with started(server) as engine:
            good, bad = await engine.execute(
                [a_request("fine", context=mine), a_request("bad one", context=other)]
            )
            assert not isinstance(good, Exception)
            assert isinstance(bad, BadRequest)
            assert bad.said == "cannot embed 'bad one'"
            server.broken = True
            both = await engine.execute(
                [a_request("x", context=mine), a_request("secret", context=other)]
            )
            assert [one.said for one in both if isinstance(one, EngineError)] == ["", ""]


async def test_nobody_is_asked_for_queries_that_have_ended() -> None:
    with FakeEmbeddings() as server:
        async with started(server) as engine:
            context = QueryContext("q")
            context.life.over = True
            with pytest.raises(QueryCancelled):
                await engine.execute([a_request("text", context=context)])
            assert server.asked == []


@pytest.mark.parametrize("late", [0, 1])
async def test_a_batch_has_as_much_time_as_the_query_with_the_most(late: int) -> None:
    now = time.monotonic()
    deadlines = [now + 60.0, now + 60.0]
    deadlines[late] = now - 1.0
    with FakeEmbeddings(4) as server:
        async with started(server) as engine:
            contexts = [QueryContext(f"q{n}", deadline=end) for n, end in enumerate(deadlines)]
            found = await engine.execute([a_request("a", context=one) for one in contexts])
    assert [type(one) for one in found] == [dict, dict]


async def test_cancelling_ends_the_request() -> None:
    with FakeEmbeddings() as server:
        async with started(server) as engine:
            server.script(Hang())
            asked = asyncio.create_task(engine.execute([a_request("text")]))
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 1)
            asked.cancel()
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)
            assert server.requests[-1].disconnected


# --- bad days ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "kind", "retryable", "says"),
    [
        (Fail(400, SECRET, code="bad_thing"), BadRequest, False, r"invalid \(400.*bad_thing"),
        (Fail(401, SECRET), EngineError, False, r"refuses the API key \(401\)"),
        (Fail(404), EngineError, False, r"has no model 'fake-embedding' \(404\)"),
        (Fail(429), EngineBusy, True, r"takes no more calls now \(429\)"),
        (Fail(500, SECRET), EngineError, True, r"failed \(500"),
        (Fail(502, body=b""), EngineAway, True, r"gateway \(502\)"),
        (Hang(), EngineError, True, r"was silent for 0\.5 s"),
    ],
)
async def test_failures_are_told_in_one_line(
    behaviour: Any,
    kind: type[EngineError],
    retryable: bool,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with FakeEmbeddings() as server:
        async with started(server, timeout_s=0.5 if "silent" in says else 60.0) as engine:
            server.script(behaviour)
            (error,) = await engine.execute([a_request(SECRET)])
            assert type(error) is kind
            with pytest.raises(kind, match=says):
                raise error
            assert error.retryable is retryable
            assert "\n" not in str(error)
            assert SECRET not in str(error) + caplog.text
            assert isinstance((await engine.execute([a_request("fine")]))[0], dict)


def entry(embedding: object, index: object = 0) -> dict[str, object]:
    return {"object": "embedding", "index": index, "embedding": embedding}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "2 vectors were asked for"),
        ([entry([1.0])], "2 vectors were asked for"),
        ([entry([1.0]), entry([1.0])], "indexes"),
        ([entry([1.0]), entry([1.0], 2)], "indexes"),
        ([entry([1.0]), entry([1.0], True)], "indexes"),
        ([entry([1.0]), entry([1.0, 2.0], 1)], "different lengths"),
        ([entry([1.0]), entry(["1.0"], 1)], "not a list of numbers"),
        ([entry([1.0]), entry([True], 1)], "not a list of numbers"),
        ([entry([1.0]), entry([None], 1)], "not a list of numbers"),
        ([entry([1.0]), entry([[1.0]], 1)], "not a list of numbers"),
        ([entry([1.0]), entry({"a": 1}, 1)], "not a list of numbers"),
        ([entry([1.0]), entry([], 1)], "empty"),
        ([entry([1.0]), entry("", 1)], "empty"),
        ([entry([1.0]), entry([float("nan")], 1)], "not finite"),
        ([entry([1.0]), entry([float("inf")], 1)], "not finite"),
        ([entry([1.0]), entry([10**400], 1)], "not finite"),
        ([entry([1.0]), entry([-(2**63)], 1)], "not finite"),  # whose size is no number of 64 bits
        ([entry([1.0]), entry(as_base64([float("nan")]), 1)], "not finite"),
        ([entry([1.0]), entry("AACA", 1)], "not base64 of float32"),
        ([entry([1.0]), entry("Ä!?=", 1)], "not base64 of float32"),
    ],
)
async def test_vectors_that_are_none_are_refused(data: list[object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(json.dumps({"data": data}).encode(), 2)
    with FakeEmbeddings(1) as server:
        async with started(server) as engine:
            server.spoil(lambda answer: {**answer, "data": data})
            (error,) = await engine.execute([a_request("a", "b")])
            assert isinstance(error, OutputError)
            assert says in str(error)
            assert "no embeddings" in str(error)


@pytest.mark.parametrize(
    "answer", [b"<html>", b"\xff", b"[]", b"{}", b'{"data": {}}', b'{"data": [1]}', b"[" * 99_999]
)
async def test_answers_that_are_none_are_refused(answer: bytes) -> None:
    with FakeEmbeddings(1) as server:
        async with started(server) as engine:
            server.spoil(lambda _: answer)
            (error,) = await engine.execute([a_request("a")])
            assert isinstance(error, OutputError)


async def test_another_length_than_before_is_refused() -> None:
    with FakeEmbeddings(4) as server:
        async with started(server) as engine:
            server.dimensions = 6
            (error,) = await engine.execute([a_request("a")])
            assert isinstance(error, OutputError)
            assert "a vector of 6 numbers where they had 4" in str(error)


# --- starting ---------------------------------------------------------------------------------


async def test_a_key_is_sent() -> None:
    with FakeEmbeddings(api_key="k1") as server:
        async with started(server, api_key="k1"):
            pass
        with pytest.raises(EngineUnavailable, match="refuses the API key"):
            async with started(server, api_key="other"):
                pass


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda server: server.script(Fail(404)), "has no model"),
        (lambda server: server.script(Fail(500)), "failed"),
        (lambda server: server.script(Fail(400)), "set encoding_format = \"float\" .* 'embedding'"),
        (lambda server: server.spoil(lambda _: b"{}"), "no embeddings"),
        (lambda server: setattr(server, "models", {"data": []}), "lists no model: name one"),
    ],
)
async def test_a_server_that_embeds_nothing_does_not_start(
    spoil: Callable[[FakeEmbeddings], None], says: str
) -> None:
    with FakeEmbeddings() as server:
        spoil(server)
        with pytest.raises(EngineUnavailable, match=says):
            async with started(server):
                pass


async def test_a_refusal_of_numbers_says_nothing_of_base64() -> None:
    with FakeEmbeddings() as server:
        server.script(Fail(400))
        with pytest.raises(EngineUnavailable) as caught:
            async with started(server, encoding_format="float"):
                pass
    assert "encoding_format" not in str(caught.value)


@catches(
    "proxy-for-loopback",
    "a server on this machine is asked by way of a proxy",
    edited(Connection._new_client, "near or not getproxies()", "not getproxies()"),
)
async def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with FakeEmbeddings(4) as server:
        async with started(server) as engine:
            (found,) = await engine.execute([a_request("one text")])
    assert isinstance(found, dict)


async def test_a_server_that_lists_no_models_embeds_with_one_that_is_named() -> None:
    with FakeEmbeddings(4) as server:
        server.models = b"no list"
        async with started(server, model="fake-embedding") as engine:
            assert engine.dimensions == 4


@pytest.mark.parametrize(
    ("model", "retryable", "starts"),
    [
        ("fake-embedding", False, True),
        ("fake-embedding", True, False),
        (None, False, False),
        (None, True, False),
    ],
)
async def test_a_server_that_is_not_there_yet_is_waited_for(
    model: str | None, retryable: bool, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike one that only lists no models."""

    async def fails(client: object, server: str) -> probe.Served:
        raise EngineUnavailable("lists nothing", retryable=retryable)

    monkeypatch.setattr(probe, "probe", fails)
    with FakeEmbeddings(4) as server:
        if starts:
            async with started(server, model=model) as engine:
                assert engine.dimensions == 4
        else:
            with pytest.raises(EngineUnavailable, match="lists nothing") as caught:
                async with started(server, model=model):
                    pass
            assert caught.value.retryable is retryable


def test_as_many_texts_as_the_api_takes_may_be_sent_at_once() -> None:
    for count in (1, MOST_TEXTS):
        engine = OpenAIEmbeddings(url="http://localhost:1/v1", max_batch=count)
        assert engine.spec.max_batch == count
    for count in (0, MOST_TEXTS + 1):
        with pytest.raises(InputError, match=r"max_batch must be within 1\.\.2048"):
            OpenAIEmbeddings(url="http://localhost:1/v1", max_batch=count)


async def test_nobody_there() -> None:
    with FakeEmbeddings() as server:
        url = server.url
    engine = OpenAIEmbeddings(url=url)
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        await engine.start()
    await engine.close()


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"url": "localhost:8000"}, InputError, "url"),
        ({"encoding_format": "int8"}, UnknownName, "encoding_format"),
        ({"max_batch": 4000}, InputError, "max_batch must be within 1..2048"),
        ({"dimensions": 0}, InputError, "dimensions must be at least 1"),
    ],
)
def test_senseless_options_are_refused(
    options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        OpenAIEmbeddings(**{"url": "http://localhost:1/v1", **options})
