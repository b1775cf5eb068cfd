"""The overhead experiment measures what it says and refuses a run that skipped the work."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from experiments.overhead.__main__ import KEYS, main, measure
from experiments.overhead.case import (
    NODES,
    Case,
    Footprint,
    Gate,
    kib_each,
    per_node_us,
    per_second,
    several,
    timed,
)
from teola.runtime import machine

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_other_systems_are_measured_in_one_run() -> None:
    report = reported("langgraph,haystack")
    assert set(KEYS) <= set(report)
    measured = {key for key in KEYS if report[key] is not None}
    assert measured == {key for key in KEYS if key.startswith(("langgraph_", "haystack_"))}
    for key in measured - {"langgraph_query_kib"}:
        low, high = report["p10_p90"][key]
        assert 0 < low <= report[key] <= high
    assert report["langgraph_query_kib"] > 1
    assert "langgraph" in report["machine"]["packages"]


def reported(sides: str) -> dict[str, Any]:
    few = ["--repetitions", "2", "--waiting", "20"]
    command = [sys.executable, "-m", "experiments.overhead", "--json", *few, "--sides", sides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_our_side_gives_all_its_keys() -> None:
    report = reported("teola")
    ours = {key for key in KEYS if not key.startswith(("langgraph_", "haystack_"))}
    assert {key for key in KEYS if report[key] is not None} == ours
    assert report["teola_query_kib"] > 1
    assert report["waiting"] == 20


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


async def test_of_several_at_once_each_counts_and_is_checked() -> None:
    running, most, wrong = 0, 0, False

    async def run() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 7 if wrong else NODES

    cases = several("x_chain", run, lambda value: value == NODES)
    assert [case.key for case in cases] == ["x_chain_us", "x_chain_2_us", "x_chain_8_us"]
    assert [case.figure(NODES * 8e-6) for case in cases] == pytest.approx([8.0, 4.0, 1.0])
    for case, queries in zip(cases, (1, 2, 8), strict=True):
        most = 0
        await case.once()
        assert most == queries
    wrong = True
    with pytest.raises(AssertionError, match="wrong result"):
        await cases[-1].once()


@pytest.mark.parametrize("kib", [4, 64])
async def test_the_memory_of_a_waiting_query_is_what_it_holds(kib: int) -> None:
    def prepare(queries: int, gate: Gate) -> Any:
        async def run() -> int:
            held = bytes(kib * 1024)
            await gate.wait()
            return len(held)

        return run

    found = await kib_each(Footprint("x", prepare, lambda n: n == kib * 1024), 50)
    assert kib < found < kib + 4
    with pytest.raises(AssertionError, match="wrong result"):
        await kib_each(Footprint("x", prepare, lambda n: False), 2)


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
