"""Who answers at a URL: what is read of it, and what is said where nobody does."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import openai
import pytest

from teola.errors import EngineUnavailable, InputError
from teola_engines.openai import probe
from teola_engines.openai.connection import Connection
from teola_engines.openai.probe import Listed, Served
from tests.fake_openai import FakeOpenAI

NOT_OURS = "s does not speak the OpenAI API: correct its url, which usually ends in /v1"


@pytest.mark.parametrize(
    ("url", "api", "shown"),
    [
        ("http://h", "http://h/v1", "http://h/v1"),
        ("http://h/", "http://h/v1", "http://h/v1"),
        ("https://h:8/v1/", "https://h:8/v1", "https://h:8/v1"),
        ("http://h/api", "http://h/api", "http://h/api"),
        ("http://u:p@h:8", "http://u:p@h:8/v1", "http://h:8/v1"),
        ("http://u:p@w@h/v1?key=1", "http://u:p@w@h/v1?key=1", "http://h/v1"),
    ],
)
def test_where_an_api_begins_and_what_is_shown_of_it(url: str, api: str, shown: str) -> None:
    assert (probe.api_url(url), probe.shown(probe.api_url(url))) == (api, shown)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://", "http:///v1", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        probe.api_url(url)
    assert str(caught.value) == "an LLM server's url must look like http://host:port/v1"


@pytest.mark.parametrize(
    ("url", "beside"),
    [
        ("http://h", "http://h/metrics"),
        ("http://h/v1/", "http://h/metrics"),
        ("http://h/v1/v1", "http://h/v1/metrics"),
        ("http://h/api", "http://h/api/metrics"),
    ],
)
def test_what_a_server_has_outside_its_api_is_beside_it(url: str, beside: str) -> None:
    assert Connection("llm", url, None, None, 1.0).beside("/metrics") == beside


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "s refuses the API key (401): set its api_key"),
        (403, "s refuses the API key (403): set its api_key"),
        (404, "s has no /models (404): correct its url, which usually ends in /v1"),
        (400, "s does not list its models (400): see its log"),
        (499, "s does not list its models (499): see its log"),
        (500, "s does not list its models (500): see its log"),
        (503, "s does not list its models (503): see its log"),
    ],
)
def test_a_server_that_lists_no_models_says_by_its_status_what_to_do(
    status: int, told: str
) -> None:
    response = httpx.Response(status, request=httpx.Request("GET", "http://h/v1/models"))
    error = probe._unavailable(openai.APIStatusError("no", response=response, body=None), "s")
    assert (str(error), error.retryable) == (told, status >= 500)


async def probed(server: FakeOpenAI) -> Served:
    connection = Connection("llm", server.url, None, None, 30.0)
    await connection.open()
    try:
        return await probe.probe(connection.client, "s")
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("vllm", "dynamo", "owners", "kind"),
    [
        (True, False, ["fake", "vllm"], (True, False)),
        (True, False, ["fake"], (True, False)),
        (False, False, ["fake"], (False, False)),
        (False, False, ["fake", "nvidia"], (False, False)),
        (False, True, ["fake", "nvidia"], (False, True)),
        (False, True, ["fake"], (False, False)),
        (False, False, [], (False, False)),
    ],
)
async def test_a_kind_is_known_by_its_owner_and_what_stands_beside_the_api(
    vllm: bool, dynamo: bool, owners: list[str], kind: tuple[bool, bool]
) -> None:
    with FakeOpenAI(vllm=vllm, dynamo=dynamo) as server:
        server.models = {"data": [{"id": name, "owned_by": name} for name in owners]}
        served = await probed(server)
    assert served == Served(tuple(Listed(name, name) for name in owners), *kind)


@pytest.mark.parametrize(
    "models", [b"<html>", [1], {"data": 5}, {"data": [3]}, {"data": [{}]}, {"models": []}]
)
async def test_what_lists_models_otherwise_is_another_server(models: Any) -> None:
    with FakeOpenAI() as server:
        server.models = models
        with pytest.raises(EngineUnavailable) as caught:
            await probed(server)
    assert (str(caught.value), caught.value.retryable) == (NOT_OURS, False)


async def test_a_server_that_is_silent_is_told_from_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        silent = await probe._silence(url, "s")
    gone = await probe._silence(url, "s")
    assert silent == (
        "s accepts connections and answers nothing within 7 s: it hangs, or still loads its model; "
        "see its log, or restart it"
    )
    assert gone == "s does not answer within 7 s: is it running?"


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://server.test/v1", 80),
        ("https://server.test/v1", 443),
        ("https://server.test:8000/v1", 8000),
    ],
)
async def test_a_silent_server_is_looked_for_at_the_port_of_its_url(
    monkeypatch: pytest.MonkeyPatch, url: str, port: int
) -> None:
    asked = []

    async def refuses(*at: Any) -> None:
        asked.append(at)
        raise ConnectionRefusedError

    monkeypatch.setattr(probe, "connect_tcp", refuses)
    await probe._silence(url, "s")
    assert asked == [("server.test", port)]
