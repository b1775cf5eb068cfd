"""Where the time along the real critical path goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.baselines.systems import TEOLA
from experiments.breakdown import figures, live, timed
from experiments.breakdown.path import Parts, parts
from experiments.breakdown.simulated import planning, rows
from experiments.common.command import Options
from experiments.common.simulate import Setting, alone
from experiments.common.testbed import testbed
from experiments.common.workloads import APPS, example
from teola.engine import QueryContext, Request
from teola.graph import Graph, Op, Primitive, Ref, ToolParams
from teola.graph.ops import EmbeddingParams
from teola.runtime.hosts import ray_actor
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Trace
from teola.runtime.sim import SimulatedQuery
from teola.schedule.plan import Plan

pytestmark = pytest.mark.slow

NAMES = ("optimisation", "communication", "queueing", "execution")


def primitive(id: str, *after: str) -> Primitive:
    inputs = tuple((f"i{n}", Ref(name, "out")) for n, name in enumerate(after))
    given = inputs or (("q", Ref("query", "q")),)
    return Primitive(id, Op.TOOL_CALL, id, "x", given, ("out",), ToolParams(str))


def recorded() -> Trace:
    """Documents until 1.0; a and b from 1.2, b in two slices; c after both, at 4.0."""
    graph = Graph(
        "t",
        [primitive("a"), primitive("b"), primitive("c", "a", "b")],
        {"answer": Ref("c", "out")},
        ("q",),
    )
    trace = Trace("q", "t", Plan(graph), admitted=100.0)
    trace.step("load", 100.0, 101.0)
    trace.sent(0, 0, 1, 101.2, 101.2)
    trace.ended(0, 0, 102.0)
    trace.sent(1, 0, 1, 101.2, 101.5)
    trace.ended(1, 0, 102.5)
    trace.sent(1, 1, 2, 101.2, 102.5)
    trace.ended(1, 1, 103.5)
    trace.sent(2, 0, 1, 103.6, 103.8)
    trace.ended(2, 0, 104.8)
    trace.finish("ok", 105.0)
    return trace


def test_the_path_is_followed_backwards_by_hand() -> None:
    """c: 1.0 s, of which 0.9 inside; 0.2 to the end; queued 0.2; 0.1 after b. b's second slice
    waited 1.3 s and took 1.0 s, 0.9 of it inside. 0.2 s before that, 0.05 of it planning."""
    found = parts(recorded(), lambda span: span.end - span.start - 0.1, 0.05)
    assert found.execution == pytest.approx(1.0 + 0.9 + 0.9)
    assert found.queueing == pytest.approx(0.2 + 1.3)
    assert found.optimisation == pytest.approx(0.05)
    assert found.communication == pytest.approx(0.1 + 0.2 + 0.1 + 0.1 + 0.15)
    assert found.total == pytest.approx(recorded().latency_s)


@pytest.mark.parametrize("app", APPS)
def test_parts_of_a_simulated_query_are_its_latency(app: str) -> None:
    found: list[Parts] = []

    def keep(query: Query, result: SimulatedQuery) -> None:
        found.append(parts(query.trace, lambda span: span.end - span.start, 0.0))
        assert found[0].total == pytest.approx(result.latency_s)

    alone(TEOLA, Setting(app, testbed("13b")), example(app), keep)
    assert found[0].communication == pytest.approx(0.0)


@pytest.mark.nightly
def test_little_goes_into_optimisation_and_communication() -> None:
    """At most 1 % and 3 % of the latency in simulation; more load means more queueing."""
    options = Options(True, 40, 0, 1, 1, None, None)  # type: ignore[arg-type]
    one, low, high = rows("advanced-rag", options)
    for row in (one, low, high):
        assert sum(row[name] for name in NAMES) == pytest.approx(1.0, abs=1e-4)
        assert 0 < row["optimisation"] <= 0.01
        assert 0 < row["communication"] <= 0.03
    assert high["queueing"] > low["queueing"]
    plans = [{"app": "advanced-rag", "first_s": 0.01, "cached_s": 2e-6}]
    report = {
        "rows": [one, low, high],
        "planning": plans,
        "machine": {"cpu": "c", "cores": 2, "load_1min": 0.1},
    }
    assert "| advanced-rag | simulated | 80% load |" in figures.section(report, Path("x.svg"))


def test_engines_record_when_they_work(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = timed.TimedMiniLM(str(log), threads=1)
    engine.start()
    try:
        requests = [
            Request(Op.EMBEDDING, EmbeddingParams(), {"texts": ["a b"]}, QueryContext(id), id)
            for id in ("q1", "q2")
        ]
        assert len(engine.execute(requests)) == 2
    finally:
        engine.close()
    (line,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert line[:2] == ["embedding", ["q1", "q2"]]
    found = timed.read(log)
    ((began, ended),) = found["q1", "embedding"]
    assert 0 < ended - began < 30
    assert found["q2", "embedding"] == [(began, ended)]


def test_planning_from_the_cache_takes_next_to_nothing() -> None:
    found = planning("advanced-rag")
    assert 0 < found["cached_s"] < 0.1 * found["first_s"]


@pytest.mark.nightly
@pytest.mark.server
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("ray", [False, True])
def test_real_engines_leave_little_to_optimisation_and_communication(ray: bool) -> None:
    """At most 1 % and 3 %; the machine that runs the tests has other things to do, so Ray's
    processes, which must all be woken, get twice that."""
    found = live.rows(1, live.QUICK_CHARACTERS, ray, lambda: None)
    if ray:
        ray_actor.disconnect()
    assert [row["runtime"] for row in found] == ["Ray actors" if ray else "local"] * 2
    for row in found:
        assert sum(row[name] for name in NAMES) == pytest.approx(1.0, abs=1e-4)
        assert 0 < row["optimisation"] <= 0.01
        assert 0 < row["communication"] <= (0.06 if ray else 0.03)
        assert row["execution"] > 0.3
