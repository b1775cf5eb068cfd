"""The overhead experiment measures what it says and refuses a run that skipped the work."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from experiments.overhead.__main__ import KEYS, main, measure
from experiments.overhead.case import NODES, Case, per_node_us, per_second, timed
from teola.runtime import machine

pytestmark = pytest.mark.slow


def test_other_systems_are_measured_in_one_run() -> None:
    command = [sys.executable, "-m", "experiments.overhead", "--json", "--repetitions", "2"]
    done = subprocess.run(
        [*command, "--sides", "langgraph,haystack"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(KEYS) <= set(report)
    measured = {key for key in KEYS if report[key] is not None}
    assert measured == {"langgraph_chain_us", "langgraph_fanout_us", "haystack_chain_us"}
    for key in measured:
        low, high = report["p10_p90"][key]
        assert 0 < low <= report[key] <= high
    assert "langgraph" in report["machine"]["packages"]


async def test_cases_are_interleaved_after_the_warm_up() -> None:
    calls: list[str] = []

    def case(key: str) -> Case:
        async def once() -> float:
            calls.append(key)
            return float(len(calls))

        return Case(key, once, per_node_us)

    seconds = await measure([case("a"), case("b")], repetitions=3)
    assert calls == ["a", "b"] * (len(calls) // 2)
    assert seconds == {"a": [11.0, 13.0, 15.0], "b": [12.0, 14.0, 16.0]}


async def test_a_wrong_result_is_not_timed() -> None:
    async def skipped() -> int:
        return 0

    with pytest.raises(AssertionError, match="wrong result: 0"):
        await timed(skipped, lambda value: value == NODES)()
    assert await timed(skipped, lambda value: value == 0)() >= 0


def test_units() -> None:
    assert per_node_us(NODES * 2e-6) == pytest.approx(2.0)
    assert per_second(100)(0.5) == pytest.approx(200.0)


def test_an_unknown_side_is_refused_with_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--sides", "langchain"])
    assert refused.value.code == 2
    assert "valid: teola, langgraph, haystack" in capsys.readouterr().err


def test_machine_is_described_for_json() -> None:
    about = json.loads(json.dumps(machine.describe(["pytest", "no-such-package"])))
    assert about["packages"] == {"pytest": pytest.__version__}
    assert about["cores"] >= 1
    assert about["memory_gib"] > 0
    assert about["cpu"]
