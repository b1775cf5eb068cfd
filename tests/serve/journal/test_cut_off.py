"""Calls that were cut off by the death of their server, and the people who take them over."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola import App, component
from tests.serve.conftest import soon
from tests.serve.journal.conftest import Serve
from tests.serve.journal.test_people import answer, done, waiting
from tests.serve.mortal import mortal, place

TAKEN: dict[str, Any] = {
    "a text": "noted",
    "a number": 7.5,
    "another's object": {"ok": True, "id": 3},
    "an object that looks like a result": {"text": "t", "value": 1, "failed": True},
    "nothing": None,
}


def _effects(file: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.usefixtures("servers")
def test_whatever_people_say_that_a_killed_call_gave_is_its_result() -> None:
    with place() as (folder, _):
        effects = folder / "effects"
        effects.touch()
        with mortal(folder, ("posting",), pause_s=600, effects=effects) as server:
            ids = {
                what: server.ask("posting", {"question": what}).json()["query_id"] for what in TAKEN
            }
            soon(lambda: len(_effects(effects)) == len(TAKEN), 60)
            server.end(signal.SIGKILL)
        with (
            mortal(folder, ("posting",), pause_s=600, effects=effects) as server,
            httpx.Client(base_url=server.url, timeout=60) as client,
        ):
            for what, value in TAKEN.items():
                (asked,) = waiting(client, ids[what])["asks"]
                assert "tool 'post' was at work" in asked["question"]
                sent = {"text": f"{what} costs $$1"}
                assert asked["about"] == {"tool": "post", "arguments": sent}
                assert answer(client, ids[what], {"do": "take"}).status_code == 422
                extra = {"do": "repeat", "result": 1}
                assert answer(client, ids[what], extra).status_code == 422
                taken = answer(client, ids[what], {"do": "take", "result": value})
                assert taken.status_code == 200
            found = {what: server.ended(id) for what, id in ids.items()}
        assert len(_effects(effects)) == len(TAKEN), "nothing was posted twice"
    texts = ["noted", "7.5", '{"ok": true, "id": 3}']
    texts += ['{"text": "t", "value": 1, "failed": true}', "null"]
    for query, text in zip(found.values(), texts, strict=True):
        assert query["state"] == "ok", query
        _, step = query["result"]["outputs"]["steps"]
        assert (step["tool"], step["result"], step["failed"]) == ("post", text, False)
        assert text in query["result"]["outputs"]["answer"], "the model was told"


STUCK: list[str] = []


@component(outputs=["words", "total"])
async def counted(question: str, notes: list[str]) -> dict[str, Any]:
    STUCK.append(question)
    await asyncio.sleep(600)
    return {}


@component(outputs="answer", pure=True)
def told(words: Any, total: Any) -> str:
    return f"{words} {total}"


@component(outputs="notes", pure=True)
def notes(question: str) -> list[str]:
    return [question * 3_000] * 100


COUNTING = App(
    "counting",
    notes >> counted >> told,
    inputs={"question": "text"},
    outputs={"answer": "answer"},
)


def test_what_does_not_fit_a_component_is_refused_and_it_can_be_asked_again(serve: Serve) -> None:
    """The server that is told does not run the query."""
    STUCK.clear()
    apps = {COUNTING.name: COUNTING}
    with serve(apps) as (_, client):
        body = {"inputs": {"question": "tides"}, "mode": "background"}
        id = client.post("/v1/apps/counting/queries", json=body).json()["query_id"]
        soon(lambda: STUCK == ["tides"])
    with serve(apps) as (_, client), serve({}) as (_, other):
        (asked,) = waiting(client, id)["asks"]
        inputs = asked["about"]["inputs"]
        assert inputs["question"] == "tides"
        assert inputs["notes"][0].startswith("tidestides")
        assert inputs["notes"][0].endswith("[cut: 15,000 characters]")
        assert len(str(inputs)) < 25_000
        for wrong in ("noted", 7, None, {"words": 1}, {"words": 1, "total": 2, "more": 3}):
            refused = answer(other, id, {"do": "take", "result": wrong})
            assert refused.status_code == 422, refused.text
        assert waiting(client, id)["asks"] == [asked]
        result = {"words": ["a", "b"], "total": 2}
        assert answer(other, id, {"do": "take", "result": result}).status_code == 200
        assert done(client, id)["result"]["outputs"]["answer"] == "['a', 'b'] 2"
    assert STUCK == ["tides"]
