"""What is told of instances, against what their servers say of themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from teola.schedule.events import InstanceDown
from teola.serve.observe.metrics import _Backlog, _Instances
from tests.schedule.refusing import Refusing, Server


def told(collector: Any) -> dict[tuple[str, ...], float]:
    """The value of each name and instance."""
    return {
        (sample.name.removeprefix("teola_"), *sample.labels.values()): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def test_each_instance_is_told_as_it_is() -> None:
    world = Refusing(Server(at_once=2, call_s=5.0, after_s=30.0), Server(call_s=5.0), most=3)
    core = SimpleNamespace(queues={"e": world.queue, "empty": Refusing(Server()).queue})
    now = SimpleNamespace(time=lambda: world.now)
    runtime: Any = SimpleNamespace(loop=now, live=SimpleNamespace(core=core))
    instances = _Instances(runtime)
    first = told(instances)
    assert first["instance_up", "e", "0"] == first["instance_up", "e", "1"] == 1
    assert first["limited_seconds_total", "empty"] == first["calls_held", "empty"] == 0
    assert ("instance_kv_free_tokens", "e", "0") not in first, "nobody has told it yet"
    world.comes(6)
    world.run(until=1.0)
    found = told(instances)
    for i, server in enumerate(world.servers):
        assert found["instance_in_flight", "e", str(i)] == server.running
    assert [server.running for server in world.servers] == [2, 3]
    assert found["instance_refusals_total", "e", "0"] == world.calls[0] - 2
    assert ("instance_refusals_total", "e", "1") not in found or (
        found["instance_refusals_total", "e", "1"] == 0
    )
    for free, shown in ((500, 500), (0, 0), (-7, 0)):
        world.queue.instances[1].free = free
        assert told(instances)["instance_kv_free_tokens", "e", "1"] == shown
    world.queue.down(InstanceDown("e", 1), world.now)
    found = told(instances)
    assert (found["instance_up", "e", "1"], found["instance_in_flight", "e", "1"]) == (0, 0)


def test_work_that_waits_is_told_by_engine() -> None:
    now: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: 7.0))
    loads = {"llm": (3.0, 0.5), "python": (0.0, 0.0)}
    admission = SimpleNamespace(backlog=lambda at: loads if at == 7.0 else {})
    board: Any = SimpleNamespace(admission=admission)
    assert told(_Backlog(now, board)) == {
        ("backlog_seconds", "llm"): 3.0,
        ("expected_wait_seconds", "llm"): 0.5,
        ("backlog_seconds", "python"): 0.0,
        ("expected_wait_seconds", "python"): 0.0,
    }
    board.admission = None
    assert told(_Backlog(now, board)) == {}
