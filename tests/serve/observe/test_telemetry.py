"""Spans and metrics of a server process, as a real OTLP collector gets them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from teola import App, Runtime, component
from teola.errors import EngineError, InputError, QueryFailed
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.observe.trace import Trace
from teola.serve.board import Board, Entry
from teola.serve.observe.ended_query import EndedQuery
from teola.serve.observe.operations import Maker, operations
from teola.serve.observe.otlp import Pipeline
from teola.serve.observe.telemetry import from_environment
from teola.serve.problems import problem_of
from tests.fake_openai import FakeOpenAI
from tests.schedule.plans import plan, tool
from tests.serve.observe.collector import Collector, ReceivedSpan
from tests.serve.running import running

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
CANARY = "canary-4417"


@dataclass
class Seen:
    """What one server process sent until its end. began, ended: when it was asked."""

    collector: Collector
    logged: str
    began: float
    ended: float
    ids: dict[str, str]

    def spans(self, query: str) -> list[ReceivedSpan]:
        """The root, then its children by start."""
        root = next(s for s in self.collector.spans if _query(s) == self.ids[query])
        children = [s for s in self.collector.spans if s.parent_id == root.span_id]
        return [root, *sorted(children, key=lambda span: span.start)]


def _query(span: ReceivedSpan) -> str | None:
    found: str | None = span.attributes.get("teola.query_id")
    return found


@pytest.fixture(scope="module")
def seen(servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("telemetry")
    with FakeOpenAI("one\ntwo") as llm, Collector() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_SERVICE_NAME": "the-service",
            "OTEL_BSP_SCHEDULE_DELAY": "60000",  # only the flush at the end sends it
        }
        words = ("--llm", llm.url)
        with running(folder, *words, apps="echo,ask", environment=environment) as server:
            began, ids = time.time(), {}
            sampled = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
            unsampled = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-00"}
            ids["ask"] = server.ask("ask", CANARY, **sampled).json()["query_id"]
            ids["root"] = server.ask("echo", CANARY).json()["query_id"]
            failed = server.ask("echo", f"fail {CANARY}")
            ids["failed"] = failed.json()["error"]["query_id"]
            ids["unsampled"] = server.ask("echo", "hello", **unsampled).json()["query_id"]
            ended = time.time()
            assert not collector.spans
            assert server.stop() == 0
            yield Seen(collector, server.log.read_text(), began, ended, ids)


def test_the_resource_is_named_by_its_variable(seen: Seen) -> None:
    assert seen.collector.resource["service.name"] == "the-service"


def test_a_query_continues_its_clients_trace(seen: Seen) -> None:
    root, *children = seen.spans("ask")
    assert (root.trace_id, root.parent_id) == (TRACE_ID, PARENT_ID)
    assert {child.trace_id for child in children} == {TRACE_ID}
    alone = seen.spans("root")[0]
    assert alone.trace_id != TRACE_ID
    assert alone.parent_id == ""


def test_the_root_is_a_workflow_of_the_genai_conventions(seen: Seen) -> None:
    root = seen.spans("ask")[0]
    assert root.name == "invoke_workflow ask"
    assert root.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert root.attributes["gen_ai.workflow.name"] == "ask"
    assert root.attributes["teola.state"] == "ok"
    assert root.attributes["gen_ai.usage.output_tokens"] > 0
    assert root.status == 0


def test_an_llm_call_is_one_span_with_its_tokens(seen: Seen) -> None:
    calls = [s for s in seen.spans("ask")[1:] if "gen_ai.request.max_tokens" in s.attributes]
    assert [call.attributes["teola.component"] for call in calls] == ["expand", "generate"]
    for call in calls:
        operation = call.attributes["gen_ai.operation.name"]
        assert operation in ("chat", "text_completion")
        assert call.name == f"{operation} fake-model"
        assert call.attributes["gen_ai.usage.input_tokens"] > 0
        assert call.attributes["gen_ai.usage.output_tokens"] > 0
        assert call.kind == 3  # client


def test_times_are_the_walls_and_lie_within_the_query(seen: Seen) -> None:
    for query in ("ask", "root", "failed"):
        root, *children = seen.spans(query)
        assert children
        assert seen.began - 0.05 <= root.start <= root.end <= seen.ended + 0.05
        for child in children:
            assert root.start - 1e-6 <= child.start <= child.end <= root.end + 1e-6
    first, second = [
        s for s in seen.spans("ask")[1:] if "gen_ai.request.max_tokens" in s.attributes
    ]
    assert second.start >= first.start


def test_a_failed_query_is_an_error_without_its_text(seen: Seen) -> None:
    root, *children = seen.spans("failed")
    assert root.status == 2
    assert root.attributes["error.type"] == "failed"
    (call,) = [child for child in children if child.attributes.get("teola.op") == "tool_call"]
    assert call.status == 2


def test_what_is_not_sampled_is_not_sent(seen: Seen) -> None:
    assert seen.ids["unsampled"] not in {_query(span) for span in seen.collector.spans}


def test_metrics_are_those_of_the_conventions(seen: Seen) -> None:
    metrics = seen.collector.metrics
    calls = metrics["gen_ai.client.operation.duration"]
    assert sum(c["count"] for c in calls if c.get("gen_ai.request.model") == "fake-model") == 2
    kinds = {point["gen_ai.token.type"] for point in metrics["gen_ai.client.token.usage"]}
    assert kinds == {"input", "output"}
    first = {p["gen_ai.request.model"] for p in metrics["gen_ai.server.time_to_first_token"]}
    assert first == {"ask", "echo"}
    workflows = metrics["gen_ai.workflow.duration"]
    assert sum(p["count"] for p in workflows if p["gen_ai.workflow.name"] == "echo") == 3
    assert [p["count"] for p in workflows if p.get("error.type") == "failed"] == [1]


def test_no_prompt_and_no_answer_is_sent(seen: Seen) -> None:
    assert seen.collector.bodies
    assert all(CANARY.encode() not in body for body in seen.collector.bodies)
    assert CANARY not in seen.logged


# --- a collector that is not there --------------------------------------------------------------


@pytest.mark.server
def test_a_dead_collector_is_said_once_and_harms_nothing(tmp_path: Path) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
    }
    with running(tmp_path, environment=environment) as server:
        until = time.monotonic() + 30
        while time.monotonic() < until and len(server.lines("telemetry_lost")) < 2:
            assert server.ask("echo", "hello").status_code == 200
        assert server.stop() == 0
        lost = server.lines("telemetry_lost")
    assert sorted(line["signal"] for line in lost) == ["metrics", "traces"]
    assert all(line["endpoint"].startswith("http://127.0.0.1:9/") for line in lost)
    assert not [line for line in server.lines() if "opentelemetry" in line.get("logger", "")]


# --- what the variables say ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "teola"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"},
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
        },
    ],
)
def test_it_is_off_where_nothing_asks_for_it(environment: dict[str, str]) -> None:
    with Runtime() as runtime:
        assert from_environment(runtime, environment) is None


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin: there is otlp"),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "only http/protobuf",
        ),
    ],
)
def test_what_is_not_spoken_is_refused(environment: dict[str, str], told: str) -> None:
    with Runtime() as runtime, pytest.raises(InputError, match=told):
        from_environment(runtime, environment)


# --- how a query ended --------------------------------------------------------------------------


@component(outputs="answer")
def say(question: str) -> str:
    return question


def test_what_gave_an_answer_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In spans and in metrics; whatever else ended is one, by its code, and has no first token."""
    app = App("say", say, inputs={"question": "text"}, outputs={"answer": "answer"})
    states = ("ok", "partial", "failed", "cancelled", "deadline")
    errors = {state: state not in ("ok", "partial") for state in states}
    ended = []
    for state in errors:
        entry = Entry(app.job(QuerySpec({"question": "x"})), Board(1).desk.keeping(), "sync")
        entry.first_token_s = 0.25
        failure = QueryFailed("no") if state == "failed" else None
        result = Result("say", entry.id, state, {}, 0.5, error=failure)
        ended.append(EndedQuery(entry, result, 0, None))
    with Collector() as collector, Runtime() as runtime:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        pipeline = Pipeline(runtime, "otlp", "otlp")
        pipeline.tell(ended)
        pipeline.close(10.0)
    codes = {one.result.state: problem_of(one.result).code for one in ended}
    told = {span.attributes["teola.state"]: span for span in collector.spans}
    assert told.keys() == errors.keys()
    for state, error in errors.items():
        assert told[state].status == (2 if error else 0)
        assert told[state].attributes.get("error.type") == (codes[state] if error else None)
        assert told[state].end - told[state].start == pytest.approx(0.5)
    durations = collector.metrics["gen_ai.workflow.duration"]
    expected = Counter(codes[state] if error else None for state, error in errors.items())
    assert {point.get("error.type"): point["count"] for point in durations} == expected
    (first,) = collector.metrics["gen_ai.server.time_to_first_token"]
    assert first["count"] == list(errors.values()).count(False)


