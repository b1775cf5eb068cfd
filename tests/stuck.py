"""What stands still must not keep a build from ending, and must tell where it stood.

A test that outlives its own limit (a loop that swallows its cancellation) ends its process after
`--stuck` seconds, which first writes where its threads stand into a file in the folder `--stands`.
The worker's controller adds that to the test's failure. `standing` asks the processes that write
there while they run. A plugin of pytest: `-p tests.stuck`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

STANDS: Final = pytest.StashKey[int]()
FRAMES: Final = 24
"""Of the thread in which tests run, the innermost that are told."""
FRAMES_BESIDE: Final = 4
"""Of each other thread."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stuck")
    group.addoption("--stuck", type=float, metavar="SECONDS", help="a test's process ends then")
    group.addoption("--stands", metavar="FOLDER", help="where processes write where they stand")


def pytest_configure(config: pytest.Config) -> None:
    if (folder := config.getoption("--stands")) is None:
        return
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    path = Path(folder, f"{worker}-{os.getpid()}")
    file = config.stash[STANDS] = os.open(path, os.O_CREAT | os.O_WRONLY)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
    if worker == "main":
        config.pluginmanager.register(Controller(Path(folder)))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (file := config.stash.get(STANDS, None)) is not None:
        faulthandler.unregister(signal.SIGUSR1)
        os.close(file)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    file = item.config.stash.get(STANDS, None)
    limit = item.config.getoption("--stuck")
    if file is None or limit is None:
        return (yield)
    faulthandler.dump_traceback_later(limit, exit=True, file=file)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


class Controller:
    """Of workers, or of no one: keeps a list of what runs, and tells of a dead worker's last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running[nodeid] = time.time()
        self._write()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.running.pop(nodeid, None)
        self._write()

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        self.running.pop(crashitem, None)
        self._write()
        worker = report.node.gateway.id
        for file in self.folder.glob(f"{worker}-*"):
            report.longrepr = f"{report.longrepr}\n{innermost(file.read_text())}".rstrip()

    def _write(self) -> None:
        (self.folder / "running").write_text(json.dumps(self.running))


def running(folder: Path) -> dict[str, float]:
    """Tests that have begun and not ended, and when they began (seconds of the epoch)."""
    file = folder / "running"
    return json.loads(file.read_text() or "{}") if file.exists() else {}


def standing(folder: Path) -> str:
    """Where the processes stand that write to this folder, if they still run."""
    asked = {}
    for file in sorted(folder.glob("*-*")):
        pid = int(file.name.rpartition("-")[2])
        asked[file] = file.stat().st_size
        try:
            os.kill(pid, signal.SIGUSR1)
        except ProcessLookupError:
            del asked[file]
    time.sleep(1)
    told = []
    for file, before in asked.items():
        with file.open() as text:
            text.seek(before)
            told.append(f"{file.name}:\n{innermost(text.read())}")
    return "\n".join(told)


def innermost(text: str) -> str:
    """Of what faulthandler writes: the thread in which tests run, which is the last one, after a
    little of each other one."""
    threads = re.split(r"\n(?=Thread |Current thread )", text.strip())
    shown = [FRAMES_BESIDE] * (len(threads) - 1) + [FRAMES]
    lines = (thread.splitlines() for thread in threads)
    return "\n".join("\n".join(line[: n + 1]) for n, line in zip(shown, lines, strict=True))
