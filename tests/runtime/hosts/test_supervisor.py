"""The supervisor, and engines in child processes that are killed or do not start."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from teola import Runtime
from teola.runtime.hosts import supervisor
from teola.runtime.hosts.supervisor import TRIES, Supervisor
from teola.schedule.events import InstanceDown, InstanceUp
from tests.runtime.hosts.elsewhere import Embedder, embedding_app, engine, two

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


async def test_one_that_dies_before_anybody_looks_is_replaced() -> None:
    far, told = engine(Embedder), []
    await far.start()
    dead = far.pid
    far.kill()
    while far.dead is None:
        await asyncio.sleep(0.01)
    watching = Supervisor(told.append)
    watching.watch("one", 0, far)
    async with asyncio.timeout(60):
        while len(told) < 2:
            await asyncio.sleep(0.01)
    assert told == [InstanceDown("one", 0), InstanceUp("one", 0)]
    assert far.pid != dead
    assert await far.ask("ping") is None
    await watching.close()
    await far.close()


async def test_one_that_cannot_be_started_is_tried_on_and_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "teola.runtime.hosts.supervisor")
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    monkeypatch.setattr(supervisor, "MOST_PAUSE_S", 0.1)
    weights = tmp_path / "weights"
    weights.touch()
    far, told = engine(Embedder, weights=str(weights)), []
    await far.start()
    watching = Supervisor(told.append)
    watching.watch("one", 0, far)
    weights.unlink()
    far.kill()
    async with asyncio.timeout(120):
        while len(told) < 2:
            await asyncio.sleep(0.01)
        assert told == [InstanceDown("one", 0), InstanceDown("one", 0, healing=False)]
        weights.touch()
        while len(told) < 3:
            await asyncio.sleep(0.01)
    assert told[2:] == [InstanceUp("one", 0)]
    assert await far.ask("ping") is None
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    assert events.count("engine_down") == 1
    assert events.count("engine_start_failed") >= TRIES
    await watching.close()
    await far.close()


def children(runtime: Runtime) -> dict[int, int]:
    """Process ids of the embedding instances, also of those that are starting."""
    return {
        host.instance: host.engine._process.pid  # type: ignore[attr-defined]
        for (name, _), host in runtime.live.hosts.items()
        if name == "embedding" and host.engine._process is not None  # type: ignore[attr-defined]
    }


def test_work_waits_while_all_instances_are_killed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start is killed before the engine runs, more often than an engine may fail to start."""
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    monkeypatch.setattr(supervisor, "WAITED_FOR_PAUSE_S", 0.1)
    with Runtime({"embedding": two(Embedder)}) as runtime:
        app = embedding_app(runtime)
        app.run(texts=["warm"])
        queue = runtime.live.core.queues["embedding"]
        jobs, killed = [], {0: 0, 1: 0}
        dead: set[int] = set()
        limit = time.monotonic() + 60
        while min(killed.values()) <= TRIES + 1:
            assert time.monotonic() < limit, f"not started so often: {killed}"
            for instance, pid in children(runtime).items():
                if pid not in dead:
                    dead.add(pid)
                    os.kill(pid, signal.SIGKILL)
                    killed[instance] += 1
            if not any(instance.up for instance in queue.instances):
                jobs.append(runtime.start(app.arun(texts=[str(len(jobs))], deadline_s=120)))
            time.sleep(0.005)
        found = [len(job.result(timeout=60).outputs["vectors"]) for job in jobs]
    assert len(found) > TRIES
    assert set(found) == {1}


async def test_one_that_is_killed_for_too_long_is_waited_for_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    monkeypatch.setattr(supervisor, "PATIENCE_S", 0.0)
    far, told = engine(Embedder), []
    await far.start()
    watching = Supervisor(told.append)
    watching.watch("one", 0, far)
    dead = set()
    async with asyncio.timeout(60):
        while len(told) < 2:
            if far._process is not None and far.pid not in dead:
                dead.add(far.pid)
                far.kill()
            await asyncio.sleep(0.001)
        assert told == [InstanceDown("one", 0), InstanceDown("one", 0, healing=False)]
        while len(told) < 3:
            await asyncio.sleep(0.01)
    assert told[2:] == [InstanceUp("one", 0)]
    await watching.close()
    await far.close()


async def test_no_room_for_a_process_is_no_reason_to_stop_trying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    far, told = engine(Embedder), []
    await far.start()
    watching = Supervisor(told.append)
    watching.watch("one", 0, far)
    with monkeypatch.context() as full:
        full.setattr(subprocess, "Popen", Mock(side_effect=OSError(errno.ENOMEM, "no memory")))
        far.kill()
        async with asyncio.timeout(60):
            while subprocess.Popen.call_count < 2:  # type: ignore[attr-defined]
                await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        while len(told) < 2:
            await asyncio.sleep(0.01)
    assert told == [InstanceDown("one", 0), InstanceUp("one", 0)]
    await watching.close()
    await far.close()
