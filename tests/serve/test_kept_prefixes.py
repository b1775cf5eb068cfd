"""What a server tells of prefix caches: what instances keep, what was found, and why calls went
where they went."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from teola.policies.reason import Because
from teola.serve.observe.metrics import _Calls, _Instances
from tests.planted import catches, edited
from tests.serve.conftest import Served, soon
from tests.serve.pairs import QUESTION, ask, asking, paired

CAPACITY = 3200
"""100 blocks of 32 tokens, says the models' server."""


@pytest.fixture
def pair() -> Iterator[Served]:
    with paired() as found:
        yield found


def got(served: Served, path: str) -> Any:
    response = httpx.get(served.url + path, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def llm(served: Served) -> dict[str, Any]:
    (found,) = (one for one in got(served, "/v1/engines")["engines"] if one["name"] == "llm")
    return dict(found)


def metrics(served: Served) -> dict[tuple[str, str], float]:
    """By name, and what its labels say besides the engine."""
    text = httpx.get(f"{served.url}/metrics").text
    return {
        (one.name, " ".join(v for k, v in sorted(one.labels.items()) if k != "engine")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


@catches(
    "found-by-prompt",
    "all of a prompt counts as found",
    edited(_Calls.ended, "placement.usage.cached_tokens", "placement.usage.prompt_tokens"),
)
@catches(
    "assumed-is-told",
    "what is assumed of an instance counts as told by it",
    edited(_Instances._kept, "kept.told", "not kept.told"),
)
def test_metrics_tell_what_instances_keep_and_find(pair: Served) -> None:
    for _ in range(3):
        ask(pair)
    calls = [call for q in got(pair, "/v1/queries")["queries"] for call in told(pair, q)]
    (at,) = {call["instance"] for call in calls}
    found = metrics(pair)
    here, there = str(at), str(1 - at)
    prompt = sum(call["prompt_tokens"] for call in calls)
    hits = sum(call["found_tokens"] for call in calls)
    assert 0 < hits < prompt
    assert found["teola_instance_prompt_tokens_total", here] == prompt
    assert found["teola_instance_found_tokens_total", here] == hits
    assert ("teola_instance_prompt_tokens_total", there) not in found
    assert found["teola_found_tokens_total", "ask"] == hits
    assert found["teola_tokens_total", "ask prompt"] == prompt
    assert found["teola_calls_placed_total", "marginal_cost cost"] == 3
    kept = {i: found["teola_instance_kv_held_tokens", f"{i} assumed"] for i in (here, there)}
    assert kept[there] == 0 < kept[here] <= CAPACITY
    for i in (here, there):
        assert found["teola_instance_kv_capacity_tokens", i] == CAPACITY
        assert found["teola_instance_bound", i] == 0
    assert found["teola_calls_held", ""] == 0
    reasons = {one.value for one in Because}
    labels = [label.split()[-1] for name, label in found if name.startswith("teola_calls_placed")]
    assert set(labels) <= reasons


def told(served: Served, query: dict[str, Any]) -> list[dict[str, Any]]:
    """What the timeline of a query tells of its calls."""
    timeline = got(served, f"/v1/queries/{query['query_id']}/timeline")
    calls: list[dict[str, Any]] = timeline["calls"]
    return calls


def test_engines_tell_what_their_instances_keep_and_what_was_found(pair: Served) -> None:
    before = llm(pair)
    assert before["apps"] == []
    assert [one["kv_held_tokens"] for one in before["instances"]] == [0, 0]
    ids = [ask(pair) for _ in range(2)]
    (first,), (second,) = (told(pair, {"query_id": id}) for id in ids)
    assert first["instance"] == second["instance"]
    assert first["found_tokens"] == 0 < second["found_tokens"]
    found = llm(pair)
    one = found["instances"][first["instance"]]
    assert one["kv_capacity_tokens"] == CAPACITY
    assert one["kv_told"] is False
    assert 0 < one["kv_held_tokens"] <= CAPACITY
    prompt = first["prompt_tokens"] + second["prompt_tokens"]
    hits = {"prompt_tokens": prompt, "found_tokens": second["found_tokens"]}
    assert one["recent_hits"] == hits
    assert found["apps"] == [{"name": "ask", **hits}]
    assert found["held"] == one["bound"] == 0


def test_a_call_tells_why_it_went_where_it_went(pair: Served) -> None:
    ask(pair)
    id = ask(pair)
    (call,) = told(pair, {"query_id": id})
    at = call["instance"]
    assert call["why"].startswith(f"instance {at} of 2: finds ")
    assert "least cost" in call["why"]
    assert f"(instance {1 - at})" in call["why"]
    spans = got(pair, f"/v1/queries/{id}/trace")["spans"]
    assert [span["why"] for span in spans if "why" in span] == [call["why"]]


def test_a_call_that_waits_tells_for_which_instance() -> None:
    """Each instance takes one call at a time."""
    with paired(token_delay_s=0.05, max_sequences=1) as found:
        ids = [ask(found, f"{k} {QUESTION}", mode="background") for k in range(3)]
        waiting: list[dict[str, Any]] = []

        def waits() -> bool:
            for id in ids:
                response = httpx.get(f"{found.url}/v1/queries/{id}/timeline")
                spans = response.json()["spans"] if response.status_code == 200 else []
                waiting[:] = [s for s in spans if s["state"] == "queued" and "why" in s]
                if waiting:
                    return True
            return False

        soon(waits)
        (span,) = waiting
        assert span["why"].startswith(f"instance {span['instance']} of 2: ")
        bound = [one["bound"] for one in llm(found)["instances"]]
        assert sum(bound) <= 1
        for id in ids:
            httpx.delete(f"{found.url}/v1/queries/{id}")


def test_a_call_that_is_held_tells_why_and_for_how_long() -> None:
    """While the other one that has its prompt is computed."""
    with paired("graph_aware", prefill_s_per_token=0.005) as found:
        id = ask(found, app="twice", mode="background")

        def held() -> bool:
            return bool(llm(found)["held"] == 1 and [s for s in spans() if s["state"] == "queued"])

        def spans() -> list[dict[str, Any]]:
            spans: list[dict[str, Any]] = got(found, f"/v1/queries/{id}/timeline")["spans"]
            return spans

        soon(held)
        (span,) = (s for s in spans() if s["state"] == "queued")
        assert span["instance"] == -1
        told = "another call of its program computes what they share"
        assert re.fullmatch(rf"held [\d.]+ m?s: {told}", span["why"]), span["why"]
        assert metrics(found)["teola_calls_held", ""] == 1
        soon(lambda: got(found, f"/v1/queries/{id}")["state"] == "ok")
        reasons = [call["why"] for call in got(found, f"/v1/queries/{id}/timeline")["calls"]]
        assert [told in why for why in reasons] == [False, True]
        assert metrics(found)["teola_call_held_seconds_count", "graph_aware siblings"] == 1


def test_explain_tells_where_calls_went_if_it_runs_them() -> None:
    with paired() as found:
        app = asking()
        app.runtime = found.runtime
        app.run(question=QUESTION)
        explained = app.explain({"question": QUESTION}, analyze=True)
    text = explained.text()
    section = text[text.index("where LLM calls went, and why") :].splitlines()
    (call,) = explained.to_json()["measured"]["calls"]
    assert section[1].startswith(f"   {call['primitive']}: llm {call['instance']}, found ")
    assert section[2].startswith(f"      instance {call['instance']} of 2: finds ")
    assert max(map(len, section)) <= 80
    assert (
        "where LLM calls went"
        not in type(explained)(explained.app, explained.optimised, explained.profile).text()
    )
