"""The tuner of a server: its process, what it makes of what came, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from teola.errors import EngineError, InputError, UnknownName
from teola.policies.asker import Asker
from teola.profile import Profile
from teola.runtime.engines import EngineConfig
from teola.runtime.runtime import Runtime
from teola.runtime.tuning.live_tuning import LiveTuning, check_tuner
from teola.runtime.tuning.tuner_process import TunerProcess
from teola.schedule.events import Tuned
from tests.planted import catches, edited
from tests.policies.unequal import queue
from tests.runtime.tuning.test_search import came, case, two_speeds

POLICIES: tuple[str, dict[str, object], str, dict[str, object]] = (
    "urgency",
    {},
    "workload_balanced",
    {},
)


def config(**more: object) -> EngineConfig:
    made = {"batching": "urgency", "routing": "workload_balanced", **more}
    return EngineConfig("vllm", {"url": "http://127.0.0.1:1/v1"}, **made)  # type: ignore[arg-type]


def test_a_tuner_that_has_nothing_to_tune_is_refused() -> None:
    check_tuner("llm", config(tuner=True))
    check_tuner("llm", config(tuner={"minimise": "missed", "option": "alpha"}))
    with pytest.raises(InputError, match="has an option that can be tuned"):
        check_tuner("llm", config(batching="fifo", routing="round_robin", tuner=True))
    with pytest.raises(UnknownName, match="minimize"):
        check_tuner("llm", config(tuner={"minimize": "mean"}))
    with pytest.raises(UnknownName, match="tunable option 'tau'"):
        check_tuner("llm", config(tuner={"option": "tau"}))
    with pytest.raises(InputError, match="window_s"):
        Runtime({"llm": config(tuner={"window_s": -1})})


class Instead(TunerProcess):
    """Answers at once, or fails."""

    def __init__(self, value: float | None) -> None:
        super().__init__()
        self.value, self.asked = value, 0

    async def tuned(self, case: object, kind: str, option: str, grid: object) -> float:
        self.asked += 1
        if self.value is None:
            raise EngineError("died")
        return self.value


def tuning(process: TunerProcess, posted: list[Tuned]) -> LiveTuning:
    def profile() -> Profile:
        return two_speeds()

    return LiveTuning("llm", POLICIES, {}, process, posted.append, profile, 0.0)


@catches(
    "stuck",
    "after a failure nothing is ever tuned again",
    edited(LiveTuning._tune, "self.tuner.told()", "pass"),
)
def test_a_better_value_is_posted_and_a_failure_changes_nothing() -> None:
    posted: list[Tuned] = []
    for value in (0.3, None):
        process = Instead(value)
        one = tuning(process, posted)
        came(one.tuner, 10, 9.0, 5.0)
        sample = one.tuner.look(100.0)
        assert sample is not None
        asyncio.run(one._tune(sample))
        assert process.asked == 1
        assert not one.tuner.busy
    assert posted == [Tuned("llm", "routing", {"alpha": 0.3})]


@catches(
    "equal-instances",
    "a replay takes all instances for equal ones, whatever was learned of each",
    edited(
        Runtime._profile_by_instance,
        "replace(profile.engines[name], pool=each,",
        "replace(profile.engines[name],",
    ),
)
def test_a_replay_knows_how_fast_each_instance_is() -> None:
    runtime = Runtime({"llm": config(tuner=True)})
    runtime.live.core.queues["llm"] = queue([(0.001, 0.02), (0.003, 0.06)])
    engine = runtime._profile_by_instance("llm").engines["llm"]
    assert [engine.of(i).step.base_s for i in range(engine.instances)] == [0.02, 0.06]


def test_what_its_process_cannot_do_ends_nothing() -> None:
    class Broken(Instead):
        async def tuned(self, case: object, kind: str, option: str, grid: object) -> float:
            raise OSError(24, "too many open files")

    one = tuning(Broken(None), [])
    came(one.tuner, 10, 9.0, 5.0)
    sample = one.tuner.look(100.0)
    assert sample is not None
    asyncio.run(one._tune(sample))
    assert not one.tuner.busy


def test_a_query_that_did_not_end_well_teaches_nothing() -> None:
    one = tuning(Instead(0.0), [])
    one.began("q", Asker(app="x", finish_by=9.0), 1.0)
    assert len(one.tuner.recent) == 1
    one.ended("q", None, False, 2.0)  # type: ignore[arg-type]
    assert len(one.tuner.recent) == 0


@pytest.mark.slow
def test_the_process_finds_what_this_one_would_and_holds_little() -> None:
    async def find() -> tuple[float, int]:
        process = TunerProcess()
        try:
            value = await process.tuned(case(), "routing", "alpha", (0.0, 0.5, 1.0))
            with pytest.raises(EngineError, match="nothing could be tuned"):
                await process.tuned(case(routing="nowhere"), "routing", "alpha", (0.0, 1.0))
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            return value, int(peak.split()[1])
        finally:
            await process.close()

    value, peak_kib = asyncio.run(find())
    assert value == 0.0
    assert peak_kib < 300 * 1024


PARENT = """
import asyncio, sys
from teola.runtime.tuning.tuner_process import TunerProcess

async def main():
    process = TunerProcess()
    await process._running()
    print(process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_process_ends_with_the_server_also_when_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.stdout.close()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    for _ in range(200):
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the process that tunes outlives its server")
