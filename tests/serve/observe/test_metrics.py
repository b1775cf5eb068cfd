"""/metrics, as Prometheus reads it."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from teola import App, Ask, Runtime, component
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.objectives import Objective
from teola.runtime.observe.trace import Trace
from teola.serve.board import Board, Entry
from teola.serve.connections import FULL
from teola.serve.observe.metrics import Metrics
from tests.schedule.plans import plan, tool
from tests.serve.conftest import Served, serving, soon

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
    made = [
        grown(client, f"teola_plan_cache_{what}_total", {"app": "echo"}, since)
        for what in ("hits", "misses")
    ]
    assert sum(made) == 3, "each query has a plan; a new one is made when more is known"


@component(outputs="answer")
def say(question: str) -> str:
    return question


def test_an_objective_is_met_by_an_answer_in_time() -> None:
    """A partial one is one; what failed sooner than that is none."""
    app = App("say", say, inputs={"question": "text"}, outputs={"answer": "answer"})
    met = Counter[str]()
    with Runtime() as runtime:
        board = Board(1)
        metrics = Metrics(runtime, {"say": app}, board)
        for state in ("ok", "partial", "failed", "cancelled", "deadline"):
            for latency_s in (0.5, 2.0, 2.5, 9.0):
                entry = Entry(app.job(QuerySpec({"question": "x"})), board.desk.keeping(), "sync")
                trace = entry.job.trace = Trace(entry.id, "say", plan(tool("a")), 0.0)
                trace.objective = Objective(2.0, stated=True)
                trace.finish(state, latency_s)
                entry.result = Result("say", entry.id, state, {}, latency_s)
                metrics.ended(entry)
                met[str(state in ("ok", "partial") and latency_s <= 2.0).lower()] += 1
        samples = [one for family in metrics.registry.collect() for one in family.samples]
    told = {s.labels["met"]: s.value for s in samples if s.name == "teola_objective_total"}
    assert told == met == {"true": 4, "false": 16}
    (ratios,) = (s.value for s in samples if s.name == "teola_objective_ratio_sum")
    assert ratios == pytest.approx(5 * (0.5 + 2.0 + 2.5 + 9.0) / 2.0)


def test_what_runs_now_is_a_gauge(client: httpx.Client, served: Served) -> None:
    where = client.post(ECHO, json={"inputs": {"question": "wait"}, "mode": "background"})
    found = scraped(client)
    assert found["teola_queries_running", ()] == 1
    assert found["teola_instance_in_flight", (("engine", "python"), ("engine_instance", "0"))] == 1
    assert found["teola_instance_up", (("engine", "python"), ("engine_instance", "0"))] == 1
    assert found["teola_queue_depth", (("engine", "python"),)] == 0
    client.delete(where.headers["location"])
    assert scraped(client)["teola_queries_running", ()] == 0


def test_queries_that_wait_for_people_are_a_gauge() -> None:
    app = App("mail", Ask("Send?"), inputs={"question": "text"}, outputs={"answer": "answer"})
    with (
        Runtime() as runtime,
        serving(runtime, {"mail": app}) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        body = {"inputs": {"question": "tides"}, "mode": "sync"}
        id = client.post("/v1/apps/mail/queries", json=body).json()["query_id"]
        found = scraped(client)
        assert (found["teola_queries_waiting", ()], found["teola_queries_running", ()]) == (1, 0)
        client.post(f"/v1/queries/{id}/answers", json={"answer": "yes"})
        soon(lambda: client.get(f"/v1/queries/{id}").json()["state"] == "ok")
        assert scraped(client)["teola_queries_waiting", ()] == 0


@pytest.mark.parametrize(("path", "code"), [("/v1/apps/eco", "not_found")])
def test_refusals_are_counted_by_code(client: httpx.Client, path: str, code: str) -> None:
    since: dict[object, float] = {**scraped(client)}
    client.get(path)
    client.post(ECHO, content="{")
    assert grown(client, "teola_refused_total", {"code": code}, since) == 1
    assert grown(client, "teola_refused_total", {"code": "invalid_input"}, since) == 1


def test_connections_that_find_no_room_are_counted(client: httpx.Client, served: Served) -> None:
    since: dict[object, float] = {**scraped(client)}
    served.runtime.loop.call_soon_threadsafe(served.board.on_refused, FULL)
    assert grown(client, "teola_refused_total", {"code": "overloaded"}, since) == 1


def test_no_question_is_in_a_metric(client: httpx.Client) -> None:
    client.post(ECHO, json={"inputs": {"question": "canary-7731"}})
    assert "canary-7731" not in client.get("/metrics").text


# --- all series ----------------------------------------------------------------------------------


def families(client: httpx.Client) -> dict[str, Metric]:
    """By name, as the parser knows them (a counter's without `_total`)."""
    return {one.name: one for one in text_string_to_metric_families(client.get("/metrics").text)}


def test_every_family_has_help_a_type_and_a_name_by_the_rules(client: httpx.Client) -> None:
    client.post(ECHO, json={"inputs": {"question": "one"}})
    found = families(client)
    assert len(found) > 20
    for name, family in found.items():
        assert family.documentation.strip(), name
        assert family.type in ("counter", "gauge", "histogram"), name
        assert re.fullmatch(r"(teola|process)_[a-z0-9_]+", name), name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb)\b", name), name
        for sample in family.samples:
            assert all(re.fullmatch(r"[a-z_]+", label) for label in sample.labels), name
            assert not {"instance", "job"} & sample.labels.keys(), "Prometheus has these itself"
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample.name
            if family.type == "histogram":
                assert sample.name.removeprefix(name) in ("_bucket", "_count", "_sum", "_created")


