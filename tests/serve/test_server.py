"""`teola serve` as a process: started, drained, stopped."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from teola.serve.server import listen
from tests.command_line import CommandLine
from tests.serve.conftest import soon
from tests.serve.process import ready

APP = """
import asyncio
from teola import App, component

@component(outputs="answer")
async def wait(seconds: str) -> str:
    await asyncio.sleep(float(seconds))
    return "waited"

app = App("waiting", template=wait, inputs={"seconds": "text"}, outputs={"answer": "answer"})
"""


BRINGS = """
from teola import App, EngineConfig, Runtime, component
from teola.runtime.python_engine import PythonEngine

@component(outputs="answer", engine="parrot")
async def say(question: str) -> str:
    return question

app = App(
    NAME, template=say, inputs={"question": "text"}, outputs={"answer": "answer"},
    runtime=Runtime({"parrot": EngineConfig(PythonEngine, {"concurrency": CONCURRENCY})}),
)
"""


@contextmanager
def server(
    folder: Path, data_dir: Path, text: str = APP
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its URL, ready."""
    file = folder / "served.py"
    file.write_text(text)
    words = [str(file), "--data-dir", str(data_dir)]
    with ready(words, folder / "stderr.log") as found:
        yield found


def ask(url: str, seconds: float) -> str:
    """The id of a query in the background."""
    body = {"inputs": {"seconds": str(seconds)}, "mode": "background"}
    where = f"{url}/v1/apps/waiting/queries"
    found: str = httpx.post(where, json=body, timeout=60).json()["query_id"]
    return found


def test_sigterm_lets_what_runs_end_and_takes_nothing_more(tmp_path: Path, data_dir: Path) -> None:
    with server(tmp_path, data_dir) as (process, url):
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        id = ask(url, 2)
        with httpx.stream("GET", f"{url}/v1/queries/{id}/events", timeout=30) as followed:
            process.send_signal(signal.SIGTERM)
            soon(lambda: httpx.get(f"{url}/readyz").status_code == 503)
            refused = httpx.post(
                f"{url}/v1/apps/waiting/queries", json={"inputs": {"seconds": "0"}}
            )
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "draining"
            assert "event: done" in "".join(followed.iter_text())
        assert process.wait(20) == 0


def test_a_second_signal_waits_no_longer(tmp_path: Path, data_dir: Path) -> None:
    with server(tmp_path, data_dir) as (process, url):
        ask(url, 60)
        process.send_signal(signal.SIGTERM)
        soon(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def brings(name: str, concurrency: int) -> str:
    """An application that brings an engine along."""
    return BRINGS.replace("NAME", repr(name)).replace("CONCURRENCY", str(concurrency))


def test_engines_that_an_application_brings_along_are_there(tmp_path: Path, data_dir: Path) -> None:
    with server(tmp_path, data_dir, brings("parrot", 1)) as (_, url):
        body = {"inputs": {"question": "hello"}}
        found = httpx.post(f"{url}/v1/apps/parrot/queries", json=body).json()
        assert found["outputs"] == {"answer": "hello"}


def test_two_applications_may_not_mean_different_engines_by_one_name(
    teola: CommandLine, tmp_path: Path
) -> None:
    files = []
    for name, concurrency in (("one", 1), ("two", 2)):
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(brings(name, concurrency))
    told = teola("serve", *files, "--port", "0").refused(2)
    assert "bring different engines called 'parrot'" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope"], "unknown application 'nope'"),
        (["naive-rag", "--port", "70000"], "less than or equal to 65535"),
        (["naive-rag", "--host", "0.0.0.0"], "teola keys create"),
    ],
)
def test_what_cannot_be_served_is_said(teola: CommandLine, words: list[str], told: str) -> None:
    ended = teola("serve", *words)
    assert ended.code == 2
    assert told in ended.err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_is_listened_on_by_each_of_its_names(host: str) -> None:
    if host == "::1":
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    with listen(host, 0) as listener:
        name, port = listener.getsockname()[:2]
        assert name == {"localhost": "127.0.0.1"}.get(host, host)
        socket.create_connection((name, port), timeout=5).close()


def test_a_port_that_is_taken_is_said(teola: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = teola("serve", "naive-rag", "--port", str(taken.getsockname()[1]))
    assert ended.code == 2
    assert "in use" in ended.err
    assert "--port" in ended.err
