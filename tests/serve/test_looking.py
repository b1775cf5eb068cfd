"""What the page asks for: explanation, timeline and engines, of real queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from teola import App, EngineConfig, Generate, Runtime
from teola.catalogue import load_app
from teola.runtime.optimiser import Optimiser
from teola.runtime.python_engine import PythonEngine
from teola.schedule.plan import NO_PROFILE
from tests.conftest import PAGES
from tests.fake_openai import FakeOpenAI
from tests.serve.conftest import WAIT_S, Served, applications, serving, soon

ECHO = "/v1/apps/echo/queries"
INPUTS = {
    "question": "Who looks after the lamp of the lighthouse?",
    "documents": [{"name": name, "text": text} for name, text in PAGES.items()],
}


@pytest.fixture(scope="module")
def rag(runtime: Runtime) -> Iterator[Served]:
    app = load_app("advanced-rag")
    # Times that are given, so that graphs are the same from the first query on.
    with (
        Runtime(runtime.configs, profile="paper-13b", learn=False) as timed,
        serving(timed, {"advanced-rag": app}) as found,
    ):
        yield found


def got(served: Served, path: str) -> Any:
    response = httpx.get(served.url + path, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


ROOM = "teola_instance_kv_free_tokens{"


def asked(served: Served, **more: Any) -> str:
    path = "/v1/apps/advanced-rag/queries"
    response = httpx.post(served.url + path, json={"inputs": INPUTS, **more}, timeout=120)
    return str(response.json()["query_id"])


def test_the_explanation_is_of_the_plan_that_ran(rag: Served) -> None:
    id = asked(rag)
    found = got(rag, f"/v1/queries/{id}/explanation")
    ran = got(rag, f"/v1/queries/{id}/graph")
    assert found["e_graph"] == ran
    assert "decompose_stages" in found["passes"]
    assert any(one["applied"] and one["reason"] for one in found["rewrites"])
    before = {p["id"] for p in found["p_graph"]["primitives"]}
    after = [p["id"] for p in found["e_graph"]["primitives"]]
    assert before != set(after)
    assert set(found["origins"]) == set(after)
    assert set(found["origins"].values()) <= before
    pieces = [id for id, origin in found["origins"].items() if origin == "expand.decode"]
    assert len(pieces) > 1, found["origins"]


def test_what_was_expected_is_not_what_is_known_today(
    rag: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/v1/queries/{asked(rag)}/explanation"
    before = got(rag, path)
    assert before["critical_path_s"]["e_graph"] > 0
    assert before["grows"] == []
    monkeypatch.setattr(Optimiser, "profile", property(lambda self: NO_PROFILE))
    assert got(rag, path) == before


def test_without_passes_both_graphs_are_the_same(rag: Served) -> None:
    found = got(rag, f"/v1/queries/{asked(rag, passes='none')}/explanation")
    assert found["p_graph"] == found["e_graph"]
    assert found["passes"] == found["rewrites"] == []
    assert all(id == origin for id, origin in found["origins"].items())


def test_the_timeline_says_who_waited_for_whom(rag: Served) -> None:
    id = asked(rag)
    found = got(rag, f"/v1/queries/{id}/timeline")
    spans, path = found["spans"], found["critical_path"]
    assert found["state"] == "ok"
    assert path[0]["start"] == 0
    assert path[-1]["end"] == pytest.approx(found["end_s"])
    assert sum(s["end"] - s["start"] for s in path) == pytest.approx(found["end_s"])
    edges = got(rag, f"/v1/queries/{id}/graph")["edges"]
    pairs = {(edge["from"], edge["to"]) for edge in edges}
    primitives = {span["primitive"] for span in spans} - {"load", "optimise"}
    for span in spans:
        if span["waited_for"] is not None and span["primitive"] in primitives:
            cause = spans[span["waited_for"]]["primitive"]
            assert (cause, span["primitive"]) in pairs or cause in ("load", "optimise")
    assert any(s["waited_for"] is not None for s in spans)


def test_what_runs_is_on_the_timeline_before_it_has_ended(
    served: Served, client: httpx.Client
) -> None:
    told = {"inputs": {"question": "please wait"}, "mode": "background"}
    id = client.post(ECHO, json=told).json()["query_id"]

    def running() -> bool:
        found = client.get(f"/v1/queries/{id}/timeline")
        spans = found.json()["spans"] if found.status_code == 200 else []
        return any(s["state"] == "running" and 0 < s["end"] < WAIT_S for s in spans)

    soon(running)
    engines = {one["name"]: one for one in client.get("/v1/engines").json()["engines"]}
    assert engines["python"]["in_flight"] == 1
    assert engines["python"]["instances"][0]["state"] == "up"
    client.delete(f"/v1/queries/{id}")
    ended = client.get(f"/v1/queries/{id}/timeline").json()
    assert ended["state"] == "cancelled"
    assert [s["state"] for s in ended["spans"] if s["primitive"] == "say.call"] == ["cancelled"]


def test_what_waits_is_on_the_timeline_too() -> None:
    config = EngineConfig(PythonEngine, {"concurrency": 1})
    with Runtime({"python": config}) as runtime, serving(runtime, applications()) as found:
        told = {"inputs": {"question": "please wait"}, "mode": "background"}
        ids = [httpx.post(found.url + ECHO, json=told).json()["query_id"] for _ in range(2)]

        def states(id: str) -> list[str]:
            response = httpx.get(f"{found.url}/v1/queries/{id}/timeline")
            spans = response.json()["spans"] if response.status_code == 200 else []
            return [span["state"] for span in spans if span["primitive"] == "say.call"]

        soon(lambda: sorted(map(states, ids)) == [["queued"], ["running"]])


def test_engines_tell_their_queues_and_recent_batches(rag: Served) -> None:
    asked(rag)
    engines = {one["name"]: one for one in got(rag, "/v1/engines")["engines"]}
    embedding = engines["embedding"]
    assert embedding["queued"] == embedding["in_flight"] == 0
    assert embedding["recent_batches"]
    assert all(b["size"] >= 1 and b["ago_s"] >= 0 for b in embedding["recent_batches"])
    ages = [b["ago_s"] for b in embedding["recent_batches"]]
    assert ages == sorted(ages, reverse=True)
    assert engines["llm"]["instances"][0]["kv_free_tokens"] is None  # this one has none


def test_engines_tell_the_room_in_their_caches() -> None:
    """100 blocks of 32 tokens, of which a quarter is in use, says the model's server."""
    template = Generate(context_required=False)
    app = App("ask", template, inputs={"question": "text"}, outputs={"answer": "answer"})
    with FakeOpenAI("a " * 500, token_delay_s=0.02, tokenizes=True) as model:
        engines = {"llm": EngineConfig("vllm", {"url": model.url})}
        with Runtime(engines) as runtime, serving(runtime, {"ask": app}) as found:
            told = {"inputs": {"question": "Who?"}, "mode": "background"}
            id = httpx.post(f"{found.url}/v1/apps/ask/queries", json=told).json()["query_id"]
            soon(lambda: _free_tokens(found) == 2400)
            metrics = httpx.get(f"{found.url}/metrics").text
            free = [line for line in metrics.splitlines() if line.startswith(ROOM)]
            assert [line.split()[1] for line in free] == ["2400.0"]
            httpx.delete(f"{found.url}/v1/queries/{id}")