# --- operations ---------------------------------------------------------------------------------


def test_every_primitive_is_one_operation(traced: Trace) -> None:
    found = list(operations(traced, lambda engine: Maker(engine, "a-model")))
    kinds = {one.kind for one in found}
    assert {"embeddings", "retrieval", "chat", "reranking", "ingestion", "teola.load"} <= kinds
    heads = [one.attributes["teola.primitive"] for one in found if one.attributes]
    assert len(heads) == len(set(heads))
    ran = {s.primitive for s in traced.spans if s.engine and s.state == "done"}
    calls = {s.primitive for s in traced.spans if "decoding" in s.op}
    assert set(heads) == ran - calls


def test_an_operation_spans_its_slices_and_its_decodings(traced: Trace) -> None:
    assert traced.plan is not None
    for one in operations(traced, lambda engine: Maker(engine)):
        assert 0 <= one.start <= one.end <= traced.latency_s + 1e-6
        if one.kind != "chat":
            continue
        head = str(one.attributes["teola.primitive"])
        members = traced.plan.members[traced.plan.index[head]]
        ends = [s.end for s in traced.spans if s.primitive in {traced.plan.ids[m] for m in members}]
        assert one.end == pytest.approx(max(ends))


@pytest.mark.parametrize("tries", ["d", "f", "fd", "ffd", "ff", "fdd", "dfd"])
def test_an_operation_has_failed_if_its_last_try_has(tries: str) -> None:
    """What another try made good has not; when it was sent first, and where it ran, is told."""
    trace = Trace("q", "app", plan(tool("a")), 10.0)
    for k, way in enumerate(tries):
        trace.sent(0, 0, 1, 10.0 + 2 * k, 11.0 + 2 * k, k % 2, k, 1)
        if way == "d":
            trace.ended(0, 0, 12.0 + 2 * k)
        else:
            trace.failed(0, 0, 12.0 + 2 * k, EngineError("lost"))
    trace.finish("ok", 20.0)
    (found,) = operations(trace, Maker)
    assert found.failed == tries.endswith("f")
    assert (found.start, found.end) == (1.0, 2.0 * len(tries))
    assert found.attributes["teola.instances"] == [0, 1][: len(tries)]
    assert found.attributes["teola.items"] == tries.count("d")


@pytest.mark.server
def test_a_client_cannot_break_the_parent(tmp_path: Path) -> None:
    """Whatever stands in the header, the query is answered and has a trace of its own."""
    with Collector() as collector:
        environment = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}
        with running(tmp_path, environment=environment) as server:
            bad = ("", "00-zz-zz-01", "x" * 4000, f"00-{'0' * 32}-{'0' * 16}-01")
            for header in bad:
                assert server.ask("echo", "hi", traceparent=header).status_code == 200
            assert httpx.get(f"{server.url}/healthz").status_code == 200
            assert server.stop() == 0
    roots = [span for span in collector.spans if span.name == "invoke_workflow echo"]
    assert len(roots) == len(bad)
    assert all(root.parent_id == "" for root in roots)
    assert not collector.metrics
