"""Engines in child processes: the same answers, other faults."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

import teola
from teola import App, Generate, Runtime
from teola.engine import Call, QueryContext, Request, TextPart
from teola.errors import EngineError, EngineUnavailable, InputError, QueryFailed, UnknownName
from teola.graph import DecodeParams, EmbeddingParams, Op, Role
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts.server import Recipe
from tests.planted import catches, edited
from tests.runtime.hosts.elsewhere import (
    Embedder,
    Evicting,
    Stack,
    Writer,
    embedding_app,
    engine,
    two,
)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def batch(*texts: str) -> list[Request]:
    context = QueryContext("q", deadline=time.monotonic() + 60)
    return [Request(Op.EMBEDDING, EmbeddingParams(), {"texts": list(texts)}, context, "k")]


def call(*parts: str, prefix: Any = None, **decode: Any) -> Call:
    texts = tuple(TextPart(Role.QUESTION, part) for part in parts)
    return Call(QueryContext("q"), texts, DecodeParams(**decode), prefix)


def vectors(found: Any) -> list[list[float]]:
    (result,) = found
    return result["vectors"]  # type: ignore[no-any-return]


# --- one engine -------------------------------------------------------------------------------


async def test_a_batch_runs_over_there_with_the_same_result() -> None:
    far, near = engine(Embedder), Embedder()
    await far.start()
    try:
        found = vectors(await far.execute(batch("a", "b")))
        assert [v[0] for v in found] == [float(far.pid)] * 2 != [float(os.getpid())] * 2
        assert [v[1:] for v in found] == [v[1:] for v in vectors(near.execute(batch("a", "b")))]
        assert far.spec.max_batch == near.spec.max_batch
    finally:
        await far.close()
    assert not psutil.pid_exists(far._process.pid if far._process else 0)


async def test_errors_come_back_as_they_are() -> None:
    far = engine(Embedder)
    await far.start()
    try:
        (refused,) = await far.execute(batch("refuse"))
        assert isinstance(refused, EngineError)
        assert str(refused) == "it says refuse"
        with pytest.raises(EngineError, match="KeyError: 'crash'"):
            await far.execute(batch("crash"))
        assert len(vectors(await far.execute(batch("fine")))) == 1
    finally:
        await far.close()


async def test_an_engine_that_does_not_start_says_why_and_leaves_no_process() -> None:
    far, before = engine(Embedder, broken=True), set(psutil.Process().children())
    with pytest.raises(EngineUnavailable, match="no weights here: put them there"):
        await far.start()
    assert set(psutil.Process().children()) <= before


async def test_what_stands_in_the_program_itself_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from teola.runtime.engines import EngineConfig\n"
        "from teola.runtime.hosts.process import ProcessEngine\n"
        "from tests.runtime.hosts.elsewhere import Embedder\n"
        "class Mine(Embedder):\n    pass\n"
        "ProcessEngine(EngineConfig(Mine).recipe('mine'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env=environment, check=False
    )
    assert "put it into a module" in done.stderr
    with pytest.raises(InputError, match="cannot run in another process"):
        engine(lambda name: Embedder(name))


@catches(
    "policy-stays-here",
    "another process does not know what this program has registered",
    edited(Recipe.travelling, "sorted(named & found.keys())", "()"),
)
async def test_a_registered_eviction_policy_goes_along() -> None:
    with teola.register("eviction", "stack", Stack):
        far = engine(Evicting, eviction="stack")
    try:
        await far.start()
        assert await far.call("evicts_by") == "Stack"
    finally:
        await far.close()


async def test_an_eviction_policy_of_the_program_itself_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stack, "__module__", "__main__")
    with (
        teola.register("eviction", "stack", Stack),
        pytest.raises(InputError, match="Stack stands in the program itself"),
    ):
        engine(Evicting, eviction="stack")


async def test_a_sequence_is_kept_over_there_until_its_handle_goes() -> None:
    far = engine(Writer)
    await far.start()
    try:
        handle = await far.prefill(call("the beginning"))
        answer = [d.text async for d in far.generate(call(" the end", prefix=handle))]
        assert await far.call("last") == "prefix found"
        del handle
        whole = [d.text async for d in far.generate(call("the beginning", " the end"))]
        assert "".join(answer) == "".join(whole)
        assert await far.call("last") == "prefix missing"
        assert not far._forgotten, "told with the next call"
    finally:
        await far.close()


async def test_closing_a_stream_stops_it_over_there() -> None:
    far = engine(Writer, pause=0.02)
    await far.start()
    try:
        async with aclosing(far.generate(call("go on", max_tokens=500))) as stream:
            await anext(stream)
            assert await far.call("busy") == 1
        async with asyncio.timeout(2):
            while await far.call("busy"):
                await asyncio.sleep(0.01)
    finally:
        await far.close()


async def test_calls_fail_when_the_process_is_killed_and_it_can_be_started_again() -> None:
    far, lost = engine(Embedder, seconds=5.0), []
    await far.start()
    far.on_lost = lost.append
    waiting = asyncio.ensure_future(far.execute(batch("a")))
    await asyncio.sleep(0.1)
    os.kill(far.pid, signal.SIGKILL)
    with pytest.raises(EngineUnavailable, match="was killed by signal 9") as caught:
        await asyncio.wait_for(waiting, 5)
    assert caught.value.retryable
    assert len(lost) == 1
    with pytest.raises(EngineUnavailable):
        await far.execute(batch("a"))
    await far.start()
    await far.ask("ping")
    await far.close()


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import asyncio, os\n"
        "from tests.runtime.hosts.test_process import engine\n"
        "from tests.runtime.hosts.elsewhere import Embedder\n"
        "async def main():\n"
        "    far = engine(Embedder)\n"
        "    await far.start()\n"
        "    print(far.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    child = int(done.stdout)
    limit = time.monotonic() + 5
    while psutil.pid_exists(child) and psutil.Process(child).status() != "zombie":
        assert time.monotonic() < limit, "it outlives its parent"
        time.sleep(0.02)


# --- in a runtime -----------------------------------------------------------------------------


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    flag = str(tmp_path / "died")
    with Runtime({"embedding": two(Embedder, flag=flag, seconds=0.05), "llm": two(Writer)}) as made:
        yield made


def test_work_of_a_process_that_dies_is_done_by_another(runtime: Runtime, tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(24)]
    result = embedding_app(runtime).run(texts=texts, deadline_s=60)
    found = result.outputs["vectors"]
    assert (tmp_path / "died").exists()
    assert [v[1:] for v in found] == [Embedder()._vector(t)[1:] for t in texts]
    assert os.getpid() not in {int(v[0]) for v in found}


def test_a_process_that_died_is_replaced(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "teola.runtime.hosts.supervisor")
    app = embedding_app(runtime)
    app.run(texts=["a"] * 8, deadline_s=60)
    queue = runtime.live.core.queues["embedding"]
    limit = time.monotonic() + 30
    while not all(instance.up for instance in queue.instances):
        assert time.monotonic() < limit, "it was not replaced"
        time.sleep(0.05)
    found = app.run(texts=[str(i) for i in range(40)], deadline_s=60).outputs["vectors"]
    pids = {
        host.engine.pid for (name, _), host in runtime.live.hosts.items() if name == "embedding"
    }  # type: ignore[attr-defined]
    assert {int(v[0]) for v in found} == pids
    assert len(pids) == 2
    told = [(r.event, r.fields["engine"]) for r in caplog.records if "embedding" in str(r.args)]  # type: ignore[attr-defined]
    assert told == [("engine_lost", "embedding"), ("engine_restarted", "embedding")]
    (lost,) = [r for r in caplog.records if r.event == "engine_lost"]  # type: ignore[attr-defined]
    assert lost.getMessage() == (
        f"engine embedding: instance {lost.fields['instance']} is lost (EngineUnavailable); "  # type: ignore[attr-defined]
        "starting another"
    )


def test_a_drained_instance_is_replaced_without_harm(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "died").touch()
    app = embedding_app(runtime)
    app.run(texts=["warm"])
    host = runtime.live.hosts["embedding", 0]
    before = host.engine.pid  # type: ignore[attr-defined]
    job = runtime.start(app.arun(texts=[str(i) for i in range(60)], deadline_s=60))
    runtime.start(runtime.replace("embedding", 0)).result(timeout=60)
    assert len(job.result(timeout=60).outputs["vectors"]) == 60
    assert host.engine.pid != before  # type: ignore[attr-defined]
    assert len(app.run(texts=["x"] * 20).outputs["vectors"]) == 20


def test_an_answer_survives_the_death_of_its_process(tmp_path: Path) -> None:
    flag = str(tmp_path / "died")
    with Runtime({"llm": two(Writer, flag=flag)}) as killed, Runtime({"llm": Writer}) as whole:
        answers = []
        for runtime in (killed, whole):
            app = App(
                "ask",
                Generate(),
                inputs={"question": "text"},
                outputs={"answer": "answer"},
                runtime=runtime,
            )
            answers.append(app.run(question="why does it go on?", deadline_s=60).outputs["answer"])
    assert Path(flag).exists()
    assert answers[0] == answers[1]


def test_one_that_dies_each_time_ends_in_one_clear_failure() -> None:
    config = EngineConfig(Embedder, {"dies": True}, host="process")
    with Runtime({"embedding": config}) as runtime, pytest.raises(QueryFailed, match="embedding"):
        embedding_app(runtime).run(texts=["a"], deadline_s=30)


def test_unknown_hosts_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'process'"):
        EngineConfig(Embedder, host="proces")
