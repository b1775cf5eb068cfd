"""What cannot work: an error in less than 30 s that says what to do, and no process left over."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from teola import App, Embedding, Runtime, WebSearch
from teola.errors import EngineUnavailable, QueryFailed
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts import ray_actor
from tests import fake_search
from tests.fake_search import KEY, FakeSearch
from tests.runtime.hosts.elsewhere import Embedder

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
LIMIT_S = 30.0


class Stillborn(Embedder):
    """Its process dies while it starts."""

    def start(self) -> None:
        os._exit(3)


def embedding_app(runtime: Runtime) -> App:
    return App(
        "embed",
        Embedding(),
        inputs={"texts": "texts"},
        outputs={"vectors": "vectors"},
        runtime=runtime,
    )


# --- Ray --------------------------------------------------------------------------------------


@pytest.mark.ray
@pytest.mark.parametrize("address", ["127.0.0.1:9", "no.such.host.invalid:6379", "nonsense"])
def test_an_address_where_no_cluster_is(address: str) -> None:
    began = time.monotonic()
    with pytest.raises(EngineUnavailable, match="start one with `ray start --head`") as caught:
        ray_actor.connect(address)
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < LIMIT_S


SILENT = """
import sys, time
from teola import App, Embedding, Runtime
from teola.errors import EngineUnavailable
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts import ray_actor
from tests.runtime.hosts.elsewhere import Embedder

ray_actor.JOIN_LIMIT_S = 3.0
with Runtime({"embedding": EngineConfig(Embedder, host="ray")}, ray=sys.argv[1]) as runtime:
    try:
        runtime.start(runtime.ensure(["embedding"])).result()
    except EngineUnavailable as error:
        print(error)
"""


@pytest.mark.ray
@pytest.mark.slow
def test_an_address_that_does_not_answer() -> None:
    """Something listens there and says nothing; joining is given up, and the program ends."""
    assert ray_actor.REACH_LIMIT_S + ray_actor.JOIN_LIMIT_S < LIMIT_S
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", SILENT, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert f"no Ray cluster at {address}: what is there did not answer in 3 s" in done.stdout


# --- engines ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_engine_whose_process_dies_at_start() -> None:
    before, began = set(psutil.Process().children()), time.monotonic()
    config = EngineConfig(Stillborn, instances=2, host="process")
    with Runtime({"embedding": config}) as runtime:
        with pytest.raises(EngineUnavailable, match=r"'embedding'.*exit code 3"):
            embedding_app(runtime).run(texts=["a"])
        assert time.monotonic() - began < LIMIT_S
    assert set(psutil.Process().children()) <= before


def test_a_key_that_a_search_service_refuses() -> None:
    with FakeSearch("tavily", []) as service:
        service.script(*[fake_search.TAVILY_BAD_KEY] * 9)
        config = EngineConfig("tavily", {"url": service.url, "api_key": KEY})
        with Runtime({"websearch": config}) as runtime:
            app = App(
                "find",
                WebSearch(inputs={"queries": "question"}),
                inputs={"question": "text"},
                outputs={"hits": "hits"},
                runtime=runtime,
            )
            began = time.monotonic()
            with pytest.raises(QueryFailed, match=r"refuses the API key \(401\): check TAVILY"):
                app.run(question="who keeps the lamp?")
    assert time.monotonic() - began < LIMIT_S
    assert len(service.seen) == 1, "asking again would not help"


# --- nothing is left over -----------------------------------------------------------------------

FORGETFUL = """
import os, signal, sys
import psutil
from teola import App, Embedding, Runtime
from teola.runtime.engines import EngineConfig
from tests.runtime.hosts.elsewhere import Embedder

host, end = sys.argv[1:]
config = EngineConfig(Embedder, instances=2, host=host)
runtime = Runtime({"embedding": config}, ray=host == "ray")
app = App("embed", Embedding(), inputs={"texts": "texts"}, outputs={"vectors": "vectors"},
          runtime=runtime)
found = app.run(texts=[str(i) for i in range(40)]).outputs["vectors"]
engines = {int(vector[0]) for vector in found}
all = {child.pid for child in psutil.Process().children(recursive=True)}
assert engines <= all
print(*(engines if host == "ray" and end == "killed" else all), flush=True)
if end == "error":
    raise SystemExit("it fails")
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "end"),
    [
        ("process", "exit"),
        ("process", "error"),
        ("process", "killed"),
        pytest.param("ray", "exit", marks=pytest.mark.nightly),  # each starts a Ray of its own
        pytest.param("ray", "error", marks=pytest.mark.nightly),
        ("ray", "killed"),
    ],
)
def test_a_program_leaves_no_processes(host: str, end: str) -> None:
    """It forgets to close its runtime, and ends as it should, with an error, or killed. (Of a Ray
    whose program was killed only the engines end at once: its agents take a minute to notice.)"""
    command = [sys.executable, "-c", FORGETFUL, host, end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) >= 2, done.stderr
    assert psutil.wait_procs(list(_running(pids)), timeout=LIMIT_S)[1] == []


def _running(pids: list[int]) -> Any:
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.NoSuchProcess:
            continue