def test_unequal_instances_tell_what_they_are_without_secrets() -> None:
    template = Generate(context_required=False)
    app = App("ask", template, inputs={"question": "text"}, outputs={"answer": "answer"})
    with FakeOpenAI() as one, FakeOpenAI() as two:
        secret = one.url.replace("://", "://me:secret@")
        engines = {"llm": EngineConfig("vllm", pool=[{"url": secret}, {"url": two.url}])}
        with Runtime(engines) as runtime, serving(runtime, {"ask": app}) as found:
            httpx.post(f"{found.url}/v1/apps/ask/queries", json={"inputs": {"question": "Who?"}})
            (llm,) = (e for e in got(found, "/v1/engines")["engines"] if e["name"] == "llm")
            assert [(i["instance"], i["about"], i["state"]) for i in llm["instances"]] == [
                (0, f"fake-model at {one.url}", "up"),
                (1, f"fake-model at {two.url}", "up"),
            ]


def _free_tokens(served: Served) -> int | None:
    (llm,) = (one for one in got(served, "/v1/engines")["engines"] if one["name"] == "llm")
    found: int | None = llm["instances"][0]["kv_free_tokens"]
    return found


def test_what_nobody_may_see_does_not_exist(client: httpx.Client) -> None:
    for what in ("explanation", "timeline"):
        response = client.get(f"/v1/queries/0123456789abcdef/{what}")
        assert response.status_code == 404
        assert "no query" in response.json()["error"]["message"]
