"""/metrics, as Prometheus reads it."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.serve.conftest import Served

ECHO = "/v1/apps/echo/queries"
Labels = dict[str, str]


def scraped(client: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Name and labels -> value."""
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def grown(before: httpx.Client, name: str, labels: Labels, since: dict[object, float]) -> float:
    key = (name, tuple(sorted(labels.items())))
    return scraped(before)[key] - since.get(key, 0.0)


def test_queries_are_counted_by_application_and_end(client: httpx.Client) -> None:
    since: dict[object, float] = {**scraped(client)}
    for question in ("one", "two", "fail"):
        client.post(ECHO, json={"inputs": {"question": question}})
    for state, count in (("ok", 2), ("failed", 1)):
        labels = {"app": "echo", "state": state}
        assert grown(client, "teola_query_seconds_count", labels, since) == count
    tokens = {"app": "echo", "state": "ok"}
    assert grown(client, "teola_query_first_token_seconds_count", tokens, since) == 2
    place = {"engine": "python", "op": "tool_call"}
    for name in ("wait_seconds", "execution_seconds", "batch_size"):
        assert grown(client, f"teola_primitive_{name}_count", place, since) == 3
    assert grown(client, "teola_plan_cache_hits_total", {"app": "echo"}, since) >= 2


def test_what_runs_now_is_a_gauge(client: httpx.Client, served: Served) -> None:
    where = client.post(ECHO, json={"inputs": {"question": "wait"}, "mode": "background"})
    found = scraped(client)
    assert found["teola_queries_running", ()] == 1
    assert found["teola_instance_in_flight", (("engine", "python"), ("instance", "0"))] == 1
    assert found["teola_instance_up", (("engine", "python"), ("instance", "0"))] == 1
    assert found["teola_queue_depth", (("engine", "python"),)] == 0
    client.delete(where.headers["location"])
    assert scraped(client)["teola_queries_running", ()] == 0


@pytest.mark.parametrize(("path", "code"), [("/v1/apps/eco", "not_found")])
def test_refusals_are_counted_by_code(client: httpx.Client, path: str, code: str) -> None:
    since: dict[object, float] = {**scraped(client)}
    client.get(path)
    client.post(ECHO, content="{")
    assert grown(client, "teola_refused_total", {"code": code}, since) == 1
    assert grown(client, "teola_refused_total", {"code": "invalid_input"}, since) == 1


def test_no_question_is_in_a_metric(client: httpx.Client) -> None:
    client.post(ECHO, json={"inputs": {"question": "canary-7731"}})
    assert "canary-7731" not in client.get("/metrics").text
