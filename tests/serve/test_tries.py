"""An instance fails in the middle of an answer: who has read of it hears so, others get another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from experiments.faults.engines import Writer
from teola import App, EngineConfig, Generate, Runtime
from teola.engine import Call, Delta
from teola.errors import EngineUnavailable
from tests.serve.conftest import Served, serving

ASK = "/v1/apps/stumbling/queries"


class Stumbling(Writer):
    """Fails after two tokens of its first try at each prompt."""

    def __init__(self, name: str) -> None:
        super().__init__(name, pause_s=0.0)
        self.seen: set[str] = set()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        prompt, tokens = "".join(part.text for part in call.all_parts), 0
        stumbles = prompt not in self.seen
        self.seen.add(prompt)
        async for delta in super().generate(call):
            if stumbles and tokens == 2:
                raise EngineUnavailable("it stumbled")
            tokens += 1
            yield delta


@pytest.fixture(scope="module")
def stumbling() -> Iterator[Served]:
    app = App(
        "stumbling",
        template=Generate(),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
    )
    with (
        Runtime({"llm": EngineConfig(Stumbling)}) as runtime,
        serving(runtime, {"stumbling": app}) as found,
    ):
        yield found


@pytest.fixture
def client(stumbling: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stumbling.url, timeout=30) as client:
        yield client


def test_whoever_waits_for_the_whole_gets_the_answer_of_another_try(client: httpx.Client) -> None:
    body = {"inputs": {"question": "one"}}
    found = client.post(ASK, json=body).json()
    again = client.post(ASK, json=body).json()
    assert found["state"] == "ok"
    assert found["outputs"] == again["outputs"]
    events = client.get(f"/v1/queries/{found['query_id']}/events").text.split("\n\n")
    told = [event.split("data: ")[1] for event in events if "event: token" in event]
    assert [json.loads(data)["text"] for data in told] == [found["outputs"]["answer"]]


def test_so_does_a_query_in_the_background(client: httpx.Client) -> None:
    body = {"inputs": {"question": "three"}, "mode": "background"}
    where = client.post(ASK, json=body).headers["location"]
    text = client.get(f"{where}/events").text
    assert text.count("event: token") == 1
    found = client.get(where).json()
    assert found["state"] == "ok"
    assert json.dumps(found["result"]["outputs"]["answer"]) in text


def test_whoever_has_read_of_it_is_told_that_it_failed(client: httpx.Client) -> None:
    body = {"inputs": {"question": "two"}, "mode": "stream"}
    text = client.post(ASK, json=body).text
    assert text.count("event: token") == 2
    error = json.loads(text.rstrip().rpartition("data: ")[2])["error"]
    assert "it stumbled" in error["message"]
    assert error["retryable"] is True