def test_the_process_and_its_instances_are_measured(client: httpx.Client) -> None:
    found = scraped(client)
    assert found["process_resident_memory_bytes", ()] > 10e6
    assert found["process_open_fds", ()] > 3
    place = (("engine", "python"), ("engine_instance", "0"))
    assert found["teola_instance_ejections_total", place] == 0
    assert found["teola_instance_restarts_total", place] == 0
    assert found["teola_retries_total", (("engine", "python"),)] == 0
    assert found["teola_draining", ()] == 0
    assert found["teola_build_info", (("version", version("teola")),)] == 1


def test_labels_come_from_the_configuration_and_never_from_clients(client: httpx.Client) -> None:
    client.post(ECHO, json={"inputs": {"question": "one"}})
    client.post(ECHO, json={"inputs": {"question": "fail"}})
    before = {key for key, _ in scraped(client).items()}
    for name in ("canary-1", "canary-2"):
        client.get(f"/v1/{name}")
        client.get(f"/v1/queries/{name}")
        client.post(f"/v1/apps/{name}/queries", json={"inputs": {}})
        client.post(ECHO, json={"inputs": {"question": name, name: 1}, "mode": name})
        client.post(ECHO, json={"inputs": {"question": name}}, headers={"x-tenant": name})
        model = {"model": name, "messages": [{"role": "user", "content": name}], "user": name}
        client.post("/v1/chat/completions", json=model)
        client.request(name.upper(), "/v1/apps")
    after = {key for key, _ in scraped(client).items()}
    assert all(name == "teola_refused_total" for name, _ in after - before)
    assert len(after - before) < 8
    assert "canary" not in client.get("/metrics").text


# --- who else names them -------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[3]
SOMETIMES = {"teola_instance_kv_free_tokens", "teola_journal_up"}
"""Only where an engine tells; only with a journal."""


def known(client: httpx.Client) -> set[str]:
    """Names of all series, and of all families."""
    client.post(ECHO, json={"inputs": {"question": "one"}})
    client.get("/v1/nothing")
    found = families(client)
    names = {sample.name for family in found.values() for sample in family.samples}
    # those with labels that have none yet
    counters = {f"{name}_total" for name, family in found.items() if family.type == "counter"}
    return names | set(found) | SOMETIMES | counters


def test_every_metric_of_the_dashboard_exists(client: httpx.Client) -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(asked) > 20
    named = {name for one in asked for name in re.findall(r"\b(?:teola|process)_\w+", one)}
    assert named <= known(client)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_every_series_is_in_the_manual_and_no_other(client: httpx.Client) -> None:
    manual = (ROOT / "docs" / "operations.md").read_text()
    rows = set(re.findall(r"^\| `((?:teola|process)_\w+)`", manual, re.MULTILINE))
    assert rows <= known(client)
    ours = {name for name in families(client) if name.startswith("teola_")}
    assert ours <= {row.removesuffix("_total") for row in rows}
